// SPDX-License-Identifier: BSD-3-Clause
// The script of an actor of the explorer for barriers, and its properties: no rank leaves a barrier before all have
// entered it, and each rank receives the flags that its peers give in that barrier.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "epochs/protocols/barrier.hpp"
#include "tests/epochs/explorer.hpp"

namespace farside::explore {

using epochs::ControlBlock;

class BarrierProgram {
  using Barrier = epochs::Barrier<Memory>;

 public:
  struct Shared {
    std::uint8_t entered[kRanks] = {};  // number of barriers
  };

  BarrierProgram() = default;
  BarrierProgram(int ranks, std::uint64_t barriers) : barriers_(barriers), ranks_(ranks) {}

  bool over() const { return left_ == barriers_; }
  bool begins() const { return !running_; }

  void step(Memory& memory, Shared& shared) {
    if (!running_) {
      const std::uint64_t count = ++shared.entered[memory.rank()];
      running_.begin<Barrier>(memory, memory.rank(), ranks_, count, said(memory.rank(), count),
                              said(memory.rank(), count - 1));
    }
    auto& barrier = running_.get<Barrier>();
    if (!barrier.advance()) return;
    ++left_;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (shared.entered[rank] < left_) memory.broken("a rank leaves a barrier that another has not entered");
    }
    for (int round = 0; round < barrier.rounds(); ++round) {
      if (barrier.heard(round) != said(barrier.peer(round), left_))
        memory.broken("a rank hears what its peer has not said in this barrier");
    }
    running_.end();
    memory.retire_operations();
  }
  void effect(const Request&, Memory&, Shared&) {}

  std::uint64_t hash(std::uint64_t seed) const { return running_.hash(mix(seed, left_)); }
  static bool own_word(std::uint32_t word) {
    return word >= ControlBlock::kBarrier && word < ControlBlock::barrier_word(ControlBlock::kBarrierRounds);
  }
  static void check_end(const World& world, const Shared& shared, std::string& failure) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::uint64_t entered = shared.entered[rank];
      for (int round = 0; round < static_cast<int>(ControlBlock::kBarrierRounds); ++round) {
        const std::uint64_t arrived = world.at(rank, ControlBlock::barrier_word(round));
        if (arrived != 0 && epochs::BarrierWord::count(arrived) != entered)
          failure = "in the end a round has another count than the barriers";
      }
    }
  }

  std::string describe_position() const {
    return over() ? ""
                  : std::string(" (") + (running_ ? "in" : "begins") + " barrier " +
                        std::to_string(left_ + 1) + ")";
  }
  std::string describe(int actor) const {
    return "then actor " + std::to_string(actor) + (over() ? " is done" : " is at" + describe_position());
  }

 private:
  // Differs between peers and between successive barriers.
  static std::uint8_t said(int rank, std::uint64_t barrier) {
    return static_cast<std::uint8_t>((static_cast<unsigned>(rank) * 5 + barrier * 3) % 16);
  }

  std::uint64_t left_ = 0;
  std::uint64_t barriers_ = 0;
  int ranks_ = 0;
  Running<Barrier> running_;
};
static_assert(std::has_unique_object_representations_v<BarrierProgram::Shared>);

inline Report explore_barriers(int ranks, std::uint64_t barriers, const Options& options) {
  return Explorer<BarrierProgram>(
             std::vector<BarrierProgram>(static_cast<std::size_t>(ranks), {ranks, barriers}), options)
      .run();
}

}  // namespace farside::explore

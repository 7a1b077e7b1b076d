// SPDX-License-Identifier: BSD-3-Clause
// The script of an actor of the explorer for barriers, and its properties: no rank leaves a barrier before all have
// entered it, and each rank receives the flags that its peers give in that barrier. If the first write of each rank
// carries data, as a fence between two ranks does, a rank that leaves finds the data of all others where it may look.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "epochs/protocols/barrier.hpp"
#include "tests/unit/epochs/explorer.hpp"

namespace farside::explore {

using epochs::ControlBlock;

class BarrierProgram {
  using Barrier = epochs::Barrier<Memory>;

 public:
  struct Shared {
    std::uint8_t entered[kRanks] = {};  // number of barriers
  };

  BarrierProgram() = default;
  BarrierProgram(const epochs::BarrierSchedule& schedule, int ranks, std::uint64_t barriers, bool carries)
      : schedule_(&schedule), barriers_(barriers), ranks_(ranks), carries_(carries) {}

  bool over() const { return left_ == barriers_; }
  bool begins() const { return !running_; }

  void step(Memory& memory, Shared& shared) {
    if (!running_) {
      const std::uint64_t count = ++shared.entered[memory.rank()];
      const std::uint64_t word =
          epochs::BarrierWord::make(count, flags(memory.rank(), count), flags(memory.rank(), count - 1));
      if (carries_) {
        Memory::Operation put;
        memory.notify_write(put, carried_to(memory.rank()), data_word(memory.rank()), count, DataAccess::kGoesOn);
      }
      running_.begin<Barrier>(memory, *schedule_, word, 0U);
    }
    auto& barrier = running_.get<Barrier>();
    if (!barrier.advance()) return;
    ++left_;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (shared.entered[rank] < left_) memory.broken("a rank leaves a barrier that another has not entered");
    }
    for (int writer = 0; carries_ && writer < ranks_; ++writer) {
      if (writer != memory.rank() && memory.memory_state().at(carried_to(writer), data_word(writer)) < left_)
        memory.broken("a rank leaves a barrier before the data of another have arrived");
    }
    for (std::size_t i = 0; i < barrier.steps().size(); ++i) {
      const int from = barrier.steps()[i].from;
      if (from >= 0 && barrier.received_flags(i) != flags(from, left_))
        memory.broken("a rank hears what its peer has not said in this barrier");
    }
    running_.end();
    memory.retire_operations();
  }
  void effect(const Request&, Memory&, Shared&) {}

  std::uint64_t hash(std::uint64_t seed) const { return running_.hash(mix(seed, left_)); }
  static bool own_word(std::uint32_t word) {
    return word >= ControlBlock::kBarrier && word <= ControlBlock::kBarrierRelease;
  }
  static void check_end(const MemoryState& memory_state, const Shared& shared, std::string& failure) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::uint64_t entered = shared.entered[rank];
      for (std::uint32_t word = ControlBlock::kBarrier; word <= ControlBlock::kBarrierRelease; word += 8) {
        const std::uint64_t arrived = memory_state.at(rank, word);
        if (arrived != 0 && epochs::BarrierWord::count(arrived) != entered)
          failure = "in the end a word has another count than the barriers";
      }
    }
  }

  std::string describe_position() const {
    return over() ? ""
                  : std::string(" (") + (running_ ? "in" : "begins") + " barrier " + std::to_string(left_ + 1) + ")";
  }
  std::string describe(int actor) const {
    return "then actor " + std::to_string(actor) + (over() ? " is done" : " is at" + describe_position());
  }

 private:
  // In a flat schedule.
  int carried_to(int rank) const { return (rank + 1) % ranks_; }
  static std::uint32_t data_word(int writer) { return kData + 8U * static_cast<std::uint32_t>(writer); }
  // Differs between peers and between successive barriers.
  static std::uint8_t flags(int rank, std::uint64_t barrier) {
    return static_cast<std::uint8_t>((static_cast<unsigned>(rank) * 5 + barrier * 3) % 16);
  }

  const epochs::BarrierSchedule* schedule_ = nullptr;
  std::uint64_t left_ = 0;
  std::uint64_t barriers_ = 0;
  int ranks_ = 0;
  bool carries_ = false;
  Running<Barrier> running_;
};
static_assert(std::has_unique_object_representations_v<BarrierProgram::Shared>);

// One schedule per rank.
using Schedules = std::vector<epochs::BarrierSchedule>;

inline Schedules flat_schedules(int ranks) {
  Schedules schedules;
  for (int rank = 0; rank < ranks; ++rank) schedules.push_back(epochs::BarrierSchedule::flat(rank, ranks));
  return schedules;
}

// `nodes`: the ranks of each node.
inline Schedules schedules_by_nodes(const std::vector<std::vector<int>>& nodes) {
  std::vector<int> leaders;
  std::size_t ranks = 0;
  for (const std::vector<int>& node : nodes) {
    leaders.push_back(node.front());
    ranks += node.size();
  }
  Schedules schedules(ranks);
  for (const std::vector<int>& node : nodes) {
    for (std::size_t i = 0; i < node.size(); ++i)
      schedules[static_cast<std::size_t>(node[i])] = epochs::BarrierSchedule::by_nodes(node, i, leaders);
  }
  return schedules;
}

inline Report explore_barriers(const Schedules& schedules, std::uint64_t barriers, const Options& options,
                               bool carry = false) {
  std::vector<BarrierProgram> programs;
  for (const epochs::BarrierSchedule& schedule : schedules)
    programs.emplace_back(schedule, static_cast<int>(schedules.size()), barriers, carry);
  return Explorer<BarrierProgram>(programs, options).run();
}

}  // namespace farside::explore

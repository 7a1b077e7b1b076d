// SPDX-License-Identifier: BSD-3-Clause
// The barrier of fence and free: dissemination over control words. In round k rank r notifies rank r + 2^k and waits
// for the notification of rank r - 2^k: ceil(log2(ranks)) rounds of one remote write each. The words count barriers
// and only grow, so a peer that is one barrier ahead can be told apart.
//
// The word also carries the assertions of the call, so that ranks whose calls do not match notice without a further
// message. Each rank hears from ceil(log2(ranks)) others:
//
//    63          8 7        4 3    0
//   |    count    |  before  | said |
//
//   count   barriers that the writer has entered, including this one
//   said    flags of this barrier (BarrierWord)
//   before  flags of the preceding barrier, for a reader that is still in that one
//
// The object is not thread-safe, and no call waits. A failed write ends the barrier: failed_operation() returns it.
#pragma once

#include <array>
#include <cstdint>

#include "epochs/protocols/control_block.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

struct BarrierWord {
  static constexpr std::uint8_t kNoPrecede = 1;  // likewise the others: the assertion was given to MPI_Win_fence
  static constexpr std::uint8_t kNoSucceed = 2;
  static constexpr std::uint8_t kNoPut = 4;
  static constexpr std::uint8_t kFree = 8;  // the call is MPI_Win_free

  static constexpr std::uint64_t make(std::uint64_t count, std::uint8_t said, std::uint8_t before) {
    return count << 8 | static_cast<std::uint64_t>(before) << 4 | said;
  }
  static constexpr std::uint64_t count(std::uint64_t word) { return word >> 8; }
  static constexpr std::uint8_t said_now(std::uint64_t word) { return word & 15; }
  static constexpr std::uint8_t said_before(std::uint64_t word) { return word >> 4 & 15; }
  // The flags of barrier `count`, given the word of a writer that is in that barrier or one ahead.
  static constexpr std::uint8_t said(std::uint64_t word, std::uint64_t count) {
    return BarrierWord::count(word) == count ? said_now(word) : said_before(word);
  }
};

template <RemoteMemory M>
class Barrier {
 public:
  // `count`: barriers that this rank has entered in this window, including this one. `said`: flags of this barrier.
  // `before`: flags of the preceding barrier.
  Barrier(M& memory, int rank, int ranks, std::uint64_t count, std::uint8_t said = 0, std::uint8_t before = 0)
      : Barrier(memory, rank, ranks, Word{BarrierWord::make(count, said, before)}) {}
  // The same, given the word to be written. Peers may have it already: writing it again changes nothing.
  struct Word {
    std::uint64_t value;
  };
  Barrier(M& memory, int rank, int ranks, Word word) : memory_(memory), rank_(rank), ranks_(ranks), word_(word.value) {}

  bool advance() {
    while (round_ < rounds()) {
      if (!notified_) {
        if (!operation_.done()) return false;
        const auto peer = static_cast<int>((rank_ + (std::int64_t{1} << round_)) % ranks_);
        memory_.write(operation_, peer, ControlBlock::barrier_word(round_), word_);
        notified_ = true;
      }
      const std::uint64_t word = memory_.own(ControlBlock::barrier_word(round_));
      const std::uint64_t count = BarrierWord::count(word_);
      if (BarrierWord::count(word) < count) return false;
      heard_[static_cast<std::size_t>(round_)] = BarrierWord::said(word, count);
      notified_ = false;
      ++round_;
    }
    return operation_.done();
  }
  // The peers of each round, and, after the barrier, their flags.
  int rounds() const {
    int rounds = 0;
    while ((std::int64_t{1} << rounds) < ranks_) ++rounds;
    return rounds;
  }
  int peer(int round) const {
    const std::int64_t distance = std::int64_t{1} << round;
    return static_cast<int>((rank_ + ranks_ - distance) % ranks_);
  }
  std::uint8_t heard(int round) const { return heard_[static_cast<std::size_t>(round)]; }
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }

 private:
  M& memory_;
  typename M::Operation operation_;
  std::int64_t rank_;
  std::int64_t ranks_;
  std::uint64_t word_;
  std::array<std::uint8_t, ControlBlock::kBarrierRounds> heard_{};
  int round_ = 0;
  bool notified_ = false;
};

}  // namespace farside::epochs

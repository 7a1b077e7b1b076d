// SPDX-License-Identifier: BSD-3-Clause
// The barrier of fence and free: dissemination over control words. In round k rank r tells rank r + 2^k that it has
// arrived, and waits to hear from rank r - 2^k: ceil(log2(ranks)) rounds of one remote atomic each. The words count
// barriers and only grow, so a peer that is one barrier ahead is told apart.
#pragma once

#include <cstdint>

#include "epochs/control_block.hpp"
#include "transport/remote_memory.hpp"

namespace farside::epochs {

template <RemoteMemory M>
class Barrier {
 public:
  // `count`: how many barriers this rank has entered in this window, with this one.
  Barrier(M& memory, int rank, int ranks, std::uint64_t count)
      : memory_(memory), rank_(rank), ranks_(ranks), count_(count) {}

  bool advance() {
    while ((std::int64_t{1} << round_) < ranks_) {
      if (!told_) {
        if (!operation_.done()) return false;
        const auto peer = static_cast<int>((rank_ + (std::int64_t{1} << round_)) % ranks_);
        memory_.fetch_add(operation_, peer, ControlBlock::barrier_word(round_), 1);
        told_ = true;
      }
      if (memory_.own(ControlBlock::barrier_word(round_)) < count_) return false;
      told_ = false;
      ++round_;
    }
    return operation_.done();
  }
  typename M::Operation* failed_operation() { return operation_.failed() ? &operation_ : nullptr; }

 private:
  M& memory_;
  typename M::Operation operation_;
  std::int64_t rank_;
  std::int64_t ranks_;
  std::uint64_t count_;
  int round_ = 0;
  bool told_ = false;
};

}  // namespace farside::epochs

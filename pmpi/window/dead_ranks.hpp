// SPDX-License-Identifier: BSD-3-Clause
// Finds the ranks of a window whose processes have ended, for waits in which no operation of this rank would fail: a
// rank that sleeps in the queue of a lock. For ranks of this node it asks the kernel. A rank of another node has ended
// if two looks in a row have found that it refuses connections, or if a read of a control word has failed.
//
// Thread safety: any thread. Cost of a look: 10 us per rank of the node, and one read each for at most kMostReads other
// ranks, the next ones with each look, to which it connects.
#pragma once

#include <list>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "transport/space/control_memory.hpp"
#include "transport/space/space.hpp"

namespace farside::pmpi {

class DeadRanks {
 public:
  struct Rank {
    int rank;
    std::string how;  // in parentheses
  };

  DeadRanks(Space& space, ControlMemory& control) : space_(space), control_(control) {}

  // Looks once, first of all at the rank `awaited`, and returns the ranks that have ended.
  std::vector<Rank> look(int awaited);

 private:
  static constexpr std::size_t kMostReads = 256;
  struct Read {
    explicit Read(int of) : rank(of) {}
    int rank;
    ControlMemory::Operation operation;
  };
  void look_over_fabric(int rank, std::vector<Rank>& dead);

  Space& space_;
  ControlMemory& control_;
  std::mutex mutex_;
  std::list<Read> reads_;   // in flight
  std::set<int> suspects_;  // the ranks that could not be reached at the last look
  int next_ = 0;            // the rank to be looked at next
};

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// Locks that ranks have died with (epochs/lock.md, Failures). A lock is lost if a rank of the window has ended, no
// living rank is known to hold the lock alone, and nobody has departed from it between two looks.
//
// A wait for a lock finds no dead rank by its own operations: it sleeps in a queue. So it looks for them. For ranks of
// this node it asks the kernel. A rank of another node has ended if two looks in a row have found that it refuses
// connections, or if a read of a control word has failed.
//
// Thread safety: any thread. Cost of a look: 10 us per rank of the node, and one read each for at most kMostReads other
// ranks, the next ones with each look, to which it connects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "epochs/protocols/lock_table.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/space/control_memory.hpp"

namespace farside::pmpi {

struct WindowState;

class LostLocks {
 public:
  explicit LostLocks(WindowState& window) : window_(window) {}

  // What a wait for a lock has seen when it last looked.
  struct Look {
    LongWait::Clock::time_point next;
    std::vector<std::optional<std::uint64_t>> seen = {};
  };
  // Returns the error of the wait if the lock is lost. Behind a living rank that waits for the lock with a near lock,
  // this is that rank's to find: it may be able to do without the global lock.
  std::optional<Error> find(const epochs::AwaitedLock& lock, Look& look);
  // Returns that error, which later attempts get immediately; or success, if the lock can be acquired without the
  // global lock now.
  Status declare(const epochs::AwaitedLock& lock, epochs::LockType type, const Error& why);
  // `rank`: that of the lock, or -1 for a lock_all.
  Status check(int rank, epochs::LockType type);

 private:
  static constexpr std::size_t kMostReads = 256;
  struct Lost {
    epochs::AwaitedLock lock;
    epochs::LockType by;  // the lock that waited for it
    Error why;
  };
  struct Read {
    explicit Read(int of) : rank(of) {}
    int rank;
    ControlMemory::Operation operation;
  };
  struct Dead {
    int rank;
    std::string how;  // in parentheses
  };
  // Looks once, first of all at the rank `awaited`.
  std::vector<Dead> look_for_dead(int awaited);
  void look_over_fabric(int rank, std::vector<Dead>& dead);
  // Whether one of these ranks is ahead of this one in the queue of a near lock.
  bool is_behind(const std::vector<Dead>& ahead) const;

  WindowState& window_;
  std::vector<Lost> lost_;  // guarded by the window's guard
  std::mutex mutex_;        // guards the following members
  std::list<Read> reads_;   // in flight
  std::set<int> suspects_;  // the ranks that could not be reached at the last look
  int next_ = 0;            // the rank to be looked at next
};

}  // namespace farside::pmpi

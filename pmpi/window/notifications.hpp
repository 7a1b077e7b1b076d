// SPDX-License-Identifier: BSD-3-Clause
// Notified access of a window: an operation that tells its target (the MPI Forum's proposal, mpi-issues 59, and waits).
// Each rank attaches counters. A notified operation increments one of its target after it has accessed the data there,
// in the same crossing of the network. A window of the runtime has none.
//
//   mapped   loads and stores, then a CPU atomic
//   cma      the operation, which is complete, then a CPU atomic
//   fabric   one message with the data, if they are small, or behind RDMA; in the domain nic an atomic of the adapter,
//            behind the write, for which no process at the target must run
//
// How many counters a target has is read once, over the fabric in a round trip. Thread safety: that of WindowState;
// set_count() excludes all other calls. Errors: the MPI error class in the Fault.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>

#include <mpi.h>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/notification.hpp"
#include "pmpi/window/active_target.hpp"
#include "pmpi/window/window_state.hpp"

namespace farside::pmpi {

// Allocated by the first set_count(): 2 KiB, and 48 bytes per target that this rank notifies over the fabric.
struct NotificationCounters {
  std::array<epochs::NotificationCounter, epochs::ControlBlock::kNotificationCounters> own;
  std::uint32_t interruptions = 0;  // ControlMemory::interruptions() at the last set_count()
  std::mutex mutex;                 // guards the next member
  std::map<int, std::uint32_t> attached;
};

class Notifications {
  using ControlBlock = epochs::ControlBlock;

 public:
  explicit Notifications(WindowState& window) : window_(window) {}

  // Precedes a notified operation: fails unless the target has the counter.
  Status begin(int rank, int counter, std::uint32_t& last_interruption);
  // Follows it.
  Status notify(int rank, int counter, std::uint32_t last_interruption);
  // The same where the operation has loaded or stored: begin() is a condition. False: begin() decides.
  bool has_mapped(int rank, int counter) const {
    const ControlWords::Mapped block = window_.space->words().mapped(rank);
    return block && static_cast<std::uint32_t>(counter) < ControlWord::look(block.word(attached_word()));
  }
  void notify_mapped(int rank, int counter) {
    window_.space->mapped_route().Route::count(rank, Counted::kNotified, 0);
    window_.control.notify_now(rank, word(counter), 1);
    this_thread.stores.drained_by_atomic();
  }

  // Collective: attaches so many counters, in place of the earlier ones, that are 0. A wrong number is an error of that
  // rank alone, which keeps its number.
  Status set_count(int count);
  Status count(int rank, int* count);
  // Of the own counters.
  Status value(int counter, MPI_Count* value);
  Status reset(int counter, MPI_Count* value);
  Status test(int counter, MPI_Count threshold, int* flag);
  // Waits for the threshold; at most for FARSIDE_PEER_TIMEOUT, if the connection to a rank of the window was lost since
  // set_count(), and a notification perhaps with it.
  Status wait(int counter, MPI_Count threshold);
  // Spins for about 8 us. False: wait() decides.
  bool try_wait(int counter, MPI_Count threshold) const;

 private:
  std::uint32_t attached_word() const { return ControlBlock::attached_word(window_.space->ranks()); }
  std::uint32_t word(int counter) const { return ControlBlock::notified_word(window_.space->ranks(), counter); }
  MPI_Count now(int counter) const {
    const auto& own = window_.notification_counters->own[static_cast<std::size_t>(counter)];
    return static_cast<MPI_Count>(own.value(window_.control, word(counter)));
  }
  bool has(int counter) const {
    return window_.notification_counters != nullptr &&
           static_cast<std::uint32_t>(counter) < window_.control.own(attached_word());
  }
  Status check(int counter) const;
  // How many counters the rank has attached.
  Result<std::uint32_t> attached(int rank);

  WindowState& window_;
};

inline bool Notifications::try_wait(int counter, MPI_Count threshold) const {
  if (!window_.notifies_fast() || !has(counter)) return false;
  // Longer than wait() moves the runtime at a time. Else two ranks that answer each other would go on to miss the
  // answers, which took 7 us instead of 0.4, once one of them was late.
  for (int looks = 8 * Timing::kSpins; now(counter) < threshold; --looks) {
    if (looks == 0) return false;
    relax();
  }
  WindowState::progress_runtime();
  return true;
}

}  // namespace farside::pmpi

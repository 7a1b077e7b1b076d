// SPDX-License-Identifier: BSD-3-Clause
// The calls of a window outside the fast path, with what wraps them: copies of GPU memory, window statistics
// (FARSIDE_STATS, FARSIDE_TRACE) and FARSIDE_CHECK=strict. The parts of the window, which carry out the calls, know
// nothing of these.
//
// Thread safety: that of WindowState.
#pragma once

#include <cstdint>
#include <optional>

#include <mpi.h>

#include "pmpi/window/active_target.hpp"
#include "pmpi/window/operations.hpp"
#include "pmpi/window/passive_target.hpp"
#include "pmpi/window/window_state.hpp"

namespace farside::pmpi {

class Calls {
 public:
  explicit Calls(WindowState& window) : window_(window) {}

  // An operation of which the constructor has set the arguments.
  Outcome operate(Operation& operation);
  // The program has completed a request. `watched`: the number of its operation in FARSIDE_CHECK=strict, or 0.
  Outcome request_completed(std::uint64_t watched);

  Outcome fence(int assert);
  Outcome post(MPI_Group group, int assert);
  Outcome start(MPI_Group group, int assert);
  Outcome complete();
  Outcome wait();
  Outcome test(int* flag);
  Outcome lock(int lock_type, int rank, int assert);
  Outcome unlock(int rank);
  Outcome lock_all(int assert);
  Outcome unlock_all();
  Outcome wait_notified(int counter, MPI_Count threshold);
  // Local completion is completion at the target, but for FARSIDE_CHECK=strict, which distinguishes them.
  Outcome flush(int rank) { return flush_target(rank, false); }
  Outcome flush_local(int rank) { return flush_target(rank, true); }
  Outcome flush_all() { return flush_targets(false); }
  Outcome flush_local_all() { return flush_targets(true); }

 private:
  ActiveTarget active() { return ActiveTarget(window_); }
  PassiveTarget passive() { return PassiveTarget(window_); }
  Outcome flush_target(int rank, bool locally);
  Outcome flush_targets(bool locally);
  // Executes an operation whose local buffers are in the memory of a GPU; nothing if none is.
  std::optional<Outcome> stage(Operation& operation);
  Outcome execute(const Operation& operation);
  Outcome execute_strictly(const Operation& operation);

  WindowState& window_;
};

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// The calls of a window outside the fast path, and what wraps them: copies of GPU memory (staged_calls.cpp) over window
// statistics (FARSIDE_STATS, FARSIDE_TRACE) over FARSIDE_CHECK=strict (strict_calls.hpp). The parts of the window,
// which carry out the calls, know nothing of these.
//
// Thread safety: that of WindowState.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <mpi.h>

#include "pmpi/observe/window_statistics.hpp"
#include "pmpi/window/operations.hpp"
#include "pmpi/window/window_state.hpp"

namespace farside::pmpi {

class StrictCalls;

// Local completion is completion at the target, but for FARSIDE_CHECK=strict, which distinguishes them.
enum class Completion : std::uint8_t { kAtTarget, kLocal };

class Calls {
 public:
  // `statistics`, `strict`: null without them.
  Calls(WindowState& window, std::unique_ptr<WindowStatistics> statistics, std::unique_ptr<StrictCalls> strict);
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls();

  Outcome put(const LocalBuffer& origin, const RemoteBuffer& target) { return transfer(origin, target, true); }
  Outcome get(const LocalBuffer& origin, const RemoteBuffer& target) { return transfer(origin, target, false); }
  // `result` null: plain accumulate. MPI_NO_OP ignores the origin.
  Outcome accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target, MPI_Op op);
  Outcome fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement, MPI_Op op);
  Outcome compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                           MPI_Aint displacement);
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
  Outcome flush(int rank) { return flush_target(rank, Completion::kAtTarget); }
  Outcome flush_local(int rank) { return flush_target(rank, Completion::kLocal); }
  Outcome flush_all() { return flush_targets(Completion::kAtTarget); }
  Outcome flush_local_all() { return flush_targets(Completion::kLocal); }
  Outcome sync();

  WindowStatistics* statistics() { return statistics_.get(); }

 private:
  Outcome transfer(const LocalBuffer& origin, const RemoteBuffer& target, bool put);
  Outcome flush_target(int rank, Completion completion);
  Outcome flush_targets(Completion completion);
  // `valid`: the result of the check of the operation.
  Outcome execute(Outcome valid, const CheckedOperation& operation);
  // Executes a call and, if the window has statistics and the call succeeds, counts it by `enter`.
  template <class Call, class Enter, class... Args>
  Outcome counted(Call&& call, Enter enter, Args... arguments);
  // Executes an operation whose local buffers are in the memory of a GPU; nothing if none is.
  std::optional<Outcome> stage(const CheckedOperation& operation);
  Outcome execute_on_host(const CheckedOperation& operation);

  WindowState& window_;
  const std::unique_ptr<StrictCalls> strict_;
  const std::unique_ptr<WindowStatistics> statistics_;
};

}  // namespace farside::pmpi

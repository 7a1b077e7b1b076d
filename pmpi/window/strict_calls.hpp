// SPDX-License-Identifier: BSD-3-Clause
// The calls of a window with FARSIDE_CHECK=strict: each operation is watched, and each call that completes operations
// looks at them before it notifies other ranks, if the rules allow the call. A copy of the epoch state says whether
// they do, so the parts of the window know nothing of this. Thread safety: that of WindowState.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "pmpi/check/strict.hpp"
#include "pmpi/window/calls.hpp"

namespace farside::pmpi {

class StrictCalls {
 public:
  // `logs`: the memory of the logs (LogSpace).
  StrictCalls(WindowState& window, std::unique_ptr<Space> logs)
      : window_(window), strict_(*window.space, std::move(logs)) {}

  Outcome execute(const CheckedOperation& operation);
  Outcome request_completed(std::uint64_t watched) { return strict_.request_completed(watched); }
  Outcome fence(int assert);
  Outcome complete();
  Outcome wait();
  Outcome test(int* flag);
  Outcome unlock(int rank, epochs::HeldLock& released);
  Outcome unlock_all();
  Outcome flush(int rank, Completion completion);
  Outcome flush_all(Completion completion);
  // Keeps memory that an operation has used as a local buffer: it is compared with what it was until the epoch ends.
  void keep(std::shared_ptr<const void> buffer) { strict_.keep(std::move(buffer)); }

 private:
  epochs::EpochState epoch();
  bool holds_alone(int rank);
  epochs::Exposure exposure();
  bool is_rank(int rank) const { return rank >= 0 && rank < window_.space->ranks(); }
  template <class Call>
  Outcome end_exposure(Call&& call);
  Outcome check_not_exposed(int rank);

  WindowState& window_;
  Strict strict_;
};

}  // namespace farside::pmpi

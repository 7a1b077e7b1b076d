// SPDX-License-Identifier: BSD-3-Clause
// The reasons of waits in calls on a window, for the reports of FARSIDE_HANG (transport/base/waiter.hpp). A call
// has a CallReason, and a wait in it whose cause the window knows more closely a wait_reason(). Thread safety: a reason
// belongs to its thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pmpi/window/window_state.hpp"
#include "transport/base/waiter.hpp"

namespace farside::pmpi {

// "rank 3", "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more". Precondition: there are some.
std::string names(std::span<const int> ranks);

// The sentences. The functions read words of other ranks, and may take half a second for each rank that does not answer
// over the fabric. The first message to a rank also waits for its connection.
class WaitReports {
 public:
  explicit WaitReports(WindowState& window) : window_(window) {}

  // "rank 1 has waited 60 s in MPI_Win_lock" and what it waits for: the result of a function below.
  std::string report_wait(const char* call, std::chrono::seconds waited, const std::string& awaited) const;

  // Operations that are not acknowledged. `target`: that of the call, where it has one.
  std::string awaited_by_operations(int target);
  // An operation with a request.
  std::string awaited_by_request(const char* call, int target) {
    return awaited(fmt::format("for rank {} to acknowledge its {}", target, call), {&target, 1});
  }
  std::string awaited_lock(int target, epochs::LockType type);
  // `next`: the rank whose lock is acquired now, in a window without a global lock.
  std::string awaited_lock_all(int next);
  // `peer`, `word`: as Barrier::awaits() and BarrierWord.
  std::string awaited_in_barrier(int peer, std::uint64_t word);
  std::string awaited_posts(std::span<const int> missing) {
    if (missing.empty()) return awaited("for posts");
    return awaited(fmt::format("for the MPI_Win_post of {}", names(missing)), missing);
  }
  std::string awaited_completes();
  std::string awaited_notifications(int counter, std::int64_t now, std::int64_t threshold) {
    return awaited(fmt::format("for notification counter {}, which is {}, to reach {}", counter, now, threshold));
  }

  // Control words of ranks; those that cannot be read within a short time have no value.
  struct WordOf {
    int rank;
    std::uint32_t word;
  };
  std::vector<std::optional<std::uint64_t>> read_words(std::span<const WordOf> words);
  // The exclusive locks that are held now, of one target or, if it is negative, of all.
  std::vector<int> exclusive_holders(int target);

 private:
  // `what` is awaited, of `ranks`. The sentence says of ranks that do not respond what is known of them.
  std::string awaited(const std::string& what, std::span<const int> ranks = {}) {
    return what + on_window() + describe_failure(ranks);
  }
  std::string on_window() const {
    const auto held = window_.guard();
    return fmt::format(" (window '{}')", window_.describe_name());
  }
  std::string describe_failure(int rank);
  std::string describe_failure(std::span<const int> ranks);
  // The locks in the way of a waiting one, with a leading word.
  std::string behind_holders(int target, epochs::LockType type);

  WindowState& window_;
};

// Waits for operations to be acknowledged, where no closer reason is known.
class CallReason final : public LongWait::Reason {
 public:
  CallReason(WindowState& window, const MpiCall& call) : window_(window), call_(call) {}
  std::string text(std::chrono::seconds waited) const override {
    WaitReports reports(window_);
    return reports.report_wait(call_.name, waited, reports.awaited_by_operations(call_.target));
  }
  const char* call() const override { return call_.name; }
  int target() const override { return call_.target; }

 private:
  WindowState& window_;
  const MpiCall& call_;
};

// The reason of a wait, which describe(WaitReports&) gives more closely.
template <class Describe>
auto wait_reason(WindowState& window, Describe describe) {
  return ReasonOf([&window, describe](std::chrono::seconds waited) {
    WaitReports reports(window);
    return reports.report_wait(LongWait::innermost()->call(), waited, describe(reports));
  });
}

}  // namespace farside::pmpi

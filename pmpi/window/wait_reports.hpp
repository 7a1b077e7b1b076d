// SPDX-License-Identifier: BSD-3-Clause
// What a thread waits for in a call on a window, for the reports of FARSIDE_HANG (transport/base/waiter.hpp). A call
// has a CallReason, and a wait in it whose cause the window knows more closely a WaitReason. Thread safety: a reason
// belongs to its thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pmpi/window/window_state.hpp"
#include "transport/base/waiter.hpp"

namespace farside::pmpi {

// The texts. The awaited_ functions read words of other ranks. They may take half a second for each rank that does not
// answer over the fabric. The first message to a rank also waits for its connection.
class WaitReports {
 public:
  // `what` says what a call waits for, and completes "has waited in MPI_Win_lock". `more` says what is known of the
  // ranks concerned, and begins with a space, comma or semicolon.
  struct Awaited {
    std::string what;
    std::string more;
  };

  explicit WaitReports(WindowState& window) : window_(window) {}

  std::string report_wait(const char* call, std::chrono::seconds waited, const Awaited& awaited);

  // Operations that are not acknowledged. `target`: that of the call, where it has one.
  Awaited awaited_by_operations(int target);
  Awaited awaited_lock(int target, epochs::LockType type);
  // `next`: the rank whose lock is acquired now, in a window without a global lock.
  Awaited awaited_lock_all(int next);
  // `peer`, `count`: as Barrier::awaits() and BarrierWord::count().
  Awaited awaited_in_barrier(int peer, std::uint64_t count);
  Awaited awaited_posts(std::span<const int> missing);
  Awaited awaited_completes(std::size_t missing, std::span<const int> origins);

  // Control words of ranks; those that cannot be read within a short time have no value.
  struct WordOf {
    int rank;
    std::uint32_t word;
  };
  std::vector<std::optional<std::uint64_t>> read_words(std::span<const WordOf> words);
  // The exclusive locks that are held now, of one target or, if it is negative, of all.
  std::vector<int> exclusive_holders(int target);

 private:
  std::string describe_failure(int rank);
  std::string describe_failure(std::span<const int> ranks);

  WindowState& window_;
};

// Waits for operations to be acknowledged, where no closer reason is known.
class CallReason final : public LongWait::Reason {
 public:
  CallReason(WindowState& window, const CallSite& call) : window_(window), call_(call) {}
  std::string text(std::chrono::seconds waited) const override {
    WaitReports reports(window_);
    return reports.report_wait(call_.name, waited, reports.awaited_by_operations(call_.target));
  }
  const char* call() const override { return call_.name; }
  int target() const override { return call_.target; }

 private:
  WindowState& window_;
  const CallSite& call_;
};

// `Describe` gets the WaitReports, and returns an Awaited.
template <class Describe>
class WaitReason final : public LongWait::Reason {
 public:
  WaitReason(WindowState& window, Describe describe) : window_(window), describe_(std::move(describe)) {}
  std::string text(std::chrono::seconds waited) const override {
    WaitReports reports(window_);
    return reports.report_wait(call(), waited, describe_(reports));
  }

 private:
  WindowState& window_;
  Describe describe_;
};

}  // namespace farside::pmpi

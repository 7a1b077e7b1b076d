// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict for one window: what is under way, seen from the origin (epochs/races/access_log.hpp,
// buffer_watch.hpp) and from the target (epochs/races/shared_log.hpp), and the reports of what conflicts. For
// debugging: it walks through datatypes, completes each operation at once, and lets ranks linger, so that others come
// in between.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "epochs/races/access_log.hpp"
#include "epochs/races/shared_log.hpp"
#include "pmpi/check/buffer_watch.hpp"
#include "pmpi/check/log_space.hpp"
#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/fault.hpp"

namespace farside::pmpi {

class Strict {
 public:
  using Call = epochs::SharedLog::Call;
  using Epoch = epochs::SharedLog::Epoch;

  // One side of an operation.
  struct Side {
    const void* address;
    std::int64_t count;
    const Datatype* type;
  };
  struct Target {
    int rank;
    std::int64_t at;  // bytes from the beginning of the window to element 0
    std::int64_t count;
    const Datatype* type;
  };
  // An operation that is allowed by its epoch. `origin` is read, `result` written; null where the call has none.
  struct Operation {
    Call call;
    epochs::Use use;
    BasicType type;  // of atomic uses
    Epoch epoch;
    const Side* origin;
    const Side* result;
    Target target;
    std::uint64_t* request = nullptr;  // of a call with a request: gets the number of the operation, from 1 on
  };

  // `space`: the window's; `logs`: of all ranks, SharedLog::bytes() each.
  Strict(Space& space, std::unique_ptr<Space> logs);

  // Issues an operation by issue_it(), which also completes it, unless it conflicts with another: then a fault, and
  // nothing has happened.
  template <class Issue>
  Outcome watch(const Operation& operation, Issue&& issue_it) {
    const HandOff turn(*this);
    Places places;
    if (Outcome o = begin(operation, places); !o) return o;
    if (Outcome o = issue_it(); !o) return o;
    return carried_out(operation, places);
  }

  // Called by what completes operations, before it tells anybody. A fault says that a buffer was changed before; the
  // call is to be done all the same. `alone`: nobody else may access the target now.
  Outcome completed(int target, bool alone = false);
  Outcome completed_all();
  Outcome locally_completed(int target);
  Outcome locally_completed_all();
  // By its request, the operation with this number is complete at the origin. Does nothing if it was completed before.
  Outcome request_completed(std::uint64_t number);
  Outcome start_completed();
  // Before and after all ranks have met in a fence. Ranks leave one after the other, in the order of ranks and in the
  // opposite order by turns: who leaves late finds the accesses of the others made.
  Outcome fence_reached();
  void fence_passed(bool more_follows);
  // When all origins have completed.
  Outcome exposure_ended();

 private:
  using Clock = std::chrono::steady_clock;
  // Bytes of an operation: of the target's window, of the local buffers (addresses).
  struct Places {
    epochs::RunBuilder target, read, written;
  };
  // One thread of the process at a time, without a mutex: it waits inside.
  class HandOff {
   public:
    explicit HandOff(Strict& strict);
    HandOff(const HandOff&) = delete;
    HandOff& operator=(const HandOff&) = delete;
    ~HandOff() { strict_.busy_.store(false, std::memory_order_release); }

   private:
    Strict& strict_;
  };

  Outcome begin(const Operation& operation, Places& places);
  Outcome carried_out(const Operation& operation, const Places& places);
  Outcome look(const Places& places) const;
  Outcome look_at_others(const Operation& operation, const Places& places);
  // Of a local buffer, what lies in the own window.
  std::vector<epochs::StridedRun> in_own_window(const std::vector<epochs::StridedRun>& addresses) const;
  Outcome changes_of_own_window(Epoch epoch, const char* until);
  // What completes operations: lingers if some that others may conflict with are under way, then does `end`.
  template <class UnderWay, class End>
  Outcome end(UnderWay&& under_way, End&& end);
  void linger(std::chrono::microseconds time);

  // What lingering may take: some at first, then a part of the time that the window has been in use.
  static constexpr std::chrono::milliseconds kLinger{5};
  static constexpr std::chrono::milliseconds kStep{2};
  static constexpr std::chrono::milliseconds kAllowance{30};
  static constexpr int kShare = 20;

  Space& space_;
  LogSpace log_space_;
  std::atomic<bool> busy_{false};
  std::uint64_t number_ = 0;          // of the last operation
  epochs::AccessLog log_;
  epochs::SharedLog shared_;
  BufferWatch buffers_;
  Clock::time_point made_ = Clock::now();
  Clock::duration lingered_{};
  bool ascending_ = true;
};

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// The requests of Rput, Rget, Raccumulate and Rget_accumulate. Each is a generalized request of the runtime, so it may
// stand in one array with the runtime's own requests. Nothing in the runtime moves farside's operations. farside's
// completion calls (entries_requests.cpp) therefore complete the requests of finished operations, and then ask the
// runtime.
//
// A table leads from the handle of a request to its operation while the operation is under way, or while its request
// has an error to report. It has parts, each with its own mutex, so that threads which complete different requests
// seldom share a line. Requests whose operations are over are completed by calls that complete requests, and in between
// when a part of the table has grown: the table grows with the operations that are under way, not with the requests
// that the program keeps.
//
// Thread safety: any thread. No mutex is held across calls of the runtime that complete requests, nor across the user's
// error handler. Cost: no remote operation of its own. Memory: 64 bytes per request, and 220 more while its operation
// is under way.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <mpi.h>

#include "pmpi/fault.hpp"
#include "pmpi/library/library.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/pending.hpp"

namespace farside::pmpi {

class Window;

// A window that this thread holds, and that may be freed in an error handler that a report calls.
class WindowHold : NotCopied {
 public:
  explicit WindowHold(const Window& window);
  ~WindowHold();

 private:
  const std::shared_ptr<std::atomic<std::uint32_t>> holds_;
};

class Requests {
 public:
  // Returns false as long as the process has made no request that farside must complete or report: one whose operation
  // was under way when the call returned, or that FARSIDE_CHECK=strict watches. The runtime alone can then answer the
  // call. Costs one load.
  static bool any() { return library().any_requests.load(std::memory_order_relaxed); }
  // Whether a call of the runtime that completes or frees requests may leave something for report(). Drops earlier
  // entries of this thread for which report() was not called. `requests`: the number that the call may free.
  bool any_to_report(std::size_t requests) const;

  // Makes the request of an operation that was issued to `rank`. `own`: the operation's counters, null if it is over.
  // `watched`: its number for FARSIDE_CHECK=strict, 0 if none. Errors: the operation's, if it is over; the runtime's
  // code, if it makes no request.
  Status start(const char* call, Window& window, int rank, std::unique_ptr<Pending> own, std::uint64_t watched,
               MPI_Request* request);

  // Completes the requests whose operation is over, and returns how many are still under way. Polls the endpoint if
  // there are any. Does not wait. The cost per request does not depend on the number of stored requests.
  int look(std::span<const MPI_Request> requests);
  // Waits until the operations of all these requests are over, and completes them.
  void wait(std::span<const MPI_Request> requests);
  // The sentence of a report (FARSIDE_HANG) of the first of these whose operation is under way; empty if none is.
  std::string report_wait(std::span<const MPI_Request> requests, std::chrono::seconds waited);
  // Returns the error of the operation of a request that a call of the runtime has just completed or freed in this
  // thread, or MPI_SUCCESS. Calls the window's error handler. For FARSIDE_CHECK=strict the operation is complete now.
  int report(MPI_Request request);
  // Called at the end of such a call: drops the errors of this thread that it has not reported.
  static void drop_unreported() {
    if (this_thread.windows_held > 0) freed_here().clear();
  }
  // A call that queries the status (MPI 4.1 section 3.7.6) has reported the request complete, and the user keeps the
  // request, to complete it later and get the error of its operation then.
  void show(MPI_Request request);
  // Completes the request although its operation may be under way; a flush will report the operation's error.
  void abandon(MPI_Request request);
  // Ends the requests of a window that is freed and whose operations are all over.
  void abandon(const Window& window);

 private:
  // Exists from the start of the request until the runtime frees the request, whose extra state points to it. The mutex
  // of its part of the table guards it.
  struct Entry {
    Window* window;  // null once the window is freed
    int rank;
    const char* call;
    std::unique_ptr<Pending> own;  // null once the operation is over
    std::uint64_t watched;
    Status result = {};
    MPI_Request request = MPI_REQUEST_NULL;
    std::optional<WindowHold> hold = {};  // from freed() to the end of report()
    bool to_report() const { return own == nullptr && (watched != 0 || !result); }
  };
  // A part of the table, by the bits of the handles.
  struct alignas(64) Part {
    SmallMutex mutex;                   // guards the following members
    std::atomic<std::size_t> count{0};  // size of `operations`, read without the mutex
    std::size_t look_at = kFewInPart;   // the size at which those that are over are looked for
    std::unordered_map<std::uintptr_t, Entry*> operations;
  };
  static constexpr std::size_t kParts = 64;
  static constexpr std::size_t kFewInPart = 16;
  // The operation of a request, null if the table has none, with the mutex of its part if there may be one.
  struct Found {
    std::unique_lock<SmallMutex> held;
    Part* part = nullptr;
    Entry* operation = nullptr;
  };
  Found find(MPI_Request request);
  // The highest bits of the product spread numbers and addresses evenly.
  Part& part_of(MPI_Request request) {
    static_assert(kParts == 64);
    return parts_[key_of_handle(request) * 0x9E3779B97F4A7C15ULL >> 58];
  }
  // The following functions require that the caller holds the mutex of the part.
  static void drop(Part& part, const Entry& operation);
  // Ends the operations of the part that are over, and returns their requests, which the caller completes.
  std::vector<MPI_Request> end_finished(Part& part);
  // Takes the result of an operation that is over, and drops it from the table if there is nothing to report. The
  // caller completes its request.
  void end(Part& part, Entry& operation);
  // Changes an operation, and keeps to_report_ right.
  template <class Change>
  void change(Entry& operation, Change&& change);

  // Called by the runtime when it frees the request, in the call that completes or frees it. Another thread may get the
  // same handle as soon as that call has returned, so the operation moves to a list of the calling thread.
  void freed(Entry& operation);
  // The operations whose requests were freed in this thread and which are not reported yet.
  static std::vector<std::unique_ptr<Entry>>& freed_here() {
    return PerThread<std::vector<std::unique_ptr<Entry>>>::here();
  }

  std::array<Part, kParts> parts_;
  std::atomic<std::size_t> to_report_{0};  // changed for errors and with FARSIDE_CHECK=strict only
};

}  // namespace farside::pmpi

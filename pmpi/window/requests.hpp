// SPDX-License-Identifier: BSD-3-Clause
// The requests of Rput, Rget, Raccumulate and Rget_accumulate. Each is a generalized request of the runtime, so it may
// stand in one array with the runtime's own requests. Nothing in the runtime moves farside's operations. farside's
// completion calls (entries_requests.cpp) therefore complete the requests of finished operations, and then ask the
// runtime.
//
// Thread safety: any thread. The mutex is not held across calls of the runtime that complete requests, nor across the
// user's error handler. Cost: no remote operation of its own; one entry per operation that is under way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <mpi.h>

#include "pmpi/fault.hpp"
#include "transport/routes/outstanding.hpp"

namespace farside::pmpi {

class Window;

class Requests {
 public:
  static Requests& instance() { return instance_; }

  // Returns false if no operation with a request is under way, and none is over with something to report. The runtime
  // alone then answers the call. Costs two loads.
  bool any() const {
    return under_way_.load(std::memory_order_relaxed) + to_report_.load(std::memory_order_relaxed) != 0;
  }
  // Whether a call of the runtime that completes or frees requests may leave something for report(). Drops earlier
  // entries of this thread for which report() was not called.
  bool any_to_report() const;

  // Makes the request of an operation that was issued to `rank`. `own`: the operation's counters, null if it is over.
  // `watched`: its number for FARSIDE_CHECK=strict, 0 if none. Errors: the operation's, if it is over; the runtime's
  // code, if it makes no request.
  Outcome start(const char* call, Window& window, int rank, std::unique_ptr<Outstanding> own, std::uint64_t watched,
                MPI_Request* request);

  // Polls the endpoint, completes the requests whose operation is over, and returns how many are still under way. Does
  // not wait. The cost per request does not depend on the number of stored requests.
  int look(std::span<const MPI_Request> requests);
  // Waits until the operations of all these requests are over, and completes them.
  void wait(std::span<const MPI_Request> requests);
  // Returns the error of the operation of a request that a call of the runtime has just completed or freed in this
  // thread, or MPI_SUCCESS. Calls the window's error handler. For FARSIDE_CHECK=strict the operation is complete now.
  int report(MPI_Request request);
  // MPI_Request_get_status has reported the request complete, and the user keeps the request.
  void show(MPI_Request request);
  // Completes the request although its operation may be under way; a flush will report the operation's error.
  void abandon(MPI_Request request);
  // Ends the requests of a window that is freed and whose operations are all over.
  void abandon(const Window& window);

 private:
  // Exists from the start of the request until the runtime frees the request, whose extra state points to it.
  struct Operation {
    Window* window;                      // null once the window is freed
    int rank;
    const char* call;
    std::unique_ptr<Outstanding> own;    // null once the operation is over
    std::uint64_t watched;
    std::optional<Fault> fault = {};
    MPI_Request request = MPI_REQUEST_NULL;
    bool to_report() const { return own == nullptr && (watched != 0 || fault); }
  };
  using All = std::unordered_map<MPI_Request, std::unique_ptr<Operation>>;
  constexpr Requests() = default;
  // The next three need the mutex.
  static All& all();
  // Takes the result of an operation that is over, and appends its request to `ended`.
  void end(Operation& operation, std::vector<MPI_Request>& ended);
  // Changes an operation, and keeps to_report_ right.
  template <class Change>
  void change(Operation& operation, Change&& change);

  // Called by the runtime when it frees the request, in the call that completes or frees it. Another thread may get the
  // same handle as soon as that call has returned, so the operation moves to a list of the calling thread.
  void freed(Operation& operation);
  // The operations whose requests were freed in this thread and which are not reported yet.
  static std::vector<std::unique_ptr<Operation>>& freed_here();

  static Requests instance_;
  std::atomic<std::size_t> under_way_{0};
  std::atomic<std::size_t> to_report_{0};
  std::mutex mutex_;                      // guards all()
};

}  // namespace farside::pmpi

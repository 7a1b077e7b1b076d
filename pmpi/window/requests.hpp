// SPDX-License-Identifier: BSD-3-Clause
// The requests of Rput, Rget, Raccumulate and Rget_accumulate. Each is a generalized request of the runtime, so it may
// stand in one array with the runtime's own requests. Nothing in the runtime moves farside's operations. farside's
// completion calls (entries_requests.cpp) therefore complete the requests of finished operations, and then ask the
// runtime.
//
// Each handle that the runtime gives out for such a request leads to a place of its own, which stays until the process
// exits and holds the operation while the request exists. Threads that complete different requests therefore share no
// line that one of them writes.
//
// Thread safety: any thread. A place is found without a lock. Its mutex is contended only if another thread frees the
// window at the same time; it is not held across calls of the runtime that complete requests, nor across the user's
// error handler. Cost: no remote operation of its own. Memory: some 200 bytes for each different handle that the
// runtime has given out for such a request (MPICH gives a few again and again, Open MPI addresses of its heap), and the
// operation while the request exists.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "pmpi/fault.hpp"
#include "pmpi/window/handle_table.hpp"
#include "transport/base/long_wait.hpp"
#include "transport/base/small_mutex.hpp"
#include "transport/routes/outstanding.hpp"

namespace farside::pmpi {

class Window;

class Requests {
 public:
  static Requests& instance() { return instance_; }

  // Returns false as long as the process has made no request that farside must complete or report: one whose operation
  // was under way when the call returned, or that FARSIDE_CHECK=strict watches. The runtime alone can then answer the
  // call. Costs one load.
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // Whether a call of the runtime that completes or frees requests may leave something for report(). Drops earlier
  // entries of this thread for which report() was not called.
  bool any_to_report() const;

  // Makes the request of an operation that was issued to `rank`. `own`: the operation's counters, null if it is over.
  // `watched`: its number for FARSIDE_CHECK=strict, 0 if none. Errors: the operation's, if it is over; the runtime's
  // code, if it makes no request.
  Outcome start(const char* call, Window& window, int rank, std::unique_ptr<Outstanding> own, std::uint64_t watched,
                MPI_Request* request);

  // Completes the requests whose operation is over, and returns how many are still under way. Polls the endpoint if
  // there are any. Does not wait. The cost per request does not depend on the number of stored requests.
  int look(std::span<const MPI_Request> requests);
  // Waits until the operations of all these requests are over, and completes them.
  void wait(std::span<const MPI_Request> requests);
  // The sentence of a report (FARSIDE_HANG) of the first of these whose operation is under way; empty if none is.
  std::string report_wait(std::span<const MPI_Request> requests, std::chrono::seconds waited) const;
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
  struct Place;
  // Exists from the start of the request until the runtime frees the request, whose extra state points to it.
  struct Operation {
    Window* window;                      // null once the window is freed
    int rank;
    const char* call;
    std::unique_ptr<Outstanding> own;    // null once the operation is over
    std::uint64_t watched;
    std::optional<Fault> fault = {};
    MPI_Request request = MPI_REQUEST_NULL;
    Place* place = nullptr;
    bool to_report() const { return own == nullptr && (watched != 0 || fault); }
  };
  // The place of the operation whose request has a certain handle.
  struct alignas(64) Place {
    SmallMutex mutex;  // guards the operation
    std::unique_ptr<Operation> operation;
  };
  constexpr Requests() = default;
  // Returns the place of a handle, null if none of farside's requests ever had it.
  Place* find(MPI_Request request) const {
    return request != MPI_REQUEST_NULL ? places_.find(key_of_handle(request)) : nullptr;
  }
  Place& find_or_make(MPI_Request request);
  // look() without polling. Completes what is over.
  int complete_finished(std::span<const MPI_Request> requests);
  // The next two functions require that the caller holds the mutex of the operation's place.
  // Takes the result of an operation that is over. The caller completes its request.
  void end(Operation& operation);
  // Changes an operation, and keeps to_report_ right.
  template <class Change>
  void change(Operation& operation, Change&& change);

  // Called by the runtime when it frees the request, in the call that completes or frees it. Another thread may get the
  // same handle as soon as that call has returned, so the operation moves to a list of the calling thread.
  void freed(Operation& operation);
  // The operations whose requests were freed in this thread and which are not reported yet.
  static std::vector<std::unique_ptr<Operation>>& freed_here();

  // Never destroyed, because threads may complete requests while the process exits.
  static Requests instance_;
  HandleTable<Place> places_;
  std::atomic<bool> any_{false};
  std::atomic<std::size_t> to_report_{0};  // changed for errors and with FARSIDE_CHECK=strict only
};

// The reason of a wait for any of these requests, or all.
class RequestsReason final : public LongWait::Reason {
 public:
  explicit RequestsReason(std::span<const MPI_Request> requests) : requests_(requests) {}
  std::string text(std::chrono::seconds waited) const override {
    return Requests::instance().report_wait(requests_, waited);
  }

 private:
  std::span<const MPI_Request> requests_;
};

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// The requests of Rput, Rget, Raccumulate and Rget_accumulate. Each is a generalized request of the runtime, which
// carries it through the user's arrays; as nothing in the runtime moves farside's operations, farside's own completion
// calls (entries_requests.cpp) look whether the operation is over and complete the request before the runtime is asked.
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
#include "transport/space/outstanding.hpp"

namespace farside::pmpi {

class Window;

class Requests {
 public:
  static Requests& instance() { return instance_; }

  // False: no operation with a request is under way, or over with something left to do when its user hears of it
  // (tell); the runtime alone can answer.
  bool any() const {
    return under_way_.load(std::memory_order_relaxed) + to_report_.load(std::memory_order_relaxed) != 0;
  }
  // Whether a call of the runtime that completes or frees requests may leave something for tell(). Forgets what this
  // thread was not asked to tell.
  bool any_to_report() const;

  // For an operation that was issued towards `rank`: its request. `own`: where it counts, null if it is over.
  // `watched`: which operation it is to FARSIDE_CHECK=strict, 0 if none.
  Outcome start(const char* call, Window& window, int rank, std::unique_ptr<Outstanding> own, std::uint64_t watched,
                MPI_Request* request);

  // Completes those whose operation is over; says how many are still under way. Moves the endpoint, and does not wait.
  // Costs the same for each request, however many are kept.
  int look(std::span<const MPI_Request> requests);
  // The same, but waits until none is under way: looks twice at each, and at one of them again and again.
  void wait(std::span<const MPI_Request> requests);
  // For a request that a call of the runtime has just completed or freed in this thread: the error of its operation, or
  // MPI_SUCCESS. Calls the window's error handler. To FARSIDE_CHECK=strict the operation is complete now.
  int report(MPI_Request request);
  // The user has heard that it is complete, and keeps it.
  void show(MPI_Request request);
  // Completes one whatever its operation does: nobody will ask for it again, and a flush tells how it ended.
  void abandon(MPI_Request request);
  // The window goes, with all its operations over.
  void abandon(const Window& window);

 private:
  // From its start until the runtime frees the request. The request's extra state is a pointer to it.
  struct Operation {
    Window* window;                      // null once it is gone
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
  // With the mutex held:
  static All& all();
  // `operation` is over.
  void end(Operation& operation, std::vector<MPI_Request>& ended);
  // Changes one that is over, and counts it anew.
  template <class Change>
  void change(Operation& operation, Change&& change);

  // The runtime frees the request, in the call that completes or frees it. Another thread may get the same handle for a
  // request of its own as soon as that call has returned, so what is left to tell moves to the calling thread here.
  void freed(Operation& operation);
  // Of this thread: freed, and not told yet.
  static std::vector<std::unique_ptr<Operation>>& freed_here();

  static Requests instance_;
  std::atomic<std::size_t> under_way_{0};
  std::atomic<std::size_t> to_report_{0};
  std::mutex mutex_;                      // of all()
};

}  // namespace farside::pmpi

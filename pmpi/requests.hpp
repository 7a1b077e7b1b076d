// SPDX-License-Identifier: BSD-3-Clause
// The requests of Rput, Rget, Raccumulate and Rget_accumulate. Each is a generalized request of the runtime, which
// carries it through the user's arrays; as nothing in the runtime moves farside's operations, farside's own completion
// calls (entries_requests.cpp) look whether the operation is over and complete the request before the runtime is asked.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include <mpi.h>

#include "pmpi/fault.hpp"
#include "transport/outstanding.hpp"

namespace farside::pmpi {

class Window;

class Requests {
 public:
  static Requests& instance() { return instance_; }

  // False: no operation with a request is under way or has failed, and the runtime alone can answer.
  bool any() const { return kept_.load(std::memory_order_relaxed) != 0; }
  bool any_failed() const { return failures_.load(std::memory_order_relaxed) != 0; }

  // For an operation that was issued towards `rank`: its request. `own`: where it counts, null if it is over.
  Outcome start(const char* call, Window& window, int rank, std::unique_ptr<Outstanding> own, MPI_Request* request);

  // Completes those whose operation is over; says how many are still under way. Moves the endpoint, and does not wait. Costs
  // the same for each request, however many are kept.
  int look(std::span<const MPI_Request> requests);
  // The same, but waits until none is under way: looks twice at each, and at one of them again and again.
  void wait(std::span<const MPI_Request> requests);
  // For a request that its user has just completed or freed: the error of its operation, or MPI_SUCCESS. Calls the
  // window's error handler.
  int take_failure(MPI_Request request);
  // Completes one whatever its operation does: nobody will ask for it again, and a flush tells how it ended.
  void give_up(MPI_Request request);
  // The window goes, with all its operations over.
  void give_up(const Window& window);

 private:
  struct Entry {
    Window* window;
    int rank;
    const char* call;
    std::unique_ptr<Outstanding> own;
  };
  // Kept from the end of the operation until its user hears of it.
  struct Failure {
    MPI_Win window;  // by then perhaps none any more
    int rank;
    const char* call;
    Fault fault;
  };
  struct Kept {
    std::unordered_map<MPI_Request, Entry> entries;  // a window lives as long as it has entries here
    std::unordered_map<MPI_Request, Failure> failed;
  };
  using EntryAt = std::unordered_map<MPI_Request, Entry>::iterator;
  constexpr Requests() = default;
  // With the mutex held:
  static Kept& kept();
  // The operation of `entry` is over; the entry goes. Returns the entry behind it.
  EntryAt end(EntryAt entry, std::vector<MPI_Request>& ended);
  void count();

  static Requests instance_;
  std::atomic<std::size_t> kept_{0};      // entries and failures
  std::atomic<std::size_t> failures_{0};
  std::mutex mutex_;                      // of kept()
};

}  // namespace farside::pmpi

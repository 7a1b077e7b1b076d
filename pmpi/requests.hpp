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
#include "transport/outstanding.hpp"

namespace farside::pmpi {

class Window;

class Requests {
 public:
  static Requests& instance() { return instance_; }

  // False: no operation with a request is under way, or over with something left to do when its user hears of it (tell); the
  // runtime alone can answer.
  bool any() const { return kept_.load(std::memory_order_relaxed) != 0; }
  bool any_to_tell() const { return to_tell_.load(std::memory_order_relaxed) != 0; }

  // For an operation that was issued towards `rank`: its request. `own`: where it counts, null if it is over. `watched`: which
  // operation it is to FARSIDE_CHECK=strict, 0 if none.
  Outcome start(const char* call, Window& window, int rank, std::unique_ptr<Outstanding> own, std::uint64_t watched,
                MPI_Request* request);

  // Completes those whose operation is over; says how many are still under way. Moves the endpoint, and does not wait. Costs
  // the same for each request, however many are kept.
  int look(std::span<const MPI_Request> requests);
  // The same, but waits until none is under way: looks twice at each, and at one of them again and again.
  void wait(std::span<const MPI_Request> requests);
  // For a request that its user has just completed or freed: the error of its operation, or MPI_SUCCESS. Calls the
  // window's error handler. To FARSIDE_CHECK=strict the operation is complete now.
  int tell(MPI_Request request);
  // The user has heard that it is complete, and keeps it.
  void show(MPI_Request request);
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
    std::uint64_t watched;
  };
  // Kept from the end of the operation until its user hears of it, if it has failed or is watched.
  struct Ended {
    MPI_Win window;           // by then perhaps none any more; not watched then
    int rank;
    const char* call;
    std::uint64_t watched;
    std::optional<Fault> fault;
  };
  struct Kept {
    std::unordered_map<MPI_Request, Entry> entries;  // a window lives as long as it has entries here
    std::unordered_map<MPI_Request, Ended> ended;
  };
  using EntryAt = std::unordered_map<MPI_Request, Entry>::iterator;
  constexpr Requests() = default;
  // With the mutex held:
  static Kept& kept();
  // The operation of `entry` is over; the entry goes. Returns the entry behind it.
  EntryAt end(EntryAt entry, std::vector<MPI_Request>& ended);
  void count();

  static Requests instance_;
  std::atomic<std::size_t> kept_{0};      // all of them
  std::atomic<std::size_t> to_tell_{0};   // those that have ended
  std::mutex mutex_;                      // of kept()
};

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// The requests of Rput, Rget, Raccumulate and Rget_accumulate. Each is a generalized request of the runtime, which
// carries it through the user's arrays; as nothing in the runtime moves farside's operations, farside's own completion
// calls (entries_requests.cpp) look whether the operation is over and complete the request before the runtime is asked.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include <mpi.h>

#include "pmpi/fault.hpp"

namespace farside::pmpi {

class Window;

class Requests {
 public:
  static Requests& instance() { return instance_; }

  // False: no operation with a request is under way, and the runtime alone can answer.
  bool any() const { return under_way_.load(std::memory_order_relaxed) != 0; }

  // For an operation that was issued towards `rank`, and perhaps is over: its request.
  Outcome start(const char* call, Window& window, int rank, MPI_Request* request);

  // What a look at some requests has found.
  struct Look {
    int waiting = 0;                  // among them, so many whose operation is still under way
    std::vector<std::size_t> failed;  // indices of those that ended now, and badly; their windows' handlers have been called
    int code = MPI_SUCCESS;           // of the last of these
  };
  // Completes those whose operation is over. Moves the endpoint, and does not wait.
  Look look(std::span<const MPI_Request> requests);
  // The same, but waits until none is under way.
  Look wait(std::span<const MPI_Request> requests);
  // Completes one whatever its operation does: nobody will ask for it again.
  void give_up(MPI_Request request);
  // The window goes, with all its operations over.
  void give_up(const Window& window);

 private:
  struct Entry {
    MPI_Request handle;
    Window* window;
    int rank;
    const char* call;
  };
  constexpr Requests() = default;
  template <class Which>
  void give_up_those(Which&& which);

  static Requests instance_;
  std::atomic<std::size_t> under_way_{0};  // as many as there are entries
  std::mutex mutex_;
  std::vector<Entry> entries_;             // a window lives as long as it has entries here
};

}  // namespace farside::pmpi

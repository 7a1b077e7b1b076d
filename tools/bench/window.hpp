// SPDX-License-Identifier: BSD-3-Clause
// The window of a measure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <mpi.h>

#include "tools/bench/measures.hpp"
#include "tools/bench/report.hpp"

namespace farside::bench {

// Reports the route of the window, and its provider: farside answers info keys of its own, no runtime does.
inline void print_route_of(MPI_Win window) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Win_get_info(window, &info);
  const auto value = [info](const char* key) {
    std::string text(MPI_MAX_INFO_VAL, '\0');
    int found = 0;
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL - 1, text.data(), &found);
    return std::string(found != 0 ? text.c_str() : "");
  };
  print_opened(value("farside_route"), value("farside_provider"), value("farside_device"));
  MPI_Info_free(&info);
}

class Window {  // a window on at least `bytes` of zeroed memory at each rank
 public:
  Window(const Pair& pair, WindowKind kind, std::size_t bytes) {
    // In a window of 8 bytes per rank made by MPI_Win_allocate, native MPICH 4.0.2 lets operations on rank 1 reach
    // the memory of rank 0. The minimum size avoids this error.
    bytes = std::max(bytes, std::size_t{4096});
    if (kind == WindowKind::kAllocate) {
      MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, pair.comm, &memory_, &handle_);
    } else {
      private_memory_.resize(bytes);
      memory_ = private_memory_.data();
      MPI_Win_create(memory_, static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, pair.comm, &handle_);
    }
    if (pair.origin) print_route_of(handle_);
    int rank = 0;
    MPI_Comm_rank(pair.comm, &rank);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, handle_);
    std::fill_n(static_cast<char*>(memory_), bytes, char{0});
    MPI_Win_unlock(rank, handle_);
    // Without the barrier, a peer could already hold a lock on this rank while it waits for this rank elsewhere.
    MPI_Barrier(pair.comm);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() { MPI_Win_free(&handle_); }
  MPI_Win handle() const { return handle_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  std::vector<char> private_memory_;
  void* memory_ = nullptr;
  MPI_Win handle_ = MPI_WIN_NULL;
};

}  // namespace farside::bench

// SPDX-License-Identifier: BSD-3-Clause
// The map from handles to farside windows, which every call searches. Thread safety: look-ups from any thread without a
// lock; insert(), erase() and forget() from any thread, ordered by a mutex (handle_table.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include <mpi.h>

#include "pmpi/window/handle_table.hpp"

namespace farside::pmpi {

class Window;

class WindowTable {
 public:
  static WindowTable& instance() { return instance_; }

  // For fast paths: returns null if the handle is not farside's, or a tool behind farside gets such calls first. Reads
  // one or two entries of the table.
  Window* find_fast(MPI_Win handle) const { return windows_.find(key_of_handle(handle)); }
  void insert(MPI_Win handle, std::unique_ptr<Window> window);
  // Destroys the window. The handle counts as freed, unless it belongs to a newer window.
  void erase(MPI_Win handle, Window* window);
  // The handle is the runtime's now.
  void forget(MPI_Win handle) { windows_.forget(key_of_handle(handle)); }
  struct Found {
    Window* window;        // null if the handle is not farside's
    const char* why_none;  // for the user: the handle is MPI_WIN_NULL or freed; null if it may be the runtime's
  };
  Found look_up(MPI_Win handle) const {
    if (handle == MPI_WIN_NULL) [[unlikely]]
      return {nullptr, kIsNull};
    const auto found = windows_.look_up(key_of_handle(handle));
    return {found.value, found.value == nullptr && found.taken_out ? kIsFreed : nullptr};
  }
  std::vector<Window*> all() {
    std::vector<Window*> windows;
    windows_.each([&](Window& window) { windows.push_back(&window); });
    return windows;
  }
  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  static constexpr const char* kIsNull = "the window is MPI_WIN_NULL; make one first (MPI 4.0 section 12.2)";
  static constexpr const char* kIsFreed =
      "the window has been freed; do not keep copies of its handle (MPI 4.0 section 12.2.5)";

  constexpr WindowTable() = default;

  // Constant-initialised, so a look-up passes no guard, and never destroyed.
  static WindowTable instance_;

  HandleTable<Window> windows_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace farside::pmpi

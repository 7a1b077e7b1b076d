// SPDX-License-Identifier: BSD-3-Clause
// From handle to window: which MPI_Win are farside's. Looked up by every call, so without lock; changed when windows
// are made and freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <mpi.h>

#include "pmpi/window/handle_table.hpp"

namespace farside::pmpi {

class Window;

class WindowTable {
 public:
  static WindowTable& instance() { return instance_; }

  // Null if the handle is not farside's. Any thread, without lock; one or two loads from the table.
  Window* find(MPI_Win handle) const { return windows_.find(key_of(handle)); }
  void insert(MPI_Win handle, std::unique_ptr<Window> window);
  // Destroys the window. The handle counts as freed, unless it has been given to a newer window.
  void erase(MPI_Win handle, Window* window);
  // The handle is the runtime's now.
  void forget(MPI_Win handle) { windows_.forget(key_of(handle)); }
  // Why no window is behind a handle that find() does not know, for people: it is MPI_WIN_NULL, or the window was
  // farside's and has been freed. Null if it may be the runtime's. Any thread, at the cost of find().
  const char* why_none(MPI_Win handle) const { return look_up(handle).why_none; }
  // Both at the cost of one.
  struct Found {
    Window* window;
    const char* why_none;
  };
  Found look_up(MPI_Win handle) const {
    if (handle == MPI_WIN_NULL) [[unlikely]] return {nullptr, kIsNull};
    const auto found = windows_.look_up(key_of(handle));
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
  // MPI_Win is an int (MPICH) or a pointer (Open MPI); 0 is no handle in either.
  template <class Handle>
  static std::uintptr_t key_of(Handle handle) {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<std::uintptr_t>(handle);
    } else {
      return static_cast<unsigned>(handle);
    }
  }

  // Constant from the start, so that a lookup has no guard to pass, and never destroyed.
  static WindowTable instance_;

  HandleTable<Window> windows_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace farside::pmpi

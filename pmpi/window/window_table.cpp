// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/window_table.hpp"

#include <type_traits>

#include "pmpi/window/window.hpp"

namespace farside::pmpi {

constinit WindowTable WindowTable::instance_;
static_assert(std::is_trivially_destructible_v<WindowTable>);

void WindowTable::insert(MPI_Win handle, std::unique_ptr<Window> window) {
  windows_.insert(key_of_handle(handle), window.get());
  window.release();
  size_.fetch_add(1, std::memory_order_relaxed);
}

void WindowTable::erase(MPI_Win handle, Window* window) {
  const std::unique_ptr<Window> destroyed(window);
  windows_.take_out(key_of_handle(handle), window);
  size_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace farside::pmpi

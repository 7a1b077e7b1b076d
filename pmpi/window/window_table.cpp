// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/window.hpp"

namespace farside::pmpi {
namespace {

// Whether a tool behind farside has a call with a fast path.
bool tool_has_fast_call() {
  const auto any = [](auto... functions) { return ((functions != nullptr) || ...); };
  const Runtime& tools = tools_behind;
  return any(tools.Put, tools.Get, tools.Accumulate, tools.Get_accumulate, tools.Fetch_and_op, tools.Compare_and_swap,
             tools.Win_fence, tools.Win_post, tools.Win_start, tools.Win_complete, tools.Win_wait, tools.Win_lock,
             tools.Win_unlock, tools.Win_flush, tools.Win_flush_local);
}

}  // namespace

void WindowTable::insert(MPI_Win handle, std::unique_ptr<Window> window) {
  if (tool_has_fast_call()) windows_.hide();
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

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window_table.hpp"

#include <algorithm>
#include <new>
#include <vector>

#include "pmpi/window.hpp"

namespace farside::pmpi {
namespace {

// Handles that were farside's, and nobody's since. Guarded by the table's mutex, and never destroyed.
std::vector<std::uintptr_t>& freed() {
  static auto* const handles = new std::vector<std::uintptr_t>();
  return *handles;
}

}  // namespace

constinit WindowTable::NoEntries WindowTable::no_entries_;
constinit WindowTable WindowTable::instance_(&no_entries_);
static_assert(std::is_trivially_destructible_v<WindowTable>);

WindowTable::Table* WindowTable::make_table(std::size_t size, Table* outgrown) {
  void* memory = ::operator new(sizeof(Table) + size * sizeof(Entry));
  auto* table = new (memory) Table{size - 1, outgrown};
  for (std::size_t i = 0; i < size; ++i) new (&table->entry(i)) Entry();
  return table;
}

WindowTable::Entry& WindowTable::slot(Table& table, std::uintptr_t key) {
  for (std::size_t i = hash(key);; ++i) {
    Entry& entry = table.entry(i);
    const std::uintptr_t found = entry.key.load(std::memory_order_relaxed);
    if (found == key || found == kNone) return entry;
  }
}

void WindowTable::insert(MPI_Win handle, std::unique_ptr<Window> window) {
  const std::scoped_lock held(changing_);
  Table* table = table_.load(std::memory_order_relaxed);
  if (2 * (used_ + 1) > table->mask) {
    Table* const larger = make_table(std::max<std::size_t>(64, 2 * (table->mask + 1)), table);
    used_ = 0;
    for (std::size_t i = 0; i <= table->mask; ++i) {
      const Entry& entry = table->entry(i);
      Window* live = entry.window.load(std::memory_order_relaxed);
      if (live == nullptr) continue;
      const std::uintptr_t key = entry.key.load(std::memory_order_relaxed);
      Entry& place = slot(*larger, key);
      place.window.store(live, std::memory_order_relaxed);
      place.key.store(key, std::memory_order_relaxed);
      ++used_;
    }
    table = larger;
    table_.store(table, std::memory_order_release);
  }
  const std::uintptr_t key = key_of(handle);
  Entry& entry = slot(*table, key);
  if (entry.key.load(std::memory_order_relaxed) == kNone) ++used_;
  entry.window.store(window.release(), std::memory_order_release);
  entry.key.store(key, std::memory_order_release);
  newest_.store(&entry, std::memory_order_release);
  std::erase(freed(), key);
  size_.fetch_add(1, std::memory_order_relaxed);
}

void WindowTable::erase(MPI_Win handle, Window* window) {
  const std::unique_ptr<Window> destroyed(window);
  const std::scoped_lock held(changing_);
  Entry& entry = slot(*table_.load(std::memory_order_relaxed), key_of(handle));
  if (entry.window.load(std::memory_order_relaxed) == window) {
    entry.window.store(nullptr, std::memory_order_release);
    freed().push_back(key_of(handle));
  }
  size_.fetch_sub(1, std::memory_order_relaxed);
}

void WindowTable::forget(MPI_Win handle) {
  const std::scoped_lock held(changing_);
  slot(*table_.load(std::memory_order_relaxed), key_of(handle)).window.store(nullptr, std::memory_order_release);
  std::erase(freed(), key_of(handle));
}

const char* WindowTable::why_none(MPI_Win handle) {
  if (handle == MPI_WIN_NULL) return "the window is MPI_WIN_NULL; make one first (MPI 4.0 section 12.2)";
  const std::scoped_lock held(changing_);
  return std::find(freed().begin(), freed().end(), key_of(handle)) == freed().end()
             ? nullptr
             : "the window has been freed; do not keep copies of its handle (MPI 4.0 section 12.2.5)";
}

}  // namespace farside::pmpi

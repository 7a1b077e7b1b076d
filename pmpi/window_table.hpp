// SPDX-License-Identifier: BSD-3-Clause
// From handle to window: which MPI_Win are farside's. Looked up by every call, so without lock; changed when windows
// are made and freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>

#include <mpi.h>

namespace farside::pmpi {

class Window;

class WindowTable {
 public:
  static WindowTable& instance() { return instance_; }

  // Null if the handle is not farside's.
  Window* find(MPI_Win handle) const {
    const std::uintptr_t key = key_of(handle);
    // Most programs have one window, or use the one most that they have made last.
    const Entry* newest = newest_.load(std::memory_order_acquire);
    if (newest->key.load(std::memory_order_acquire) == key) [[likely]] return newest->window.load(std::memory_order_acquire);
    // Acquire: a table, and an entry in it, is complete when it can be seen.
    const Table* table = table_.load(std::memory_order_acquire);
    for (std::size_t i = hash(key);; ++i) {
      const Entry& entry = table->entry(i);
      const std::uintptr_t found = entry.key.load(std::memory_order_acquire);
      if (found == key) return entry.window.load(std::memory_order_acquire);
      if (found == kNone) return nullptr;
    }
  }
  void insert(MPI_Win handle, std::unique_ptr<Window> window);
  // Destroys the window, unless the handle has been given to a newer one.
  void erase(MPI_Win handle, Window* window);
  // The handle is the runtime's now.
  void forget(MPI_Win handle);
  // Why no window is behind a handle that find() does not know, for people: it is MPI_WIN_NULL, or the window was
  // farside's and has been freed. Null if it may be the runtime's.
  const char* why_none(MPI_Win handle);
  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uintptr_t kNone = 0;
  struct Entry {
    std::atomic<std::uintptr_t> key{kNone};   // stays when the window goes; taken up again by the same handle
    std::atomic<Window*> window{nullptr};
  };
  // Its entries follow it in memory: one load less for every call.
  struct Table {
    std::size_t mask;
    Table* outgrown;  // the smaller one before it, which stays: someone may be reading it
    Entry& entry(std::size_t i) { return reinterpret_cast<Entry*>(this + 1)[i & mask]; }
    const Entry& entry(std::size_t i) const { return reinterpret_cast<const Entry*>(this + 1)[i & mask]; }
  };
  static_assert(alignof(Entry) <= alignof(Table));
  struct NoEntries {
    Table table{0, nullptr};
    Entry none;
  };

  constexpr explicit WindowTable(NoEntries* empty) : newest_(&empty->none), table_(&empty->table) {}
  // MPI_Win is an int (MPICH) or a pointer (Open MPI); 0 is no handle in either.
  template <class Handle>
  static std::uintptr_t key_of(Handle handle) {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<std::uintptr_t>(handle);
    } else {
      return static_cast<unsigned>(handle);
    }
  }
  static std::size_t hash(std::uintptr_t key) { return (key * 0x9E3779B97F4A7C15ULL) >> 40; }
  static Entry& slot(Table& table, std::uintptr_t key);
  static Table* make_table(std::size_t size, Table* outgrown);

  static NoEntries no_entries_;
  // Constant from the start, so that a lookup has no guard to pass, and never destroyed.
  static WindowTable instance_;

  std::atomic<const Entry*> newest_;            // of the table, of the window made last
  std::atomic<Table*> table_;
  std::mutex changing_;
  std::size_t used_ = 0;                        // entries with a key
  std::atomic<std::size_t> size_{0};
};

}  // namespace farside::pmpi

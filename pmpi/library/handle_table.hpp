// SPDX-License-Identifier: BSD-3-Clause
// A map from handles to objects. Thread safety: any thread looks a handle up without a lock; a mutex orders changes.
//
// The map is a hash table with open addressing, at most a quarter full. A look-up therefore reads few entries (mostly
// one or two), for known and unknown handles alike. A handle whose object was taken out keeps its entry, which says so;
// the entry is reused when the runtime gives out the handle again. A table that is too small is replaced. The outgrown
// table stays allocated, because a thread may still read it; all outgrown tables together are smaller than the current
// one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <type_traits>

namespace farside::pmpi {

// The key of a handle of MPI. Handles are ints (MPICH) or pointers (Open MPI); 0 is no handle in either runtime.
template <class Handle>
std::uintptr_t key_of_handle(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uintptr_t>(handle);
  } else {
    return static_cast<unsigned>(handle);
  }
}

template <class Value>
class HandleTable {
 public:
  using Key = std::uintptr_t;  // not 0

  constexpr HandleTable() : newest_(&none_.entry), visible_(&none_.table), table_(&none_.table) {}

  // Returns the object of the handle; null if there is none, or after hide(). Checks the newest entry first, because
  // most programs use their newest window most often.
  Value* find(Key key) const {
    const Entry* const newest = newest_.load(std::memory_order_acquire);
    if (newest->key.load(std::memory_order_acquire) == key) [[likely]]
      return newest->value.load(std::memory_order_acquire);
    const Entry* const entry = look(visible_, key);
    return entry != nullptr ? entry->value.load(std::memory_order_acquire) : nullptr;
  }
  // The result of one look-up.
  struct Found {
    Value* value = nullptr;  // the object of the handle
    bool taken_out = false;  // an object was taken out, and the handle has not been used since
  };
  Found look_up(Key key) const {
    const Entry* const entry = look(table_, key);
    if (entry == nullptr) return {};
    return {entry->value.load(std::memory_order_acquire), entry->taken_out.load(std::memory_order_acquire)};
  }
  // Returns how many entries a look-up of the handle reads; for tests.
  std::size_t probes(Key key) const {
    std::size_t count = 0;
    look(table_, key, &count);
    return count;
  }

  // Maps the handle to `value`. If this throws std::bad_alloc, the table is unchanged.
  void insert(Key key, Value* value) {
    const std::scoped_lock held(changing_);
    Table* const table = with_room();
    Entry& entry = slot(*table, key);
    if (entry.key.load(std::memory_order_relaxed) == kNone) ++used_;
    entry.taken_out.store(false, std::memory_order_relaxed);
    entry.value.store(value, std::memory_order_release);
    entry.key.store(key, std::memory_order_release);
    if (!hidden_) newest_.store(&entry, std::memory_order_release);
  }
  // Hides all objects, present and future, from find().
  void hide() {
    const std::scoped_lock held(changing_);
    hidden_ = true;
    newest_.store(&none_.entry, std::memory_order_release);
    visible_.store(&none_.table, std::memory_order_release);
  }
  // Removes the object, unless the handle maps to another object by now, or was forgotten.
  void take_out(Key key, const Value* value) {
    const std::scoped_lock held(changing_);
    Entry& entry = slot(*table_.load(std::memory_order_relaxed), key);
    if (entry.value.load(std::memory_order_relaxed) != value) return;
    entry.taken_out.store(true, std::memory_order_relaxed);
    entry.value.store(nullptr, std::memory_order_release);
  }
  // Forgets the handle, which belongs to another owner now.
  void forget(Key key) {
    const std::scoped_lock held(changing_);
    Entry& entry = slot(*table_.load(std::memory_order_relaxed), key);
    entry.taken_out.store(false, std::memory_order_relaxed);
    entry.value.store(nullptr, std::memory_order_release);
  }
  // Calls visit(object) for each object in the table. visit() may not change this table.
  template <class Visit>
  void each(Visit&& visit) {
    const std::scoped_lock held(changing_);
    Table* const table = table_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i <= table->mask; ++i) {
      if (Value* const value = table->entry(i).value.load(std::memory_order_relaxed)) visit(*value);
    }
  }

 private:
  static constexpr Key kNone = 0;
  static constexpr std::size_t kLeast = 64;  // entries
  static constexpr std::size_t kEntriesPerKey = 4;
  struct Entry {
    std::atomic<Key> key{kNone};  // never changes once it is set
    std::atomic<Value*> value{nullptr};
    std::atomic<bool> taken_out{false};
  };
  // The entries follow the header in memory, which saves one load per look-up.
  struct Table {
    std::size_t mask;
    Table* outgrown;  // the previous, smaller table
    Entry& entry(std::size_t i) { return reinterpret_cast<Entry*>(this + 1)[i & mask]; }
    const Entry& entry(std::size_t i) const { return reinterpret_cast<const Entry*>(this + 1)[i & mask]; }
  };
  static_assert(alignof(Entry) <= alignof(Table));
  struct OneEmpty {
    Table table{0, nullptr};
    Entry entry;
  };

  // Spreads consecutive numbers and equidistant addresses evenly (tests/unit/pmpi/library/handle_table_test.cpp).
  static std::size_t hash(Key key) { return (key * 0x9E3779B97F4A7C15ULL) >> 40; }
  // Returns null if the table has no entry for the handle. The acquire loads pair with the release stores in insert()
  // and with_room(), so a visible table or entry is complete.
  static const Entry* look(const std::atomic<Table*>& in, Key key, std::size_t* probes = nullptr) {
    const Table* table = in.load(std::memory_order_acquire);
    for (std::size_t i = hash(key);; ++i) {
      if (probes != nullptr) ++*probes;
      const Entry& entry = table->entry(i);
      const Key found = entry.key.load(std::memory_order_acquire);
      if (found == key) return &entry;
      if (found == kNone) return nullptr;
    }
  }
  static Entry& slot(Table& table, Key key) {
    for (std::size_t i = hash(key);; ++i) {
      Entry& entry = table.entry(i);
      const Key found = entry.key.load(std::memory_order_relaxed);
      if (found == key || found == kNone) return entry;
    }
  }
  // Returns a table with room for one more handle. A new table, if one is needed, drops forgotten handles.
  Table* with_room() {
    Table* const table = table_.load(std::memory_order_relaxed);
    if (kEntriesPerKey * (used_ + 1) <= table->mask) return table;
    const std::size_t size = std::max(kLeast, 2 * (table->mask + 1));
    auto* const larger = new (::operator new(sizeof(Table) + size * sizeof(Entry))) Table{size - 1, table};
    for (std::size_t i = 0; i < size; ++i) new (&larger->entry(i)) Entry();
    used_ = 0;
    for (std::size_t i = 0; i <= table->mask; ++i) {
      const Entry& entry = table->entry(i);
      Value* const value = entry.value.load(std::memory_order_relaxed);
      const bool taken_out = entry.taken_out.load(std::memory_order_relaxed);
      if (value == nullptr && !taken_out) continue;
      const Key key = entry.key.load(std::memory_order_relaxed);
      Entry& place = slot(*larger, key);
      place.value.store(value, std::memory_order_relaxed);
      place.taken_out.store(taken_out, std::memory_order_relaxed);
      place.key.store(key, std::memory_order_relaxed);
      ++used_;
    }
    table_.store(larger, std::memory_order_release);
    if (!hidden_) visible_.store(larger, std::memory_order_release);
    return larger;
  }

  OneEmpty none_;                     // the table before the first insert
  std::atomic<const Entry*> newest_;  // the entry of the handle inserted last, in the current table
  std::atomic<Table*> visible_;       // the table that find() reads: the current one, or the empty one after hide()
  std::atomic<Table*> table_;
  bool hidden_ = false;
  std::mutex changing_;
  std::size_t used_ = 0;  // entries with a key
};

}  // namespace farside::pmpi

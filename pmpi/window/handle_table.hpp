// SPDX-License-Identifier: BSD-3-Clause
// A map from handles to objects. Any thread looks a handle up without a lock; a mutex orders the changes.
//
// A hash table with open addressing, at most a quarter full, so a look-up reads few entries (mostly one or two) whether
// the handle is known or not, and whatever was inserted and taken out before. A handle whose object has gone keeps its
// entry, which says so; the entry is taken up again when the handle comes back. A table that has become too small is
// replaced and stays allocated, because a thread may still be reading it; all outgrown tables together are smaller than
// the one in use.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

namespace farside::pmpi {

template <class Value>
class HandleTable {
 public:
  using Key = std::uintptr_t;  // not 0

  constexpr HandleTable() : newest_(&none_.entry), table_(&none_.table) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // The object behind the handle, null if there is none.
  Value* find(Key key) const {
    const Entry* entry = entry_of(key);
    return entry != nullptr ? entry->value.load(std::memory_order_acquire) : nullptr;
  }
  // All that is known of a handle, by one look-up.
  struct Found {
    Value* value = nullptr;   // the object behind the handle
    bool taken_out = false;   // there was one, and the handle belongs to nobody since
  };
  Found look_up(Key key) const {
    const Entry* entry = entry_of(key);
    if (entry == nullptr) return {};
    return {entry->value.load(std::memory_order_acquire), entry->taken_out.load(std::memory_order_acquire)};
  }
  bool was_taken_out(Key key) const { return look_up(key).taken_out; }
  // How many entries a look-up of the handle reads: for tests.
  std::size_t probes(Key key) const {
    std::size_t count = 0;
    look(key, &count);
    return count;
  }

  // The handle leads to `value` from now on. Throws std::bad_alloc, and nothing is changed then.
  void insert(Key key, Value* value) {
    const std::scoped_lock held(changing_);
    Table* const table = with_room();
    Entry& entry = slot(*table, key);
    if (entry.key.load(std::memory_order_relaxed) == kNone) ++used_;
    entry.taken_out.store(false, std::memory_order_relaxed);
    entry.value.store(value, std::memory_order_release);
    entry.key.store(key, std::memory_order_release);
    newest_.store(&entry, std::memory_order_release);
  }
  // The object goes, unless the handle leads to another one by now, or was forgotten.
  void take_out(Key key, const Value* value) {
    const std::scoped_lock held(changing_);
    Entry& entry = slot(*table_.load(std::memory_order_relaxed), key);
    if (entry.value.load(std::memory_order_relaxed) != value) return;
    entry.taken_out.store(true, std::memory_order_relaxed);
    entry.value.store(nullptr, std::memory_order_release);
  }
  // The handle is somebody else's now.
  void forget(Key key) {
    const std::scoped_lock held(changing_);
    Entry& entry = slot(*table_.load(std::memory_order_relaxed), key);
    entry.taken_out.store(false, std::memory_order_relaxed);
    entry.value.store(nullptr, std::memory_order_release);
  }
  // Calls visit(object) for each object of now. It may not come back to this table to change it.
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
  static constexpr std::size_t kLeast = 64;      // entries
  static constexpr std::size_t kEntriesPerKey = 4;
  struct Entry {
    std::atomic<Key> key{kNone};       // never changes once it is set
    std::atomic<Value*> value{nullptr};
    std::atomic<bool> taken_out{false};
  };
  // Its entries follow it in memory: one load less for every call.
  struct Table {
    std::size_t mask;
    Table* outgrown;  // the smaller one before it
    Entry& entry(std::size_t i) { return reinterpret_cast<Entry*>(this + 1)[i & mask]; }
    const Entry& entry(std::size_t i) const { return reinterpret_cast<const Entry*>(this + 1)[i & mask]; }
  };
  static_assert(alignof(Entry) <= alignof(Table));
  struct OneEmpty {
    Table table{0, nullptr};
    Entry entry;
  };

  // Spreads numbers in a row and addresses at equal distances evenly (tests/pmpi/handle_table_test.cpp).
  static std::size_t hash(Key key) { return (key * 0x9E3779B97F4A7C15ULL) >> 40; }
  // Null if the table has no entry of the handle. Most programs have one window, or use the one most that they have
  // made last.
  const Entry* entry_of(Key key) const {
    const Entry* newest = newest_.load(std::memory_order_acquire);
    if (newest->key.load(std::memory_order_acquire) == key) [[likely]] return newest;
    return look(key);
  }
  // The same, without the look at the newest entry. Acquire: a table, and an entry in it, is complete when it can be
  // seen.
  const Entry* look(Key key, std::size_t* probes = nullptr) const {
    const Table* table = table_.load(std::memory_order_acquire);
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
  // The table, with room for one handle more: another one if need be, without the handles that were forgotten.
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
    return larger;
  }

  OneEmpty none_;                     // the table before the first insert
  std::atomic<const Entry*> newest_;  // in the table in use, of the handle inserted last
  std::atomic<Table*> table_;
  std::mutex changing_;
  std::size_t used_ = 0;              // entries with a key
};

}  // namespace farside::pmpi

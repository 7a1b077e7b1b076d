// SPDX-License-Identifier: BSD-3-Clause
// Arrays, lists and indexes that one thread extends while others read them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace farside {

// An array that one thread replaces by a larger one while others read it. The arrays that were outgrown stay until the
// end, since a thread may read them. Thread safety: one thread at a time calls replace(), any calls get() meanwhile; a
// thread that sees the new array sees its elements as they were filled. Cost: get() two loads. Memory: 8 bytes, and for
// each array 16 bytes and the elements.
template <class T>
class GrowingArray {
  static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= alignof(void*));

 public:
  ~GrowingArray() {
    for (Block* block = block_.load(std::memory_order_relaxed); block != nullptr;) {
      Block* const outgrown = block->outgrown;
      ::operator delete(block);
      block = outgrown;
    }
  }

  // The array; empty before the first call of replace().
  std::span<T> get() const {
    Block* const block = block_.load(std::memory_order_acquire);
    return block != nullptr ? block->elements() : std::span<T>();
  }
  // Replaces the array by one of `size` elements, all zero, that fill(std::span<T>) has filled.
  template <class Fill>
  void replace(std::size_t size, Fill&& fill) {
    Block* const block =
        new (::operator new(sizeof(Block) + size * sizeof(T))) Block{block_.load(std::memory_order_relaxed), size};
    std::uninitialized_value_construct_n(block->first(), size);
    fill(block->elements());
    block_.store(block, std::memory_order_release);
  }
  // The bytes of all arrays.
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Block* block = block_.load(std::memory_order_relaxed); block != nullptr; block = block->outgrown)
      sum += sizeof(Block) + block->size * sizeof(T);
    return sum;
  }

 private:
  struct Block {
    Block* const outgrown;
    const std::size_t size;
    T* first() { return reinterpret_cast<T*>(this + 1); }
    std::span<T> elements() { return {first(), size}; }
  };

  std::atomic<Block*> block_{nullptr};
};

// A list whose elements do not move, and which other threads may read while one thread adds to it. Thread safety: one
// thread at a time calls add(); another thread may read an element once it has synchronized with the thread that added
// it. Cost: three loads per access. Memory: 16 bytes, the elements, in chunks, and at most 16 bytes per chunk.
template <class T, std::size_t kTogether = 8>
class StableList {
 public:
  ~StableList() {
    for (Chunk* const chunk : chunks_.get()) delete chunk;
  }

  std::size_t size() const { return size_.load(std::memory_order_relaxed); }
  T& operator[](std::size_t number) const { return (*chunks_.get()[number / kTogether])[number % kTogether]; }
  // Adds an element, and returns it.
  T& add() {
    const std::size_t number = size();
    if (number % kTogether == 0) {
      const std::span<Chunk*> chunks = chunks_.get();
      const std::size_t chunk = number / kTogether;
      if (chunk == chunks.size())
        chunks_.replace(std::max<std::size_t>(2, 2 * chunk),
                        [&](std::span<Chunk*> more) { std::ranges::copy(chunks, more.begin()); });
      chunks_.get()[chunk] = new Chunk();
    }
    size_.store(number + 1, std::memory_order_relaxed);
    return (*this)[number];
  }

 private:
  using Chunk = std::array<T, kTogether>;

  GrowingArray<Chunk*> chunks_;  // null beyond the last
  std::atomic<std::size_t> size_{0};
};

// RankIndex: finds, by open addressing, the number of the element of a list that has a rank. The ranks are in the
// elements: `rank_of(number)` returns the rank of an element. Thread safety: one thread at a time calls add(), any may
// call find() meanwhile. Cost: O(1). Memory: 16 bytes, and per element 10.7 to 21.4 bytes. Tables that were outgrown
// stay, since a thread may read them.
class RankIndex {
 public:
  // Returns the number of the element of this rank, or -1.
  template <class RankOf>
  int find(int rank, RankOf&& rank_of) const {
    const Slots slots = slots_.get();
    if (slots.empty()) return -1;
    for (std::size_t at = hash(rank, slots.size());; at = (at + 1) & (slots.size() - 1)) {
      // Acquire: the element is complete for a thread that finds its number.
      const int number = static_cast<int>(slots[at].load(std::memory_order_acquire)) - 1;
      if (number < 0 || rank_of(number) == rank) return number;
    }
  }
  // The next add() then needs no memory.
  template <class RankOf>
  void make_room(RankOf&& rank_of) {
    const std::size_t size = slots_.get().size();
    if (4 * (std::size_t{count_} + 1) <= 3 * size) return;
    slots_.replace(std::max<std::size_t>(8, 2 * size), [&](Slots slots) {
      for (std::uint32_t number = 0; number < count_; ++number)
        insert(slots, number, rank_of(static_cast<int>(number)));
    });
  }
  // Adds the next element: its number is the number of calls before. Precondition: no element of the same rank was
  // added.
  template <class RankOf>
  void add(RankOf&& rank_of) {
    make_room(rank_of);
    insert(slots_.get(), count_, rank_of(static_cast<int>(count_)));
    ++count_;
  }
  std::size_t bytes() const { return slots_.bytes(); }

 private:
  // A slot has the number of an element plus 1; 0 is an empty slot. The number of slots is a power of two, and at most
  // three quarters of them are full.
  using Slots = std::span<std::atomic<std::uint32_t>>;

  static std::size_t hash(int rank, std::size_t slots) {
    return (static_cast<std::uint32_t>(rank) * std::uint64_t{0x9e3779b97f4a7c15}) >> (64 - std::countr_zero(slots));
  }
  static void insert(Slots slots, std::uint32_t number, int rank) {
    std::size_t at = hash(rank, slots.size());
    while (slots[at].load(std::memory_order_relaxed) != 0) at = (at + 1) & (slots.size() - 1);
    slots[at].store(number + 1, std::memory_order_release);
  }

  GrowingArray<std::atomic<std::uint32_t>> slots_;
  std::uint32_t count_ = 0;
};

}  // namespace farside

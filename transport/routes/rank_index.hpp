// SPDX-License-Identifier: BSD-3-Clause
// RankIndex: finds, by open addressing, the number of the element of a list that has a rank. The ranks are in the
// elements: `rank_of(number)` returns the rank of an element. Not thread-safe. Cost: O(1). Memory per element: 2 bytes
// up to 49,152 elements, then 4, and at most 2.7 times as much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace farside {

class RankIndex {
 public:
  // Returns the number of the element of this rank, or -1.
  template <class RankOf>
  int find(int rank, RankOf&& rank_of) const {
    if (slots_ == 0) return -1;
    for (std::size_t at = hash(rank);; at = next(at)) {
      const int number = number_at(at);
      if (number < 0 || rank_of(number) == rank) return number;
    }
  }
  // Adds the next element: its number is the number of calls before. Precondition: no element of the same rank was
  // added.
  template <class RankOf>
  void add(RankOf&& rank_of) {
    if (4 * (std::size_t{count_} + 1) > 3 * std::size_t{slots_}) grow(rank_of);
    insert(count_, rank_of(static_cast<int>(count_)));
    ++count_;
  }
  std::size_t bytes() const { return slots_ * slot_bytes(); }

 private:
  // With so many slots each number fits two bytes, in which 0 means an empty slot.
  static constexpr std::uint32_t kMostShort = 65536;

  std::size_t slot_bytes() const { return slots_ <= kMostShort ? sizeof(std::uint16_t) : sizeof(std::uint32_t); }
  int number_at(std::size_t at) const {
    const std::uint32_t stored = slots_ <= kMostShort ? reinterpret_cast<const std::uint16_t*>(numbers_.get())[at]
                                                      : reinterpret_cast<const std::uint32_t*>(numbers_.get())[at];
    return static_cast<int>(stored) - 1;
  }
  std::size_t hash(int rank) const {
    return (static_cast<std::uint32_t>(rank) * std::uint64_t{0x9e3779b97f4a7c15}) >> shift_;
  }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_ - 1); }
  void insert(std::uint32_t number, int rank) {
    std::size_t at = hash(rank);
    while (number_at(at) >= 0) at = next(at);
    if (slots_ <= kMostShort) {
      reinterpret_cast<std::uint16_t*>(numbers_.get())[at] = static_cast<std::uint16_t>(number + 1);
    } else {
      reinterpret_cast<std::uint32_t*>(numbers_.get())[at] = number + 1;
    }
  }
  template <class RankOf>
  void grow(RankOf&& rank_of) {
    slots_ = slots_ == 0 ? 8 : 2 * slots_;
    shift_ = 64;
    for (std::size_t size = slots_; size > 1; size /= 2) --shift_;
    numbers_ = std::make_unique<std::byte[]>(bytes());
    for (std::uint32_t number = 0; number < count_; ++number) insert(number, rank_of(static_cast<int>(number)));
  }

  std::unique_ptr<std::byte[]> numbers_;  // at most three quarters of the slots are full
  std::uint32_t slots_ = 0;               // a power of two
  std::uint32_t count_ = 0;
  int shift_ = 64;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// A list whose elements do not move, and which other threads may read while one thread adds to it. Thread safety: one
// thread at a time calls add(); another thread may read an element once it has synchronized with the thread that added
// it. Cost: three loads per access. Memory: 16 bytes, the elements, in chunks, and at most 16 bytes per chunk.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>

#include "transport/base/growing_array.hpp"

namespace farside {

template <class T, std::size_t kTogether = 8>
class StableList {
 public:
  StableList() = default;
  StableList(const StableList&) = delete;
  StableList& operator=(const StableList&) = delete;
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

}  // namespace farside

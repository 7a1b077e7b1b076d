// SPDX-License-Identifier: BSD-3-Clause
// memcpy for lengths that are unknown at compile time and are mostly the size of one element: one load and one store
// instead of a call.
#pragma once

#include <cstddef>
#include <cstring>

namespace farside {

// Returns false, and copies nothing, if no single load and store copies this many bytes.
[[gnu::always_inline]] inline bool copy_small(void* to, const void* from, std::size_t bytes) {
  if (bytes == 8) [[likely]] {
    std::memcpy(to, from, 8);
    return true;
  }
  switch (bytes) {
    case 1: std::memcpy(to, from, 1); return true;
    case 2: std::memcpy(to, from, 2); return true;
    case 4: std::memcpy(to, from, 4); return true;
    case 16: std::memcpy(to, from, 16); return true;
    default: return false;
  }
}

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (!copy_small(to, from, bytes)) std::memcpy(to, from, bytes);
}

}  // namespace farside

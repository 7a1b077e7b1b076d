// SPDX-License-Identifier: BSD-3-Clause
// memcpy for lengths that are known only when the program runs and are mostly those of one element: a load and a store
// for these, instead of a call.
#pragma once

#include <cstddef>
#include <cstring>

namespace farside {

inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  switch (bytes) {
    case 1: std::memcpy(to, from, 1); break;
    case 2: std::memcpy(to, from, 2); break;
    case 4: std::memcpy(to, from, 4); break;
    case 8: std::memcpy(to, from, 8); break;
    case 16: std::memcpy(to, from, 16); break;
    default: std::memcpy(to, from, bytes);
  }
}

}  // namespace farside

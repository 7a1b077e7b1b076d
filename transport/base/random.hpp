// SPDX-License-Identifier: BSD-3-Clause
// Bits that nobody can guess, for keys and nonces (getrandom(2)).
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

namespace farside {

inline std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  // Up to 256 bytes never come short once the kernel's pool is ready (getrandom(2)).
  if (getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) std::abort();
  return bits;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// Unguessable bits for keys and nonces (getrandom(2)).
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

namespace farside {

inline std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  // Once the kernel's pool is ready, a call for at most 256 bytes always succeeds (getrandom(2)).
  if (getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) std::abort();
  return bits;
}

}  // namespace farside

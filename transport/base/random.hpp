// SPDX-License-Identifier: BSD-3-Clause
// Unguessable bits for keys and nonces (getrandom(2)), and more of them from given ones.
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

// A bijection that spreads each bit over all bits: the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable
// pseudorandom number generators", OOPSLA 2014).
constexpr std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

}  // namespace farside

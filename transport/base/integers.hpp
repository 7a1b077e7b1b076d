// SPDX-License-Identifier: BSD-3-Clause
// Numbers: sums and products of sizes and displacements from the program, which may overflow; texts; random bits.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <sys/random.h>

namespace farside {

// The maximal size of an object: ptrdiff_t holds all offsets in it.
inline constexpr std::size_t kMostBytes = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());

// Returns the bytes of `count` elements of `size` bytes; nothing if that is more than kMostBytes.
constexpr std::optional<std::size_t> bytes_of(std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > kMostBytes) return std::nullopt;
  return bytes;
}

// Holds each product of two such numbers. narrow() throws std::overflow_error unless the value fits.
__extension__ using Wide = __int128;
constexpr std::ptrdiff_t narrow(Wide value) {
  if (value != static_cast<std::ptrdiff_t>(value)) throw std::overflow_error("more than an offset holds");
  return static_cast<std::ptrdiff_t>(value);
}

// Reads a number that is the whole text. Returns false if it is none of this type.
template <class Number>
bool parse_number(std::string_view text, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size();
}

// Unguessable bits for keys and nonces (getrandom(2)).
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

constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

}  // namespace farside

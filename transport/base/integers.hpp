// SPDX-License-Identifier: BSD-3-Clause
// Sums and products of counts, sizes and displacements from the program, which may overflow; and random bits.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
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

// An integer whose operations throw std::overflow_error at an overflow. Not for fast paths.
template <std::integral T>
class Checked {
 public:
  constexpr Checked(T value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  // Converts from another type.
  template <std::integral From>
  static constexpr Checked of(From value) {
    T same = 0;
    if (__builtin_add_overflow(value, From{0}, &same)) fail();
    return same;
  }
  constexpr T value() const { return value_; }
  friend constexpr Checked operator+(Checked a, Checked b) {
    return calculate(a, b, [](T x, T y, T* z) { return __builtin_add_overflow(x, y, z); });
  }
  friend constexpr Checked operator-(Checked a, Checked b) {
    return calculate(a, b, [](T x, T y, T* z) { return __builtin_sub_overflow(x, y, z); });
  }
  friend constexpr Checked operator*(Checked a, Checked b) {
    return calculate(a, b, [](T x, T y, T* z) { return __builtin_mul_overflow(x, y, z); });
  }
  constexpr Checked& operator+=(Checked other) { return *this = *this + other; }
  constexpr Checked& operator*=(Checked other) { return *this = *this * other; }
  friend constexpr auto operator<=>(Checked, Checked) = default;

 private:
  template <class Operation>
  static constexpr Checked calculate(Checked a, Checked b, Operation operation) {
    T result = 0;
    if (operation(a.value_, b.value_, &result)) fail();
    return result;
  }
  [[noreturn]] static void fail() { throw std::overflow_error("more than the type holds"); }

  T value_;
};

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

}  // namespace farside

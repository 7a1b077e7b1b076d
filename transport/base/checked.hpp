// SPDX-License-Identifier: BSD-3-Clause
// Sums and products of counts, sizes and displacements from the program, which may overflow.
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <stdexcept>

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

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The types of the elements that one-sided operations copy and combine. pmpi/ maps each predefined MPI datatype to one
// BasicType, so that this layer needs no MPI. A pair type is a value followed by an int or by a value of the same type
// (MPI_MINLOC, MPI_MAXLOC; MPI 4.0 section 6.9.4), with the layout of the C struct of both members.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farside {

// clang-format off
enum class BasicType : std::uint8_t {
  kInt8, kInt16, kInt32, kInt64,
  kUint8, kUint16, kUint32, kUint64,
  kFloat, kDouble, kLongDouble,
  kComplexFloat, kComplexDouble, kComplexLongDouble,
  kByte,       // MPI_BYTE, MPI_PACKED: bitwise operations and MPI_REPLACE only
  kCharacter,  // MPI_CHARACTER, MPI_WCHAR (4 bytes: kCharacter4): no arithmetic
  kCharacter4,
  kLogical1, kLogical2, kLogical4, kLogical8,  // C bool and Fortran LOGICAL: logical operations
  kFloatInt, kDoubleInt, kLongInt, kInt32Int32, kShortInt, kLongDoubleInt,  // MPI_FLOAT_INT, ... (C)
  kFloatFloat, kDoubleDouble,  // MPI_2REAL, MPI_2DOUBLE_PRECISION (Fortran; MPI_2INTEGER is kInt32Int32)
  kQuad, kComplexQuad,         // MPI_REAL16, MPI_COMPLEX32: IEEE binary128, which on x86-64 is not long double
};
// clang-format on
inline constexpr std::size_t kBasicTypes = 31;

// Types of 1 and 2 bytes have no CPU atomics, because programs copy structures as such elements. Under the accumulate
// lock an operation on up to 16 KiB of them is atomic as a whole, as programs expect for a pointer sent as MPI_BYTE.
// Floating-point, complex and pair types have none, because a CPU adds them only by a compare-and-swap loop.
struct BasicTypeTraits {
  const char* name;
  std::uint8_t size;     // bytes of data (12 for kDoubleInt)
  std::uint8_t extent;   // bytes from one element to the next (16 for kDoubleInt)
  std::uint8_t first;    // bytes of the first member of a pair type (8 for kDoubleInt), else size
  std::uint8_t second;   // offset of the second member of a pair type, else 0
  bool cpu_atomics;      // aligned elements are combined by CPU atomics: integers, logicals, characters of 4 or 8 bytes
};

extern const std::array<BasicTypeTraits, kBasicTypes> basic_type_traits;
inline const BasicTypeTraits& traits(BasicType type) { return basic_type_traits[static_cast<std::size_t>(type)]; }

// Returns the bytes of an integer type that add_atomic() adds: 4 or 8; 0 for all other types.
constexpr std::size_t added_bytes(BasicType type) {
  switch (type) {
    case BasicType::kInt32:
    case BasicType::kUint32: return 4;
    case BasicType::kInt64:
    case BasicType::kUint64: return 8;
    default: return 0;
  }
}

// Returns whether the elements of a type have a gap (size != extent), whose bytes are never written at a target.
inline bool has_gap(BasicType type) { return traits(type).size != traits(type).extent; }

// Returns the bytes from the first element to the end of the last one's data. The last element need not have a gap
// behind its data.
inline std::size_t span_of(BasicType type, std::size_t count) {
  const BasicTypeTraits& of = traits(type);
  const std::size_t data = of.second == 0 ? of.size : std::size_t{of.second} + of.size - of.first;
  return count == 0 ? 0 : (count - 1) * of.extent + data;
}

}  // namespace farside

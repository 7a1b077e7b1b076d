// SPDX-License-Identifier: BSD-3-Clause
// The elements that one-sided operations move and combine: every predefined MPI datatype maps to one BasicType
// (in pmpi/), so that this layer needs no MPI. A pair type is a value followed by an int or a value of the same
// type (MPI_MINLOC, MPI_MAXLOC; MPI 4.0 section 6.9.4), laid out as the C struct of its two members.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farside {

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
inline constexpr std::size_t kBasicTypes = 31;

// Types of 1 and 2 bytes have no CPU atomics: they are what structures are moved by. Under the accumulate lock they are
// moved whole (up to 16 KiB), which programs expect of a pointer sent as MPI_BYTE.
struct BasicTypeTraits {
  const char* name;
  std::uint8_t size;     // bytes of data (12 for kDoubleInt)
  std::uint8_t extent;   // bytes from one element to the next (16 for kDoubleInt)
  std::uint8_t first;    // bytes of the first member of a pair type (8 for kDoubleInt), else size
  std::uint8_t second;   // pair types: offset of the second member, else 0
  bool cpu_atomics;      // elements are combined by CPU atomics where they are aligned: no gap, of 4 or 8 bytes (below)
  bool cpu_adds;         // counters, to which the CPU adds in one step: not floating-point, which takes a loop
};

extern const std::array<BasicTypeTraits, kBasicTypes> basic_type_traits;
inline const BasicTypeTraits& traits(BasicType type) { return basic_type_traits[static_cast<std::size_t>(type)]; }

// True for types whose elements have gaps (size != extent): those bytes are never written at a target.
inline bool has_gap(BasicType type) { return traits(type).size != traits(type).extent; }

// Bytes from the first element to the end of the last one's data: it need not have a gap behind it.
inline std::size_t span_of(BasicType type, std::size_t count) {
  const BasicTypeTraits& of = traits(type);
  const std::size_t data = of.second == 0 ? of.size : std::size_t{of.second} + of.size - of.first;
  return count == 0 ? 0 : (count - 1) * of.extent + data;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// Basic types, and the reduce operations on them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace farside {

// The types of the elements that one-sided operations copy and combine. pmpi/ maps each predefined MPI datatype to one
// BasicType, so that this layer needs no MPI. A pair type is a value followed by an int or by a value of the same type
// (MPI_MINLOC, MPI_MAXLOC; MPI 4.0 section 6.9.4), with the layout of the C struct of both members.
// clang-format off
// Each as X(name, text for messages, type in combine.cpp).
#define FARSIDE_BASIC_TYPES(X) \
  X(Int8, "int8", std::int8_t) X(Int16, "int16", std::int16_t) \
  X(Int32, "int32", std::int32_t) X(Int64, "int64", std::int64_t) \
  X(Uint8, "uint8", std::uint8_t) X(Uint16, "uint16", std::uint16_t) \
  X(Uint32, "uint32", std::uint32_t) X(Uint64, "uint64", std::uint64_t) \
  X(Float, "float", float) X(Double, "double", double) X(LongDouble, "long double", long double) \
  X(ComplexFloat, "complex float", Complex<float>) X(ComplexDouble, "complex double", Complex<double>) \
  X(ComplexLongDouble, "complex long double", Complex<long double>) \
  /* MPI_BYTE, MPI_PACKED: bitwise operations and MPI_REPLACE only */ \
  X(Byte, "byte", std::byte) \
  /* MPI_CHARACTER, MPI_WCHAR (4 bytes: kCharacter4): no arithmetic */ \
  X(Character, "character", Opaque<1>) X(Character4, "character4", Opaque<4>) \
  /* C bool and Fortran LOGICAL: logical operations */ \
  X(Logical1, "logical1", Logical<std::uint8_t>) X(Logical2, "logical2", Logical<std::uint16_t>) \
  X(Logical4, "logical4", Logical<std::uint32_t>) X(Logical8, "logical8", Logical<std::uint64_t>) \
  /* MPI_FLOAT_INT, ... (C) */ \
  X(FloatInt, "float-int", Pair<float, std::int32_t>) X(DoubleInt, "double-int", Pair<double, std::int32_t>) \
  X(LongInt, "long-int", Pair<std::int64_t, std::int32_t>) X(Int32Int32, "int-int", Pair<std::int32_t, std::int32_t>) \
  X(ShortInt, "short-int", Pair<std::int16_t, std::int32_t>) \
  X(LongDoubleInt, "long double-int", Pair<long double, std::int32_t>) \
  /* MPI_2REAL, MPI_2DOUBLE_PRECISION (Fortran; MPI_2INTEGER is kInt32Int32) */ \
  X(FloatFloat, "float-float", Pair<float, float>) X(DoubleDouble, "double-double", Pair<double, double>) \
  /* MPI_REAL16, MPI_COMPLEX32: IEEE binary128, which on x86-64 is not long double */ \
  X(Quad, "quad", Quad) X(ComplexQuad, "complex quad", Complex<Quad>)
// clang-format on
#define FARSIDE_ENUMERATOR(name, ...) k##name,
enum class BasicType : std::uint8_t { FARSIDE_BASIC_TYPES(FARSIDE_ENUMERATOR) };
inline constexpr std::size_t kBasicTypes = 31;

// Types of 1 and 2 bytes have no CPU atomics, because programs copy structures as such elements. Under the accumulate
// lock an operation on up to 16 KiB of them is atomic as a whole, as programs expect for a pointer sent as MPI_BYTE.
// Floating-point, complex and pair types have none, because a CPU adds them only by a compare-and-swap loop.
struct BasicTypeTraits {
  const char* name;
  std::uint8_t size;    // bytes of data (12 for kDoubleInt)
  std::uint8_t extent;  // bytes from one element to the next (16 for kDoubleInt)
  std::uint8_t first;   // bytes of the first member of a pair type (8 for kDoubleInt), else size
  std::uint8_t second;  // offset of the second member of a pair type, else 0
  bool cpu_atomics;     // aligned elements are combined by CPU atomics: integers, logicals, characters of 4 or 8 bytes
  std::uint16_t operations;  // that MPI allows, one bit per ReduceOp
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

// The predefined operations of the accumulate family (MPI 4.0 sections 6.9.2 and 12.3.4), and their kernels. There are
// two methods to be atomic per element, and all concurrent accesses to a location must use the same method:
//   - kAtomic: one CPU atomic or a compare-and-swap loop per element (4 or 8 bytes, naturally aligned), without a lock;
//   - kLocked: plain loops; the caller holds the accumulate lock of the region.
//
// Thread safety: any, under these rules. No function reports errors: the preconditions are the caller's.
// clang-format off
// Each as X(name, text for messages, MPI's name); find_reduce_op() finds the first ones fastest.
#define FARSIDE_REDUCE_OPS(X) \
  X(Sum, "sum", SUM) X(Replace, "replace", REPLACE) X(NoOp, "no_op", NO_OP) X(Max, "max", MAX) X(Min, "min", MIN) \
  X(Prod, "prod", PROD) X(Land, "land", LAND) X(Lor, "lor", LOR) X(Lxor, "lxor", LXOR) X(Band, "band", BAND) \
  X(Bor, "bor", BOR) X(Bxor, "bxor", BXOR) X(Minloc, "minloc", MINLOC) X(Maxloc, "maxloc", MAXLOC)
// clang-format on
enum class ReduceOp : std::uint8_t { FARSIDE_REDUCE_OPS(FARSIDE_ENUMERATOR) };
#undef FARSIDE_ENUMERATOR
inline constexpr std::size_t kReduceOps = 14;

const char* name(ReduceOp op);

// Whether MPI allows op on type (MPI 4.0 section 6.9.2: integer, floating point, logical, complex, byte, pair).
inline bool allowed(ReduceOp op, BasicType type) {
  return ((traits(type).operations >> static_cast<unsigned>(op)) & 1) != 0;
}

enum class AtomicMethod : std::uint8_t { kAtomic, kLocked };

// kAlone: no other process or thread accesses the target's data meanwhile (this process holds an exclusive lock and has
// one thread), so that plain loops suffice.
enum class Access : std::uint8_t { kShared, kAlone };

inline bool has_cpu_atomics(BasicType type) { return traits(type).cpu_atomics; }

// Returns the method for `type` at `address`: kAtomic if the type has CPU atomics and the address is naturally aligned.
// Every process maps a region with the same alignment, so all processes get the same result.
inline AtomicMethod atomic_method(BasicType type, const void* address) {
  const BasicTypeTraits& of = traits(type);
  const bool aligned = (reinterpret_cast<std::uintptr_t>(address) & (std::size_t{of.size} - 1)) == 0;
  return of.cpu_atomics && aligned ? AtomicMethod::kAtomic : AtomicMethod::kLocked;
}

// target[i] = target[i] op origin[i] for i < count. Elements are one extent of `type` apart. With kAtomic each element
// is read and replaced in one step. If `fetched` is not null, it receives the former elements of the target; the gaps
// of pair types are not written. kNoOp does not read `origin`, which may be null. Only `target` need be aligned, and
// only for kAtomic. Preconditions: the three buffers do not overlap; allowed(op, type); for kAtomic
// atomic_method(...) == kAtomic.
void combine(AtomicMethod method, ReduceOp op, BasicType type, void* target, const void* origin, void* fetched,
             std::size_t count);

// The same for the sum of one integer by kAtomic, inline. Word: the unsigned type of its size, 4 or 8 bytes.
template <class Word>
void add_atomic(void* target, const void* origin, void* fetched) {
  Word operand = 0;
  std::memcpy(&operand, origin, sizeof operand);
  const Word old = std::atomic_ref(*static_cast<Word*>(target)).fetch_add(operand, std::memory_order_acq_rel);
  if (fetched != nullptr) std::memcpy(fetched, &old, sizeof old);
}

// Combines rows of `count` elements with kLocked. The strides are the bytes from one row to the next. The function
// copies short rows into one, combines that, and copies the result back (1,024 single doubles: 1.3 us instead of 9).
struct RowStrides {
  std::ptrdiff_t target, origin, fetched;
};
void combine_rows(ReduceOp op, BasicType type, std::byte* target, const std::byte* origin, std::byte* fetched,
                  std::size_t count, std::size_t rows, const RowStrides& strides);

// fetched = *target; if (fetched == *compare bitwise) *target = *origin. One element. MPI_Compare_and_swap.
// Precondition: !has_gap(type) (MPI allows integer, logical and byte types only).
void compare_and_swap(AtomicMethod method, BasicType type, void* target, const void* origin, const void* compare,
                      void* fetched);

}  // namespace farside

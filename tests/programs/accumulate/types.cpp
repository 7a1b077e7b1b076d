// SPDX-License-Identifier: BSD-3-Clause
// Every predefined operation on every predefined type for which it is defined, by each of the calls.
#include <complex>
#include <limits>
#include <memory>

#include "accumulate/operations.hpp"
#include "accumulate/sections.hpp"

namespace accumulate {
namespace {

// One type with all its operations, from every rank to every rank: one epoch each for accumulate, get_accumulate and
// fetch_and_op. The slot of an operation at a target belongs to one origin.
template <class T>
void every_operation(check::Memory memory, MPI_Datatype type, const std::vector<Operation<T>>& operations) {
  if (type == MPI_DATATYPE_NULL) return;  // a Fortran type, if the runtime was built without Fortran
  constexpr int kCount = 5;
  const int kinds = static_cast<int>(operations.size());
  const int total = kinds * size * kCount;
  Window window(memory, static_cast<MPI_Aint>(sizeof(T)) * total, sizeof(T));
  T* mine = window.as<T>();
  const auto slot = [&](int kind, int origin) { return (kind * size + origin) * kCount; };
  const auto before = [](int target, int at) { return Sample<T>::at(at + 3 * target); };
  const auto operand = [](int origin, int target, int at) { return Sample<T>::at(at * 5 + origin + 2 * target + 1); };

  // Not std::vector, whose bools are bits.
  const auto out = std::make_unique<T[]>(static_cast<unsigned>(size * total));
  const auto in = std::make_unique<T[]>(static_cast<unsigned>(size * total));
  for (int target = 0; target < size; ++target) {
    for (int at = 0; at < total; ++at) out[static_cast<std::size_t>(target * total + at)] = operand(rank, target, at);
  }
  enum { kAccumulate, kGetAccumulate, kFetchAndOp, kCalls };
  for (int call = 0; call < kCalls; ++call) {
    const int count = call == kFetchAndOp ? 1 : kCount;
    for (int at = 0; at < total; ++at) mine[at] = before(rank, at);
    std::fill(in.get(), in.get() + size * total, Sample<T>::at(2));
    CHECK_MPI(MPI_Win_fence(0, window));
    for (int target = 0; target < size; ++target) {
      for (int kind = 0; kind < kinds; ++kind) {
        const MPI_Op op = operations[static_cast<std::size_t>(kind)].op;
        const int at = slot(kind, rank);
        T* from = out.get() + target * total + at;
        T* to = in.get() + target * total + at;
        if (call == kAccumulate && op == MPI_NO_OP) {
          continue;  // only the calls that fetch accept it (MPI 4.0 section 12.3.4)
        } else if (call == kAccumulate) {
          CHECK_MPI(MPI_Accumulate(from, count, type, target, at, count, type, op, window));
        } else if (call == kGetAccumulate) {
          const bool nothing = op == MPI_NO_OP;
          CHECK_MPI(MPI_Get_accumulate(nothing ? nullptr : from, nothing ? 0 : count, type, to, count, type, target, at,
                                       count, type, op, window));
        } else {
          CHECK_MPI(MPI_Fetch_and_op(op == MPI_NO_OP ? nullptr : from, to, type, target, at, op, window));
        }
      }
    }
    CHECK_MPI(MPI_Win_fence(0, window));
    for (int kind = 0; kind < kinds; ++kind) {
      for (int origin = 0; origin < size; ++origin) {
        for (int i = 0; i < kCount; ++i) {
          const int at = slot(kind, origin) + i;
          const T old = before(rank, at);
          const T expected =
              i < count ? operations[static_cast<std::size_t>(kind)].apply(old, operand(origin, rank, at)) : old;
          if (mine[at] == expected) continue;
          check::fail(__FILE__, __LINE__,
                      "call " + std::to_string(call) + ", operation " + std::to_string(kind) + ", element " +
                          std::to_string(i) + " from rank " + std::to_string(origin) + ": " + check::show(old) +
                          " and " + check::show(operand(origin, rank, at)) + " made " + check::show(mine[at]) +
                          ", not " + check::show(expected));
        }
      }
    }
    if (call == kAccumulate) continue;
    for (int target = 0; target < size; ++target) {
      for (int kind = 0; kind < kinds; ++kind) {
        for (int i = 0; i < count; ++i) {
          const int at = slot(kind, rank) + i;
          CHECK_EQ(in[static_cast<std::size_t>(target * total + at)], before(target, at));
        }
      }
    }
  }
}

}  // namespace

void every_type(check::Memory memory) {
  check::section("8-bit integers");
  every_operation<signed char>(memory, MPI_SIGNED_CHAR, integers<signed char>());
  every_operation<unsigned char>(memory, MPI_UNSIGNED_CHAR, integers<unsigned char>());
  every_operation<std::int8_t>(memory, MPI_INT8_T, integers<std::int8_t>());
  every_operation<std::uint8_t>(memory, MPI_UINT8_T, integers<std::uint8_t>());
  check::section("16-bit integers");
  every_operation<short>(memory, MPI_SHORT, integers<short>());
  every_operation<unsigned short>(memory, MPI_UNSIGNED_SHORT, integers<unsigned short>());
  every_operation<std::int16_t>(memory, MPI_INT16_T, integers<std::int16_t>());
  every_operation<std::uint16_t>(memory, MPI_UINT16_T, integers<std::uint16_t>());
  check::section("32-bit integers");
  every_operation<int>(memory, MPI_INT, integers<int>());
  every_operation<unsigned>(memory, MPI_UNSIGNED, integers<unsigned>());
  every_operation<std::int32_t>(memory, MPI_INT32_T, integers<std::int32_t>());
  every_operation<std::uint32_t>(memory, MPI_UINT32_T, integers<std::uint32_t>());
  check::section("64-bit integers");
  every_operation<long>(memory, MPI_LONG, integers<long>());
  every_operation<unsigned long>(memory, MPI_UNSIGNED_LONG, integers<unsigned long>());
  every_operation<long long>(memory, MPI_LONG_LONG, integers<long long>());
  every_operation<unsigned long long>(memory, MPI_UNSIGNED_LONG_LONG, integers<unsigned long long>());
  every_operation<std::int64_t>(memory, MPI_INT64_T, integers<std::int64_t>());
  every_operation<std::uint64_t>(memory, MPI_UINT64_T, integers<std::uint64_t>());
  check::section("multi-language integers");
  // The operations of a floating-point type, which lack those on bits. MPI allows those on bits, too (MPI 4.0 table
  // 6.4).
  every_operation<MPI_Aint>(memory, MPI_AINT, floats<MPI_Aint>());
  every_operation<MPI_Offset>(memory, MPI_OFFSET, floats<MPI_Offset>());
  every_operation<MPI_Count>(memory, MPI_COUNT, floats<MPI_Count>());
  every_operation<MPI_Aint>(memory, MPI_AINT, bits<MPI_Aint>());
  check::section("MPI_BYTE, MPI_CHAR and MPI_C_BOOL");
  every_operation<unsigned char>(memory, MPI_BYTE, bits<unsigned char>());
  every_operation<char>(memory, MPI_CHAR, integers<char>());
  every_operation<wchar_t>(memory, MPI_WCHAR, moves<wchar_t>());
  every_operation<bool>(memory, MPI_C_BOOL, logicals<bool>());
  check::section("floating point");
  every_operation<float>(memory, MPI_FLOAT, floats<float>());
  every_operation<double>(memory, MPI_DOUBLE, floats<double>());
  every_operation<long double>(memory, MPI_LONG_DOUBLE, floats<long double>());
  check::section("complex");
  every_operation<std::complex<float>>(memory, MPI_C_FLOAT_COMPLEX, sums<std::complex<float>>());
  every_operation<std::complex<double>>(memory, MPI_C_DOUBLE_COMPLEX, sums<std::complex<double>>());
  every_operation<std::complex<long double>>(memory, MPI_C_LONG_DOUBLE_COMPLEX, sums<std::complex<long double>>());
  check::section("Fortran types");
  every_operation<int>(memory, MPI_INTEGER, floats<int>());
  every_operation<int>(memory, MPI_INTEGER, bits<int>());
  every_operation<float>(memory, MPI_REAL, floats<float>());
  every_operation<double>(memory, MPI_DOUBLE_PRECISION, floats<double>());
  every_operation<std::complex<float>>(memory, MPI_COMPLEX, sums<std::complex<float>>());
  every_operation<std::complex<double>>(memory, MPI_DOUBLE_COMPLEX, sums<std::complex<double>>());
  check::section("pair types");
  every_operation<Pair<float>>(memory, MPI_FLOAT_INT, locations<float>());
  every_operation<Pair<double>>(memory, MPI_DOUBLE_INT, locations<double>());
  every_operation<Pair<long>>(memory, MPI_LONG_INT, locations<long>());
  every_operation<Pair<int>>(memory, MPI_2INT, locations<int>());
  every_operation<Pair<short>>(memory, MPI_SHORT_INT, locations<short>());
  every_operation<Pair<long double>>(memory, MPI_LONG_DOUBLE_INT, locations<long double>());
}

namespace {

// One matching and one failing swap between all pairs of ranks, also with the largest and smallest values.
template <class T>
void swaps(check::Memory memory, MPI_Datatype type) {
  Window window(memory, static_cast<MPI_Aint>(sizeof(T)) * 2 * size, sizeof(T));
  T* mine = window.as<T>();
  const T high = std::numeric_limits<T>::max();
  const T low = std::numeric_limits<T>::min();
  for (int i = 0; i < 2 * size; ++i) mine[i] = high;
  const auto old = std::make_unique<T[]>(static_cast<unsigned>(2 * size));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    const T other = static_cast<T>(high - 1);
    T* results = old.get() + 2 * target;
    CHECK_MPI(MPI_Compare_and_swap(&low, &high, &results[0], type, target, 2 * rank, window));
    CHECK_MPI(MPI_Compare_and_swap(&low, &other, &results[1], type, target, 2 * rank + 1, window));
    // The program may not change the operands of compare_and_swap until the epoch ends.
    CHECK_MPI(MPI_Win_fence(0, window));
  }
  for (int origin = 0; origin < size; ++origin) {
    CHECK_EQ(mine[2 * origin], low);
    CHECK_EQ(mine[2 * origin + 1], high);
  }
  for (int i = 0; i < 2 * size; ++i) CHECK_EQ(old[static_cast<std::size_t>(i)], high);
}

}  // namespace

void every_swap(check::Memory memory) {
  swaps<signed char>(memory, MPI_SIGNED_CHAR);
  swaps<unsigned char>(memory, MPI_UNSIGNED_CHAR);
  swaps<short>(memory, MPI_SHORT);
  swaps<unsigned short>(memory, MPI_UNSIGNED_SHORT);
  swaps<int>(memory, MPI_INT);
  swaps<unsigned>(memory, MPI_UNSIGNED);
  swaps<long>(memory, MPI_LONG);
  swaps<unsigned long>(memory, MPI_UNSIGNED_LONG);
  swaps<long long>(memory, MPI_LONG_LONG);
  swaps<unsigned long long>(memory, MPI_UNSIGNED_LONG_LONG);
  swaps<std::int8_t>(memory, MPI_INT8_T);
  swaps<std::int16_t>(memory, MPI_INT16_T);
  swaps<std::int32_t>(memory, MPI_INT32_T);
  swaps<std::int64_t>(memory, MPI_INT64_T);
  swaps<std::uint8_t>(memory, MPI_UINT8_T);
  swaps<std::uint16_t>(memory, MPI_UINT16_T);
  swaps<std::uint32_t>(memory, MPI_UINT32_T);
  swaps<std::uint64_t>(memory, MPI_UINT64_T);
  swaps<unsigned char>(memory, MPI_BYTE);
  swaps<MPI_Aint>(memory, MPI_AINT);
  swaps<MPI_Offset>(memory, MPI_OFFSET);
  swaps<MPI_Count>(memory, MPI_COUNT);
  swaps<bool>(memory, MPI_C_BOOL);
}

}  // namespace accumulate

// SPDX-License-Identifier: BSD-3-Clause
// Every predefined operation on every predefined type it is defined for, by each of the four calls; many
// ranks on one location lose nothing; the operations of one origin on one location happen in their order.
#include <complex>
#include <limits>
#include <memory>

#include "check.hpp"

namespace {

int rank;
int size;

// ---- what an operation makes of two values
// ------------------------------------------------------------------------

template <class T>
struct Operation {
  MPI_Op op;
  T (*apply)(T target, T origin);
};

template <class T>
std::vector<Operation<T>> moves() {
  return {{MPI_REPLACE, [](T, T b) { return b; }}, {MPI_NO_OP, [](T a, T) { return a; }}};
}

template <class T>
std::vector<Operation<T>> sums() {
  auto list = moves<T>();
  list.push_back({MPI_SUM, [](T a, T b) { return static_cast<T>(a + b); }});
  list.push_back({MPI_PROD, [](T a, T b) { return static_cast<T>(a * b); }});
  return list;
}

template <class T>
std::vector<Operation<T>> floats() {
  auto list = sums<T>();
  list.push_back({MPI_MAX, [](T a, T b) { return a < b ? b : a; }});
  list.push_back({MPI_MIN, [](T a, T b) { return b < a ? b : a; }});
  return list;
}

template <class T>
std::vector<Operation<T>> bits() {
  auto list = moves<T>();
  list.push_back({MPI_BAND, [](T a, T b) { return static_cast<T>(a & b); }});
  list.push_back({MPI_BOR, [](T a, T b) { return static_cast<T>(a | b); }});
  list.push_back({MPI_BXOR, [](T a, T b) { return static_cast<T>(a ^ b); }});
  return list;
}

template <class T>
std::vector<Operation<T>> logicals() {
  auto list = moves<T>();
  list.push_back({MPI_LAND, [](T a, T b) { return static_cast<T>(a && b); }});
  list.push_back({MPI_LOR, [](T a, T b) { return static_cast<T>(a || b); }});
  list.push_back({MPI_LXOR, [](T a, T b) { return static_cast<T>(!a != !b); }});
  return list;
}

template <class T>
std::vector<Operation<T>> integers() {
  auto list = floats<T>();
  for (const auto& each : bits<T>()) list.push_back(each);
  for (const auto& each : logicals<T>()) list.push_back(each);
  return list;
}

// The pair types of MPI_MINLOC and MPI_MAXLOC: of equal values the smaller index wins.
template <class T>
struct Pair {
  T value;
  int index;
  bool operator==(const Pair& other) const { return value == other.value && index == other.index; }
};

template <class T>
std::ostream& operator<<(std::ostream& out, const Pair<T>& pair) {
  return out << "(" << pair.value << ", " << pair.index << ")";
}

template <class T>
std::vector<Operation<Pair<T>>> locations() {
  auto list = moves<Pair<T>>();
  list.push_back({MPI_MINLOC, [](Pair<T> a, Pair<T> b) {
                    if (a.value == b.value) return Pair<T>{a.value, std::min(a.index, b.index)};
                    return a.value < b.value ? a : b;
                  }});
  list.push_back({MPI_MAXLOC, [](Pair<T> a, Pair<T> b) {
                    if (a.value == b.value) return Pair<T>{a.value, std::min(a.index, b.index)};
                    return a.value > b.value ? a : b;
                  }});
  return list;
}

// ---- values: small, of both signs where there are two, exact under every operation
// --------------------------------

template <class T>
struct Sample {
  static T at(int i) {
    if constexpr (std::is_same_v<T, bool>)
      return i % 2 != 0;
    else if constexpr (std::is_unsigned_v<T>)
      return static_cast<T>(i % 7);
    else
      return static_cast<T>(i % 7 - 3);
  }
};

template <class T>
struct Sample<std::complex<T>> {
  static std::complex<T> at(int i) { return {static_cast<T>(i % 7 - 3), static_cast<T>(i % 5 - 2)}; }
};

template <class T>
struct Sample<Pair<T>> {
  static Pair<T> at(int i) { return {static_cast<T>(i % 3 - 1), i % 11}; }
};

// ---- the calls
// ----------------------------------------------------------------------------------------------------

// One type, all its operations, from every rank to every rank: an epoch each for accumulate, get_accumulate
// and fetch_and_op. The slot of an operation at a target belongs to one origin.
template <class T>
void every_operation(check::Memory memory, MPI_Datatype type, const std::vector<Operation<T>>& operations) {
  if (type == MPI_DATATYPE_NULL) return;  // a Fortran type, where the runtime was built without Fortran
  constexpr int kCount = 5;
  const int kinds = static_cast<int>(operations.size());
  const int total = kinds * size * kCount;
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(T)) * total, sizeof(T));
  T* mine = window.as<T>();
  const auto slot = [&](int kind, int origin) { return (kind * size + origin) * kCount; };
  const auto before = [](int target, int at) { return Sample<T>::at(at + 3 * target); };
  const auto operand = [](int origin, int target, int at) {
    return Sample<T>::at(at * 5 + origin + 2 * target + 1);
  };

  // Not std::vector, whose bools are bits.
  const auto out = std::make_unique<T[]>(static_cast<std::size_t>(size * total));
  const auto in = std::make_unique<T[]>(static_cast<std::size_t>(size * total));
  for (int target = 0; target < size; ++target) {
    for (int at = 0; at < total; ++at)
      out[static_cast<std::size_t>(target * total + at)] = operand(rank, target, at);
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
          continue;  // only the calls that fetch take it (MPI 4.0, 12.3.4)
        } else if (call == kAccumulate) {
          CHECK_MPI(MPI_Accumulate(from, count, type, target, at, count, type, op, window));
        } else if (call == kGetAccumulate) {
          const bool nothing = op == MPI_NO_OP;
          CHECK_MPI(MPI_Get_accumulate(nothing ? nullptr : from, nothing ? 0 : count, type, to, count, type,
                                       target, at, count, type, op, window));
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
              i < count ? operations[static_cast<std::size_t>(kind)].apply(old, operand(origin, rank, at))
                        : old;
          if (mine[at] == expected) continue;
          check::fail(__FILE__, __LINE__,
                      "call " + std::to_string(call) + ", operation " + std::to_string(kind) + ", element " +
                          std::to_string(i) + " from rank " + std::to_string(origin) + ": " +
                          check::show(old) + " and " + check::show(operand(origin, rank, at)) + " made " +
                          check::show(mine[at]) + ", not " + check::show(expected));
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
  // Floats' operations are those of an integer without its bits; MPI allows the bits too (MPI 4.0,
  // table 6.4).
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
  every_operation<std::complex<long double>>(memory, MPI_C_LONG_DOUBLE_COMPLEX,
                                             sums<std::complex<long double>>());
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

// One swap that matches and one that does not, between all pairs, the largest and smallest values among them.
template <class T>
void swaps(check::Memory memory, MPI_Datatype type) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(T)) * 2 * size, sizeof(T));
  T* mine = window.as<T>();
  const T high = std::numeric_limits<T>::max();
  const T low = std::numeric_limits<T>::min();
  for (int i = 0; i < 2 * size; ++i) mine[i] = high;
  const auto old = std::make_unique<T[]>(static_cast<std::size_t>(2 * size));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    const T other = static_cast<T>(high - 1);
    T* results = old.get() + 2 * target;
    CHECK_MPI(MPI_Compare_and_swap(&low, &high, &results[0], type, target, 2 * rank, window));
    CHECK_MPI(MPI_Compare_and_swap(&low, &other, &results[1], type, target, 2 * rank + 1, window));
    // The operands of compare_and_swap belong to the call until the epoch ends.
    CHECK_MPI(MPI_Win_fence(0, window));
  }
  for (int origin = 0; origin < size; ++origin) {
    CHECK_EQ(mine[2 * origin], low);
    CHECK_EQ(mine[2 * origin + 1], high);
  }
  for (int i = 0; i < 2 * size; ++i) CHECK_EQ(old[static_cast<std::size_t>(i)], high);
}

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

// ---- many at once
// -------------------------------------------------------------------------------------------------

constexpr int kRounds = 200;

template <class T>
struct Local {
  const T& read(MPI_Win window, const T* at) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window));
    value = *at;
    CHECK_MPI(MPI_Win_unlock(rank, window));
    return value;
  }
  T value;
};

// All ranks add to one counter at every rank, by all three calls that can; every value fetched is fetched
// once.
template <class T>
void counter(check::Memory memory, MPI_Datatype type) {
  check::Window window(memory, 3 * sizeof(T), sizeof(T));
  const T one{1};
  std::vector<double> fetched;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int round = 0; round < kRounds; ++round) {
    const int target = round % size;
    T unused[2];
    T before{0};
    CHECK_MPI(MPI_Accumulate(&one, 1, type, target, 0, 1, type, MPI_SUM, window));
    CHECK_MPI(MPI_Fetch_and_op(&one, &unused[0], type, target, 0, MPI_SUM, window));
    CHECK_MPI(MPI_Get_accumulate(&one, 1, type, &unused[1], 1, type, target, 0, 1, type, MPI_SUM, window));
    CHECK_MPI(MPI_Fetch_and_op(&one, &before, type, 0, 1, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush_all(window));
    fetched.push_back(static_cast<double>(before));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  int rounds = 0;
  for (int round = 0; round < kRounds; ++round) rounds += round % size == rank;
  CHECK_EQ(Local<T>().read(window, window.as<T>()), static_cast<T>(3 * rounds * size));
  for (std::size_t i = 1; i < fetched.size(); ++i) CHECK(fetched[i - 1] < fetched[i]);
  std::vector<double> all(fetched.size() * static_cast<std::size_t>(size));
  CHECK_MPI(
      MPI_Allgather(fetched.data(), kRounds, MPI_DOUBLE, all.data(), kRounds, MPI_DOUBLE, MPI_COMM_WORLD));
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) CHECK_EQ(all[i], static_cast<double>(i));
}

// A counter that is raised by compare-and-swap here and by fetch_and_op there.
void swap_counter(check::Memory memory) {
  check::Window window(memory, 8, 8);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  const std::int64_t one = 1;
  std::int64_t seen = 0;
  for (int round = 0; round < kRounds; ++round) {
    if ((round + rank) % 2 == 0) {
      std::int64_t before = 0;
      CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window));
      CHECK_MPI(MPI_Win_flush(0, window));
      continue;
    }
    for (;;) {
      const std::int64_t next = seen + 1;
      std::int64_t before = -1;
      CHECK_MPI(MPI_Compare_and_swap(&next, &seen, &before, MPI_INT64_T, 0, 0, window));
      CHECK_MPI(MPI_Win_flush(0, window));
      const bool swapped = before == seen;
      CHECK(before >= seen);
      seen = swapped ? next : before;
      if (swapped) break;
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0)
    CHECK_EQ(Local<std::int64_t>().read(window, window.as<std::int64_t>()), std::int64_t{kRounds} * size);
}

// Who holds the smallest and who the largest value, found by all ranks at once; and a long double sum that no
// double could hold. Neither has a CPU or NIC atomic.
void without_an_atomic(check::Memory memory) {
  struct Place {
    Pair<long double> least;
    Pair<double> most;
    long double sum;
    std::complex<double> product;
  };
  check::Window window(memory, sizeof(Place), 1);
  if (rank == 0) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
    *window.as<Place>() = {{1e9L, -1}, {-1e9, -1}, 0x1p63L, {1, 0}};
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int round = 0; round < kRounds; ++round) {
    const Pair<long double> low{static_cast<long double>((round * 37 + rank * 11) % 101),
                                round * size + rank};
    const Pair<double> high{static_cast<double>((round * 37 + rank * 11) % 101), round * size + rank};
    const long double one = 1;
    const std::complex<double> turn{0, 1};
    CHECK_MPI(MPI_Accumulate(&low, 1, MPI_LONG_DOUBLE_INT, 0, offsetof(Place, least), 1, MPI_LONG_DOUBLE_INT,
                             MPI_MINLOC, window));
    CHECK_MPI(MPI_Accumulate(&high, 1, MPI_DOUBLE_INT, 0, offsetof(Place, most), 1, MPI_DOUBLE_INT,
                             MPI_MAXLOC, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_LONG_DOUBLE, 0, offsetof(Place, sum), 1, MPI_LONG_DOUBLE, MPI_SUM,
                             window));
    CHECK_MPI(MPI_Accumulate(&turn, 1, MPI_C_DOUBLE_COMPLEX, 0, offsetof(Place, product), 1,
                             MPI_C_DOUBLE_COMPLEX, MPI_PROD, window));
    CHECK_MPI(MPI_Win_flush_local(0, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank != 0) return;
  Pair<long double> least{1e9L, -1};
  Pair<double> most{-1e9, -1};
  for (int each = 0; each < size; ++each) {
    for (int round = 0; round < kRounds; ++round) {
      const int value = (round * 37 + each * 11) % 101;
      const int index = round * size + each;
      if (value < least.value || (value == least.value && index < least.index))
        least = {static_cast<long double>(value), index};
      if (value > most.value || (value == most.value && index < most.index))
        most = {static_cast<double>(value), index};
    }
  }
  const Place place = Local<Place>().read(window, window.as<Place>());
  CHECK_EQ(place.least, least);
  CHECK_EQ(place.most, most);
  CHECK_EQ(place.sum, 0x1p63L + kRounds * size);
  // kRounds is a multiple of four, and so many quarter turns end where they began.
  CHECK_EQ(place.product, (std::complex<double>{1, 0}));
}

// More than the standard asks for, which speaks of elements, but what programs rely on: linked lists in windows exchange
// pointers of rank and address as so many MPI_BYTE.
void whole_structures(check::Memory memory) {
  struct Pointer {
    std::uint64_t rank;
    std::uint64_t address;
  };
  constexpr int kBytes = sizeof(Pointer);
  const auto address_of = [](std::uint64_t stamp) { return stamp * 0x9e3779b97f4a7c15U; };
  check::Window window(memory, kBytes, 1);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t stamp = static_cast<std::uint64_t>(round) * static_cast<std::uint64_t>(size) +
                                static_cast<std::uint64_t>(rank) + 1;
    const Pointer mine{stamp, address_of(stamp)};
    CHECK_MPI(MPI_Accumulate(&mine, kBytes, MPI_BYTE, 0, 0, kBytes, MPI_BYTE, MPI_REPLACE, window));
    Pointer seen{~std::uint64_t{0}, 0};
    CHECK_MPI(MPI_Get_accumulate(nullptr, 0, MPI_BYTE, &seen, kBytes, MPI_BYTE, 0, 0, kBytes, MPI_BYTE, MPI_NO_OP, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    CHECK_EQ(seen.address, address_of(seen.rank));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// ---- large, ordered, strided
// --------------------------------------------------------------------------------------

void large_counts(check::Memory memory) {
  constexpr int kCount = 100000;
  check::Window window(memory, kCount * sizeof(double), sizeof(double));
  std::vector<double> values(kCount);
  std::vector<double> before(kCount);
  for (int i = 0; i < kCount; ++i) values[static_cast<std::size_t>(i)] = i % 1000 + rank;
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(
        MPI_Accumulate(values.data(), kCount, MPI_DOUBLE, target, 0, kCount, MPI_DOUBLE, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Get_accumulate(values.data(), kCount, MPI_DOUBLE, before.data(), kCount, MPI_DOUBLE,
                               (rank + 1) % size, 0, kCount, MPI_DOUBLE, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  const int previous = (rank + size - 1) % size;
  for (int i = 0; i < kCount; ++i) {
    const double base = i % 1000;
    CHECK_EQ(window.as<double>()[i], size * base + size * (size - 1) / 2.0 + base + previous);
    // At the next rank: my own sum was first (accumulates of one origin are ordered), others' may have been.
    const double seen = before[static_cast<std::size_t>(i)];
    CHECK(seen >= base + rank);
    CHECK(seen <= size * base + size * (size - 1) / 2.0);
  }
}

// Long rows that may go in pieces and single elements meet in the same locations, in shared epochs.
template <class T>
void large_and_small(check::Memory memory, MPI_Datatype type) {
  constexpr int kCount = 5000;
  constexpr int kRows = 40;
  constexpr int kSingles = 2000;
  const auto place = [](int k) { return k * 7 % kCount; };
  check::Window window(memory, kCount * sizeof(T), sizeof(T));
  const std::vector<T> ones(kCount, T{1});
  std::vector<T> seen(kSingles);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  if (rank % 2 == 0) {
    for (int i = 0; i < kRows; ++i) {
      CHECK_MPI(MPI_Accumulate(ones.data(), kCount, type, 0, 0, kCount, type, MPI_SUM, window));
    }
  } else {
    for (int k = 0; k < kSingles; ++k) {
      CHECK_MPI(MPI_Fetch_and_op(ones.data(), &seen[static_cast<std::size_t>(k)], type, 0, place(k), MPI_SUM, window));
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0) {
    std::vector<int> expected(kCount, kRows * ((size + 1) / 2));
    for (int k = 0; k < kSingles; ++k) expected[static_cast<std::size_t>(place(k))] += size / 2;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    for (int i = 0; i < kCount; ++i) {
      CHECK_EQ(window.as<T>()[i], static_cast<T>(expected[static_cast<std::size_t>(i)]));
    }
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// Under an exclusive lock nobody else is there, which may make it faster and must not make it different; a lock that is
// shared with the others, beside it and after it, is no such lock.
template <class T>
void alone(check::Memory memory, MPI_Datatype type) {
  constexpr int kCount = 70;
  constexpr int kTimes = 200;
  check::Window window(memory, 2 * kCount * sizeof(T), sizeof(T));
  const int own = size > 1 ? size - 1 : 0;  // locked exclusively by all in turn; 0 is shared
  const std::vector<T> ones(kCount, T{1});
  std::vector<T> before(kCount);
  T last{};
  for (int i = 0; i < kTimes; ++i) {
    if (own != 0) CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, own, 0, window));
    CHECK_MPI(MPI_Get_accumulate(ones.data(), kCount, type, before.data(), kCount, type, own, 0, kCount, type, MPI_SUM,
                                 window));
    CHECK_MPI(MPI_Accumulate(ones.data(), kCount, type, own, kCount, kCount, type, MPI_SUM, window));
    if (own != 0) CHECK_MPI(MPI_Accumulate(ones.data(), kCount, type, 0, 0, kCount, type, MPI_SUM, window));
    CHECK_MPI(MPI_Win_flush(own, window));
    CHECK(i == 0 || before[0] > last);
    for (const T value : before) CHECK_EQ(value, before[0]);
    last = before[0];
    CHECK_MPI(MPI_Win_unlock(own, window));
    if (own != 0) CHECK_MPI(MPI_Win_unlock(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
  for (int i = 0; own != 0 && i < kTimes; ++i) {
    CHECK_MPI(MPI_Accumulate(ones.data(), kCount, type, 0, kCount, kCount, type, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_unlock(0, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0 || rank == own) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
    for (int i = 0; i < 2 * kCount; ++i) CHECK_EQ(window.as<T>()[i], static_cast<T>(kTimes * size));
    CHECK_MPI(MPI_Win_unlock(rank, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// accumulate_ordering, by default: reads and writes of one origin to one location happen as they were called,
// whatever their sizes.
void ordered(check::Memory memory) {
  constexpr int kCount = 5000;
  check::Window window(memory, kCount * sizeof(std::int64_t), sizeof(std::int64_t));
  const int target = (rank + 1) % size;
  std::vector<std::int64_t> large(kCount);
  std::vector<std::int64_t> seen(60);
  std::array<std::int64_t, 60> small{};
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
  for (std::size_t i = 0; i < seen.size(); i += 3) {
    const auto step = static_cast<std::int64_t>(i);
    std::fill(large.begin(), large.end(), step);
    CHECK_MPI(MPI_Accumulate(large.data(), kCount, MPI_INT64_T, target, 0, kCount, MPI_INT64_T, MPI_REPLACE,
                             window));
    CHECK_MPI(MPI_Fetch_and_op(nullptr, &seen[i], MPI_INT64_T, target, kCount - 1, MPI_NO_OP, window));
    small[i] = 1000 + step;
    CHECK_MPI(
        MPI_Accumulate(&small[i], 1, MPI_INT64_T, target, kCount - 1, 1, MPI_INT64_T, MPI_REPLACE, window));
    CHECK_MPI(MPI_Get_accumulate(nullptr, 0, MPI_INT64_T, &seen[i + 1], 1, MPI_INT64_T, target, kCount - 1, 1,
                                 MPI_INT64_T, MPI_NO_OP, window));
    small[i + 1] = 2000 + step;
    CHECK_MPI(
        MPI_Fetch_and_op(&small[i + 1], &seen[i + 2], MPI_INT64_T, target, kCount - 1, MPI_REPLACE, window));
    CHECK_MPI(MPI_Win_flush_local(target, window));
  }
  CHECK_MPI(MPI_Win_unlock(target, window));
  for (std::size_t i = 0; i < seen.size(); i += 3) {
    const auto step = static_cast<std::int64_t>(i);
    CHECK_EQ(seen[i], step);
    CHECK_EQ(seen[i + 1], 1000 + step);
    CHECK_EQ(seen[i + 2], 1000 + step);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  const auto last = static_cast<std::int64_t>(seen.size()) - 3;
  CHECK_EQ(window.as<std::int64_t>()[kCount - 1], 2000 + last);
  for (int i = 0; i < kCount - 1; ++i) CHECK_EQ(window.as<std::int64_t>()[i], last);
  CHECK_MPI(MPI_Win_unlock(rank, window));
}

void strided(check::Memory memory) {
  constexpr int kInts = 40;
  check::Window window(memory, kInts * sizeof(int), sizeof(int));
  MPI_Datatype every_second;
  MPI_Datatype every_fourth;
  CHECK_MPI(MPI_Type_vector(10, 1, 2, MPI_INT, &every_second));
  CHECK_MPI(MPI_Type_vector(10, 1, 4, MPI_INT, &every_fourth));
  CHECK_MPI(MPI_Type_commit(&every_second));
  CHECK_MPI(MPI_Type_commit(&every_fourth));
  std::array<int, 20> out{};
  for (int i = 0; i < 20; ++i) out[static_cast<std::size_t>(i)] = i;
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Accumulate(out.data(), 1, every_second, target, 1, 1, every_fourth, MPI_SUM, window));
    CHECK_MPI(MPI_Accumulate(out.data(), 10, MPI_INT, target, 2, 1, every_fourth, MPI_MAX, window));
  }
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < kInts; ++i) {
    const int expected = i % 4 == 1 ? size * (i / 4) * 2 : i % 4 == 2 ? i / 4 : 0;
    CHECK_EQ(window.as<int>()[i], expected);
  }
  CHECK_MPI(MPI_Type_free(&every_second));
  CHECK_MPI(MPI_Type_free(&every_fourth));
}

// An origin with less than the target describes takes part with what it has.
void shorter_origin(check::Memory memory) {
  constexpr int kInts = 24;
  check::Window window(memory, kInts * sizeof(int), sizeof(int));
  MPI_Datatype every_second;
  CHECK_MPI(MPI_Type_vector(6, 1, 2, MPI_INT, &every_second));
  CHECK_MPI(MPI_Type_commit(&every_second));
  const int out[] = {1, 2, 3};
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Accumulate(out, 2, MPI_INT, target, 0, 8, MPI_INT, MPI_SUM, window));
    CHECK_MPI(MPI_Accumulate(out, 3, MPI_INT, target, 8, 1, every_second, MPI_SUM, window));
    CHECK_MPI(MPI_Accumulate(out, 0, MPI_INT, target, 20, 4, MPI_INT, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < kInts; ++i) {
    int expected = 0;
    if (i < 2) expected = size * out[i];
    if (i == 8 || i == 10 || i == 12) expected = size * out[(i - 8) / 2];
    CHECK_EQ(window.as<int>()[i], expected);
  }
  CHECK_MPI(MPI_Type_free(&every_second));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Memory memory = program.memory();
  if (!program.has("skip_types")) every_type(memory);
  check::section("compare_and_swap on every integer type");
  if (!program.has("skip_swaps")) every_swap(memory);
  check::section("many ranks on one counter: int8 to int64, floating point");
  counter<std::int16_t>(memory, MPI_INT16_T);
  counter<std::int32_t>(memory, MPI_INT32_T);
  counter<std::uint64_t>(memory, MPI_UINT64_T);
  counter<double>(memory, MPI_DOUBLE);
  counter<long double>(memory, MPI_LONG_DOUBLE);
  check::section("a counter raised by compare_and_swap and by fetch_and_op");
  if (!program.has("skip_swaps")) swap_counter(memory);
  check::section("many ranks on one location without an atomic for it");
  without_an_atomic(memory);
  check::section("structures as bytes");
  whole_structures(memory);
  check::section("100,000 doubles");
  large_counts(memory);
  check::section("long rows and single elements in the same places");
  large_and_small<double>(memory, MPI_DOUBLE);
  large_and_small<float>(memory, MPI_FLOAT);
  large_and_small<int>(memory, MPI_INT);
  check::section("accumulates under an exclusive lock");
  alone<double>(memory, MPI_DOUBLE);
  alone<std::int64_t>(memory, MPI_INT64_T);
  alone<std::int16_t>(memory, MPI_INT16_T);
  alone<long double>(memory, MPI_LONG_DOUBLE);
  check::section("accumulates of one origin are ordered");
  ordered(memory);
  check::section("strided accumulates");
  strided(memory);
  check::section("an origin with less than the target describes");
  shorter_origin(memory);
  return 0;
}

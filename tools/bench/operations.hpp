// SPDX-License-Identifier: BSD-3-Clause
// The measured operations, each on the window of rank 1:
//   bytes               the size of the window
//   prepare(memory)     initialises the target's memory
//   issue(win, i)       issues the i-th operation, from 1, without completion
//   returned(i)         after completion: whether the fetched data are right
//   arrived(memory, n)  at the target, after n completed operations: whether the memory is right
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include <mpi.h>

namespace farside::bench {

inline constexpr int kTarget = 1;
inline constexpr std::int64_t kPattern = 0x0123456789abcdef;

// Whether the words are `first`, `first` + 1, ...
template <class Word>
bool counts_from(const Word* words, int count, Word first) {
  return std::all_of(words, words + count, [&first](Word word) { return word == first++; });
}

struct Operation {  // what most of them have in common
  static constexpr std::size_t bytes = 8;
  static void prepare(void*) {}
  static bool returned(std::int64_t) { return true; }
  static bool arrived(const void*, std::int64_t) { return true; }
};

struct Put : Operation {
  std::int64_t value = 0;
  void issue(MPI_Win win, std::int64_t i) {
    value = i;
    MPI_Put(&value, 1, MPI_INT64_T, kTarget, 0, 1, MPI_INT64_T, win);
  }
  static bool arrived(const void* memory, std::int64_t n) { return *static_cast<const std::int64_t*>(memory) == n; }
};

struct Get : Operation {
  std::int64_t value = 0;
  static void prepare(void* memory) { *static_cast<std::int64_t*>(memory) = kPattern; }
  void issue(MPI_Win win, std::int64_t) {
    value = 0;
    MPI_Get(&value, 1, MPI_INT64_T, kTarget, 0, 1, MPI_INT64_T, win);
  }
  bool returned(std::int64_t) const { return value == kPattern; }
};

struct Counting : Operation {  // the i-th fetches i - 1
  std::int64_t old = -1;
  bool returned(std::int64_t i) const { return old == i - 1; }
  static bool arrived(const void* memory, std::int64_t n) { return Put::arrived(memory, n); }
};

struct FetchAndAdd : Counting {
  std::int64_t one = 1;
  void issue(MPI_Win win, std::int64_t) { MPI_Fetch_and_op(&one, &old, MPI_INT64_T, kTarget, 0, MPI_SUM, win); }
};

struct CompareAndSwap : Counting {
  std::int64_t expected = 0;
  std::int64_t desired = 0;
  void issue(MPI_Win win, std::int64_t i) {
    expected = i - 1;
    desired = i;
    MPI_Compare_and_swap(&desired, &expected, &old, MPI_INT64_T, kTarget, 0, win);
  }
};

template <class T>
MPI_Datatype mpi_type() {
  if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
  if constexpr (std::is_same_v<T, float>) return MPI_FLOAT;
  if constexpr (std::is_same_v<T, std::int32_t>) return MPI_INT32_T;
  if constexpr (std::is_same_v<T, std::int64_t>) return MPI_INT64_T;
}

// Returns the result of adding 1 to 0 n times.
template <class T>
T sum_of_ones(std::int64_t n) {
  if constexpr (std::is_same_v<T, float>)
    n = std::min(n, std::int64_t{1} << 24);  // from there on 1 is half a unit in the last place
  return static_cast<T>(n);
}

template <class T, int count>
struct Accumulate : Operation {
  static constexpr std::size_t bytes = count * sizeof(T);
  std::vector<T> ones = std::vector<T>(count, T{1});
  void issue(MPI_Win win, std::int64_t) {
    MPI_Accumulate(ones.data(), count, mpi_type<T>(), kTarget, 0, count, mpi_type<T>(), MPI_SUM, win);
  }
  static bool arrived(const void* memory, std::int64_t n) {
    const auto* sums = static_cast<const T*>(memory);
    return std::all_of(sums, sums + count, [n](T sum) { return sum == sum_of_ones<T>(n); });
  }
};

struct ManyPuts : Operation {
  static constexpr int kPuts = 64;
  static constexpr std::size_t bytes = kPuts * 8;
  std::array<std::int64_t, kPuts> values{};
  void issue(MPI_Win win, std::int64_t i) {
    for (int k = 0; k < kPuts; ++k) {
      values[static_cast<std::size_t>(k)] = i + k;
      MPI_Put(&values[static_cast<std::size_t>(k)], 1, MPI_INT64_T, kTarget, 8 * k, 1, MPI_INT64_T, win);
    }
  }
  static bool arrived(const void* memory, std::int64_t n) {
    return counts_from(static_cast<const std::int64_t*>(memory), kPuts, n);
  }
};

struct Large : Operation {  // two words or more
  explicit Large(std::size_t size)
      : bytes(size), words(static_cast<int>(size / 8)), values(size / 8, kPattern), middle(size / 16) {}
  std::size_t bytes;
  int words;
  std::vector<std::int64_t> values;
  std::size_t middle;
};

struct LargePut : Large {
  using Large::Large;
  void issue(MPI_Win win, std::int64_t i) {
    values.front() = values.back() = i;
    MPI_Put(values.data(), words, MPI_INT64_T, kTarget, 0, words, MPI_INT64_T, win);
  }
  bool arrived(const void* memory, std::int64_t n) const {
    const auto* all = static_cast<const std::int64_t*>(memory);
    return all[0] == n && all[words - 1] == n &&
           std::all_of(all + 1, all + words - 1, [](std::int64_t word) { return word == kPattern; });
  }
};

struct LargeGet : Large {
  using Large::Large;
  void prepare(void* memory) const {
    auto* all = static_cast<std::int64_t*>(memory);
    std::iota(all, all + words, kPattern);
  }
  void issue(MPI_Win win, std::int64_t) {
    values.front() = values[middle] = values.back() = 0;
    MPI_Get(values.data(), words, MPI_INT64_T, kTarget, 0, words, MPI_INT64_T, win);
  }
  bool returned(std::int64_t) const {
    return values.front() == kPattern && values[middle] == kPattern + words / 2 &&
           values.back() == kPattern + words - 1;
  }
};

// 1,024 words with stride 2 in the target's memory, contiguous at the origin. T has 8 bytes.
template <class T>
class Strided : public Operation {
 public:
  static constexpr int kWords = 1024;
  static constexpr std::size_t bytes = 2 * kWords * sizeof(T);
  Strided() {
    MPI_Type_vector(kWords, 1, 2, mpi_type<T>(), &type_);
    MPI_Type_commit(&type_);
  }
  Strided(const Strided&) = delete;
  Strided& operator=(const Strided&) = delete;
  ~Strided() { MPI_Type_free(&type_); }

 protected:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  std::vector<T> values_ = std::vector<T>(kWords, T{1});
};

// Whether every second word, from the first one on, is `value`, and the words between are 0.
template <class T>
bool is_comb(const void* memory, int words, T value) {
  const auto* all = static_cast<const T*>(memory);
  for (int k = 0; k < words; ++k) {
    if (all[2 * k] != value || all[2 * k + 1] != T{0}) return false;
  }
  return true;
}

struct StridedPut : Strided<std::int64_t> {
  void issue(MPI_Win win, std::int64_t) { MPI_Put(values_.data(), kWords, MPI_INT64_T, kTarget, 0, 1, type_, win); }
  static bool arrived(const void* memory, std::int64_t) { return is_comb<std::int64_t>(memory, kWords, 1); }
};

struct StridedGet : Strided<std::int64_t> {
  static void prepare(void* memory) {
    auto* words = static_cast<std::int64_t*>(memory);
    std::iota(words, words + 2 * kWords, kPattern);
  }
  void issue(MPI_Win win, std::int64_t) {
    values_.front() = values_.back() = 0;
    MPI_Get(values_.data(), kWords, MPI_INT64_T, kTarget, 0, 1, type_, win);
  }
  bool returned(std::int64_t) const {
    return values_.front() == kPattern && values_.back() == kPattern + 2 * (kWords - 1);
  }
};

struct StridedAccumulate : Strided<double> {
  void issue(MPI_Win win, std::int64_t) {
    MPI_Accumulate(values_.data(), kWords, MPI_DOUBLE, kTarget, 0, 1, type_, MPI_SUM, win);
  }
  static bool arrived(const void* memory, std::int64_t n) { return is_comb(memory, kWords, static_cast<double>(n)); }
};

struct StridedGetAccumulate : Strided<double> {
  std::vector<double> before = std::vector<double>(kWords, -1);
  void issue(MPI_Win win, std::int64_t) {
    MPI_Get_accumulate(values_.data(), kWords, MPI_DOUBLE, before.data(), kWords, MPI_DOUBLE, kTarget, 0, 1, type_,
                       MPI_SUM, win);
  }
  bool returned(std::int64_t i) const {
    const auto expected = static_cast<double>(i - 1);
    return before.front() == expected && before[kWords / 2] == expected && before.back() == expected;
  }
  static bool arrived(const void* memory, std::int64_t n) { return is_comb(memory, kWords, static_cast<double>(n)); }
};

}  // namespace farside::bench

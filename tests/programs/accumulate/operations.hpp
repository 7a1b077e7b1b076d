// SPDX-License-Identifier: BSD-3-Clause
// The result of each operation on two values, for every type for which it is defined, and test values.
#pragma once

#include <algorithm>
#include <complex>
#include <ostream>
#include <type_traits>
#include <vector>

#include <mpi.h>

namespace accumulate {

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

// Test values: small, of both signs for signed types, exact under every operation.
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

}  // namespace accumulate

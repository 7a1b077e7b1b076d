// SPDX-License-Identifier: BSD-3-Clause
// For random_operations.cpp: MPI's predefined datatypes as C++ types, and the result of each operation of the
// accumulate family on two of their values (MPI 4.0, sections 6.9.2 and 6.9.4), in plain C++, without farside and
// without the runtime.
#pragma once

#include <complex>
#include <random>

#include "check.hpp"

namespace random_test {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  // Returns a number from 0 to n - 1. Not a distribution of the library, so the numbers are the same everywhere.
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool one_in(int n) { return below(n) == 0; }
  std::uint64_t bits() { return engine_(); }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(below(static_cast<int>(from.size())))];
  }
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[static_cast<std::size_t>(below(static_cast<int>(i)))]);
  }

 private:
  std::mt19937_64 engine_;
};

enum class Op { kSum, kProd, kMin, kMax, kLand, kLor, kLxor, kBand, kBor, kBxor, kMinloc, kMaxloc, kReplace, kNoOp };

inline MPI_Op handle(Op op) {
  switch (op) {
    case Op::kSum: return MPI_SUM;
    case Op::kProd: return MPI_PROD;
    case Op::kMin: return MPI_MIN;
    case Op::kMax: return MPI_MAX;
    case Op::kLand: return MPI_LAND;
    case Op::kLor: return MPI_LOR;
    case Op::kLxor: return MPI_LXOR;
    case Op::kBand: return MPI_BAND;
    case Op::kBor: return MPI_BOR;
    case Op::kBxor: return MPI_BXOR;
    case Op::kMinloc: return MPI_MINLOC;
    case Op::kMaxloc: return MPI_MAXLOC;
    case Op::kReplace: return MPI_REPLACE;
    case Op::kNoOp: return MPI_NO_OP;
  }
  return MPI_OP_NULL;
}

inline const char* name(Op op) {
  static constexpr const char* kNames[] = {"SUM",  "PROD", "MIN",  "MAX",    "LAND",   "LOR",     "LXOR",
                                           "BAND", "BOR",  "BXOR", "MINLOC", "MAXLOC", "REPLACE", "NO_OP"};
  return kNames[static_cast<int>(op)];
}

// A predefined datatype. A pair type is one element of two members.
struct Element {
  struct Member {
    std::size_t at, bytes;  // within the element
  };
  const char* name;
  MPI_Datatype type;
  std::size_t extent;
  std::size_t alignment;
  std::vector<Member> members;
  std::vector<Op> operations;  // with kReplace and kNoOp; empty: for put and get only
  bool any_bits;               // any bytes are a valid value; else only those from sample()
  bool swaps;                  // MPI_Compare_and_swap accepts it
  std::size_t defined;  // bytes of a member's number type that an operation defines (10 of an x87 number's 16) ...
  std::size_t number;   // ... and the size of that number type
  void (*combine)(Op, void* target, const void* origin);  // target = target op origin
  void (*sample)(Dice&, Op, void*);                       // an operand: exact under op, however often

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Member& member : members) sum += member.bytes;
    return sum;
  }
  // Whether the byte `i` of a member has a defined value after an operation; padding inside a number has none.
  bool has_value(const Member& member, std::size_t i) const {
    return number == 0 || member.bytes < number || i % number < defined;
  }
  // Whether the result of several operations on one place does not depend on their order.
  bool commutes(Op op) const {
    // A product of complex numbers may be 0 of either sign.
    return op != Op::kReplace && !(op == Op::kProd && members.size() == 1 && number != 0 && number < extent);
  }
};

template <class V, class I>
struct Pair {
  V value;
  I index;
};

// ---- the kinds of MPI 4.0, section 6.9.2

template <class T>
struct Integer {
  static std::vector<Op> operations() {
    return {Op::kSum,  Op::kProd, Op::kMin, Op::kMax,  Op::kLand,    Op::kLor,
            Op::kLxor, Op::kBand, Op::kBor, Op::kBxor, Op::kReplace, Op::kNoOp};
  }
  static T apply(Op op, T a, T b) {
    const auto wide = [](T value) { return static_cast<std::uint64_t>(value); };  // overflow wraps
    switch (op) {
      case Op::kSum: return static_cast<T>(wide(a) + wide(b));
      case Op::kProd: return static_cast<T>(wide(a) * wide(b));
      case Op::kMin: return b < a ? b : a;
      case Op::kMax: return a < b ? b : a;
      case Op::kLand: return static_cast<T>(a != 0 && b != 0);
      case Op::kLor: return static_cast<T>(a != 0 || b != 0);
      case Op::kLxor: return static_cast<T>((a != 0) != (b != 0));
      case Op::kBand: return static_cast<T>(wide(a) & wide(b));
      case Op::kBor: return static_cast<T>(wide(a) | wide(b));
      case Op::kBxor: return static_cast<T>(wide(a) ^ wide(b));
      default: return b;
    }
  }
  static T sample(Dice& dice, Op) {
    return dice.one_in(3) ? static_cast<T>(dice.between(-3, 3)) : static_cast<T>(dice.bits());
  }
};

// Fortran integers and multi-language types.
template <class T>
struct Language : Integer<T> {
  static std::vector<Op> operations() {
    return {Op::kSum, Op::kProd, Op::kMin, Op::kMax, Op::kBand, Op::kBor, Op::kBxor, Op::kReplace, Op::kNoOp};
  }
};

template <class T>
struct Floating {
  static std::vector<Op> operations() { return {Op::kSum, Op::kProd, Op::kMin, Op::kMax, Op::kReplace, Op::kNoOp}; }
  static T apply(Op op, T a, T b) {
    switch (op) {
      case Op::kSum: return a + b;
      case Op::kProd: return a * b;
      case Op::kMin: return b < a ? b : a;
      case Op::kMax: return a < b ? b : a;
      default: return b;
    }
  }
  // Never 0, because a product could then be 0 of either sign.
  static T sample(Dice& dice, Op op) {
    if (op == Op::kProd) return static_cast<T>(dice.between(1, 2));
    return static_cast<T>(dice.one_in(2) ? dice.between(1, 99) : -dice.between(1, 99));
  }
};

template <class C>
struct Complex {
  static std::vector<Op> operations() { return {Op::kSum, Op::kProd, Op::kReplace, Op::kNoOp}; }
  static C apply(Op op, C a, C b) { return op == Op::kSum ? a + b : op == Op::kProd ? a * b : b; }
  static C sample(Dice& dice, Op op) {
    using T = typename C::value_type;
    if (op == Op::kProd) return dice.one_in(2) ? C(T(1), T(dice.between(1, 2))) : C(T(dice.between(1, 2)), T(1));
    return C(static_cast<T>(dice.between(1, 99)), static_cast<T>(dice.between(-99, -1)));
  }
};

template <class T>
struct Bytes {
  static std::vector<Op> operations() { return {Op::kBand, Op::kBor, Op::kBxor, Op::kReplace, Op::kNoOp}; }
  static T apply(Op op, T a, T b) { return Integer<T>::apply(op, a, b); }
  static T sample(Dice& dice, Op) { return static_cast<T>(dice.bits()); }
};

template <class T>
struct Character {
  static std::vector<Op> operations() { return {Op::kReplace, Op::kNoOp}; }
  static T apply(Op, T, T b) { return b; }
  static T sample(Dice& dice, Op) { return static_cast<T>(dice.bits()); }
};

// Bytes for put and get only.
template <class T>
struct Packed {
  static std::vector<Op> operations() { return {}; }
  static T apply(Op, T, T b) { return b; }
  static T sample(Dice& dice, Op) { return static_cast<T>(dice.bits()); }
};

template <class T>
struct Logical {
  static std::vector<Op> operations() { return {Op::kLand, Op::kLor, Op::kLxor, Op::kReplace, Op::kNoOp}; }
  static T apply(Op op, T a, T b) {
    if (op == Op::kReplace) return b;
    const bool x = a != 0, y = b != 0;
    return static_cast<T>(op == Op::kLand ? x && y : op == Op::kLor ? x || y : x != y);
  }
  static T sample(Dice& dice, Op) { return static_cast<T>(dice.below(2)); }
};

template <class P>
struct Location {
  static std::vector<Op> operations() { return {Op::kMinloc, Op::kMaxloc, Op::kReplace, Op::kNoOp}; }
  static P apply(Op op, P a, P b) {
    if (op == Op::kReplace) return b;
    if (a.value == b.value) return {a.value, b.index < a.index ? b.index : a.index};
    return (op == Op::kMinloc ? b.value < a.value : a.value < b.value) ? b : a;
  }
  // Few values, so that the index decides.
  static P sample(Dice& dice, Op) {
    using V = decltype(P::value);
    using I = decltype(P::index);
    return {static_cast<V>(dice.between(-2, 2) * 3 + 1), static_cast<I>(dice.between(0, 1000))};
  }
};

// ---- the list

template <class T, class Kind>
void combine(Op op, void* target, const void* origin) {
  if (op == Op::kNoOp) return;
  T a, b;
  std::memcpy(&a, target, sizeof(T));
  std::memcpy(&b, origin, sizeof(T));
  a = Kind::apply(op, a, b);
  std::memcpy(target, &a, sizeof(T));
}

template <class T, class Kind>
void sample(Dice& dice, Op op, void* to) {
  const T value = Kind::sample(dice, op);
  std::memcpy(to, &value, sizeof(T));
}

// Returns the significant bytes and the size of a number with padding, else 0 and 0.
template <class T>
constexpr std::size_t kDefined = std::is_same_v<T, long double>&& std::numeric_limits<T>::digits == 64 ? 10 : 0;

class Elements {
 public:
  Elements() {
    integers();
    numbers();
    pairs();
    optional();
  }
  const std::vector<Element>& all() const { return list_; }

 private:
  // Adds a type, unless the runtime was built without it (a Fortran type) or has it in another size.
  template <class T, class Kind>
  Element* add(const char* name, MPI_Datatype type, bool any_bits = false, bool swaps = false,
               std::vector<Element::Member> members = {{0, sizeof(T)}}) {
    if (type == MPI_DATATYPE_NULL) return nullptr;
    Element element{name,     type,  sizeof(T), alignof(T), std::move(members), Kind::operations(),
                    any_bits, swaps, 0,         0,          combine<T, Kind>,   sample<T, Kind>};
    int bytes = 0;
    MPI_Aint lower = 0, extent = 0;
    CHECK_MPI(MPI_Type_size(type, &bytes));
    CHECK_MPI(MPI_Type_get_extent(type, &lower, &extent));
    if (static_cast<std::size_t>(extent) != element.extent || static_cast<std::size_t>(bytes) != element.bytes())
      return nullptr;
    list_.push_back(element);
    return &list_.back();
  }
  template <class T>
  void integer(const char* name, MPI_Datatype type) {
    add<T, Integer<T>>(name, type, true, true);
  }
  template <class T>
  void language(const char* name, MPI_Datatype type) {
    add<T, Language<T>>(name, type, true, true);
  }
  template <class T>
  void floating(const char* name, MPI_Datatype type) {
    numeric<T>(add<T, Floating<T>>(name, type));
  }
  template <class T>
  void complex(const char* name, MPI_Datatype type) {
    numeric<T>(add<std::complex<T>, Complex<std::complex<T>>>(name, type));
  }
  template <class T>
  void logical(const char* name, MPI_Datatype type, bool swaps = false) {
    add<T, Logical<T>>(name, type, false, swaps);
  }
  template <class V, class I>
  void pair(const char* name, MPI_Datatype type) {
    using P = Pair<V, I>;
    numeric<V>(add<P, Location<P>>(name, type, false, false,
                                   {{offsetof(P, value), sizeof(V)}, {offsetof(P, index), sizeof(I)}}));
  }
  template <class T>
  void numeric(Element* element) {
    if (element == nullptr) return;
    element->number = sizeof(T);
    element->defined = kDefined<T> != 0 ? kDefined<T> : sizeof(T);
  }

#define RANDOM_TEST_TYPE(kind, T, type) kind<T>(#type, type)
  void integers() {
    RANDOM_TEST_TYPE(integer, signed char, MPI_SIGNED_CHAR);
    RANDOM_TEST_TYPE(integer, short, MPI_SHORT);
    RANDOM_TEST_TYPE(integer, int, MPI_INT);
    RANDOM_TEST_TYPE(integer, long, MPI_LONG);
    RANDOM_TEST_TYPE(integer, long long, MPI_LONG_LONG);
    RANDOM_TEST_TYPE(integer, unsigned char, MPI_UNSIGNED_CHAR);
    RANDOM_TEST_TYPE(integer, unsigned short, MPI_UNSIGNED_SHORT);
    RANDOM_TEST_TYPE(integer, unsigned, MPI_UNSIGNED);
    RANDOM_TEST_TYPE(integer, unsigned long, MPI_UNSIGNED_LONG);
    RANDOM_TEST_TYPE(integer, unsigned long long, MPI_UNSIGNED_LONG_LONG);
    RANDOM_TEST_TYPE(integer, std::int8_t, MPI_INT8_T);
    RANDOM_TEST_TYPE(integer, std::int16_t, MPI_INT16_T);
    RANDOM_TEST_TYPE(integer, std::int32_t, MPI_INT32_T);
    RANDOM_TEST_TYPE(integer, std::int64_t, MPI_INT64_T);
    RANDOM_TEST_TYPE(integer, std::uint8_t, MPI_UINT8_T);
    RANDOM_TEST_TYPE(integer, std::uint16_t, MPI_UINT16_T);
    RANDOM_TEST_TYPE(integer, std::uint32_t, MPI_UINT32_T);
    RANDOM_TEST_TYPE(integer, std::uint64_t, MPI_UINT64_T);
    RANDOM_TEST_TYPE(language, MPI_Aint, MPI_AINT);
    RANDOM_TEST_TYPE(language, MPI_Offset, MPI_OFFSET);
    RANDOM_TEST_TYPE(language, MPI_Count, MPI_COUNT);
    RANDOM_TEST_TYPE(language, MPI_Fint, MPI_INTEGER);
    add<unsigned char, Bytes<unsigned char>>("MPI_BYTE", MPI_BYTE, true, true);
    add<unsigned char, Packed<unsigned char>>("MPI_PACKED", MPI_PACKED, true);
    add<char, Character<char>>("MPI_CHAR", MPI_CHAR, true);
    add<wchar_t, Character<wchar_t>>("MPI_WCHAR", MPI_WCHAR, true);
    add<char, Character<char>>("MPI_CHARACTER", MPI_CHARACTER, true);
    logical<bool>("MPI_C_BOOL", MPI_C_BOOL, true);
    logical<std::int32_t>("MPI_LOGICAL", MPI_LOGICAL, true);
    MPI_Datatype f90 = MPI_DATATYPE_NULL;
    if (MPI_Type_create_f90_integer(9, &f90) == MPI_SUCCESS) language<std::int32_t>("f90_integer(9)", f90);
    if (MPI_Type_create_f90_integer(18, &f90) == MPI_SUCCESS) language<std::int64_t>("f90_integer(18)", f90);
  }
  void numbers() {
    RANDOM_TEST_TYPE(floating, float, MPI_FLOAT);
    RANDOM_TEST_TYPE(floating, double, MPI_DOUBLE);
    RANDOM_TEST_TYPE(floating, long double, MPI_LONG_DOUBLE);
    RANDOM_TEST_TYPE(floating, float, MPI_REAL);
    RANDOM_TEST_TYPE(floating, double, MPI_DOUBLE_PRECISION);
    RANDOM_TEST_TYPE(complex, float, MPI_C_FLOAT_COMPLEX);
    RANDOM_TEST_TYPE(complex, double, MPI_C_DOUBLE_COMPLEX);
    RANDOM_TEST_TYPE(complex, long double, MPI_C_LONG_DOUBLE_COMPLEX);
    RANDOM_TEST_TYPE(complex, float, MPI_COMPLEX);
    RANDOM_TEST_TYPE(complex, double, MPI_DOUBLE_COMPLEX);
    MPI_Datatype f90 = MPI_DATATYPE_NULL;
    if (MPI_Type_create_f90_real(6, 30, &f90) == MPI_SUCCESS) floating<float>("f90_real(6,30)", f90);
    if (MPI_Type_create_f90_real(15, 300, &f90) == MPI_SUCCESS) floating<double>("f90_real(15,300)", f90);
    if (MPI_Type_create_f90_complex(15, 300, &f90) == MPI_SUCCESS) complex<double>("f90_complex(15,300)", f90);
  }
  void pairs() {
    pair<float, int>("MPI_FLOAT_INT", MPI_FLOAT_INT);
    pair<double, int>("MPI_DOUBLE_INT", MPI_DOUBLE_INT);
    pair<long, int>("MPI_LONG_INT", MPI_LONG_INT);
    pair<int, int>("MPI_2INT", MPI_2INT);
    pair<short, int>("MPI_SHORT_INT", MPI_SHORT_INT);
    pair<long double, int>("MPI_LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT);
    pair<MPI_Fint, MPI_Fint>("MPI_2INTEGER", MPI_2INTEGER);
    pair<float, float>("MPI_2REAL", MPI_2REAL);
    pair<double, double>("MPI_2DOUBLE_PRECISION", MPI_2DOUBLE_PRECISION);
  }
  // The types that a runtime need not have.
  void optional() {
#ifdef MPI_INTEGER1
    RANDOM_TEST_TYPE(language, std::int8_t, MPI_INTEGER1);
    RANDOM_TEST_TYPE(language, std::int16_t, MPI_INTEGER2);
    RANDOM_TEST_TYPE(language, std::int32_t, MPI_INTEGER4);
    RANDOM_TEST_TYPE(language, std::int64_t, MPI_INTEGER8);
#endif
#ifdef MPI_REAL4
    RANDOM_TEST_TYPE(floating, float, MPI_REAL4);
    RANDOM_TEST_TYPE(floating, double, MPI_REAL8);
#endif
#if defined(MPI_REAL16) && defined(__SIZEOF_FLOAT128__)
    __extension__ typedef __float128 Quad;
    RANDOM_TEST_TYPE(floating, Quad, MPI_REAL16);
#endif
#ifdef MPI_COMPLEX8
    RANDOM_TEST_TYPE(complex, float, MPI_COMPLEX8);
    RANDOM_TEST_TYPE(complex, double, MPI_COMPLEX16);
#endif
#ifdef MPI_CXX_BOOL
    RANDOM_TEST_TYPE(logical, bool, MPI_CXX_BOOL);
    RANDOM_TEST_TYPE(complex, float, MPI_CXX_FLOAT_COMPLEX);
    RANDOM_TEST_TYPE(complex, double, MPI_CXX_DOUBLE_COMPLEX);
    RANDOM_TEST_TYPE(complex, long double, MPI_CXX_LONG_DOUBLE_COMPLEX);
#endif
  }
#undef RANDOM_TEST_TYPE

  std::vector<Element> list_;
};

}  // namespace random_test

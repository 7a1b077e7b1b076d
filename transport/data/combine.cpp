// SPDX-License-Identifier: BSD-3-Clause
// The C++ type of each BasicType, from which its traits are computed, and the kernels of combine() and
// compare_and_swap(): instances of templates, in one table [op][type].
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

#include "transport/data/layout.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside {

namespace {

#if defined(__SIZEOF_FLOAT128__)
using Quad = __float128;
#else
using Quad = long double;
static_assert(sizeof(Quad) == 16, "a compiler without __float128 is expected to have a binary128 long double");
#endif

template <class T>
struct Complex {
  T real, imaginary;
};

template <class T>
struct Logical {
  T value;
};

template <std::size_t kSize>
struct Opaque {
  std::array<std::byte, kSize> bytes;
};

template <class V, class I>
struct Pair {
  using Value = V;
  using Index = I;
  V value;
  I index;
};

#define FARSIDE_ELEMENT(name, text, ...) __VA_ARGS__,
#define FARSIDE_TEXT(name, text, ...) text,
using Elements = std::tuple<FARSIDE_BASIC_TYPES(FARSIDE_ELEMENT) void>;  // by BasicType
static_assert(std::tuple_size_v<Elements> == kBasicTypes + 1);
constexpr const char* kNames[] = {FARSIDE_BASIC_TYPES(FARSIDE_TEXT)};
constexpr const char* kOpNames[] = {FARSIDE_REDUCE_OPS(FARSIDE_TEXT)};

// The groups of MPI 4.0 section 6.9.2, which determine the operations that are allowed for a type.
enum class TypeClass : std::uint8_t { kInteger, kFloating, kComplex, kByte, kOpaque, kLogical, kPair };

template <class T>
inline constexpr TypeClass kClassOf = std::is_integral_v<T> ? TypeClass::kInteger : TypeClass::kFloating;
template <>
inline constexpr TypeClass kClassOf<std::byte> = TypeClass::kByte;
template <class T>
inline constexpr TypeClass kClassOf<Complex<T>> = TypeClass::kComplex;
template <class T>
inline constexpr TypeClass kClassOf<Logical<T>> = TypeClass::kLogical;
template <std::size_t kSize>
inline constexpr TypeClass kClassOf<Opaque<kSize>> = TypeClass::kOpaque;
template <class V, class I>
inline constexpr TypeClass kClassOf<Pair<V, I>> = TypeClass::kPair;

template <class... Ops>
constexpr std::uint16_t set_of(Ops... ops) {
  return static_cast<std::uint16_t>((0U | ... | (1U << static_cast<unsigned>(ops))));
}
// The operations that are allowed for a class, one bit per ReduceOp.
template <class T>
constexpr std::uint16_t operations_on() {
  using enum ReduceOp;
  constexpr std::uint16_t kAny = set_of(kReplace, kNoOp), kSums = set_of(kSum, kProd), kOrders = set_of(kMin, kMax);
  constexpr std::uint16_t kLogical = set_of(kLand, kLor, kLxor), kBits = set_of(kBand, kBor, kBxor);
  switch (kClassOf<T>) {
    case TypeClass::kInteger: return kAny | kSums | kOrders | kLogical | kBits;
    case TypeClass::kFloating: return kAny | kSums | kOrders;
    case TypeClass::kComplex: return kAny | kSums;
    case TypeClass::kByte: return kAny | kBits;
    case TypeClass::kOpaque: return kAny;
    case TypeClass::kLogical: return kAny | kLogical;
    case TypeClass::kPair: break;
  }
  return kAny | set_of(kMinloc, kMaxloc);
}

template <class T>
constexpr std::size_t data_size() {
  if constexpr (kClassOf<T> == TypeClass::kPair)
    return sizeof(typename T::Value) + sizeof(typename T::Index);
  else
    return sizeof(T);
}

template <class T>
inline constexpr bool kHasGap = data_size<T>() != sizeof(T);
// BasicTypeTraits::cpu_atomics.
template <class T>
inline constexpr bool kHasCpuAtomics = kClassOf<T> != TypeClass::kFloating&& kClassOf<T> !=
                                           TypeClass::kComplex&& kClassOf<T> != TypeClass::kPair &&
                                       (sizeof(T) == sizeof(std::uint32_t) || sizeof(T) == sizeof(std::uint64_t));

// Loads and stores of elements at any address. A pair is copied by its members: its gap may lie outside the buffer (the
// last element need not have one), and at a target it may hold other data.
template <class T>
inline T load(const std::byte* from) {
  T element;
  if constexpr (kHasGap<T>) {
    std::memcpy(&element.value, from, sizeof(element.value));
    std::memcpy(&element.index, from + offsetof(T, index), sizeof(element.index));
  } else {
    std::memcpy(&element, from, sizeof(T));
  }
  return element;
}

template <class T>
inline void store(std::byte* to, const T& element) {
  if constexpr (kHasGap<T>) {
    std::memcpy(to, &element.value, sizeof(element.value));
    std::memcpy(to + offsetof(T, index), &element.index, sizeof(element.index));
  } else {
    std::memcpy(to, &element, sizeof(T));
  }
}

template <class T>
constexpr BasicTypeTraits traits_of(const char* name) {
  std::size_t first = sizeof(T);
  std::size_t second = 0;
  if constexpr (kClassOf<T> == TypeClass::kPair) {
    first = sizeof(typename T::Value);
    second = offsetof(T, index);
  }
  return {name,
          static_cast<std::uint8_t>(data_size<T>()),
          static_cast<std::uint8_t>(sizeof(T)),
          static_cast<std::uint8_t>(first),
          static_cast<std::uint8_t>(second),
          kHasCpuAtomics<T>,
          operations_on<T>()};
}

template <std::size_t... kIndex>
constexpr std::array<BasicTypeTraits, kBasicTypes> make_traits(std::index_sequence<kIndex...>) {
  return {traits_of<std::tuple_element_t<kIndex, Elements>>(kNames[kIndex])...};
}

// The integer that holds an element in the CPU's atomics.
template <class T>
using WordOf = std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;

// One line per case:
// clang-format off

// The type in which an operation is computed. If signedness and meaning do not matter, it is the unsigned integer of
// the same size: its overflow wraps around, as users expect of MPI_SUM, and types share kernels.
template <ReduceOp kOp, class T>
constexpr auto operand_type() {
  constexpr bool kMoves = kOp == ReduceOp::kReplace || kOp == ReduceOp::kNoOp;
  constexpr bool kOrders = kOp == ReduceOp::kMin || kOp == ReduceOp::kMax;
  if constexpr (kMoves && kHasCpuAtomics<T>) return WordOf<T>{};
  else if constexpr (kMoves && !kHasGap<T>) return Opaque<sizeof(T)>{};
  else if constexpr (kClassOf<T> == TypeClass::kInteger && !kOrders) return std::make_unsigned_t<T>{};
  else if constexpr (kClassOf<T> == TypeClass::kByte) return std::uint8_t{};
  else if constexpr (kClassOf<T> == TypeClass::kLogical) return decltype(T::value){};
  else return T{};
}
template <ReduceOp kOp, class T>
using Operand = decltype(operand_type<kOp, T>());

template <ReduceOp kOp, class T>
inline T apply_arithmetic(T target, T origin) {
  // Narrow unsigned types promote to int, in which a product may overflow.
  using Wide = std::conditional_t<kClassOf<T> == TypeClass::kInteger && sizeof(T) < sizeof(unsigned), unsigned, T>;
  const Wide a = static_cast<Wide>(target);
  const Wide b = static_cast<Wide>(origin);
  if constexpr (kOp == ReduceOp::kSum) return static_cast<T>(a + b);
  else if constexpr (kOp == ReduceOp::kProd) return static_cast<T>(a * b);
  else if constexpr (kOp == ReduceOp::kMin) return origin < target ? origin : target;
  else if constexpr (kOp == ReduceOp::kMax) return target < origin ? origin : target;
  else if constexpr (kOp == ReduceOp::kLand) return static_cast<T>(target != 0 && origin != 0);
  else if constexpr (kOp == ReduceOp::kLor) return static_cast<T>(target != 0 || origin != 0);
  else if constexpr (kOp == ReduceOp::kLxor) return static_cast<T>((target != 0) != (origin != 0));
  else if constexpr (kOp == ReduceOp::kBand) return static_cast<T>(a & b);
  else if constexpr (kOp == ReduceOp::kBor) return static_cast<T>(a | b);
  else {
    static_assert(kOp == ReduceOp::kBxor);
    return static_cast<T>(a ^ b);
  }
}

// The product does not use std::complex, which would call a function that repairs infinities, at ten times the cost.
template <ReduceOp kOp, class T>
inline Complex<T> apply_complex(Complex<T> a, Complex<T> b) {
  if constexpr (kOp == ReduceOp::kSum) return {a.real + b.real, a.imaginary + b.imaginary};
  else return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

// If the values are equal, the result has the smaller index (MPI 4.0 section 6.9.4).
template <ReduceOp kOp, class V, class I>
inline Pair<V, I> apply_pair(Pair<V, I> target, Pair<V, I> origin) {
  const bool origin_wins = kOp == ReduceOp::kMinloc ? origin.value < target.value : target.value < origin.value;
  const bool target_wins = kOp == ReduceOp::kMinloc ? target.value < origin.value : origin.value < target.value;
  if (origin_wins) return origin;
  if (!target_wins && origin.index < target.index) target.index = origin.index;
  return target;
}

template <ReduceOp kOp, class T>
inline T apply(T target, [[maybe_unused]] T origin) {
  if constexpr (kOp == ReduceOp::kReplace) return origin;
  else if constexpr (kOp == ReduceOp::kNoOp) return target;
  else if constexpr (kClassOf<T> == TypeClass::kPair) return apply_pair<kOp>(target, origin);
  else if constexpr (kClassOf<T> == TypeClass::kComplex) return apply_complex<kOp>(target, origin);
  else return apply_arithmetic<kOp>(target, origin);
}
// clang-format on

// `fetched` is null for kernels that do not fetch; `origin` may be null for those of kNoOp.
using Kernel = void (*)(std::byte* target, const std::byte* origin, std::byte* fetched, std::size_t count);

// Elements per block. g++ -O2 vectorizes only loops with a known trip count, and unrolls none without a pragma. A loop
// that is not unrolled takes twice the time (1,024 doubles, 32 bytes at a time: 0.26 us instead of 0.13; int64: 0.38
// instead of 0.13).
constexpr std::size_t kBlock = 32;

template <ReduceOp kOp, class T>
inline constexpr bool kMovesBytes = (kOp == ReduceOp::kReplace || kOp == ReduceOp::kNoOp) && !kHasGap<T>;

template <ReduceOp kOp, class T, bool kFetch>
inline void locked_step(std::byte* __restrict target, const std::byte* __restrict origin, std::byte* __restrict fetched,
                        std::size_t index) {
  const std::size_t at = index * sizeof(T);
  const T old = load<T>(target + at);
  if constexpr (kFetch) store(fetched + at, old);
  if constexpr (kOp != ReduceOp::kNoOp) store(target + at, apply<kOp>(old, load<T>(origin + at)));
}

template <ReduceOp kOp, class T, bool kFetch>
[[gnu::always_inline]] inline void combine_plainly(std::byte* __restrict target, const std::byte* __restrict origin,
                                                   std::byte* __restrict fetched, std::size_t count) {
  if constexpr (kMovesBytes<kOp, T>) {
    if constexpr (kFetch) std::memcpy(fetched, target, count * sizeof(T));
    if constexpr (kOp == ReduceOp::kReplace) std::memcpy(target, origin, count * sizeof(T));
  } else {
    std::size_t index = 0;
    for (; index + kBlock <= count; index += kBlock) {
#pragma GCC unroll 8
      for (std::size_t k = 0; k < kBlock; ++k) locked_step<kOp, T, kFetch>(target, origin, fetched, index + k);
    }
    for (; index < count; ++index) locked_step<kOp, T, kFetch>(target, origin, fetched, index);
  }
}

template <ReduceOp kOp, class T, bool kFetch>
void combine_locked(std::byte* __restrict target, const std::byte* __restrict origin, std::byte* __restrict fetched,
                    std::size_t count) {
  combine_plainly<kOp, T, kFetch>(target, origin, fetched, count);
}

// The same with vectors of 32 and of 64 bytes, for CPUs that have them: half the time for long rows. No operation is
// fused, so the rounding is the same.
#if defined(__x86_64__)
#define FARSIDE_WIDE [[gnu::target("avx2")]]
#define FARSIDE_WIDEST [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]]
#else
#define FARSIDE_WIDE
#define FARSIDE_WIDEST
#endif
template <ReduceOp kOp, class T, bool kFetch>
FARSIDE_WIDE void combine_locked_wide(std::byte* __restrict target, const std::byte* __restrict origin,
                                      std::byte* __restrict fetched, std::size_t count) {
  combine_plainly<kOp, T, kFetch>(target, origin, fetched, count);
}
template <ReduceOp kOp, class T, bool kFetch>
FARSIDE_WIDEST void combine_locked_widest(std::byte* __restrict target, const std::byte* __restrict origin,
                                          std::byte* __restrict fetched, std::size_t count) {
  combine_plainly<kOp, T, kFetch>(target, origin, fetched, count);
}

// Combines one word and returns its former value. The orders are acquire and release, so that in the unified memory
// model a program may publish data by an accumulate and read the data after a fetch (MPI 4.0 section 12.4). These
// orders cost nothing on x86-64. MPI does not require a sequentially consistent order among different locations.
template <ReduceOp kOp, class T, bool kFetch>
inline WordOf<T> atomic_step(std::atomic_ref<WordOf<T>> word, const std::byte* origin) {
  using Word = WordOf<T>;
  constexpr auto kBoth = std::memory_order_acq_rel;
  if constexpr (kOp == ReduceOp::kNoOp) {
    return word.load(std::memory_order_acquire);
  } else if constexpr (kOp == ReduceOp::kReplace && !kFetch) {
    word.store(load<Word>(origin), std::memory_order_release);
    return 0;
  } else if constexpr (kOp == ReduceOp::kReplace) {
    return word.exchange(load<Word>(origin), kBoth);
  } else if constexpr (std::is_same_v<T, Word> && kOp == ReduceOp::kSum) {
    return word.fetch_add(load<Word>(origin), kBoth);
  } else if constexpr (std::is_same_v<T, Word> && kOp == ReduceOp::kBand) {
    return word.fetch_and(load<Word>(origin), kBoth);
  } else if constexpr (std::is_same_v<T, Word> && kOp == ReduceOp::kBor) {
    return word.fetch_or(load<Word>(origin), kBoth);
  } else if constexpr (std::is_same_v<T, Word> && kOp == ReduceOp::kBxor) {
    return word.fetch_xor(load<Word>(origin), kBoth);
  } else {
    const T operand = load<T>(origin);
    Word old = word.load(std::memory_order_acquire);
    for (;;) {
      const Word next = std::bit_cast<Word>(apply<kOp>(std::bit_cast<T>(old), operand));
      // A write of an equal value would only take the cache line from other cores.
      if (next == old || word.compare_exchange_weak(old, next, kBoth, std::memory_order_acquire)) return old;
    }
  }
}

template <ReduceOp kOp, class T, bool kFetch>
void combine_atomic(std::byte* target, const std::byte* origin, std::byte* fetched, std::size_t count) {
  using Word = WordOf<T>;
  for (std::size_t index = 0; index < count; ++index) {
    const std::size_t at = index * sizeof(T);
    const std::byte* const operand = kOp == ReduceOp::kNoOp ? nullptr : origin + at;
    const Word old = atomic_step<kOp, T, kFetch>(std::atomic_ref(*reinterpret_cast<Word*>(target + at)), operand);
    if constexpr (kFetch) store(fetched + at, old);
  }
}

// How a kernel works; each has two, the second of which fetches. kWide and kWidest are as kPlain, with wider vectors
// for arithmetic types of at most 8 bytes.
enum How : std::size_t { kAtomics, kPlain, kWide, kWidest };
using Kernels = std::array<std::array<Kernel, 2>, 4>;

template <ReduceOp kOp, class T, bool kFetch>
constexpr void add_kernels(Kernels& kernels) {
  using Computed = Operand<kOp, T>;
  for (const How how : {kPlain, kWide, kWidest}) kernels[how][kFetch] = combine_locked<kOp, Computed, kFetch>;
  if constexpr (std::is_arithmetic_v<Computed> && sizeof(Computed) <= 8 && !kMovesBytes<kOp, Computed>) {
    kernels[kWide][kFetch] = combine_locked_wide<kOp, Computed, kFetch>;
    kernels[kWidest][kFetch] = combine_locked_widest<kOp, Computed, kFetch>;
  }
  if constexpr (kHasCpuAtomics<T>) kernels[kAtomics][kFetch] = combine_atomic<kOp, Computed, kFetch>;
}

template <ReduceOp kOp, std::size_t... kType>
constexpr std::array<Kernels, kBasicTypes> make_row(std::index_sequence<kType...>) {
  const auto kernels_of = []<class T>(T*) {
    Kernels kernels{};
    if constexpr ((operations_on<T>() & set_of(kOp)) != 0) {
      add_kernels<kOp, T, false>(kernels);
      add_kernels<kOp, T, true>(kernels);
    }
    return kernels;
  };
  return {kernels_of(static_cast<std::tuple_element_t<kType, Elements>*>(nullptr))...};
}

template <std::size_t... kOp>
constexpr std::array<std::array<Kernels, kBasicTypes>, kReduceOps> make_table(std::index_sequence<kOp...>) {
  return {make_row<static_cast<ReduceOp>(kOp)>(std::make_index_sequence<kBasicTypes>())...};
}

// How long rows are combined.
#if defined(__x86_64__)
const How wide_vectors = [] {
  __builtin_cpu_init();
  const bool widest = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return widest ? kWidest : __builtin_cpu_supports("avx2") != 0 ? kWide : kPlain;
}();
#else
constexpr How wide_vectors = kPlain;
#endif

constexpr auto kTable = make_table(std::make_index_sequence<kReduceOps>());

template <class Word>
void swap_word(std::byte* target, const std::byte* origin, const std::byte* compare, std::byte* fetched) {
  Word expected = load<Word>(compare);
  std::atomic_ref(*reinterpret_cast<Word*>(target))
      .compare_exchange_strong(expected, load<Word>(origin), std::memory_order_acq_rel, std::memory_order_acquire);
  store(fetched, expected);
}

}  // namespace

constinit const std::array<BasicTypeTraits, kBasicTypes> basic_type_traits =
    make_traits(std::make_index_sequence<kBasicTypes>());

const char* name(ReduceOp op) { return kOpNames[static_cast<std::size_t>(op)]; }

void combine(AtomicMethod method, ReduceOp op, BasicType type, void* target, const void* origin, void* fetched,
             std::size_t count) {
  if (count == 0) return;
  const Kernels& kernels = kTable[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
  const How how = method == AtomicMethod::kAtomic ? kAtomics : count >= kBlock ? wide_vectors : kPlain;
  kernels[how][fetched != nullptr](static_cast<std::byte*>(target), static_cast<const std::byte*>(origin),
                                   static_cast<std::byte*>(fetched), count);
}

void compare_and_swap(AtomicMethod method, BasicType type, void* target, const void* origin, const void* compare,
                      void* fetched) {
  const std::size_t size = traits(type).size;
  if (method == AtomicMethod::kLocked) {
    // `fetched` is written last: programs give one buffer for the result and for what is compared.
    const auto swap = [&](std::size_t bytes) {
      std::array<std::byte, sizeof(Complex<long double>)> old;
      std::memcpy(old.data(), target, bytes);
      if (std::memcmp(old.data(), compare, bytes) == 0) std::memcpy(target, origin, bytes);
      std::memcpy(fetched, old.data(), bytes);
    };
    // With a constant length memcpy and memcmp are no calls.
    size == sizeof(std::uint64_t)   ? swap(sizeof(std::uint64_t))
    : size == sizeof(std::uint32_t) ? swap(sizeof(std::uint32_t))
                                    : swap(size);
    return;
  }
  const auto swap = size == sizeof(std::uint32_t) ? swap_word<std::uint32_t> : swap_word<std::uint64_t>;
  swap(static_cast<std::byte*>(target), static_cast<const std::byte*>(origin), static_cast<const std::byte*>(compare),
       static_cast<std::byte*>(fetched));
}

void combine_rows(ReduceOp op, BasicType type, std::byte* target, const std::byte* origin, std::byte* fetched,
                  std::size_t count, std::size_t rows, const RowStrides& strides) {
  constexpr std::size_t kTogether = 2048;  // bytes
  constexpr std::size_t kShort = 256;      // bytes; longer rows are fast without a copy
  struct alignas(64) Together : std::array<std::byte, kTogether> {};
  const std::size_t bytes = count * traits(type).extent;
  const auto dense = static_cast<std::ptrdiff_t>(bytes);
  // Rows of the target that overlap are combined one by one.
  const bool apart = std::abs(strides.target) >= dense;
  const std::size_t most = bytes > kShort || has_gap(type) || !apart ? 1 : kTogether / bytes;
  while (rows > 0) {
    const std::size_t part = std::min(rows, most);
    if (part == 1) {
      combine(AtomicMethod::kLocked, op, type, target, origin, fetched, count);
    } else {
      Together there, here, back;
      copy_ranges(there.data(), dense, target, strides.target, bytes, part);
      if (origin != nullptr) copy_ranges(here.data(), dense, origin, strides.origin, bytes, part);
      combine(AtomicMethod::kLocked, op, type, there.data(), origin != nullptr ? here.data() : nullptr,
              fetched != nullptr ? back.data() : nullptr, part * count);
      if (op != ReduceOp::kNoOp) copy_ranges(target, strides.target, there.data(), dense, bytes, part);
      if (fetched != nullptr) copy_ranges(fetched, strides.fetched, back.data(), dense, bytes, part);
    }
    const auto on = static_cast<std::ptrdiff_t>(part);
    target += on * strides.target;
    if (origin != nullptr) origin += on * strides.origin;
    if (fetched != nullptr) fetched += on * strides.fetched;
    rows -= part;
  }
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The kernels of the accumulate family: their results, the bytes that they must not change, and that no atomic update
// is lost.
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/data/reduce_op.hpp"

namespace farside::data_test {

namespace {

template <class V, class I>
struct PairOf {
  V value;
  I index;
};
using DoubleInt = PairOf<double, std::int32_t>;
using ShortInt = PairOf<std::int16_t, std::int32_t>;
using FloatInt = PairOf<float, std::int32_t>;

// Returns the methods for aligned elements of a type.
std::vector<AtomicMethod> methods_of(BasicType type) {
  std::vector methods = {AtomicMethod::kLocked};
  if (has_cpu_atomics(type)) methods.push_back(AtomicMethod::kAtomic);
  return methods;
}

std::vector<BasicType> all_types() {
  std::vector<BasicType> types;
  for (std::size_t index = 0; index < kBasicTypes; ++index) types.push_back(static_cast<BasicType>(index));
  return types;
}

std::vector<ReduceOp> all_ops() {
  std::vector<ReduceOp> ops;
  for (std::size_t index = 0; index < kReduceOps; ++index) ops.push_back(static_cast<ReduceOp>(index));
  return ops;
}

// The last six bytes of an x87 value are padding.
bool is_padding(BasicType type, std::size_t byte) {
  const bool extended =
      type == BasicType::kLongDouble || type == BasicType::kComplexLongDouble || type == BasicType::kLongDoubleInt;
  return extended && byte % 16 >= 10 && std::numeric_limits<long double>::digits == 64;
}

bool same_element(BasicType type, const void* one, const void* other) {
  for (std::size_t byte = 0; byte < traits(type).size; ++byte) {
    if (is_padding(type, byte)) continue;
    if (static_cast<const std::byte*>(one)[byte] != static_cast<const std::byte*>(other)[byte]) return false;
  }
  return true;
}

// Combines one element by the given method, with and without a fetch, and checks that both results agree.
template <class T>
T combined(AtomicMethod method, ReduceOp op, BasicType type, T target, T origin) {
  REQUIRE(allowed(op, type));
  T silent = target, fetching = target, fetched = origin;
  combine(method, op, type, &silent, &origin, nullptr, 1);
  combine(method, op, type, &fetching, &origin, &fetched, 1);
  CHECK(same_element(type, &silent, &fetching));
  CHECK(same_element(type, &fetched, &target));
  return silent;
}

struct Buffers {
  std::vector<std::byte> target, origin, fetched;
};

Buffers random_buffers(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Buffers buffers;
  for (auto* buffer : {&buffers.target, &buffers.origin, &buffers.fetched}) {
    buffer->resize(bytes);
    // Bytes below 0x40 give small exponents and no NaN in all floating-point formats.
    for (std::byte& byte : *buffer) byte = static_cast<std::byte>(random() % 0x40);
  }
  return buffers;
}

bool is_gap(BasicType type, std::size_t byte) {
  const BasicTypeTraits& known = traits(type);
  const std::size_t in_element = byte % known.extent;
  const bool in_second =
      in_element >= known.second && in_element < std::size_t{known.second} + known.size - known.first;
  return in_element >= known.first && !(known.second != 0 && in_second);
}

}  // namespace

TEST_CASE("sizes and extents are those of the C types") {
  CHECK(traits(BasicType::kInt64).size == 8);
  CHECK(traits(BasicType::kComplexLongDouble).extent == 2 * sizeof(long double));
  CHECK(traits(BasicType::kDoubleInt).size == 12);
  CHECK(traits(BasicType::kDoubleInt).extent == sizeof(DoubleInt));
  CHECK(traits(BasicType::kShortInt).first == 2);
  CHECK(traits(BasicType::kShortInt).second == offsetof(ShortInt, index));
  CHECK(traits(BasicType::kQuad).size == 16);
  for (const BasicType type : all_types()) {
    INFO(traits(type).name);
    CHECK(has_gap(type) == (type == BasicType::kDoubleInt || type == BasicType::kLongInt ||
                            type == BasicType::kShortInt || type == BasicType::kLongDoubleInt));
  }
}

TEST_CASE("an operation is allowed on the classes of types that MPI names for it") {
  const auto types_of = [](ReduceOp op) {
    std::vector<BasicType> types;
    for (const BasicType type : all_types()) {
      if (allowed(op, type)) types.push_back(type);
    }
    return types;
  };
  CHECK(types_of(ReduceOp::kReplace) == all_types());
  CHECK(types_of(ReduceOp::kNoOp) == all_types());
  CHECK(types_of(ReduceOp::kSum).size() == 8 + 4 + 4);
  CHECK(types_of(ReduceOp::kSum) == types_of(ReduceOp::kProd));
  CHECK(types_of(ReduceOp::kMin).size() == 8 + 4);
  CHECK(types_of(ReduceOp::kLand).size() == 8 + 4);
  CHECK(types_of(ReduceOp::kBand).size() == 8 + 1);
  CHECK(types_of(ReduceOp::kMaxloc).size() == 8);
  CHECK(allowed(ReduceOp::kBxor, BasicType::kByte));
  CHECK(allowed(ReduceOp::kLor, BasicType::kLogical4));
  CHECK_FALSE(allowed(ReduceOp::kSum, BasicType::kByte));
  CHECK_FALSE(allowed(ReduceOp::kMax, BasicType::kComplexFloat));
  CHECK_FALSE(allowed(ReduceOp::kSum, BasicType::kCharacter));
  CHECK_FALSE(allowed(ReduceOp::kSum, BasicType::kDoubleInt));
  CHECK_FALSE(allowed(ReduceOp::kBand, BasicType::kFloat));
  CHECK_FALSE(allowed(ReduceOp::kMin, BasicType::kLogical8));
}

TEST_CASE("CPU atomics are used for aligned integers and logicals of 4 and 8 bytes only") {
  alignas(16) std::array<std::byte, 32> memory{};
  CHECK(atomic_method(BasicType::kInt64, &memory[8]) == AtomicMethod::kAtomic);
  CHECK(atomic_method(BasicType::kInt64, &memory[4]) == AtomicMethod::kLocked);
  CHECK(atomic_method(BasicType::kInt32, &memory[4]) == AtomicMethod::kAtomic);
  CHECK(atomic_method(BasicType::kInt32, &memory[2]) == AtomicMethod::kLocked);
  CHECK(atomic_method(BasicType::kInt16, &memory[2]) == AtomicMethod::kLocked);
  CHECK(atomic_method(BasicType::kByte, &memory[3]) == AtomicMethod::kLocked);
  CHECK(atomic_method(BasicType::kDouble, &memory[8]) == AtomicMethod::kLocked);
  for (const BasicType type : {BasicType::kInt32, BasicType::kUint32, BasicType::kInt64, BasicType::kUint64,
                               BasicType::kLogical4, BasicType::kCharacter4}) {
    CHECK(has_cpu_atomics(type));
  }
  for (const BasicType type :
       {BasicType::kInt8, BasicType::kUint8, BasicType::kInt16, BasicType::kUint16, BasicType::kByte,
        BasicType::kCharacter, BasicType::kLogical1, BasicType::kFloat, BasicType::kDouble, BasicType::kLongDouble,
        BasicType::kComplexFloat, BasicType::kComplexDouble, BasicType::kFloatInt, BasicType::kInt32Int32,
        BasicType::kFloatFloat, BasicType::kDoubleDouble, BasicType::kShortInt, BasicType::kDoubleInt,
        BasicType::kQuad}) {
    CHECK_FALSE(has_cpu_atomics(type));
  }
}

TEMPLATE_TEST_CASE("integers take every operation but the pair ones", "", std::int8_t, std::int16_t, std::int32_t,
                   std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t) {
  using T = TestType;
  const int base = static_cast<int>(std::is_signed_v<T> ? BasicType::kInt8 : BasicType::kUint8);
  const auto type = static_cast<BasicType>(base + std::countr_zero(sizeof(T)));
  const auto cast = [](auto value) { return static_cast<T>(value); };
  const T top = std::numeric_limits<T>::max();
  const T bottom = std::numeric_limits<T>::min();
  for (const AtomicMethod method : methods_of(type)) {
    const auto result = [&](ReduceOp op, T target, T origin) { return combined<T>(method, op, type, target, origin); };
    CHECK(result(ReduceOp::kSum, 20, 3) == cast(23));
    CHECK(result(ReduceOp::kProd, 20, 3) == cast(60));
    CHECK(result(ReduceOp::kMin, 20, 3) == cast(3));
    CHECK(result(ReduceOp::kMax, 20, 3) == cast(20));
    CHECK(result(ReduceOp::kMin, cast(-1), 1) == cast(std::is_signed_v<T> ? -1 : 1));
    CHECK(result(ReduceOp::kMax, cast(-1), 1) == cast(std::is_signed_v<T> ? 1 : -1));
    CHECK(result(ReduceOp::kBand, 6, 3) == cast(2));
    CHECK(result(ReduceOp::kBor, 6, 3) == cast(7));
    CHECK(result(ReduceOp::kBxor, 6, 3) == cast(5));
    CHECK(result(ReduceOp::kLand, 6, 0) == cast(0));
    CHECK(result(ReduceOp::kLand, 6, 8) == cast(1));
    CHECK(result(ReduceOp::kLor, 0, 8) == cast(1));
    CHECK(result(ReduceOp::kLor, 0, 0) == cast(0));
    CHECK(result(ReduceOp::kLxor, 6, 8) == cast(0));
    CHECK(result(ReduceOp::kLxor, 6, 0) == cast(1));
    CHECK(result(ReduceOp::kReplace, 6, 8) == cast(8));
    CHECK(result(ReduceOp::kNoOp, 6, 8) == cast(6));
    // Overflow wraps around.
    CHECK(result(ReduceOp::kSum, top, 1) == bottom);
    CHECK(result(ReduceOp::kProd, top, top) == cast(1));
  }
}

TEMPLATE_TEST_CASE("floating-point types are added, multiplied and compared", "", float, double, long double) {
  const auto type = std::is_same_v<TestType, float>    ? BasicType::kFloat
                    : std::is_same_v<TestType, double> ? BasicType::kDouble
                                                       : BasicType::kLongDouble;
  for (const AtomicMethod method : methods_of(type)) {
    const auto result = [&](ReduceOp op, TestType a, TestType b) { return combined<TestType>(method, op, type, a, b); };
    CHECK(result(ReduceOp::kSum, 1.5, -4) == -2.5);
    CHECK(result(ReduceOp::kProd, 1.5, -4) == -6);
    CHECK(result(ReduceOp::kMin, 1.5, -4) == -4);
    CHECK(result(ReduceOp::kMax, 1.5, -4) == 1.5);
    CHECK(result(ReduceOp::kReplace, 1.5, -4) == -4);
    CHECK(result(ReduceOp::kNoOp, 1.5, -4) == 1.5);
  }
}

#if defined(__SIZEOF_FLOAT128__)
TEST_CASE("quad precision keeps all its digits") {
  const __float128 tiny = static_cast<__float128>(1) / (static_cast<__float128>(1LL << 60) * (1LL << 40));
  const __float128 sum = combined<__float128>(AtomicMethod::kLocked, ReduceOp::kSum, BasicType::kQuad, 1, tiny);
  CHECK(static_cast<bool>(sum - 1 == tiny));
}
#endif

TEMPLATE_TEST_CASE("complex types are added and multiplied", "", float, double, long double) {
  using C = std::complex<TestType>;
  const auto type = std::is_same_v<TestType, float>    ? BasicType::kComplexFloat
                    : std::is_same_v<TestType, double> ? BasicType::kComplexDouble
                                                       : BasicType::kComplexLongDouble;
  for (const AtomicMethod method : methods_of(type)) {
    alignas(2 * sizeof(TestType)) C target(1, 2);
    const C origin(3, 5);
    C fetched;
    combine(method, ReduceOp::kProd, type, &target, &origin, &fetched, 1);
    CHECK(target == C(-7, 11));
    CHECK(fetched == C(1, 2));
    combine(method, ReduceOp::kSum, type, &target, &origin, nullptr, 1);
    CHECK(target == C(-4, 16));
  }
}

TEST_CASE("a logical result is 1 or 0 whatever stood for true") {
  for (const AtomicMethod method : methods_of(BasicType::kLogical4)) {
    CHECK(combined<std::uint32_t>(method, ReduceOp::kLand, BasicType::kLogical4, 0x100, ~0u) == 1);
    CHECK(combined<std::uint64_t>(method, ReduceOp::kLxor, BasicType::kLogical8, 1ull << 40, 1) == 0);
  }
  CHECK(combined<std::uint8_t>(AtomicMethod::kLocked, ReduceOp::kLor, BasicType::kLogical1, 0, 4) == 1);
  CHECK(combined<std::uint16_t>(AtomicMethod::kLocked, ReduceOp::kLxor, BasicType::kLogical2, 0x100, 0) == 1);
}

TEST_CASE("on equal values MINLOC and MAXLOC take the smaller index") {
  for (const AtomicMethod method : methods_of(BasicType::kFloatInt)) {
    const auto result = [&](ReduceOp op, FloatInt target, FloatInt origin) {
      return combined<FloatInt>(method, op, BasicType::kFloatInt, target, origin);
    };
    for (const ReduceOp op : {ReduceOp::kMinloc, ReduceOp::kMaxloc}) {
      CHECK(result(op, {2, 7}, {2, 3}).index == 3);
      CHECK(result(op, {2, 3}, {2, 7}).index == 3);
    }
    CHECK(result(ReduceOp::kMinloc, {2, 7}, {1, 9}).index == 9);
    CHECK(result(ReduceOp::kMinloc, {1, 7}, {2, 3}).index == 7);
    CHECK(result(ReduceOp::kMaxloc, {2, 7}, {1, 3}).index == 7);
    CHECK(result(ReduceOp::kMaxloc, {1, 7}, {2, 9}).index == 9);
  }
}

TEST_CASE("the gaps of pair types are neither read into nor written") {
  for (const BasicType type : all_types()) {
    if (!has_gap(type)) continue;
    const BasicTypeTraits& known = traits(type);
    for (const ReduceOp op : {ReduceOp::kMinloc, ReduceOp::kMaxloc, ReduceOp::kReplace, ReduceOp::kNoOp}) {
      INFO(known.name << " " << name(op));
      constexpr std::size_t kCount = 19;
      Buffers now = random_buffers(kCount * known.extent, 7);
      const Buffers before = now;
      combine(AtomicMethod::kLocked, op, type, now.target.data(), now.origin.data(), now.fetched.data(), kCount);
      for (std::size_t byte = 0; byte < now.target.size(); ++byte) {
        INFO("byte " << byte);
        if (is_gap(type, byte)) {
          REQUIRE(now.target[byte] == before.target[byte]);
          REQUIRE(now.fetched[byte] == before.fetched[byte]);
        } else {
          REQUIRE(now.fetched[byte] == before.target[byte]);
          if (op == ReduceOp::kReplace) REQUIRE(now.target[byte] == before.origin[byte]);
        }
      }
    }
  }
}

TEST_CASE("many elements at any alignment give what single aligned elements give, in both ways") {
  for (const BasicType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (!allowed(op, type)) continue;
      INFO(traits(type).name << " " << name(op));
      const std::size_t extent = traits(type).extent;
      // Counts around the blocks of the vector loops. One more element lies behind, which must stay unchanged.
      for (const std::size_t count : {std::size_t{31}, std::size_t{32}, std::size_t{69}}) {
        const Buffers given = random_buffers((count + 1) * extent, static_cast<unsigned>(op) + 1);
        std::vector<std::byte> expected(count * extent);
        for (std::size_t at = 0; at < expected.size(); at += extent) {
          alignas(32) std::array<std::byte, 32> target, origin;
          std::memcpy(target.data(), &given.target[at], extent);
          std::memcpy(origin.data(), &given.origin[at], extent);
          combine(AtomicMethod::kLocked, op, type, target.data(), origin.data(), nullptr, 1);
          std::memcpy(&expected[at], target.data(), extent);
        }
        for (const AtomicMethod method : methods_of(type)) {
          for (const std::size_t skew : {0, 1}) {
            const std::size_t target_skew = method == AtomicMethod::kAtomic ? 0 : skew;
            std::vector<std::byte> target(given.target.size() + 1), origin(target), fetched(target);
            std::memcpy(&target[target_skew], given.target.data(), given.target.size());
            std::memcpy(&origin[skew], given.origin.data(), given.origin.size());
            const std::byte* source = op == ReduceOp::kNoOp ? nullptr : &origin[skew];
            combine(method, op, type, &target[target_skew], source, &fetched[skew], count);
            for (std::size_t byte = 0; byte < expected.size(); ++byte) {
              if (is_padding(type, byte)) continue;
              REQUIRE(target[target_skew + byte] == expected[byte]);
              if (!is_gap(type, byte)) REQUIRE(fetched[skew + byte] == given.target[byte]);
            }
            for (std::size_t byte = expected.size(); byte < given.target.size(); ++byte) {
              REQUIRE(target[target_skew + byte] == given.target[byte]);
              REQUIRE(fetched[skew + byte] == std::byte{0});
            }
          }
        }
      }
    }
  }
}

TEST_CASE("combining no elements touches nothing") {
  for (const AtomicMethod method : methods_of(BasicType::kInt32)) {
    combine(method, ReduceOp::kSum, BasicType::kInt32, nullptr, nullptr, nullptr, 0);
  }
}

TEST_CASE("compare_and_swap stores on equality and always returns what was there") {
  const std::array types = {BasicType::kInt8,  BasicType::kUint16,   BasicType::kInt32,
                            BasicType::kInt64, BasicType::kLogical4, BasicType::kByte};
  for (const BasicType type : types) {
    for (const AtomicMethod method : methods_of(type)) {
      INFO(traits(type).name);
      const std::size_t size = traits(type).size;
      std::uint64_t target = 0x1111111111111111, fetched = 0;
      const std::uint64_t before = target, wrong = before + 1, value = 0x2222222222222222;
      compare_and_swap(method, type, &target, &value, &wrong, &fetched);
      CHECK(target == before);
      CHECK(std::memcmp(&fetched, &before, size) == 0);
      fetched = 0;
      compare_and_swap(method, type, &target, &value, &before, &fetched);
      CHECK(std::memcmp(&target, &value, size) == 0);
      CHECK(std::memcmp(&fetched, &before, size) == 0);
      if (size < 8) {
        CHECK(reinterpret_cast<const std::byte*>(&target)[size] == std::byte{0x11});
      }
    }
  }
}

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 50000;

template <class Body>
void run_threads(Body body) {
  std::barrier start(kThreads);  // otherwise a thread may end before the next one begins
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      start.arrive_and_wait();
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEMPLATE_TEST_CASE("no atomic sum is lost among threads", "", std::int32_t, std::int64_t) {
  const auto type = std::is_same_v<TestType, std::int32_t> ? BasicType::kInt32 : BasicType::kInt64;
  alignas(8) std::array<TestType, 2> cells{};
  const std::array<TestType, 2> ones = {1, 1};
  run_threads([&](int rank) {
    std::array<TestType, 2> fetched{};
    for (int round = 0; round < kRounds; ++round) {
      combine(AtomicMethod::kAtomic, ReduceOp::kSum, type, cells.data(), ones.data(),
              rank % 2 ? fetched.data() : nullptr, 2);
    }
  });
  for (const TestType cell : cells) CHECK(cell == static_cast<TestType>(kThreads * kRounds));
}

TEST_CASE("operations by one instruction and by compare-and-swap loops are atomic to each other") {
  std::uint64_t word = 0;
  // A factor of 2^32 + 1 changes only the high half, so the low half counts the sums.
  run_threads([&](int rank) {
    const std::uint64_t one = 1, factor = (1ull << 32) + 1;
    for (int round = 0; round < kRounds; ++round) {
      if (rank % 2 == 0)
        combine(AtomicMethod::kAtomic, ReduceOp::kSum, BasicType::kUint64, &word, &one, nullptr, 1);
      else
        combine(AtomicMethod::kAtomic, ReduceOp::kProd, BasicType::kUint64, &word, &factor, nullptr, 1);
    }
  });
  CHECK(static_cast<std::uint32_t>(word) == kThreads / 2 * kRounds);
}

TEST_CASE("fetched values of concurrent sums are all different") {
  std::int32_t counter = 0;
  std::vector<int> seen(static_cast<std::size_t>(kThreads * kRounds));
  run_threads([&](int) {
    const std::int32_t one = 1;
    for (int round = 0; round < kRounds; ++round) {
      std::int32_t fetched = -1;
      combine(AtomicMethod::kAtomic, ReduceOp::kSum, BasicType::kInt32, &counter, &one, &fetched, 1);
      std::int32_t* const slot = &seen[static_cast<std::size_t>(fetched)];
      combine(AtomicMethod::kAtomic, ReduceOp::kSum, BasicType::kInt32, slot, &one, nullptr, 1);
    }
  });
  CHECK(seen == std::vector<int>(seen.size(), 1));
}

TEST_CASE("no compare_and_swap is lost among threads") {
  std::uint32_t counter = 0;
  run_threads([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      std::uint32_t seen = 0, expected;
      do {
        expected = seen;
        const std::uint32_t next = expected + 1;
        compare_and_swap(AtomicMethod::kAtomic, BasicType::kUint32, &counter, &next, &expected, &seen);
      } while (seen != expected);
    }
  });
  CHECK(counter == kThreads * kRounds);
}

}  // namespace farside::data_test

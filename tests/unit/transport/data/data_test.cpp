// SPDX-License-Identifier: BSD-3-Clause
// The kernels of the accumulate family: rows beside single elements, whose results the program random_operations knows,
// the bytes that they must not change, and that no atomic update is lost.
#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/data/elements.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside::data_test {

using namespace farside::testing;

namespace {

struct DoubleInt {
  double value;
  std::int32_t index;
};
struct ShortInt {
  std::int16_t value;
  std::int32_t index;
};

// Returns the methods for aligned elements of a type.
std::vector<AtomicMethod> methods_of(BasicType type) {
  std::vector methods = {AtomicMethod::kLocked};
  if (has_cpu_atomics(type)) methods.push_back(AtomicMethod::kAtomic);
  return methods;
}

// Combines one element.
template <class T>
T combined(AtomicMethod method, ReduceOp op, BasicType type, T target, T origin) {
  combine(method, op, type, &target, &origin, nullptr, 1);
  return target;
}

struct Buffers {
  std::vector<std::byte> target, origin;
};

Buffers random_buffers(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Buffers buffers;
  for (auto* buffer : {&buffers.target, &buffers.origin}) {
    buffer->resize(bytes);
    // Bytes below 0x40 give small exponents and no NaN in all floating-point formats.
    for (std::byte& byte : *buffer) byte = static_cast<std::byte>(random() % 0x40);
  }
  return buffers;
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

#if defined(__SIZEOF_FLOAT128__)
TEST_CASE("quad precision keeps all its digits") {
  const __float128 tiny = static_cast<__float128>(1) / (static_cast<__float128>(1LL << 60) * (1LL << 40));
  const __float128 sum = combined<__float128>(AtomicMethod::kLocked, ReduceOp::kSum, BasicType::kQuad, 1, tiny);
  CHECK(static_cast<bool>(sum - 1 == tiny));
}
#endif

TEST_CASE("a logical result is 1 or 0 whatever stood for true") {
  for (const AtomicMethod method : methods_of(BasicType::kLogical4)) {
    CHECK(combined<std::uint32_t>(method, ReduceOp::kLand, BasicType::kLogical4, 0x100, ~0u) == 1);
    CHECK(combined<std::uint64_t>(method, ReduceOp::kLxor, BasicType::kLogical8, 1ull << 40, 1) == 0);
  }
  CHECK(combined<std::uint8_t>(AtomicMethod::kLocked, ReduceOp::kLor, BasicType::kLogical1, 0, 4) == 1);
  CHECK(combined<std::uint16_t>(AtomicMethod::kLocked, ReduceOp::kLxor, BasicType::kLogical2, 0x100, 0) == 1);
}

TEST_CASE("many elements at any alignment give what single aligned ones give, in both ways, and keep their gaps") {
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
          combine(method, op, type, nullptr, nullptr, nullptr, 0);  // touches nothing
          for (const std::size_t skew : {0, 1}) {
            const std::size_t target_skew = method == AtomicMethod::kAtomic ? 0 : skew;
            std::vector<std::byte> target(given.target.size() + 1), origin(target), fetched(target);
            std::memcpy(&target[target_skew], given.target.data(), given.target.size());
            std::memcpy(&origin[skew], given.origin.data(), given.origin.size());
            const std::byte* source = op == ReduceOp::kNoOp ? nullptr : &origin[skew];
            combine(method, op, type, &target[target_skew], source, &fetched[skew], count);
            for (std::size_t byte = 0; byte < expected.size(); ++byte) {
              const bool gap = is_gap(type, byte % extent);
              if (!gap && !is_data(type, byte % extent)) continue;
              REQUIRE(target[target_skew + byte] == (gap ? given.target[byte] : expected[byte]));
              REQUIRE(fetched[skew + byte] == (gap ? std::byte{0} : given.target[byte]));
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

// ---- rows -----------------------------------------------------------------------------------------------------------
namespace {

constexpr std::byte kBetween{0x5A};

// Rows in a buffer. With a negative stride the first row is at the end. The seed 0 leaves the rows unfilled.
struct RowBuffer {
  RowBuffer(BasicType type, std::size_t count, std::size_t rows, std::ptrdiff_t apart, unsigned seed)
      : row_bytes(count * traits(type).extent),
        bytes((rows - 1) * static_cast<std::size_t>(std::abs(apart)) + row_bytes, kBetween),
        first(apart < 0 ? (rows - 1) * static_cast<std::size_t>(-apart) : 0),
        stride(apart) {
    for (std::size_t row = 0; seed != 0 && row < rows; ++row)
      fill_elements(type, at(row), count, seed + static_cast<unsigned>(row));
  }
  std::byte* at(std::size_t row) { return bytes.data() + first + static_cast<std::ptrdiff_t>(row) * stride; }

  std::size_t row_bytes;
  std::vector<std::byte> bytes;
  std::size_t first;
  std::ptrdiff_t stride;
};

bool same(BasicType type, RowBuffer& one, RowBuffer& other, std::size_t count, std::size_t rows) {
  bool equal = true;
  for (std::size_t row = 0; row < rows; ++row) {
    equal = equal && same_elements(type, one.at(row), other.at(row), count);
    std::fill_n(one.at(row), one.row_bytes, kBetween);
    std::fill_n(other.at(row), other.row_bytes, kBetween);
  }
  return equal && one.bytes == other.bytes;
}

}  // namespace

TEST_CASE("rows are combined as each by itself, with every operation on every type") {
  struct Shape {
    std::size_t count, rows;
    double target, origin, fetched;  // strides in rows; below one the rows overlap
  };
  constexpr Shape kShapes[] = {{1, 1, 3, 1, 1},   {1, 700, 3, 1, 1}, {2, 300, 1.5, 2, 3}, {1, 300, -2, 1, -1},
                               {3, 90, 1, -4, 2}, {1, 50, 0, 1, 1},  {4, 20, 0.5, 1, 1},  {100, 5, 2, 1, 1}};
  for (const BasicType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (!allowed(op, type)) continue;
      for (const Shape& shape : kShapes) {
        for (const bool fetch : {false, true}) {
          if (op == ReduceOp::kNoOp && !fetch) continue;
          INFO(traits(type).name << " " << name(op) << " " << shape.rows << " x " << shape.count << " at "
                                 << shape.target << " fetch " << fetch);
          const auto stride = [&](double rows) {
            const auto elements = static_cast<std::ptrdiff_t>(rows * static_cast<double>(shape.count));
            return elements * static_cast<std::ptrdiff_t>(traits(type).extent);
          };
          const RowStrides strides{stride(shape.target), stride(shape.origin), stride(shape.fetched)};
          RowBuffer target(type, shape.count, shape.rows, strides.target, 1), model = target;
          RowBuffer origin(type, shape.count, shape.rows, strides.origin, 1000);
          RowBuffer back(type, shape.count, shape.rows, strides.fetched, 0), model_back = back;
          const bool sends = op != ReduceOp::kNoOp;
          for (std::size_t row = 0; row < shape.rows; ++row) {
            combine(AtomicMethod::kLocked, op, type, model.at(row), sends ? origin.at(row) : nullptr,
                    fetch ? model_back.at(row) : nullptr, shape.count);
          }
          combine_rows(op, type, target.at(0), sends ? origin.at(0) : nullptr, fetch ? back.at(0) : nullptr,
                       shape.count, shape.rows, strides);
          REQUIRE(same(type, target, model, shape.count, shape.rows));
          REQUIRE(same(type, back, model_back, shape.count, shape.rows));
        }
      }
    }
  }
}

// ---- threads --------------------------------------------------------------------------------------------------------
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

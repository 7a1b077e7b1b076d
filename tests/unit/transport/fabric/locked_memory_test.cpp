// SPDX-License-Identifier: BSD-3-Clause
// Operands that cannot be registered, because a process may lock no more memory (ENOMEM, RLIMIT_MEMLOCK): they go
// through the slots of registered memory that there are, in parts, and their data are right.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/fake_space.hpp"
#include "transport/fabric/operation.hpp"

namespace farside::locked_memory_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kBytes = 3'000'008;  // of an operand: more than all slots of one registration have
constexpr std::size_t kWords = kBytes / 8;
constexpr std::size_t kRoom = kWords + 100;

std::vector<std::uint64_t> sequence(std::uint64_t first, std::size_t words = kWords) {
  std::vector<std::uint64_t> made(words);
  std::iota(made.begin(), made.end(), first);
  return made;
}

// A space whose origin has the first slots, and has used the target. This thread alone takes completions, so that slots
// and registrations stay in use until it waits for one.
struct Limited : FakeSpace {
  std::optional<FakeMemoryLimit> limit;
  std::optional<FakeReader> reader;
  // From now on so many bytes may be registered.
  explicit Limited(std::size_t more, InfoHandle of_origin = fake_provider())
      : FakeSpace(kRoom, false, std::move(of_origin)) {
    const std::vector<std::uint64_t> word = sequence(1, 1);
    REQUIRE((put(kRoom - 1, word.data(), 8).ok() && flush().ok()));
    fake_queues();
    limit.emplace(more);
    reader.emplace(FakeReader::Of::kRdma);
  }
  ~Limited() { reader.reset(); }
  bool has(std::size_t word, const std::vector<std::uint64_t>& values) const {
    return std::equal(values.begin(), values.end(), data.begin() + static_cast<std::ptrdiff_t>(word));
  }
};

}  // namespace

TEST_CASE("large puts and gets whose operands cannot be registered go through slots, and their data are right") {
  // None can be registered, or only the first one.
  const std::size_t more = GENERATE(std::size_t{1}, kBytes + 8);
  CAPTURE(more);
  Limited space(more);
  const auto one = sequence(1'000'000), two = sequence(2'000'000);
  CHECK(space.put(0, one.data(), kBytes).ok());
  CHECK(space.put(0, two.data(), kBytes).ok());
  CHECK(space.flush().ok());
  CHECK(space.has(0, two));
  CHECK(fake_queues().refused_memory > 0);
  std::vector<std::uint64_t> first(kWords), second(kWords);
  CHECK(space.get(0, first.data(), kBytes).ok());
  CHECK(space.get(0, second.data(), kBytes).ok());
  CHECK(space.flush().ok());
  CHECK((first == two && second == two));
  CHECK(fake_queues().refused_memory > 0);
  // When there is room again, operands are registered.
  space.limit.reset();
  CHECK((space.put(0, one.data(), kBytes).ok() && space.flush().ok()));
  CHECK(space.has(0, one));
  const FakeQueues counted = fake_queues();
  CHECK((counted.refused_memory == 0 && counted.writes == 1));
}

TEST_CASE("the parts of an operand are registered as long as that is possible, and then go through slots") {
  constexpr std::size_t kPart = kBytes / 3 + 8;
  Limited space(kPart + 1000, fake_provider(kPart));
  const auto values = sequence(5);
  std::vector<std::uint64_t> fetched(kWords);
  CHECK(space.put(0, values.data(), kBytes).ok());
  CHECK(space.flush().ok());
  CHECK(space.has(0, values));
  CHECK(fake_queues().refused_memory > 0);
  CHECK(space.get(0, fetched.data(), kBytes).ok());
  CHECK(space.flush().ok());
  CHECK(fetched == values);
  CHECK(fake_queues().refused_memory > 0);
}

TEST_CASE("large accumulates need no registration of their operands, and work where none is possible") {
  constexpr std::size_t kCount = 100'000;
  Limited space(1);
  const auto operands = sequence(7, kCount);
  std::vector<std::uint64_t> fetched(kCount), expected(kCount);
  for (std::size_t i = 0; i < kCount; ++i) expected[i] = 2 * operands[i];
  CHECK(space.add(0, operands.data(), nullptr, kCount).ok());
  CHECK(space.add(0, operands.data(), fetched.data(), kCount).ok());
  CHECK(space.flush().ok());
  CHECK(fetched == operands);
  CHECK(space.has(0, expected));
}

}  // namespace farside::locked_memory_test

// SPDX-License-Identifier: BSD-3-Clause
// Which accesses of one origin may overlap, and what ends them.
#include "epochs/races/access_log.hpp"

#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/seeds.hpp"

namespace farside::access_log_test {

using namespace farside::epochs;
using farside::testing::named;
using farside::testing::seeds;

namespace {

constexpr int kInt = 1;
constexpr int kDouble = 2;

// Returns the name of the conflicting operation, or "".
std::string access(AccessLog& log, const char* name, int target, Use use, ByteRange range, int type = kInt) {
  log.begin({name, target, use, type});
  if (const auto conflict = log.at_target(range)) return conflict->name;
  log.add_at_target(range);
  return "";
}

std::string local(AccessLog& log, const char* name, int target, Use use, ByteRange range) {
  log.begin({name, target, Use::kPut, kInt});
  if (const auto conflict = log.in_memory(range, use)) return conflict->name;
  log.add_in_memory(range, use);
  return "";
}

}  // namespace

TEST_CASE("readers may meet, and what is atomic on one type; nothing else") {
  const std::vector<std::pair<Use, int>> uses = {{Use::kPut, kInt},        {Use::kGet, kInt},
                                                 {Use::kAccumulate, kInt}, {Use::kAccumulate, kDouble},
                                                 {Use::kFetch, kInt},      {Use::kFetch, kDouble}};
  const auto reads = [](Use use) { return use == Use::kGet || use == Use::kFetch; };
  for (const auto& [first, first_type] : uses) {
    for (const auto& [second, second_type] : uses) {
      AccessLog log;
      CHECK(access(log, "first", 0, first, {8, 16}, first_type).empty());
      const bool both_atomic = first >= Use::kAccumulate && second >= Use::kAccumulate;
      const bool may = (reads(first) && reads(second)) || (both_atomic && first_type == second_type);
      CHECK(may_overlap({first, first_type}, {second, second_type}) == may);
      CHECK(access(log, "second", 0, second, {15, 20}, second_type) == (may ? "" : "first"));
      CHECK(access(log, "beside", 0, second, {20, 24}, second_type).empty());
      CHECK(access(log, "elsewhere", 1, second, {8, 16}, second_type).empty());
    }
  }
}

TEST_CASE("a target of operations under way is found, preferably the one that is asked for") {
  AccessLog log;
  CHECK_FALSE(log.under_way(0));
  CHECK(access(log, "put", 1, Use::kPut, {8, 16}).empty());
  CHECK(log.under_way(0) == 1);
  CHECK(local(log, "get", 0, Use::kPut, {8, 16}).empty());
  CHECK(log.under_way(0) == 0);
  CHECK(log.under_way(1) == 1);
  log.completed(1);
  CHECK(log.under_way(1) == 0);
  log.locally_completed(0);
  CHECK_FALSE(log.under_way(1));
}

TEST_CASE("an atomic read meets a get and an accumulate, which may not meet each other") {
  AccessLog log;
  CHECK(access(log, "get", 0, Use::kGet, {0, 4}).empty());
  CHECK(access(log, "read", 0, Use::kFetch, {0, 8}).empty());
  CHECK(access(log, "add", 0, Use::kAccumulate, {4, 8}).empty());
  CHECK(access(log, "another get", 0, Use::kGet, {4, 8}) == "add");
  CHECK(access(log, "another add", 0, Use::kAccumulate, {0, 4}) == "get");
  log.locally_completed(0);
  CHECK(access(log, "put", 0, Use::kPut, {0, 4}).empty());
  // Local completion does not complete an accumulate at the target.
  CHECK(access(log, "another put", 0, Use::kPut, {4, 8}) == "add");
}

TEST_CASE("a conflict says which operation it is with, and where") {
  AccessLog log;
  CHECK(access(log, "a", 3, Use::kPut, {0, 8}).empty());
  CHECK(access(log, "b", 3, Use::kPut, {16, 24}).empty());
  log.begin({"c", 3, Use::kGet, kInt});
  const auto conflict = log.at_target({8, 100});
  REQUIRE(conflict);
  CHECK(std::string(conflict->name) == "b");
  CHECK(conflict->number == 2);
  CHECK(conflict->target == 3);
  CHECK(conflict->range.first == 16);
  CHECK(conflict->range.last == 24);
}

TEST_CASE("a complete access conflicts with no other") {
  AccessLog log;
  CHECK(access(log, "a", 0, Use::kPut, {0, 8}).empty());
  CHECK(access(log, "b", 1, Use::kPut, {0, 8}).empty());
  log.completed(0);
  CHECK(access(log, "c", 0, Use::kPut, {0, 8}).empty());
  CHECK(access(log, "d", 1, Use::kGet, {0, 8}) == "b");
  log.completed_all();
  CHECK(access(log, "e", 1, Use::kGet, {0, 8}).empty());
  // Local completion completes a get, but not a put, at the target.
  CHECK(access(log, "f", 1, Use::kPut, {8, 16}).empty());
  log.locally_completed(1);
  CHECK(access(log, "g", 1, Use::kPut, {0, 8}).empty());
  CHECK(access(log, "h", 1, Use::kPut, {8, 16}) == "f");
}

TEST_CASE("a buffer that an operation reads may be read by others; one that it writes may not be accessed") {
  for (const Use first : {Use::kGet, Use::kPut}) {
    for (const Use second : {Use::kGet, Use::kPut}) {
      AccessLog log;
      CHECK(local(log, "first", 0, first, {100, 200}).empty());
      const bool may = first == Use::kGet && second == Use::kGet;
      CHECK(local(log, "second", 1, second, {150, 151}) == (may ? "" : "first"));
      log.completed(0);
      CHECK(local(log, "third", 1, Use::kPut, {100, 140}).empty());
    }
  }
}

TEST_CASE("a request completes its own operation, as far as its end at the origin says") {
  AccessLog log;
  auto number = [&, made = std::uint64_t{0}](const char* name, Use use, ByteRange range,
                                             bool answered = false) mutable {
    log.begin({name, 0, use, kInt, answered, true});
    REQUIRE_FALSE(log.at_target(range));
    log.add_at_target(range);
    const ByteRange buffer{1000 + range.first, 1000 + range.last};
    const Use local_use = use == Use::kGet ? Use::kPut : Use::kGet;
    REQUIRE_FALSE(log.in_memory(buffer, local_use));
    log.add_in_memory(buffer, local_use);
    return ++made;
  };
  // The name of the call that conflicts with a put to the range, or with a write to its buffer.
  const auto at_target = [&](ByteRange range) {
    AccessLog copy = log;
    return access(copy, "put", 0, Use::kPut, range);
  };
  const auto in_memory = [&](ByteRange range) {
    AccessLog copy = log;
    return local(copy, "into", 0, Use::kPut, {1000 + range.first, 1000 + range.last});
  };
  const std::uint64_t get = number("get", Use::kGet, {0, 8});
  const std::uint64_t put = number("put", Use::kPut, {8, 16});
  const std::uint64_t add = number("add", Use::kAccumulate, {16, 24});
  const std::uint64_t fetch = number("fetch", Use::kAccumulate, {24, 32}, true);
  CHECK(at_target({0, 8}) == "get");
  log.request_completed(get);
  CHECK(at_target({0, 8}).empty());
  CHECK(in_memory({0, 8}).empty());
  CHECK(at_target({8, 32}) == "put");
  CHECK(in_memory({8, 32}) == "put");
  log.request_completed(put);
  log.request_completed(add);
  log.request_completed(fetch);
  log.request_completed(fetch);
  CHECK(in_memory({0, 32}).empty());
  CHECK(at_target({8, 16}) == "put");
  CHECK(at_target({16, 24}) == "add");
  CHECK(at_target({24, 32}).empty());

  SECTION("others of the same bytes stay") {
    log.completed(0);
    log = AccessLog();
    log.begin({"first", 0, Use::kGet, kInt, false, true});
    log.add_at_target({0, 8});
    log.begin({"second", 0, Use::kGet, kInt, false, true});
    log.add_at_target({4, 12});
    log.request_completed(1);
    CHECK(at_target({0, 4}).empty());
    CHECK(at_target({0, 8}) == "second");
    log.request_completed(2);
    CHECK(at_target({0, 12}).empty());
  }
  SECTION("a flush completes them all") {
    const std::uint64_t later = number("later", Use::kPut, {40, 48});
    log.completed(0);
    CHECK(at_target({0, 100}).empty());
    log.request_completed(later);
    CHECK(at_target({0, 100}).empty());
  }
  SECTION("a local flush does so at the origin") {
    number("later get", Use::kGet, {40, 48});
    number("later put", Use::kPut, {48, 56});
    log.locally_completed(0);
    CHECK(in_memory({0, 100}).empty());
    CHECK(at_target({40, 48}).empty());
    CHECK(at_target({48, 56}) == "later put");
    log.completed_all();
    CHECK(at_target({0, 100}).empty());
  }
}

TEST_CASE("a notified operation is complete at the target, and not its buffer") {
  AccessLog log;
  const auto put = [&](bool notifies) {
    log.begin({"put", 0, Use::kPut, kInt, false, false, notifies});
    log.add_at_target({0, 8});
    log.add_in_memory({100, 108}, Use::kGet);
  };
  put(true);
  log.notified();
  CHECK(access(log, "next", 0, Use::kPut, {0, 4}).empty());
  log.completed(0);
  put(true);
  log.notified();
  CHECK(local(log, "into", 0, Use::kPut, {100, 104}) == "put");
  log.completed(0);
  put(false);
  log.notified();
  CHECK(access(log, "next", 0, Use::kPut, {0, 4}) == "put");
}

TEST_CASE("random accesses agree with a map of bytes") {
  const std::uint32_t seed = GENERATE(from_range(seeds({4711})));
  INFO(named(seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    AccessLog log;
    std::vector<int> bytes(64, -1);
    for (int i = 0; i < 40; ++i) {
      const auto first = static_cast<std::uint64_t>(below(60));
      const auto last = first + 1 + static_cast<std::uint64_t>(below(4 + below(20))) % (64 - first);
      const auto use = static_cast<Use>(below(3));
      const int type = use == Use::kAccumulate ? below(2) : 0;
      const int kind = static_cast<int>(use) * 2 + type;
      bool free = true;
      for (auto at = first; at < last; ++at)
        free = free && (bytes[at] == -1 || (bytes[at] == kind && use != Use::kPut));
      CHECK(access(log, "x", 0, use, {first, last}, type).empty() == free);
      for (auto at = first; free && at < last; ++at) bytes[at] = kind;
    }
  }
}

}  // namespace farside::access_log_test

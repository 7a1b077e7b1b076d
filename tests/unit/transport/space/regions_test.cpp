// SPDX-License-Identifier: BSD-3-Clause
// Regions that are attached and detached while peers use them.
#include "transport/space/regions.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/seeds.hpp"
#include "tests/unit/transport/handler/handler_fixture.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/routes/fabric/fabric_targets.hpp"
#include "transport/space/space.hpp"

namespace farside::regions_test {

using namespace farside::testing;

namespace {

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uint64_t>(memory); }

}  // namespace

TEST_CASE("a table of regions finds what holds an address, and knows what is covered and what overlaps") {
  const std::uint32_t seed = GENERATE(from_range(seeds({7})));
  INFO(named(seed));
  std::mt19937 random(seed);
  // Compares the table with a map of single bytes.
  for (int round = 0; round < 200; ++round) {
    RegionTable table;
    std::array<int, 256> owner{};  // 0: free, else 1 + the address where its region begins
    for (int i = 0; i < 40; ++i) {
      const auto at = static_cast<std::uint64_t>(random() % 250);
      const std::uint64_t bytes = 1 + random() % 6;
      const bool free = std::all_of(owner.begin() + static_cast<long>(at),
                                    owner.begin() + static_cast<long>(at + bytes), [](int o) { return o == 0; });
      REQUIRE(table.overlaps(at, bytes) != free);
      if (free) {
        table.insert({at, bytes, {}});
        std::fill_n(owner.begin() + static_cast<long>(at), bytes, 1 + static_cast<int>(at));
      } else if (random() % 3 == 0) {
        const bool begins = owner[at] == 1 + static_cast<int>(at);
        REQUIRE(table.erase(at) == begins);
        if (begins) std::replace(owner.begin(), owner.end(), 1 + static_cast<int>(at), 0);
      }
    }
    for (std::uint64_t at = 0; at < 256; ++at) {
      const Region* found = table.find(at);
      REQUIRE((found != nullptr ? 1 + static_cast<int>(found->address) : 0) == owner[at]);
      for (std::uint64_t bytes = 0; at + bytes <= 256 && bytes < 20; ++bytes) {
        const bool covered = std::all_of(owner.begin() + static_cast<long>(at),
                                         owner.begin() + static_cast<long>(at + bytes), [](int o) { return o != 0; });
        REQUIRE(table.covers(at, bytes) == covered);
      }
    }
  }
}

TEST_CASE("attached regions may not overlap, and each reader of the table is named once when a region is detached") {
  AttachedRegions regions(130);
  const auto covers = [&](std::uint64_t address, std::uint64_t bytes) {
    return regions.while_attached(address, bytes, [] {});
  };
  CHECK(regions.attach({1000, 100, {}}).ok());
  for (const Region& wrong : {Region{1000, 1, {}}, Region{1099, 1, {}}, Region{900, 101, {}}, Region{900, 1000, {}},
                              Region{1050, 10, {}}, Region{~std::uint64_t{0} - 5, 10, {}}}) {
    const Status refused = regions.attach(wrong);
    REQUIRE(!refused.ok());
    CHECK(refused.error().kind == ErrorKind::kAttach);
  }
  CHECK(regions.attach({1100, 50, {}}).ok());
  CHECK(regions.attach({900, 100, {}}).ok());
  CHECK(covers(900, 250));
  CHECK(!covers(900, 251));
  // Empty regions may be anywhere, in any number, and are not in the table.
  CHECK(regions.attach({1010, 0, {}}).ok());
  CHECK(regions.attach({1010, 0, {}}).ok());
  CHECK_FALSE(regions.find(899));
  CHECK(regions.find(1010)->bytes == 100);
  CHECK(regions.detach(1010).value().empty());
  CHECK(regions.detach(1010).value().empty());
  CHECK(!regions.detach(1010).ok());

  std::array<Region, 4> all;
  for (const int reader : {0, 63, 64, 129, 64}) regions.read(reader, 1000, all);
  CHECK((all[0].address == 900 && all[2].end() == 1150 && all[3].bytes == 0));
  CHECK(!regions.detach(1001).ok());
  CHECK(regions.detach(1000).value() == std::vector<int>{0, 63, 64, 129});
  CHECK(regions.detach(1100).value().empty());
  // If a region begins at the address of an empty region, it is detached first.
  CHECK(regions.attach({900, 0, {}}).ok());
  CHECK(regions.detach(900).ok());
  CHECK(!covers(900, 1));
  CHECK(regions.detach(900).ok());
}

TEST_CASE("the handler touches attached memory only, and shows the table page by page") {
  AttachedRegions regions(3);
  alignas(16) std::array<std::int64_t, 64> data{};
  HandlerFixture on;
  constexpr std::uint64_t kId = 5;
  MessageHandler::ServedSpace dynamic;
  dynamic.base = reinterpret_cast<std::byte*>(Regions::kFirst);
  dynamic.bytes = Regions::kBytes;
  dynamic.attached = &regions;
  dynamic.lock = &on.lock;
  dynamic.ranks = 3;
  REQUIRE(on.handler.publish(kId, dynamic));
  const auto ask = [&](MessageKind kind, std::uint64_t space, std::uint64_t offset, std::size_t count,
                       Bytes list = {}) {
    RequestHeader header = on.header(kind);
    header.space = space;
    header.offset = offset;
    header.count = static_cast<std::uint32_t>(count);
    return on.handler.execute(message_of(header, list));
  };
  const auto add = [&](const std::int64_t& to) {
    Bytes five;
    append(five, std::int64_t{5});
    const ListEntry entry = accumulate(ReduceOp::kSum, BasicType::kInt64, address_of(&to) - Regions::kFirst, 1, false);
    return ask(MessageKind::kOperations, kId, 0, 0, listed(entry, five));
  };
  CHECK(add(data[0]).refused != nullptr);
  REQUIRE(regions.attach({address_of(&data[0]), 12, {}}).ok());
  CHECK(add(data[0]).refused == nullptr);
  CHECK(add(data[1]).header.status == ReplyStatus::kRefused);
  REQUIRE(regions.attach({address_of(&data[0]) + 12, 4, {}}).ok());
  CHECK(add(data[1]).refused == nullptr);
  CHECK((data[0] == 5 && data[1] == 5));

  const auto read = [&](std::uint64_t space, std::uint64_t address, std::size_t bytes) {
    return ask(MessageKind::kRegions, space, address, bytes);
  };
  CHECK(read(on.space, 0, 1024).refused != nullptr);
  CHECK(read(kId, 0, sizeof(Region) - 1).refused != nullptr);
  CHECK(read(kId, 0, kMaxPayload / 32 * 32 + 32).refused != nullptr);
  const MessageHandler::Answer answer = read(kId, address_of(&data[1]), 2 * sizeof(Region));
  REQUIRE((answer.refused == nullptr && answer.fetched.size() == 2 * sizeof(Region)));
  Region region;
  std::memcpy(&region, answer.fetched.data() + sizeof region, sizeof region);
  CHECK(region.address == address_of(&data[0]) + 12);
  CHECK(read(kId, UINT64_MAX, 1024).refused == nullptr);
  // The rank that has read the table is recorded.
  CHECK(regions.detach(address_of(&data[0])).value() == std::vector<int>{1});
}

TEST_CASE("a region that is known costs no question, until one that was known is detached") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("fabric");
    Space::Request request = space_request(kControlBytes, 0);
    request.dynamic = true;
    OpenSpace open = make_space(ranks, request);
    Space& space = *open.space;
    const int other = 1 - ranks.rank();
    const auto good = [&](const Status& status, Line line = Line::here()) {
      ranks.check(status.ok(), status.ok() ? "" : status.error().text, line);
    };
    const auto covered = [&](std::uint64_t address, std::uint64_t bytes) {
      const Result<bool> answer = space.regions()->covered(other, address, bytes);
      return answer.ok() && answer.value();
    };
    // Gets of a whole array are no messages, which would be counted.
    using Memory = std::array<std::byte, 2 * kMostGetInRing>;
    Memory memory{}, more{}, got{};
    const std::uint64_t there = ranks.all_gather(address_of(memory.data()))[static_cast<std::size_t>(other)];
    const std::uint64_t more_there = ranks.all_gather(address_of(more.data()))[static_cast<std::size_t>(other)];
    good(space.regions()->attach(memory.data(), sizeof memory));
    std::vector<std::byte> many(2000);  // of which a read does not ask for all
    for (std::size_t i = 0; i < many.size(); i += 2) good(space.regions()->attach(&many[i], 1));
    ranks.barrier();
    // Returns the number of requests for tables that this process has served.
    const auto use = [&](std::uint64_t address) {
      ranks.check(covered(address, sizeof got), "the region is found");
      good(space.route(other).carry_out(other, DataOperation::get(address - Regions::kFirst, got.data(), sizeof got)));
      good(space.route(other).flush(other));
      ranks.barrier();
      return counted(RouteKind::kFabric, Counted::kHandler);
    };
    ranks.check(use(there) == 1, "the table is read by one request");
    for (int i = 0; i < 20; ++i) ranks.check(use(there) == 1, "and not again");
    // A region that is attached later causes one more read of the table.
    good(space.regions()->attach(more.data(), sizeof more));
    ranks.barrier();
    ranks.check(use(more_there) == 2, "a new region is looked for");
    for (int i = 0; i < 5; ++i) ranks.check(use(there) == 2, "and then all are known");
    ranks.barrier();  // a detach is a message to the handler of the other rank
    good(space.regions()->detach(more.data()));
    ranks.barrier();
    ranks.check(!covered(more_there, 8), "it is gone");
    ranks.barrier();
    const std::uint64_t third = counted(RouteKind::kFabric, Counted::kHandler);
    ranks.barrier();
    ranks.check(use(there) == third, "the rest is known");
    good(space.flush_all());
    ranks.barrier();
    open.space.reset();
    ranks.barrier();
    Process::instance().shut_down();
    ranks.barrier();
  }));
}

}  // namespace farside::regions_test

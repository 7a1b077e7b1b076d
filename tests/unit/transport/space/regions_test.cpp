// SPDX-License-Identifier: BSD-3-Clause
// Memory that is not one block per rank: regions that are attached and detached while peers use them, and data that all
// ranks load and store.
#include "transport/space/regions.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/seeds.hpp"
#include "tests/unit/transport/base/processes.hpp"
#include "tests/unit/transport/space/space_steps.hpp"
#include "transport/handler/message_handler.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/routes/fabric/fabric_targets.hpp"
#include "transport/space/space.hpp"

namespace farside::regions_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kControlBytes = 1000;

// A rank's end of a Space, made as pmpi/ makes it.
class SpaceFixture {
 public:
  SpaceFixture(Ranks& ranks, bool fabric, Space::Request request) : ranks_(ranks) {
    setenv("FARSIDE_ROUTES", fabric ? "fabric" : "mapped,cma", 1);
    setenv("FARSIDE_PROVIDER", "tcp", 1);
    setenv("FARSIDE_STATS", "/dev/null", 1);
    setenv("FI_TCP_IFACE", "lo", 1);
    request.control_bytes = kControlBytes;
    space_ = std::move(make_space(ranks, request).space);
  }
  SpaceFixture(const SpaceFixture&) = delete;
  SpaceFixture& operator=(const SpaceFixture&) = delete;
  ~SpaceFixture() {
    require(space_->flush_all());
    ranks_.barrier();
    space_.reset();
    ranks_.barrier();
  }
  Space* operator->() { return space_.get(); }
  Regions& regions() { return *space_->regions(); }
  void require(const Status& status, Line line = Line::here()) {
    if (status.ok()) return;
    ranks_.check(false, status.error().text, line);
    _exit(1);
  }
  // Returns the offset of an address in a dynamic space.
  static std::uint64_t offset(std::uint64_t address) { return address - Regions::kFirst; }
  bool covered(int rank, std::uint64_t address, std::uint64_t bytes) {
    const Result<bool> answer = regions().covered(rank, address, bytes);
    require(answer.status());
    return answer.value();
  }

 private:
  Ranks& ranks_;
  std::unique_ptr<Space> space_;
};

std::string run_with_space(int size, bool fabric, const Space::Request& request,
                           const std::function<void(Ranks&, SpaceFixture&)>& program) {
  return run_processes(size, [&](Ranks& ranks) {
    {
      SpaceFixture space(ranks, fabric, request);
      program(ranks, space);
    }
    Process::instance().shut_down();
    ranks.barrier();
  });
}

Space::Request dynamic_request() {
  Space::Request request;
  request.dynamic = true;
  return request;
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uint64_t>(memory); }

std::uint64_t table_reads_served() {
  return Process::instance().statistics().counter(RouteKind::kFabric, Counted::kHandler).count.load();
}

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
  MessageHandler handler;
  AccumulateLockWord lock;
  constexpr std::uint64_t id = 5, other = 6;
  MessageHandler::ServedSpace published;
  published.base = reinterpret_cast<std::byte*>(data.data());
  published.bytes = sizeof data;
  published.lock = &lock;
  published.ranks = 3;
  REQUIRE(handler.publish(other, published));
  published.base = reinterpret_cast<std::byte*>(Regions::kFirst);
  published.bytes = Regions::kBytes;
  published.attached = &regions;
  REQUIRE(handler.publish(id, published));
  const auto ask = [&](RequestHeader header, const void* payload, std::size_t bytes) {
    std::vector<std::byte> message(sizeof header + bytes);
    std::memcpy(message.data(), &header, sizeof header);
    if (bytes > 0) std::memcpy(message.data() + sizeof header, payload, bytes);
    return handler.execute(message);
  };
  const auto add = [&](std::uint64_t address) {
    const std::int64_t five = 5;
    OperationList list;
    list.add(
        DataOperation::accumulate(address - Regions::kFirst, ReduceOp::kSum, BasicType::kInt64, &five, nullptr, 1));
    return ask({MessageKind::kOperations, 0, 0, 1, 0, id, 0, 0, 0, 0}, list.bytes().data(), list.bytes().size());
  };
  CHECK(add(address_of(&data[0])).refused != nullptr);
  REQUIRE(regions.attach({address_of(&data[0]), 12, {}}).ok());
  CHECK(add(address_of(&data[0])).refused == nullptr);
  const MessageHandler::Answer half = add(address_of(&data[1]));
  CHECK(half.refused != nullptr);
  CHECK(half.header.status == ReplyStatus::kRefused);
  REQUIRE(regions.attach({address_of(&data[0]) + 12, 4, {}}).ok());
  CHECK(add(address_of(&data[1])).refused == nullptr);
  CHECK(data[0] == 5);
  CHECK(data[1] == 5);

  const auto read = [&](std::uint64_t space, std::uint64_t address, std::size_t bytes) {
    const auto count = static_cast<std::uint32_t>(bytes);
    return ask({MessageKind::kRegions, 0, 0, 2, 0, space, address, count, 0, 0}, nullptr, 0);
  };
  CHECK(read(other, 0, 1024).refused != nullptr);
  CHECK(read(id, 0, sizeof(Region) - 1).refused != nullptr);
  CHECK(read(id, 0, kMaxPayload / 32 * 32 + 32).refused != nullptr);
  const MessageHandler::Answer answer = read(id, address_of(&data[1]), 2 * sizeof(Region));
  REQUIRE(answer.refused == nullptr);
  REQUIRE(answer.fetched.size() == 2 * sizeof(Region));
  Region region;
  std::memcpy(&region, answer.fetched.data() + sizeof region, sizeof region);
  CHECK(region.address == address_of(&data[0]) + 12);
  CHECK(read(id, UINT64_MAX, 1024).refused == nullptr);
  // The rank that has read the table is recorded.
  CHECK(regions.detach(address_of(&data[0])).value() == std::vector<int>{2});
}

TEST_CASE("regions of a peer are found, used and refused as they come and go", "[native]") {
  for (const bool fabric : {false, true}) {
    INFO((fabric ? "fabric" : "cma"));
    expect_well(run_with_space(3, fabric, dynamic_request(), [&](Ranks& ranks, SpaceFixture& space) {
      constexpr int kRegions = 600;  // more than two pages of the handler
      const int next = (ranks.rank() + 1) % ranks.size();
      const int previous = (ranks.rank() + 2) % ranks.size();
      std::vector<std::int64_t> memory(2 * kRegions, -1);
      const auto bases = ranks.all_gather(address_of(memory.data()));
      const std::uint64_t there = bases[static_cast<std::size_t>(next)];
      const auto region = [](std::uint64_t base, int i) { return base + 16 * static_cast<std::uint64_t>(i); };
      ranks.check(!space.covered(next, there, 1), "nothing is attached yet");
      ranks.barrier();
      for (int i = 0; i < kRegions; ++i)
        space.require(space.regions().attach(&memory[2 * static_cast<std::size_t>(i)], 8));
      ranks.barrier();
      std::vector<std::int64_t> values(kRegions);
      for (int i = 0; i < kRegions; ++i) {
        values[static_cast<std::size_t>(i)] = 1000 * ranks.rank() + i;
        ranks.check(space.covered(next, region(there, i), 8), "an attached region is found");
        ranks.check(!space.covered(next, region(there, i), 9), "and where it ends");
        space.require(space->route(next).put(next, SpaceFixture::offset(region(there, i)),
                                             &values[static_cast<std::size_t>(i)], 8));
      }
      space.require(space->route(next).flush(next));
      ranks.barrier();
      for (int i = 0; i < kRegions; ++i) {
        std::array<std::int64_t, 2> pair{};
        read_memory(&memory[2 * static_cast<std::size_t>(i)], pair.data(), sizeof pair);
        ranks.check(pair[0] == 1000 * previous + i, "each put is where it belongs");
        ranks.check(pair[1] == -1, "and nowhere else");
      }
      ranks.barrier();
      // Each rank detaches every third region. Afterwards no rank finds these regions, and every rank finds the others.
      for (int i = 0; i < kRegions; i += 3)
        space.require(space.regions().detach(&memory[2 * static_cast<std::size_t>(i)]));
      ranks.barrier();
      for (int i = 0; i < kRegions; ++i) {
        for (int r = 0; r < ranks.size(); ++r) {
          const std::uint64_t at = region(bases[static_cast<std::size_t>(r)], i);
          if (i % 3 != 0 || i < 30)
            ranks.check(space.covered(r, at, 8) == (i % 3 != 0), "what is detached is gone, the rest is not");
        }
      }
      ranks.barrier();
      // A region that is attached again is found without a notification.
      space.require(space.regions().attach(&memory[0], 16));
      ranks.barrier();
      ranks.check(space.covered(next, there, 24), "regions that meet are one to an access");
      const std::array<std::int64_t, 3> row = {7, 8, 9};
      space.require(space->route(next).put(next, SpaceFixture::offset(there), row.data(), 24));
      space.require(space->route(next).flush(next));
      std::array<std::int64_t, 3> got{};
      space.require(space->route(next).get(next, SpaceFixture::offset(there), got.data(), 24));
      space.require(space->route(next).flush(next));
      ranks.check(got == row, "over the border of two regions and back");
      std::int64_t fetched = 0;
      space.require(space->route(next).accumulate(next, SpaceFixture::offset(there + 12), ReduceOp::kSum,
                                                  BasicType::kInt64, row.data(), &fetched, 1));
      space.require(space->route(next).flush(next));
      ranks.barrier();
    }));
  }
}

TEST_CASE("a region that is known costs no question, until one that was known is detached") {
  expect_well(run_with_space(2, true, dynamic_request(), [&](Ranks& ranks, SpaceFixture& space) {
    const int other = 1 - ranks.rank();
    // Gets of a whole array are no messages, which would be counted.
    using Memory = std::array<std::byte, 2 * kMostGetInRing>;
    Memory memory{}, more{}, got{};
    const auto bases = ranks.all_gather(address_of(memory.data()));
    const auto mores = ranks.all_gather(address_of(more.data()));
    const std::uint64_t there = bases[static_cast<std::size_t>(other)];
    space.require(space.regions().attach(memory.data(), sizeof memory));
    std::vector<std::byte> many(2000);  // of which a read does not ask for all
    for (std::size_t i = 0; i < many.size(); i += 2) space.require(space.regions().attach(&many[i], 1));
    ranks.barrier();
    const auto use = [&](std::uint64_t address) {
      ranks.check(space.covered(other, address, sizeof got), "the region is found");
      space.require(space->route(other).get(other, SpaceFixture::offset(address), got.data(), sizeof got));
      space.require(space->route(other).flush(other));
      ranks.barrier();
      return table_reads_served();
    };
    const std::uint64_t first = use(there);
    ranks.check(first == 1, "the table is read by one request");
    for (int i = 0; i < 20; ++i) ranks.check(use(there) == first, "and not again");
    // A region that is attached later causes one more read of the table.
    space.require(space.regions().attach(more.data(), sizeof more));
    ranks.barrier();
    const std::uint64_t second = use(mores[static_cast<std::size_t>(other)]);
    ranks.check(second == first + 1, "a new region is looked for");
    for (int i = 0; i < 5; ++i) ranks.check(use(there) == second, "and then all are known");
    ranks.barrier();  // a detach is a message to the handler of the other rank
    space.require(space.regions().detach(more.data()));
    ranks.barrier();
    ranks.check(!space.covered(other, mores[static_cast<std::size_t>(other)], 8), "it is gone");
    ranks.barrier();
    const std::uint64_t third = table_reads_served();
    ranks.barrier();
    ranks.check(use(there) == third, "the rest is known");
  }));
}

TEST_CASE("tables are read whole while they change", "[native]") {
  for (const bool fabric : {false, true}) {
    INFO((fabric ? "fabric" : "cma"));
    expect_well(run_with_space(2, fabric, dynamic_request(), [&](Ranks& ranks, SpaceFixture& space) {
      constexpr int kRegions = 300;
      std::vector<std::int64_t> memory(2 * kRegions, 0);
      std::vector<std::int64_t> comes(2 * kRegions, 0);
      const auto bases = ranks.all_gather(address_of(memory.data()));
      for (std::size_t i = 0; i < kRegions; ++i) space.require(space.regions().attach(&memory[2 * i], 8));
      ranks.barrier();
      const int other = 1 - ranks.rank();
      for (std::size_t round = 0; round < 300; ++round) {
        const std::size_t i = round * 37 % kRegions;
        space.require(space.regions().attach(&comes[2 * i], 16));
        const std::uint64_t at = bases[static_cast<std::size_t>(other)] + 16 * i;
        ranks.check(space.covered(other, at, 8), "what stays is found throughout");
        ranks.check(!space.covered(other, at, 9), "what was never there is not");
        space.require(space.regions().detach(&comes[2 * i]));
      }
      ranks.barrier();
    }));
  }
}

}  // namespace farside::regions_test

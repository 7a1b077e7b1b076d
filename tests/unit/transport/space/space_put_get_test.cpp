// SPDX-License-Identifier: BSD-3-Clause
// Puts that are kept until a flush or the end of an epoch. (The programs put and get in all other ways.) The operations
// are counted.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/routes/route.hpp"

namespace farside::space_put_get_test {

using namespace farside::testing;

// One rank puts in epochs, and the other rank waits for the end of each epoch. The puts travel in lists of one put, of
// many puts, and in more lists than a message queue has slots; other puts are too large to be coalesced.
TEST_CASE("puts until the end of an epoch are there when the target has finished them") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    constexpr std::size_t kBytes = 128 * 1024;
    expect_well(run_with_space(2, variant, kBytes, [&](Ranks& ranks, SpaceFixture& space) {
      for (const std::size_t bytes : {8UL, 1000UL, 1024UL, 3000UL}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{3}, kBytes / (bytes + 8)}) {
          const auto value = [&](std::size_t i) { return static_cast<std::byte>(i * 7 + bytes + count); };
          if (ranks.rank() == 0) {
            std::vector<std::vector<std::byte>> data(count);  // over the fabric in use until the flush
            for (std::size_t i = 0; i < count; ++i) {
              data[i].assign(bytes, value(i));
              space.good(
                  space->route(1).queue_put(1, i * (bytes + 8), data[i].data(), bytes, nullptr, Route::Until::kEnd),
                  "put");
            }
            space.good(space->queued_puts().release(), "release");
            ranks.check(!space->queued_puts().any(), "all have left");
            // Over the fabric a notification is ordered behind them; here a barrier of the test stands for it.
            if (over_fabric(variant)) space.good(space->route(1).flush(1), "flush");
          }
          ranks.barrier();
          if (ranks.rank() == 1) {
            space->finish_puts();
            for (std::size_t i = 0; i < count; ++i) {
              const bool right = read_data<std::byte>(space, i * (bytes + 8)) == value(i) &&
                                 read_data<std::byte>(space, i * (bytes + 8) + bytes - 1) == value(i);
              ranks.check(right, "the put is there");
            }
          }
          ranks.barrier();
        }
      }
    }));
  }
}

// Few blocks are written by system calls, many by the target's handler.
TEST_CASE("puts that are kept until a flush are there after it, and before a get of the same origin") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    constexpr std::size_t kBytes = 64 * 1024;
    expect_well(run_with_space(2, variant, kBytes, [&](Ranks& ranks, SpaceFixture& space) {
      for (const std::size_t count : {1UL, 3UL, 20UL, 60UL, 1000UL}) {
        for (const std::size_t distance : {8UL, 24UL, 56UL}) {
          std::vector<std::uint64_t> values(count);
          if (ranks.rank() == 0) {
            for (std::size_t i = 0; i < count; ++i) {
              values[i] = i * 1000 + count + distance;
              space.good(space->route(1).queue_put(1, i * distance, &values[i], 8, nullptr, Route::Until::kFlush),
                         "put");
            }
            if (variant == Variant::kCma && count == 3) {
              ranks.check(space->queued_puts().any(), "they are kept");
              std::uint64_t got = 0;
              space.good(space->route(1).get(1, 2 * distance, &got, 8), "get");
              ranks.check(got == values[2], "the get follows the puts");
            }
            space.good(count == 20 ? space->route(1).order_before_release(1) : space->route(1).flush(1), "flush");
            if (over_fabric(variant)) space.good(space->route(1).flush(1), "flush");
            ranks.check(!space->queued_puts().any(), "all have left");
          }
          ranks.barrier();
          if (ranks.rank() == 1) {
            for (std::size_t i = 0; i < count; ++i)
              ranks.check(read_data<std::uint64_t>(space, i * distance) == i * 1000 + count + distance, "it is there");
          }
          ranks.barrier();
        }
      }
    }));
  }
}

TEST_CASE("kept puts need no system call, and a flush executes them") {
  expect_well(run_with_space(2, Variant::kCma, 4096, [](Ranks& ranks, SpaceFixture& space) {
    const std::uint64_t value = 42;
    if (ranks.rank() == 0) {
      space.good(space->route(1).queue_put(1, 8, &value, sizeof value, nullptr, Route::Until::kEnd), "put");
      ranks.check(space->queued_puts().any(), "it is kept");
    }
    ranks.barrier();
    if (ranks.rank() == 1) {
      space->finish_puts();
      ranks.check(read_data<std::byte>(space, 8) == kFilling, "nothing has arrived");
    }
    ranks.barrier();
    if (ranks.rank() == 0) space.good(space->route(1).flush(1), "flush");
    ranks.check(!space->queued_puts().any(), "none is kept");
    ranks.barrier();
    if (ranks.rank() == 1) ranks.check(read_data<std::uint64_t>(space, 8) == value, "the put is there");
    ranks.barrier();
  }));
}

// The target is slow: it has not executed the puts of an epoch when the next epoch begins. All accesses of all ranks
// must take effect after the posted puts, by any route, and the puts of several epochs in their order.
TEST_CASE("no access precedes posted puts that the target has not finished") {
  expect_well(run_with_space(3, Variant::kCma, 64 * 1024, [](Ranks& ranks, SpaceFixture& space) {
    using Until = Route::Until;
    const auto put = [&](std::uint64_t value) {
      space.good(space->route(1).queue_put(1, 0, &value, 8, nullptr, Until::kEnd), "put");
      space.good(space->queued_puts().release(), "release");
    };
    const auto get = [&] {
      std::uint64_t got = 0;
      space.good(space->route(1).get(1, 0, &got, 8), "get");
      return got;
    };
    for (std::uint64_t round = 1; round < 40; ++round) {
      const std::uint64_t base = round * 100;
      if (ranks.rank() == 0) put(base);
      ranks.barrier();  // the end of the epoch; rank 1 does not finish the puts here
      if (round % 2 == 0 && ranks.rank() == 2) ranks.check(get() == base, "a third rank reads the put");
      ranks.barrier();
      if (ranks.rank() == 0) {
        if (round % 3 == 0) ranks.check(get() == base, "the origin reads the put");
        const std::uint64_t one = 1;
        std::uint64_t before = 0;
        put(base + 1);
        space.good(space->route(1).accumulate(1, 0, ReduceOp::kSum, BasicType::kUint64, &one, &before, 1),
                   "accumulate");
        ranks.check(before == base + 1, "an accumulate follows the put");
        for (std::uint64_t i = 3; i < 20; ++i) put(base + i);  // of as many epochs
        ranks.check(get() == base + 19, "the last epoch's put is last");
        put(base + 20);
        std::vector<std::uint64_t> large(1000, base + 21);
        space.good(space->route(1).put(1, 0, large.data(), 8000), "a large put");
        ranks.check(get() == base + 21, "a large put follows the small one");
        put(base + 22);
        Fragments strided(space->route(1), 1, nullptr, 4);
        const std::uint64_t value = base + 23;
        space.good(strided.add(DataOperation::put(0, &value, 8).repeated(4, 16, 0)), "a strided put");
        space.good(strided.end(), "its end");
        ranks.check(get() == base + 23, "a strided put follows the small one");
        put(base + 24);
      }
      ranks.barrier();
      if (ranks.rank() == 1) {
        space->finish_puts();
        ranks.check(read_data<std::uint64_t>(space, 0) == base + 24, "the last put is there");
      }
      ranks.barrier();
    }
  }));
}

// A fence that is refused during a lock still releases the puts of the lock's epoch.
TEST_CASE("puts that are kept until a flush are complete after a release") {
  expect_well(run_with_space(2, Variant::kCma, 4096, [](Ranks& ranks, SpaceFixture& space) {
    const std::uint64_t value = 43;
    if (ranks.rank() == 0) {
      space.good(space->route(1).queue_put(1, 8, &value, sizeof value, nullptr, Route::Until::kFlush), "put");
      space.good(space->queued_puts().release(), "release");
    }
    ranks.barrier();
    if (ranks.rank() == 1) ranks.check(read_data<std::uint64_t>(space, 8) == value, "the put is there");
    ranks.barrier();
  }));
}

TEST_CASE("an error of kept puts is reported once, by the next release") {
  expect_well(run_with_space(2, Variant::kCma, 4096, [](Ranks& ranks, SpaceFixture& space) {
    space->queued_puts().report_later(Error{ErrorKind::kPeer, "first"});
    space->queued_puts().report_later(Error{ErrorKind::kPeer, "second"});
    ranks.check(space->queued_puts().any(), "something is to be reported");
    const Status reported = space->queued_puts().release();
    ranks.check(!reported && reported.error().text == "first", "the first error");
    ranks.check(space->queued_puts().release().ok() && !space->queued_puts().any(), "no other");
    ranks.barrier();
  }));
}

TEST_CASE("operations and bytes are counted by route") {
  expect_well(run_with_space(2, Variant::kFabric, 4096, [](Ranks& ranks, SpaceFixture& space) {
    const std::uint64_t before = counted(RouteKind::kFabric, Counted::kPut);
    const std::uint64_t word = 1;
    space.good(space->route(1 - ranks.rank()).put(1 - ranks.rank(), 0, &word, 8), "put");
    space.good(space->route(ranks.rank()).put(ranks.rank(), 8, &word, 8), "put");
    space.good(space->flush_all(), "flush");
    ranks.check(counted(RouteKind::kFabric, Counted::kPut) == before + 1, "one to the peer");
    ranks.check(counted(RouteKind::kSelf, Counted::kPut) == 1, "one to itself");
    ranks.check(counted(RouteKind::kMapped, Counted::kPut) == 0, "none by another route");
  }));
}

}  // namespace farside::space_put_get_test

// SPDX-License-Identifier: BSD-3-Clause
// Operations in pieces: on every route they do what they would do one by one, in lists where these pay, and errors are told.
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/transport/world.hpp"
#include "transport/pieces.hpp"

using namespace farside;
using namespace farside::testing;

TEST_CASE("pieces arrive, come back and add up on every route, each in its place") {
  for (const Way way : kAllWays) {
    INFO(name(way));
    expect_well(run_world(3, way, 1 << 18, [&](Ranks& ranks, World& world) {
      // Rank r owns the words at 3 i + r; small pieces and, in between, one too large for a list.
      constexpr std::size_t kPieces = 5000, kLarge = 20000, kLargeAt = 150000;
      std::fill_n(world->data(), 1 << 18, std::byte{0});
      ranks.barrier();
      const auto me = static_cast<std::uint64_t>(ranks.rank());
      const int to = (ranks.rank() + 1) % 3;
      const auto place = [&](std::size_t i) { return 8 * (3 * i + me); };
      std::vector<std::uint64_t> words(kPieces), back(kPieces, 7), before(kPieces, 7);
      std::iota(words.begin(), words.end(), 1000 * (me + 1));
      const std::vector<std::byte> large(kLarge, std::byte(me + 1));
      {
        Space::Pieces put(*world, to, nullptr, kPieces);
        for (std::size_t i = 0; i < kPieces; ++i) {
          world.good(put.put(place(i), &words[i], 8), "put");
          if (i == kPieces / 2) world.good(put.put(kLargeAt + kLarge * me, large.data(), kLarge), "a large put");
        }
        world.good(put.end(), "end");
      }
      world.good(world->flush(to), "flush");
      {
        Space::Pieces add(*world, to, nullptr, kPieces);
        for (std::size_t i = 0; i < kPieces; ++i) {
          world.good(add.accumulate(place(i), ReduceOp::kSum, BasicType::kUint64, &words[i], &before[i], 1, Space::Access::kShared), "add");
        }
        world.good(add.end(), "end");
      }
      world.good(world->flush(to), "flush");
      const std::unique_ptr<Outstanding> own = world->own_outstanding(to);
      {
        Space::Pieces get(*world, to, own.get(), kPieces);
        for (std::size_t i = 0; i < kPieces; ++i) world.good(get.get(place(i), &back[i], 8), "get");
        world.good(get.end(), "end");
      }
      if (own != nullptr) {
        while (!own->done()) Process::instance().poll();
        world.good(own->take_error(), "its own");
      }
      ranks.check(before == words, "what was put is fetched");
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kPieces; ++i) wrong += back[i] == 2 * words[i] ? 0 : 1;
      ranks.check(wrong == 0, "what was put and added comes back");
      ranks.barrier();
      const std::uint64_t from = (me + 2) % 3;
      ranks.check(read_data<std::uint8_t>(world, kLargeAt + kLarge * from) == from + 1 &&
                      read_data<std::uint8_t>(world, kLargeAt + kLarge * (from + 1) - 1) == from + 1,
                  "the large piece is here");
      // Some 400 pieces to a message.
      const std::uint64_t letters = counted(on_private(way) && !over_fabric(way) ? RouteKind::kCma : RouteKind::kFabric, Counted::kAgent);
      ranks.check(way == Way::kMapped ? letters == 0 : letters > 5 && letters < 150, "they came in lists");
    }));
  }
}

TEST_CASE("pieces for oneself are there at once, whatever the others are reached by") {
  for (const Way way : kAllWays) {
    INFO(name(way));
    expect_well(run_world(2, way, 4096, [&](Ranks& ranks, World& world) {
      std::vector<std::uint64_t> words(64);
      std::iota(words.begin(), words.end(), 1);
      world->expect_release(ranks.rank());
      Space::Pieces put(*world, ranks.rank(), nullptr, words.size());
      for (std::size_t i = 0; i < words.size(); ++i) world.good(put.put(16 * i, &words[i], 8), "put");
      world.good(put.end(), "end");
      ranks.check(read_data<std::uint64_t>(world, 16 * 63) == 64, "the last is here");
      ranks.barrier();
    }));
  }
}

TEST_CASE("pieces of one origin's accumulates take effect in order, alone and among others") {
  for (const Way way : kAllWays) {
    INFO(name(way));
    expect_well(run_world(2, way, 4096, [&](Ranks& ranks, World& world) {
      std::fill_n(world->data(), 4096, std::byte{0});
      ranks.barrier();
      if (ranks.rank() == 0) {
        constexpr std::uint64_t kTimes = 300;
        std::vector<std::uint64_t> values(kTimes * 12);
        std::iota(values.begin(), values.end(), 1);
        std::vector<std::uint64_t> seen(kTimes);  // they are fetched until a flush
        std::size_t next = 0;
        const auto replace = [&](auto& by) {
          const std::uint64_t* value = &values[next++];
          if constexpr (std::is_same_v<std::remove_reference_t<decltype(by)>, Space::Pieces>) {
            world.good(by.accumulate(64, ReduceOp::kReplace, BasicType::kUint64, value, nullptr, 1, Space::Access::kShared), "replace");
          } else {
            world.good(by.accumulate(1, 64, ReduceOp::kReplace, BasicType::kUint64, value, nullptr, 1), "replace");
          }
        };
        for (std::uint64_t time = 0; time < kTimes; ++time) {
          if (time % 3 == 0) world->expect_release(1);
          replace(*world);
          Space::Pieces pieces(*world, 1, nullptr, 10);
          for (int i = 0; i < 10; ++i) replace(pieces);
          world.good(pieces.end(), "end");
          replace(*world);
          world.good(world->accumulate(1, 64, ReduceOp::kNoOp, BasicType::kUint64, nullptr, &seen[time], 1), "look");
          if (time % 7 != 0) continue;
          world.good(world->flush(1), "flush");
          ranks.check(seen[time] == next, fmt::format("the last of {} is there, not {}", next, seen[time]));
        }
        world.good(world->flush(1), "flush");
      }
      ranks.barrier();
    }));
  }
}

TEST_CASE("a neighbour that died while pieces were on their way to it is an error, in time") {
  // Its process is stopped before it can answer, then ended.
  const std::string failures = run_world(2, Way::kCma, 4096, [&](Ranks& ranks, World& world) {
    const auto pids = ranks.all_gather(getpid());
    if (ranks.rank() == 1) {
      ranks.barrier();
      while (true) pause();
    }
    ranks.barrier();
    kill(pids[1], SIGKILL);
    std::vector<std::uint64_t> words(64, 1);
    Space::Pieces put(*world, 1, nullptr, words.size());
    for (std::size_t i = 0; i < words.size(); ++i) world.good(put.put(16 * i, &words[i], 8), "put");
    const Status status = put.end();
    ranks.check(!status.ok() && status.error().kind == ErrorKind::kPeer, "an error of the peer");
    _exit(ranks.failures() == 0 ? 0 : 1);
  });
  expect_well(failures, "rank 1: ended by signal 9\n");
}

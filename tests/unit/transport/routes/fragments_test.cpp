// SPDX-License-Identifier: BSD-3-Clause
// Operations in fragments. On every route they have the same effect as one by one. They travel in lists if this is
// faster, and their errors are reported.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <sys/mman.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/routes/route.hpp"

namespace farside::fragments_test {

using namespace farside::testing;

TEST_CASE("pieces arrive, come back and add up on every route, each in its place") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(3, variant, 1 << 18, [&](Ranks& ranks, SpaceFixture& space) {
      // Rank r owns the words at 3 i + r. The fragments are small, except one in the middle that is too large for a
      // list.
      constexpr std::size_t kFragments = 5000, kLarge = 20000, kLargeAt = 150000;
      std::fill_n(space->data(), 1 << 18, std::byte{0});
      ranks.barrier();
      const auto me = static_cast<std::uint64_t>(ranks.rank());
      const int to = (ranks.rank() + 1) % 3;
      const auto place = [&](std::size_t i) { return 8 * (3 * i + me); };
      std::vector<std::uint64_t> words(kFragments), back(kFragments, 7), before(kFragments, 7);
      std::iota(words.begin(), words.end(), 1000 * (me + 1));
      const std::vector<std::byte> large(kLarge, std::byte(me + 1));
      {
        Fragments put(space->route(to), to, nullptr, kFragments);
        for (std::size_t i = 0; i < kFragments; ++i) {
          space.good(put.add(DataOperation::put(place(i), &words[i], 8)), "put");
          if (i == kFragments / 2)
            space.good(put.add(DataOperation::put(kLargeAt + kLarge * me, large.data(), kLarge)), "a large put");
        }
        space.good(put.end(), "end");
      }
      space.good(space->route(to).flush(to), "flush");
      {
        Fragments add(space->route(to), to, nullptr, kFragments);
        for (std::size_t i = 0; i < kFragments; ++i) {
          space.good(add.add(DataOperation::accumulate(place(i), ReduceOp::kSum, BasicType::kUint64, &words[i],
                                                       &before[i], 1)),
                     "add");
        }
        space.good(add.end(), "end");
      }
      space.good(space->route(to).flush(to), "flush");
      const std::unique_ptr<Pending> own = std::move(space->route(to).own_pending(to).value());
      {
        Fragments get(space->route(to), to, own.get(), kFragments);
        for (std::size_t i = 0; i < kFragments; ++i)
          space.good(get.add(DataOperation::get(place(i), &back[i], 8)), "get");
        space.good(get.end(), "end");
      }
      if (own != nullptr) {
        while (!own->done()) Process::instance().poll();
        space.good(own->take_error(), "its own");
      }
      ranks.check(before == words, "what was put is fetched");
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kFragments; ++i) wrong += back[i] == 2 * words[i] ? 0 : 1;
      ranks.check(wrong == 0, "what was put and added comes back");
      ranks.barrier();
      const std::uint64_t from = (me + 2) % 3;
      ranks.check(read_data<std::uint8_t>(space, kLargeAt + kLarge * from) == from + 1 &&
                      read_data<std::uint8_t>(space, kLargeAt + kLarge * (from + 1) - 1) == from + 1,
                  "the large piece is here");
      // A message holds some 400 fragments.
      const std::uint64_t messages = counted(
          on_private(variant) && !over_fabric(variant) ? RouteKind::kCma : RouteKind::kFabric, Counted::kHandler);
      ranks.check(variant == Variant::kMapped ? messages == 0 : messages > 5 && messages < 150, "they came in lists");
    }));
  }
}

// Blocks of all shapes do what they do one by one. `polls`: the target polls, so that messages take the place of system
// calls, and blocks without gaps there move as one range. `others`: of other fragments, which may share their list.
void check_blocks(Variant variant, bool polls, std::size_t others) {
  INFO(name(variant) << (polls ? ", the target polls" : "") << ", " << others << " others");
  struct Shape {
    std::size_t bytes, count;
    std::ptrdiff_t stride, origin_stride;
  };
  // Shapes with few and many blocks: more than one message and than all messages hold, dense at the origin or at the
  // target, backwards, with large blocks, or far apart.
  constexpr Shape kShapes[] = {{8, 5, 24, 8},     {8, 1000, 24, 8},   {24, 4000, 48, 24},       {8, 2000, 8, 40},
                               {3, 700, 7, 3},    {8, 900, -32, 8},   {16, 900, 32, -48},       {3000, 20, 5000, 3000},
                               {8, 40, 20000, 8}, {8, 3, 200000, 16}, {70000, 3, 80000, 70000}, {1, 60, 1, 2},
                               {4, 1, 0, 0},      {8, 20000, 8, 16}};
  constexpr std::size_t kEnd = (1 << 20) - 8;  // a word that ends the target's polls
  expect_well(run_with_space(2, variant, 1 << 20, [&](Ranks& ranks, SpaceFixture& space) {
    const auto is = [&](const Shape& shape, std::span<const std::byte> data, std::size_t first,
                        std::span<const std::byte> origin, std::size_t origin_first) {
      std::vector<std::byte> model(data.size(), kFilling);
      for (std::size_t block = 0; block < shape.count; ++block) {
        const auto by = static_cast<std::ptrdiff_t>(block);
        std::memcpy(model.data() + static_cast<std::ptrdiff_t>(first) + by * shape.stride,
                    origin.data() + static_cast<std::ptrdiff_t>(origin_first) + by * shape.origin_stride, shape.bytes);
      }
      return std::equal(data.begin(), data.end(), model.begin());
    };
    for (const Shape& shape : kShapes) {
      const auto what =
          fmt::format("{} x {} B, {} and {} apart", shape.count, shape.bytes, shape.stride, shape.origin_stride);
      std::fill_n(space->data(), 1 << 20, kFilling);
      ranks.barrier();
      const auto all_strides = [&](std::ptrdiff_t stride) {
        return (shape.count - 1) * static_cast<std::size_t>(std::abs(stride));
      };
      const std::size_t first = 64 + (shape.stride < 0 ? all_strides(shape.stride) : 0);
      const std::size_t origin_first = shape.origin_stride < 0 ? all_strides(shape.origin_stride) : 0;
      std::vector<std::byte> origin(all_strides(shape.origin_stride) + shape.bytes), back(origin.size(), kFilling);
      for (std::size_t i = 0; i < origin.size(); ++i) origin[i] = std::byte(i % 251);
      const auto blocks = [&](const DataOperation& one) {
        return one.repeated(shape.count, shape.stride, shape.origin_stride);
      };
      if (ranks.rank() == 0) {
        Fragments put(space->route(1), 1, nullptr, shape.count + others);
        space.good(put.add(blocks(DataOperation::put(first, origin.data() + origin_first, shape.bytes))), "put");
        space.good(put.end(), "end");
        space.good(space->route(1).flush(1), "flush");
        Fragments get(space->route(1), 1, nullptr, shape.count + others);
        space.good(get.add(blocks(DataOperation::get(first, back.data() + origin_first, shape.bytes))), "get");
        space.good(get.end(), "end");
        space.good(space->route(1).flush(1), "flush");
        bool same = true;
        for (std::size_t block = 0; block < shape.count; ++block) {
          const std::ptrdiff_t at =
              static_cast<std::ptrdiff_t>(origin_first) + static_cast<std::ptrdiff_t>(block) * shape.origin_stride;
          same = same && std::memcmp(back.data() + at, origin.data() + at, shape.bytes) == 0;
        }
        ranks.check(same, "what was put comes back: " + what);
        const auto untouched = std::count(back.begin(), back.end(), kFilling);
        ranks.check(origin.size() == shape.bytes * shape.count || untouched > 0, "and nothing between: " + what);
        const std::uint64_t end = 1;
        if (polls) space.good(space->route(1).put(1, kEnd, &end, sizeof end), "the end");
        space.good(space->route(1).flush(1), "flush");
      } else if (polls) {
        while (read_data<std::uint64_t>(space, kEnd) != 1) Process::instance().poll();
        std::fill_n(space->data() + kEnd, 8, kFilling);
      }
      ranks.barrier();
      if (ranks.rank() == 1) {
        ranks.check(is(shape, {space->data(), 1 << 20}, first, origin, origin_first),
                    "each block is in its place: " + what);
      }
      ranks.barrier();
    }
  }));
}

TEST_CASE("blocks at equal distances do on every route what they do one by one, whatever their shape") {
  for (const Variant variant : kAllVariants) check_blocks(variant, false, 0);
}

TEST_CASE("blocks for a target that polls do what they do one by one, alone and among other fragments") {
  for (const Variant variant : kAllVariants) {
    check_blocks(variant, true, 0);
    check_blocks(variant, true, 10);
  }
}

TEST_CASE("blocks that follow others at another distance keep theirs") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, 1 << 16, [&](Ranks& ranks, SpaceFixture& space) {
      // 30 words 16 bytes apart, 30 from the next such place on but 24 apart, and 30 again 24 apart, one by one.
      constexpr std::size_t kEach = 30;
      std::fill_n(space->data(), 1 << 16, std::byte{0});
      ranks.barrier();
      std::vector<std::uint64_t> words(3 * kEach);
      std::iota(words.begin(), words.end(), 1);
      const auto place = [](std::size_t i) { return i < kEach ? 16 * i : 16 * kEach + 24 * (i - kEach); };
      if (ranks.rank() == 0) {
        Fragments put(space->route(1), 1, nullptr, words.size());
        space.good(put.add(DataOperation::put(place(0), words.data(), 8).repeated(kEach, 16, 8)), "put");
        space.good(put.add(DataOperation::put(place(kEach), &words[kEach], 8).repeated(kEach, 24, 8)), "put");
        for (std::size_t i = 2 * kEach; i < words.size(); ++i)
          space.good(put.add(DataOperation::put(place(i), &words[i], 8)), "put");
        space.good(put.end(), "end");
        space.good(space->route(1).flush(1), "flush");
      }
      ranks.barrier();
      std::vector<std::uint64_t> model(place(words.size()) / 8, 0);
      for (std::size_t i = 0; i < words.size(); ++i) model[place(i) / 8] = words[i];
      ranks.check(ranks.rank() == 0 || std::memcmp(model.data(), space->data(), 8 * model.size()) == 0,
                  "each is in its place");
      ranks.barrier();
    }));
  }
}

TEST_CASE("on-node peers with more messages than there are slots all get their turn") {
  expect_well(run_with_space(6, Variant::kCma, 1 << 20, [&](Ranks& ranks, SpaceFixture& space) {
    // Six messages for each operation, several times.
    constexpr std::size_t kBlocks = 5000, kRounds = 20;
    const auto me = static_cast<std::size_t>(ranks.rank());
    std::vector<std::uint64_t> words(kBlocks);
    for (std::size_t round = 1; me != 0 && round <= kRounds; ++round) {
      std::iota(words.begin(), words.end(), round * 1'000'000 * me);
      Fragments put(space->route(0), 0, nullptr, kBlocks);
      space.good(put.add(DataOperation::put(8 * me, words.data(), 8).repeated(kBlocks, 64, 8)), "put");
      space.good(put.end(), "end");
    }
    ranks.barrier();
    std::size_t wrong = 0;
    for (std::size_t from = 1; me == 0 && from < 6; ++from) {
      for (std::size_t i = 0; i < kBlocks; ++i) {
        wrong += read_data<std::uint64_t>(space, 8 * from + 64 * i) == kRounds * 1'000'000 * from + i ? 0 : 1;
      }
    }
    ranks.check(wrong == 0, "the last of everybody's is here");
    ranks.barrier();
  }));
}

TEST_CASE("blocks between which nothing is mapped are got all the same") {
  expect_well(run_with_space(2, Variant::kCma, 1 << 20, [&](Ranks& ranks, SpaceFixture& space) {
    constexpr std::size_t kPage = 4096;
    std::fill_n(space->data(), 1 << 20, std::byte{3});
    const auto begin = reinterpret_cast<std::uintptr_t>(space->data());
    const std::uint64_t hole = (begin + 2 * kPage - 1) / kPage * kPage - begin;
    const auto holes = ranks.all_gather(hole);
    if (ranks.rank() == 1) ranks.check(munmap(space->data() + hole, kPage) == 0, "a hole");
    ranks.barrier();
    if (ranks.rank() == 0) {
      std::vector<std::byte> back(16);
      Fragments get(space->route(1), 1, nullptr, 2);
      space.good(get.add(DataOperation::get(holes[1] - 8, back.data(), 8).repeated(2, kPage + 8, 8)), "get");
      space.good(get.end(), "end");
      ranks.check(back == std::vector<std::byte>(16, std::byte{3}), "both are here");
    }
    ranks.barrier();
    if (ranks.rank() == 1) {
      void* const filled =
          mmap(space->data() + hole, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      ranks.check(filled != MAP_FAILED, "it is filled again");
    }
    ranks.barrier();
  }));
}

TEST_CASE("pieces for oneself are there at once, whatever the others are reached by") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, 4096, [&](Ranks& ranks, SpaceFixture& space) {
      std::vector<std::uint64_t> words(64);
      std::iota(words.begin(), words.end(), 1);
      space->route(ranks.rank()).expect_release(ranks.rank());
      Fragments put(space->route(ranks.rank()), ranks.rank(), nullptr, words.size());
      for (std::size_t i = 0; i < words.size(); ++i)
        space.good(put.add(DataOperation::put(16 * i, &words[i], 8)), "put");
      space.good(put.end(), "end");
      ranks.check(read_data<std::uint64_t>(space, 16 * 63) == 64, "the last is here");
      ranks.barrier();
    }));
  }
}

TEST_CASE("pieces of one origin's accumulates take effect in order, alone and among others") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, 4096, [&](Ranks& ranks, SpaceFixture& space) {
      std::fill_n(space->data(), 4096, std::byte{0});
      ranks.barrier();
      if (ranks.rank() == 0) {
        constexpr std::uint64_t kTimes = 300;
        std::vector<std::uint64_t> values(kTimes * 12);
        std::iota(values.begin(), values.end(), 1);
        std::vector<std::uint64_t> seen(kTimes);  // results may arrive until a flush
        std::size_t next = 0;
        const auto replace = [&](auto& by) {
          const std::uint64_t* value = &values[next++];
          if constexpr (std::is_same_v<std::remove_reference_t<decltype(by)>, Fragments>) {
            space.good(by.add(DataOperation::accumulate(64, ReduceOp::kReplace, BasicType::kUint64, value, nullptr, 1)),
                       "replace");
          } else {
            space.good(by.accumulate(1, 64, ReduceOp::kReplace, BasicType::kUint64, value, nullptr, 1), "replace");
          }
        };
        for (std::uint64_t time = 0; time < kTimes; ++time) {
          if (time % 3 == 0) space->route(1).expect_release(1);
          replace(space->route(1));
          Fragments fragments(space->route(1), 1, nullptr, 10);
          for (int i = 0; i < 10; ++i) replace(fragments);
          space.good(fragments.end(), "end");
          replace(space->route(1));
          space.good(space->route(1).accumulate(1, 64, ReduceOp::kNoOp, BasicType::kUint64, nullptr, &seen[time], 1),
                     "look");
          if (time % 7 != 0) continue;
          space.good(space->route(1).flush(1), "flush");
          ranks.check(seen[time] == next, fmt::format("the last of {} is there, not {}", next, seen[time]));
        }
        space.good(space->route(1).flush(1), "flush");
      }
      ranks.barrier();
    }));
  }
}

TEST_CASE("an on-node peer that died while pieces were on their way to it is an error, in time", "[native]") {
  // The peer's process is stopped before it can answer, and then killed.
  const std::string failures = run_with_space(2, Variant::kCma, 4096, [&](Ranks& ranks, SpaceFixture& space) {
    const auto pids = ranks.all_gather(getpid());
    if (ranks.rank() == 1) {
      ranks.barrier();
      while (true) pause();
    }
    ranks.barrier();
    kill(pids[1], SIGKILL);
    std::vector<std::uint64_t> words(64, 1);
    Fragments put(space->route(1), 1, nullptr, words.size());
    for (std::size_t i = 0; i < words.size(); ++i) space.good(put.add(DataOperation::put(16 * i, &words[i], 8)), "put");
    const Status status = put.end();
    ranks.check(!status.ok() && status.error().kind == ErrorKind::kPeer, "an error of the peer");
    _exit(ranks.failures() == 0 ? 0 : 1);
  });
  expect_well(failures, "rank 1: ended by signal 9\n");
}

}  // namespace farside::fragments_test

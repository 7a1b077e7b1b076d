// SPDX-License-Identifier: BSD-3-Clause
// Operations on a Space that the programs do not show: puts that are kept until a flush or the end of an epoch, blocks
// of every shape, and accumulates beside stores, at the end of memory and at odd addresses.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <sys/mman.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/routes/route.hpp"

namespace farside::space_operations_test {

using namespace farside::testing;

TEST_CASE("kept puts need no system call, and a flush, a get or a release executes them") {
  expect_well(run_with_space(2, Variant::kCma, 4096, [](Ranks& ranks, SpaceFixture& space) {
    const auto keep = [&](std::uint64_t value, Route::Until until) {
      space.good(space->route(1).queue_put(1, DataOperation::put(8, &value, sizeof value), nullptr, until), "put");
      ranks.check(space->queued_puts().any(), "it is kept");
    };
    if (ranks.rank() == 0) keep(42, Route::Until::kEnd);
    ranks.barrier();
    if (ranks.rank() == 1) {
      space->finish_puts();
      ranks.check(read_data<std::byte>(space, 8) == kFilling, "nothing has arrived");
    }
    ranks.barrier();
    if (ranks.rank() == 0) {
      space.good(space->route(1).flush(1), "flush");
      ranks.check(!space->queued_puts().any(), "none is kept");
      std::uint64_t got = 0;
      keep(43, Route::Until::kFlush);
      space.good(space->route(1).carry_out(1, DataOperation::get(8, &got, sizeof got)), "get");
      ranks.check(got == 43, "the get follows the put");
      // A fence that is refused during a lock still releases the puts of the lock's epoch.
      keep(44, Route::Until::kFlush);
      space.good(space->queued_puts().release(), "release");
    }
    ranks.barrier();
    if (ranks.rank() == 1) ranks.check(read_data<std::uint64_t>(space, 8) == 44, "the put is there");
    ranks.barrier();
  }));
}

// The target is slow: it has not executed the puts of an epoch when the next epoch begins. All accesses of all ranks
// must take effect after the posted puts, by any route, and the puts of several epochs in their order.
TEST_CASE("no access precedes posted puts that the target has not finished") {
  expect_well(run_with_space(3, Variant::kCma, 64 * 1024, [](Ranks& ranks, SpaceFixture& space) {
    using Until = Route::Until;
    const auto put = [&](std::uint64_t value) {
      space.good(space->route(1).queue_put(1, DataOperation::put(0, &value, 8), nullptr, Until::kEnd), "put");
      space.good(space->queued_puts().release(), "release");
    };
    const auto get = [&] {
      std::uint64_t got = 0;
      space.good(space->route(1).carry_out(1, DataOperation::get(0, &got, 8)), "get");
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
        space.good(space->route(1).carry_out(
                       1, DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kUint64, &one, &before, 1)),
                   "accumulate");
        ranks.check(before == base + 1, "an accumulate follows the put");
        for (std::uint64_t i = 3; i < 20; ++i) put(base + i);  // of as many epochs
        ranks.check(get() == base + 19, "the last epoch's put is last");
        put(base + 20);
        std::vector<std::uint64_t> large(1000, base + 21);
        space.good(space->route(1).carry_out(1, DataOperation::put(0, large.data(), 8000)), "a large put");
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
  constexpr Shape kShapes[] = {{8, 5, 24, 8},      {24, 4000, 48, 24},     {8, 2000, 8, 40},   {8, 900, -32, 8},
                               {16, 900, 32, -48}, {3000, 20, 5000, 3000}, {8, 3, 200000, 16}, {70000, 3, 80000, 70000},
                               {4, 1, 0, 0},       {8, 20000, 8, 16}};
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
        if (polls) space.good(space->route(1).carry_out(1, DataOperation::put(kEnd, &end, sizeof end)), "the end");
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
  check_blocks(Variant::kCma, true, 10);
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

TEST_CASE("stores of others into the gaps of pairs are not lost while the pairs are combined") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, 4096, [&](Ranks& ranks, SpaceFixture& space) {
      // Rank 0 combines pairs at rank 1, which writes the gap between them by itself.
      constexpr std::size_t kCount = 200;
      if (ranks.rank() == 0) {
        std::vector<std::byte> origin(kCount * 16);
        fill_elements(BasicType::kDoubleInt, origin.data(), kCount, 3);
        for (int i = 0; i < 2000; ++i) {
          space.good(space->route(1).carry_out(1, DataOperation::accumulate(0, ReduceOp::kMaxloc, BasicType::kDoubleInt,
                                                                            origin.data(), nullptr, kCount)),
                     "maxloc");
          space.good(space->route(1).flush(1), "flush");
        }
        const std::uint64_t end = 1;
        space.good(space->route(1).carry_out(1, DataOperation::put(4088, &end, 8)), "put");
      } else {
        auto* gap = reinterpret_cast<std::uint32_t*>(space->data() + 12 + 16 * (kCount / 2));
        const std::atomic_ref end(*reinterpret_cast<std::uint64_t*>(space->data() + 4088));
        std::uint32_t lost = 0;
        for (std::uint32_t n = 0; end.load() != 1; ++n) {
          std::atomic_ref(*gap).store(n);
          for (int i = 0; i < 100; ++i) lost += std::atomic_ref(*gap).load() != n ? 1 : 0;
        }
        ranks.check(lost == 0, "every store stays");
      }
    }));
  }
}

TEST_CASE("a pair whose data ends with the buffers is combined, and nothing behind is touched") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    constexpr std::size_t kData = 12;  // of the 16 bytes of a double-int
    expect_well(run_with_space(
        2, variant, 16 + kData,
        [&](Ranks& ranks, SpaceFixture& space) {
          if (ranks.rank() == 0) {
            const auto origin = std::make_unique<std::byte[]>(kData), fetched = std::make_unique<std::byte[]>(kData);
            const double value = 1e9;
            const std::int32_t index = 7;
            std::memcpy(origin.get(), &value, sizeof value);
            std::memcpy(origin.get() + 8, &index, sizeof index);
            const auto combine_with = [&](ReduceOp op) {
              return space->route(1).carry_out(
                  1, DataOperation::accumulate(16, op, BasicType::kDoubleInt, origin.get(), fetched.get(), 1));
            };
            space.good(combine_with(ReduceOp::kReplace), "replace");
            space.good(space->route(1).flush(1), "flush");
            space.good(combine_with(ReduceOp::kMaxloc), "maxloc");
            space.good(space->route(1).flush(1), "flush");
            ranks.check(std::memcmp(origin.get(), fetched.get(), kData) == 0, "what is fetched is what was there");
          }
          ranks.barrier();
          if (ranks.rank() == 1) {
            ranks.check(read_data<double>(space, 16) == 1e9, "the value is there");
            ranks.check(read_data<std::int32_t>(space, 24) == 7, "the index is there");
          }
        },
        on_private(variant) ? SpaceFixture::kAtPageEnd : 0));
  }
}

TEST_CASE("additions to private memory at an odd address are all counted, from every rank") {
  for (const Variant variant : {Variant::kCma, Variant::kFabricPrivate}) {
    for (const std::size_t misaligned : {std::size_t{4}, std::size_t{1}}) {
      INFO(name(variant) << ", " << misaligned << " bytes off");
      constexpr std::uint64_t kTimes = 3000;
      expect_well(run_with_space(
          2, variant, 64,
          [&](Ranks& ranks, SpaceFixture& space) {
            if (ranks.rank() == 0) std::fill_n(space->data(), 64, std::byte{0});
            ranks.barrier();
            const std::uint64_t one = 1;
            std::uint64_t times = 0;
            const auto add = [&] {
              space.good(space->route(0).carry_out(
                             0, DataOperation::accumulate(8, ReduceOp::kSum, BasicType::kUint64, &one, nullptr, 1)),
                         "add");
              if (++times % 16 == 0) space.good(space->route(0).flush(0), "flush");
            };
            if (ranks.rank() == 0) {
              // As long as the peer does.
              const std::atomic_ref end(space->data()[40]);
              while (end.load() != std::byte{1}) add();
            } else {
              while (times < kTimes) add();
              space.good(space->route(0).flush(0), "flush");
              space.good(space->route(0).carry_out(0, DataOperation::put(40, &one, 1)), "put");
            }
            space.good(space->route(0).flush(0), "flush");
            ranks.barrier();
            if (ranks.rank() == 0) {
              ranks.check(read_data<std::uint64_t>(space, 8) == times + kTimes, "all are counted");
              if (over_fabric(variant)) {
                // Several in a message, but never more than are between two flushes.
                ranks.check(counted(RouteKind::kFabric, Counted::kHandler) >= kTimes / 16,
                            "as the owner takes the lock");
              }
            }
          },
          misaligned));
    }
  }
}

}  // namespace farside::space_operations_test

// SPDX-License-Identifier: BSD-3-Clause
// Each accumulate is carried out once, atomically and in order, on every variant and by every method.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/data/elements.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"

namespace farside::space_accumulate_test {

using namespace farside::testing;

TEST_CASE("accumulates of every operation and type come out as the kernels', in the order in which they were issued") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    constexpr std::size_t kMost = 600;  // times 32 bytes: several messages to the handler
    constexpr std::size_t kSlot = kMost * 32 + 64;
    expect_well(run_with_space(2, variant, 2 * kSlot, [&](Ranks& ranks, SpaceFixture& space) {
      const int to = 1 - ranks.rank();
      const std::size_t slot = static_cast<std::size_t>(ranks.rank()) * kSlot;
      unsigned seed = 1;
      for (const BasicType type : all_types()) {
        for (const ReduceOp op : all_ops()) {
          if (!allowed(op, type)) continue;
          for (const std::size_t count : {std::size_t{1}, std::size_t{3}, op == ReduceOp::kSum ? kMost : 40}) {
            const std::size_t bytes = count * traits(type).extent;
            std::vector<std::vector<std::byte>> origin(3, std::vector<std::byte>(bytes, kFilling));
            for (auto& buffer : origin) fill_elements(type, buffer.data(), count, ++seed);
            std::vector<std::byte> model = origin[0], first(bytes, kFilling), last(bytes, kFilling);
            std::vector<std::byte> before_second;
            combine(AtomicMethod::kLocked, op, type, model.data(), origin[1].data(), nullptr, count);
            before_second = model;
            combine(AtomicMethod::kLocked, op, type, model.data(), origin[2].data(), nullptr, count);

            space.good(
                space->route(to).accumulate(to, slot, ReduceOp::kReplace, type, origin[0].data(), nullptr, count), "a");
            space.good(space->route(to).accumulate(to, slot, op, type, origin[1].data(), nullptr, count), "b");
            space.good(space->route(to).accumulate(to, slot, op, type, origin[2].data(), first.data(), count), "c");
            space.good(space->route(to).accumulate(to, slot, ReduceOp::kNoOp, type, nullptr, last.data(), count), "d");
            space.good(space->route(to).flush(to), "flush");
            const std::string what = fmt::format("{} {} x{}", traits(type).name, name(op), count);
            ranks.check(same_elements(type, first.data(), before_second.data(), count), what + ": fetched");
            ranks.check(same_elements(type, last.data(), model.data(), count), what + ": the result");
            std::vector<std::byte> got(bytes, kFilling);
            space.good(space->route(to).get(to, slot, got.data(), bytes), "get");
            space.good(space->route(to).flush(to), "flush");
            ranks.check(same_elements(type, got.data(), model.data(), count), what + ": got");
          }
        }
      }
      space.good(space->route(to).accumulate(to, slot, ReduceOp::kNoOp, BasicType::kInt32, nullptr, nullptr, 1),
                 "nothing");
      space.good(space->route(to).accumulate(to, slot, ReduceOp::kSum, BasicType::kInt32, nullptr, nullptr, 0),
                 "no element");
    }));
  }
}

TEST_CASE("accumulates by an adapter and by the handler keep their order, without a flush between them") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, 64, [&](Ranks& ranks, SpaceFixture& space) {
      // 16 bytes, moved by the handler; their first 8, moved by the adapter, where there is one.
      using Pair = std::array<std::uint64_t, 2>;
      constexpr std::size_t kTimes = 300;
      const int to = 1 - ranks.rank();
      std::vector<Pair> sent(kTimes), seen_as_pair(kTimes);
      std::vector<std::uint64_t> word(kTimes), seen_as_word(kTimes);
      for (std::uint64_t i = 0; i < kTimes; ++i) {
        constexpr BasicType kPair = BasicType::kDoubleDouble, kWord = BasicType::kUint64;
        sent[i] = {2 * i, i};
        word[i] = 2 * i + 1;
        space.good(space->route(to).accumulate(to, 0, ReduceOp::kReplace, kPair, &sent[i], nullptr, 1),
                   "replace the pair");
        space.good(space->route(to).accumulate(to, 0, ReduceOp::kNoOp, kWord, nullptr, &seen_as_word[i], 1),
                   "fetch the word");
        space.good(space->route(to).accumulate(to, 0, ReduceOp::kReplace, kWord, &word[i], nullptr, 1),
                   "replace the word");
        space.good(space->route(to).accumulate(to, 0, ReduceOp::kNoOp, kPair, nullptr, &seen_as_pair[i], 1),
                   "fetch the pair");
      }
      space.good(space->route(to).flush(to), "flush");
      for (std::uint64_t i = 0; i < kTimes; ++i) {
        ranks.check(seen_as_word[i] == 2 * i, "the word sees the pair before it");
        ranks.check(seen_as_pair[i] == Pair{2 * i + 1, i}, "the pair sees the word before it");
      }
    }));
  }
}

TEST_CASE("the gaps of pair types are left alone, at the target and in the result") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    constexpr std::size_t kCount = 5;
    expect_well(run_with_space(2, variant, 4096, [&](Ranks& ranks, SpaceFixture& space) {
      const int to = 1 - ranks.rank();
      std::uint64_t offset = 0;
      for (const BasicType type : all_types()) {
        if (!has_gap(type)) continue;
        const std::size_t bytes = kCount * traits(type).extent;
        std::vector<std::byte> origin(bytes), fetched(bytes, kFilling), got(bytes);
        fill_elements(type, origin.data(), kCount, 9);
        space.good(space->route(to).accumulate(to, offset, ReduceOp::kReplace, type, origin.data(), nullptr, kCount),
                   "replace");
        space.good(space->route(to).accumulate(to, offset, ReduceOp::kNoOp, type, nullptr, fetched.data(), kCount),
                   "fetch");
        space.good(space->route(to).get(to, offset, got.data(), bytes), "get");
        space.good(space->route(to).flush(to), "flush");
        ranks.check(gaps_hold(type, got.data(), kCount, kFilling), fmt::format("{}: target", traits(type).name));
        ranks.check(gaps_hold(type, fetched.data(), kCount, kFilling), fmt::format("{}: result", traits(type).name));
        offset += 512;
      }
    }));
  }
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
          space.good(space->route(1).accumulate(1, 0, ReduceOp::kMaxloc, BasicType::kDoubleInt, origin.data(), nullptr,
                                                kCount),
                     "maxloc");
          space.good(space->route(1).flush(1), "flush");
        }
        const std::uint64_t end = 1;
        space.good(space->route(1).put(1, 4088, &end, 8), "put");
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
              return space->route(1).accumulate(1, 16, op, BasicType::kDoubleInt, origin.get(), fetched.get(), 1);
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
              space.good(space->route(0).accumulate(0, 8, ReduceOp::kSum, BasicType::kUint64, &one, nullptr, 1), "add");
              if (++times % 16 == 0) space.good(space->route(0).flush(0), "flush");
            };
            if (ranks.rank() == 0) {
              // As long as the peer does.
              const std::atomic_ref end(space->data()[40]);
              while (end.load() != std::byte{1}) add();
            } else {
              while (times < kTimes) add();
              space.good(space->route(0).flush(0), "flush");
              space.good(space->route(0).put(0, 40, &one, 1), "put");
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

}  // namespace farside::space_accumulate_test

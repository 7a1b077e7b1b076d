// SPDX-License-Identifier: BSD-3-Clause
// Control words, on every variant: operations on them are atomic, and are ordered after the data that was put before
// them.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/best_endpoint.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/routes/fabric/fabric_targets.hpp"

namespace farside::space_control_test {

using namespace farside::testing;
using namespace std::chrono_literals;

namespace {

// Waits for a control operation, which must succeed; what it fetched.
std::uint64_t finished(SpaceFixture& space, ControlMemory::Operation& operation) {
  await(space, operation);
  space.good(operation.take_error(), "a control operation");
  return operation.value();
}

}  // namespace

TEST_CASE("control words are added to, swapped, read and written, from everywhere") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(3, variant, 64, [&](Ranks& ranks, SpaceFixture& space) {
      ControlMemory memory(*space);
      ControlMemory::Operation operation;
      const auto finish = [&] { return finished(space, operation); };
      constexpr std::uint32_t kCounter = 64, kSwapped = 72, kMine = 128;
      for (int i = 0; i < 200; ++i) {
        for (int to = 0; to < 3; ++to) {
          memory.fetch_add(operation, to, kCounter, 3);
          ranks.check(finish() % 3 == 0, "what was there is a sum of threes");
        }
        memory.own_fetch_add(kCounter, 3);
      }
      for (int i = 0; i < 30; ++i) {
        for (std::uint64_t expected = 0;;) {
          memory.compare_and_swap(operation, 1, kSwapped, expected, expected + 1);
          const std::uint64_t found = finish();
          if (found == expected) break;
          expected = found;
        }
      }
      const auto mine = kMine + static_cast<std::uint32_t>(8 * ranks.rank());
      for (int to = 0; to < 3; ++to) {
        // Posts take effect in their order, and before the read.
        memory.write_unawaited(to, mine, 77);
        memory.write_unawaited(to, mine, 0xABCDEF0000000000);
        memory.add_unawaited(to, mine, static_cast<std::uint64_t>(ranks.rank()));
        memory.read(operation, to, mine);
        ranks.check(finish() == 0xABCDEF0000000000 + static_cast<std::uint64_t>(ranks.rank()), "what was written");
        std::array<std::uint64_t, 3> words{};
        memory.read(operation, to, kSwapped, words);
        finish();
        ranks.check(words[0] <= 90 && words[1] == 0, "consecutive words");
      }
      ranks.barrier();
      ranks.check(memory.own(kCounter) == 3 * 200 * 4, "all additions are counted, my own too");
      ranks.check(memory.own(kSwapped) == (ranks.rank() == 1 ? 90 : 0), "all increments are counted");
      for (std::uint32_t r = 0; r < 3; ++r) ranks.check(memory.own(kMine + 8 * r) == 0xABCDEF0000000000 + r, "written");
      ranks.check(memory.own(kMine + 24) == 0, "nothing else was written");
      const auto begin = Clock::now();
      memory.pause(operation, 1000);
      finish();
      ranks.check(Clock::now() - begin >= 1ms, "a pause takes its time");
    }));
  }
}

TEST_CASE("a rank that sees a control atomic sees the data put before it, without a wait in between") {
  for (const Variant variant : kFabricVariants) {
    INFO(name(variant));
    constexpr std::uint64_t kRounds = 5000;
    constexpr std::uint32_t kFlag = 64, kEnd = 72;
    // The places to which the number of the round is put: a word, the first and last word of a long range, a byte at an
    // odd offset.
    constexpr std::uint64_t kWord = 0, kLong = 64, kLongWords = 512, kByte = 8191;
    constexpr std::uint64_t kLast = kLong + 8 * (kLongWords - 1);
    expect_well(run_with_space(2, variant, 8192, [&](Ranks& ranks, SpaceFixture& space) {
      std::fill_n(space->data(), 8192, std::byte{0});
      ControlMemory memory(*space);
      ranks.barrier();
      if (ranks.rank() == 0) {
        constexpr std::size_t kUnderWay = 32;
        std::array<ControlMemory::Operation, kUnderWay> operations;
        std::vector<std::array<std::uint64_t, kLongWords>> rounds(kUnderWay);
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          ControlMemory::Operation& operation = operations[round % kUnderWay];
          auto& words = rounds[round % kUnderWay];
          finished(space, operation);
          words.fill(round);
          space->route(1).expect_release(1);
          space.good(space->route(1).put(1, kLong, words.data(), sizeof words), "put");
          space.good(space->route(1).put(1, kByte, words.data(), 1), "put");
          space.good(space->route(1).put(1, kWord, words.data(), 8), "put");
          space.good(space->route(1).order_before_release(1), "order_before_release");
          memory.fetch_add(operation, 1, kFlag, 1, DataAccess::kEnds);
        }
        for (auto& operation : operations) finished(space, operation);
        space.good(space->route(1).flush(1), "flush");
        memory.write_unawaited(1, kEnd, 1);
      } else {
        std::uint64_t probes = 0, late = 0;
        while (memory.own(kEnd) == 0) {
          const std::uint64_t seen = memory.own(kFlag);
          const auto word = [&](std::uint64_t offset) {
            return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(space->data() + offset)).load();
          };
          late += word(kWord) < seen || word(kLong) < seen || word(kLast) < seen ? 1 : 0;
          // The byte has the round modulo 256. The data may be ahead of the flag by the outstanding rounds.
          const auto byte = std::to_integer<std::uint8_t>(std::atomic_ref(space->data()[kByte]).load());
          late += static_cast<std::uint8_t>(byte - seen) >= 128 && memory.own(kFlag) == seen ? 1 : 0;
          ++probes;
        }
        ranks.check(late == 0, fmt::format("no flag comes before its data ({} of {} looks)", late, probes));
        ranks.check(memory.own(kFlag) == kRounds, "all flags have come");
        ranks.check(read_data<std::uint64_t>(space, kWord) == kRounds, "the last round is here");
      }
    }));
  }
}

}  // namespace farside::space_control_test

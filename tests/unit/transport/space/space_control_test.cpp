// SPDX-License-Identifier: BSD-3-Clause
// Control words, on every variant: operations on them are atomic, and are ordered after the data that was put before
// them.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/fabric/fabric.hpp"
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

// Reads the word in one load, perhaps while another process writes it.
[[gnu::no_sanitize_thread]] std::uint64_t look_at_word(SpaceFixture& space, std::uint64_t offset) {
  return *reinterpret_cast<const volatile std::uint64_t*>(space->data() + offset);
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
        memory.post_write(to, mine, 77);
        memory.post_write(to, mine, 0xABCDEF0000000000);
        memory.post_add(to, mine, static_cast<std::uint64_t>(ranks.rank()));
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
      const OpenEndpoint& fabric = *Process::instance().fabric().value();
      ranks.check(fabric.orders_messages_behind_writes() || fabric.nic_atomics(), "this provider orders them");
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
        memory.post_write(1, kEnd, 1);
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

TEST_CASE("a lock that is deferred travels with its operations and its release, or is taken before them") {
  for (const Variant variant : kFabricVariants) {
    INFO(name(variant));
    constexpr std::uint32_t kLock = 64;
    constexpr std::uint64_t kHolder = 1ULL << 32;
    expect_well(run_with_space(3, variant, 16384, [&](Ranks& ranks, SpaceFixture& space) {
      std::fill_n(space->data(), 16384, std::byte{0});
      Process::instance().poll();
      ControlMemory memory(*space);
      ControlMemory::Operation operation;
      ranks.barrier();
      if (ranks.rank() == 0) {
        ranks.check(space->deferred_locks(1) != nullptr && space->deferred_locks(0) == nullptr,
                    "it can be deferred where there is a fabric");
        const ControlStep draw{ControlCall::kFetchAdd, {}, kLock, kHolder + 1, kHolder};
        const ControlStep leave{ControlCall::kFetchAdd, {}, kLock, -kHolder, 0};
        std::array<std::uint64_t, 1024> words{};
        int taken = 0;
        const auto take = [&]() -> Status {
          return space->deferred_locks(1)->take(1, [&]() -> Status {
            ++taken;
            memory.fetch_add(operation, 1, kLock, kHolder + 1);
            finished(space, operation);
            return {};
          });
        };
        std::uint64_t turns = 0, seen = 0;
        // No other process holds the lock.
        for (std::uint64_t round = 1; round <= 300; ++round, ++turns) {
          LockedResult all;
          words[0] = round;
          space.good(space->deferred_locks(1)->defer(1, take), "defer_lock");
          space.good(space->route(1).put(1, 0, words.data(), 8), "put");
          if (round % 2 == 0) space.good(space->route(1).get(1, 0, &seen, 8), "get");
          space.good(space->deferred_locks(1)->execute(1, draw, leave, all), "enclosed");
          ranks.check(!all.stopped && all.acquire_step == turns && all.release_step == turns + kHolder + 1,
                      "the lock was free");
          ranks.check(round % 2 != 0 || seen == round, "the get sees the put");
        }
        // The same with an epoch without operations.
        LockedResult nothing;
        space.good(space->deferred_locks(1)->defer(1, take), "defer_lock");
        space.good(space->deferred_locks(1)->execute(1, draw, leave, nothing), "enclosed");
        ranks.check(!nothing.stopped && nothing.acquire_step == turns++, "an epoch without operations");
        // Another process holds the lock: the operations are returned, and are carried out later.
        memory.fetch_add(operation, 1, kLock, kHolder);
        finished(space, operation);
        words[0] = 4711;
        LockedResult stopped;
        space.good(space->deferred_locks(1)->defer(1, take), "defer_lock");
        space.good(space->route(1).put(1, 8, words.data(), 8), "put");
        space.good(space->deferred_locks(1)->execute(1, draw, leave, stopped), "enclosed");
        ranks.check(stopped.stopped && stopped.acquire_step == turns++ + kHolder && stopped.list != nullptr,
                    "it was stopped");
        space.good(space->route(1).get(1, 8, &seen, 8), "get");
        space.good(space->route(1).flush(1), "flush");
        ranks.check(seen == 0, "nothing was carried out");
        space->deferred_locks(1)->queue_again(1, std::move(stopped.list));
        space.good(space->route(1).order_before_release(1), "order_before_release");
        memory.fetch_add(operation, 1, kLock, -kHolder, DataAccess::kEnds);
        finished(space, operation);
        space.good(space->route(1).get(1, 8, &seen, 8), "get");
        space.good(space->route(1).flush(1), "flush");
        ranks.check(seen == 4711 && taken == 0, "then it was");
        // An operation that cannot be deferred acquires the lock first: a flush of coalesced operations, a long put, or
        // too many operations.
        const auto with = [&](const char* what, auto&& act) {
          const int before = taken;
          space.good(space->deferred_locks(1)->defer(1, take), "defer_lock");
          act();
          ranks.check(taken == before + 1, what);
          space.good(space->route(1).order_before_release(1), "order_before_release");
          memory.fetch_add(operation, 1, kLock, -kHolder, DataAccess::kEnds);
          finished(space, operation);
          space.good(space->route(1).flush(1), "flush");
        };
        words[5] = 5;
        with("a flush takes it", [&] {
          space.good(space->route(1).put(1, 16, words.data() + 5, 8), "put");
          ranks.check(taken == 0, "a small put does not");
          space.good(space->route(1).flush(1), "flush");
          space.good(space->route(1).get(1, 16, &seen, 8), "get");
        });
        ranks.check(seen == 5, "and what was coalesced is carried out");
        with("a long put takes it", [&] { space.good(space->route(1).put(1, 24, words.data(), 8000), "put"); });
        with("a get that is followed by itself takes it", [&] {
          const auto own = std::move(space->route(1).own_outstanding(1).value());
          space.good(space->route(1).put(1, 16, words.data() + 6, 8), "put");
          space.good(space->route(1).get(1, 0, &seen, 8, own.get()), "get");
          while (!own->done()) Process::instance().poll();
        });
        with("more than a message holds takes it", [&] {
          for (std::uint64_t i = 0; i < 2000; ++i)
            space.good(space->route(1).put(1, 16 * (i * 7 % 1000), words.data(), 8), "put");
        });
        // If the lock cannot be acquired, no operation is carried out.
        words[0] = 99;
        space.good(space->deferred_locks(1)->defer(1,
                                                   [] {
                                                     return Status(Error{ErrorKind::kConflict, "no"});
                                                   }),
                   "defer_lock");
        space.good(space->route(1).put(1, 8, words.data(), 8), "put");
        ranks.check(!space->route(1).flush(1), "who cannot have it is told");
      }
      ranks.barrier();
    }));
  }
}

TEST_CASE("a small put before a release travels with it, and without one all the same") {
  for (const Variant variant : kFabricVariants) {
    INFO(name(variant));
    constexpr std::uint64_t kRounds = 800;
    constexpr std::uint32_t kFlag = 64, kOther = 72, kEnd = 80;
    expect_well(run_with_space(3, variant, 16384, [&](Ranks& ranks, SpaceFixture& space) {
      std::fill_n(space->data(), 16384, std::byte{0});
      Process::instance().poll();  // the handler, on another thread, comes after that
      ControlMemory memory(*space);
      ControlMemory::Operation operation;
      const auto finish = [&] { return finished(space, operation); };
      ranks.barrier();
      const auto there = [&](std::uint64_t offset) { return look_at_word(space, offset); };
      // A get of so many bytes is no message.
      const auto fetch = [&](std::uint64_t offset) {
        std::array<std::uint64_t, kMostGetInRing / 8 + 1> got{};
        space.good(space->route(1).get(1, offset, got.data(), sizeof got), "get");
        space.good(space->route(1).flush(1), "flush");
        return got.front();
      };
      if (ranks.rank() == 0) {
        std::vector<std::uint64_t> words(2048);
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          words[0] = words[511] = round;
          space->route(1).expect_release(1);
          space.good(space->route(1).put(1, 0, words.data(), round % 2 == 0 ? 8 : 4096), "put");
          space.good(space->route(1).order_before_release(1), "order_before_release");
          memory.fetch_add(operation, 1, kFlag, 1, DataAccess::kEnds);
          ranks.check(finish() == round - 1, "what the word held is fetched");
          words[0] = 0;  // over is over
        }
        // An operation alone with a flush; several together; the flag with all operations before it, in order.
        words[0] = 77;
        space->route(1).expect_release(1);
        space.good(space->route(1).put(1, 8192, words.data(), 8), "put");
        space.good(space->route(1).flush(1), "flush");
        ranks.check(fetch(8192) == 77, "a flush sends it");
        space->route(1).expect_release(1);
        space.good(space->route(1).put(1, 8200, words.data(), 8), "put");
        space.good(space->route(1).put(1, 8208, words.data(), 8), "put");
        space.good(space->flush_all(), "flush_all");
        ranks.check(fetch(8200) == 77 && fetch(8208) == 77, "a flush of all sends both");
        std::uint64_t one = 1, got = 0, before = 5, swapped = 5;
        const long double real = 3;
        space->route(1).expect_release(1);
        space.good(space->route(1).put(1, 8216, words.data(), 8), "put");
        space.good(space->route(1).accumulate(1, 8224, ReduceOp::kSum, BasicType::kUint64, &one, &before, 1),
                   "accumulate");
        space.good(space->route(1).compare_and_swap(1, 8224, BasicType::kUint64, words.data(), &one, &swapped),
                   "compare_and_swap");
        space.good(space->route(1).accumulate(1, 8240, ReduceOp::kSum, BasicType::kLongDouble, &real, nullptr, 1),
                   "accumulate");
        space.good(space->route(1).get(1, 8224, &got, 8), "get");
        space.good(space->route(1).order_before_release(1), "order_before_release");
        memory.fetch_add(operation, 1, kOther, 1, DataAccess::kEnds);
        finish();
        space.good(space->route(1).flush(1), "flush");
        ranks.check(before == 0 && swapped == 1 && got == 77, "all are carried out in order");
        ranks.check(fetch(8216) == 77 && fetch(8224) == 77, "what they left is there");
        // Two flags after the same data, and a third flag after these.
        words[1] = 78;
        space->route(1).expect_release(1);
        space.good(space->route(1).put(1, 8216, words.data() + 1, 8), "put");
        space.good(space->route(1).order_before_release(1), "order_before_release");
        ControlMemory::Operation second;
        memory.fetch_add(operation, 1, kOther, 1, DataAccess::kEnds);
        memory.fetch_add(second, 1, kOther, 1, DataAccess::kEnds);
        ranks.check(finish() == 1, "the first flag comes first");
        ranks.check(finished(space, second) == 2, "the second flag comes second");
        space.good(space->route(1).flush(1), "flush");
        space->route(1).expect_release(1);
        space.good(space->route(1).put(1, 8232, words.data(), 8), "put");
        space.good(space->route(1).get(1, 8192, &got, 8), "get");
        // A flag for another rank, to which no data is put.
        memory.fetch_add(operation, 2, kOther, 1);
        finish();
        space.good(space->route(1).flush(1), "flush");
        ranks.check(got == 77 && fetch(8232) == 77, "a flag elsewhere leaves them alone");
        // A large put is not coalesced, and the flag waits for it.
        words.assign(words.size(), 5);
        space->route(1).expect_release(1);
        space.good(space->route(1).put(1, 0, words.data(), 16384), "put");
        space.good(space->route(1).order_before_release(1), "order_before_release");
        memory.fetch_add(operation, 1, kEnd, 1, DataAccess::kEnds);
        finish();
        space.good(space->route(1).flush(1), "flush");
      } else if (ranks.rank() == 1) {
        std::uint64_t probes = 0, late = 0;
        while (memory.own(kEnd) == 0) {
          const std::uint64_t seen = memory.own(kFlag);
          late += there(0) < seen && there(0) != 5 ? 1 : 0;
          if (++probes % 64 == 0) std::this_thread::yield();  // each round waits for this rank's progress thread
        }
        ranks.check(late == 0, "no flag comes before its data");
        ranks.check(there(0) == 5 && there(16376) == 5, "the large put is here when its flag is");
        ranks.check(memory.own(kOther) == 3, "the other flags are here");
      }
      ranks.barrier();
      if (ranks.rank() == 1 && !Process::instance().fabric().value()->nic_atomics()) {
        // The others: two puts, five operations and their flag, a flag with a put, a flag, a put and a get. Where flags
        // are always for the handler: one more. A small put by itself is a message over TCP only.
        const std::uint64_t others = test_provider() == std::string_view("tcp") ? 7 : 6;
        ranks.check(counted(RouteKind::kFabric, Counted::kHandler) == kRounds + others, "each put came with its flag");
      }
    }));
  }
}

}  // namespace farside::space_control_test

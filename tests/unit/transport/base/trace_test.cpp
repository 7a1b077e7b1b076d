// SPDX-License-Identifier: BSD-3-Clause
// What is counted and recorded: operations by target, records in a ring, time; and what tells the records of two
// launches apart.
#include "transport/base/trace.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/statistics.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"

namespace farside::trace_test {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// A process of a launch of four ranks that ran from the 100th to the 110th second.
Job job(std::uint64_t agreed = 0) { return {0, 4, false, agreed, 100 * kSecond, 110 * kSecond}; }
Job later(Job job) {
  job.started += 50 * kSecond;
  job.written += 50 * kSecond;
  return job;
}
bool together(const Job& a, const Job& b) {
  CHECK(a.may_be_same_launch(b) == b.may_be_same_launch(a));
  return a.may_be_same_launch(b);
}

TraceRecord numbered(std::uint64_t number) {
  TraceRecord record;
  record.count = number;
  return record;
}

using Key = std::pair<int, Counted>;
using Sums = std::map<Key, std::pair<std::uint64_t, std::uint64_t>>;
Sums drained(OperationCounts& counts, int only = -1) {
  Sums sums;
  counts.drain(only, [&](int target, Counted what, std::uint64_t count, std::uint64_t bytes) {
    CHECK(!sums.contains(Key{target, what}));
    sums[{target, what}] = {count, bytes};
  });
  return sums;
}

}  // namespace

TEST_CASE("a ring keeps the last records, oldest first, and counts those it has lost") {
  TraceRing ring(8);
  CHECK(ring.take().empty());
  for (std::uint64_t i = 0; i < 5; ++i) ring.add(numbered(i));
  CHECK(ring.take().size() == 5);
  CHECK(ring.lost() == 0);
  for (std::uint64_t i = 5; i < 21; ++i) ring.add(numbered(i));
  const std::vector<TraceRecord> kept = ring.take();
  REQUIRE(kept.size() == 8);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].count == 13 + i);
  CHECK(ring.lost() == 13);
}

TEST_CASE("several threads lose no record of each other") {
  TraceRing ring(1 << 14);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 4000; ++i) ring.add(numbered(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const TraceRecord& record : ring.take()) sum += record.count;
  CHECK(sum == 16000);
}

TEST_CASE("a ring is read while the only thread that records goes on: what is returned is whole and in order") {
  TraceRing ring(64);
  std::atomic<bool> over{false};
  std::thread recorder([&] {
    for (std::uint64_t i = 0; !over; ++i) {
      TraceRecord record = numbered(i);
      record.begin = record.end = i;
      ring.add(record);
    }
  });
  bool whole = true, ordered = true;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<TraceRecord> records = ring.take();
    for (std::size_t i = 0; i < records.size(); ++i) {
      whole = whole && records[i].begin == records[i].count && records[i].end == records[i].count;
      ordered = ordered && (i == 0 || records[i].count == records[i - 1].count + 1);
    }
  }
  over = true;
  recorder.join();
  CHECK(whole);
  CHECK(ordered);
}

TEST_CASE("operations are counted by target and kind, shown at any time, and given out once") {
  OperationCounts counts(false);
  REQUIRE(counts.row(2) != nullptr);
  counts.add_here(*counts.row(2), Counted::kPut, 8);
  counts.add_here(*counts.row(2), Counted::kPut, 100);
  counts.add_here(*counts.row(0), Counted::kFetch, 4);
  for (int times = 0; times < 2; ++times) {
    Sums shown;
    counts.each([&](int target, Counted what, std::uint64_t count, std::uint64_t bytes) {
      shown[{target, what}] = {count, bytes};
    });
    CHECK(shown == Sums{{{0, Counted::kFetch}, {1, 4}}, {{2, Counted::kPut}, {2, 108}}});
  }
  CHECK(drained(counts, 2) == Sums{{{2, Counted::kPut}, {2, 108}}});
  CHECK(drained(counts) == Sums{{{0, Counted::kFetch}, {1, 4}}});
  CHECK(drained(counts).empty());
  counts.add_here(*counts.row(2), Counted::kPut, 1);
  CHECK(drained(counts) == Sums{{{2, Counted::kPut}, {1, 1}}});
}

TEST_CASE("operations are counted by kind and size, also those that were given out") {
  OperationCounts counts(false);
  counts.add_here(*counts.row(2), Counted::kPut, 8);
  counts.add_here(*counts.row(0), Counted::kPut, 5);
  drained(counts);
  counts.add_here(*counts.row(0), Counted::kPut, 9);
  counts.add(0, Counted::kGet, 0);
  const OperationCounts::Sizes sizes = counts.sizes();
  const auto& puts = sizes[static_cast<std::size_t>(Counted::kPut)];
  CHECK(puts[OperationCounts::size_class(8)].count == 2);
  CHECK(puts[OperationCounts::size_class(8)].bytes == 13);
  CHECK(puts[OperationCounts::size_class(16)].count == 1);
  CHECK(sizes[static_cast<std::size_t>(Counted::kGet)][0].count == 1);
  CHECK(OperationCounts::size_class(1) == 1);
  CHECK(OperationCounts::size_class(2) == 2);
  CHECK(OperationCounts::size_class(3) == 3);
  CHECK(OperationCounts::size_class(~std::uint64_t{0}) == OperationCounts::kSizes - 1);
}

TEST_CASE("concurrent threads lose no counts while another thread drains them") {
  OperationCounts counts(true);
  CHECK(counts.row(0) == nullptr);
  std::uint64_t sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) counts.add(i % 2, Counted::kGet, 2);
    });
  }
  for (int i = 0; i < 100; ++i) {
    for (const auto& [key, each] : drained(counts)) sum += each.first;
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [key, each] : drained(counts)) sum += each.first;
  CHECK(sum == 15000);
}

TEST_CASE("counts of several threads add up") {
  Statistics statistics;
  statistics.enable();
  constexpr std::uint64_t kThreads = 4, kTimes = 20'000;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < kTimes; ++i) statistics.add(RouteKind::kFabric, Counted::kHandler, 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto& counter = statistics.counter(RouteKind::kFabric, Counted::kHandler);
  CHECK(counter.count.load() == kThreads * kTimes);
  CHECK(counter.bytes.load() == 3 * kThreads * kTimes);
}

TEST_CASE("ticks become nanoseconds by two readings of both clocks") {
  const ClockPair first = ClockPair::read();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const ClockPair second = ClockPair::read();
  const double rate = ns_per_tick(first, second);
  CHECK(rate > 0.01);
  CHECK(rate <= 1.0);
  CHECK(static_cast<double>(second.ticks - first.ticks) * rate >= 19e6);
  CHECK(ns_per_tick(second, second) == 0.0);
}

TEST_CASE("a wait is measured from its first pause to its end, and nothing that did not wait") {
  Waiter::measure();
  NoProgress progress;
  WakeEvent wake_event{};
  const Ticks before = this_thread.waited;
  { const Waiter none(progress, wake_event); }
  CHECK(this_thread.waited == before);
  const Ticks begun = ticks();
  {
    Waiter waiter(progress, wake_event);
    for (int i = 0; i < 140; ++i) waiter.pause();
  }
  CHECK(this_thread.waited > before);
  CHECK(this_thread.waited - before <= ticks() - begun);
  CHECK(this_thread.last_wait_end >= begun);
}

TEST_CASE("the offset of a clock is that of the shortest round trip, within half of it") {
  int trips = 0;
  const auto offset = compare_clock([&](std::uint64_t mine, std::uint64_t& theirs) {
    // The first trip is slow, and what it claims is wrong.
    if (++trips == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    theirs = mine + static_cast<std::uint64_t>((trips == 1 ? 5 : 1) * kSecond);
    return true;
  });
  REQUIRE(offset);
  CHECK(trips == kClockRoundTrips);
  CHECK(std::llabs(offset->ahead - kSecond) <= static_cast<long long>(offset->uncertain));
}

TEST_CASE("a clock whose peer does not answer has no offset") {
  int trips = 0;
  CHECK_FALSE(compare_clock([&](std::uint64_t, std::uint64_t&) { return ++trips < 3; }));
  CHECK(trips == 3);
}

TEST_CASE("who answers receives and sends a reading for each round trip, until one of them fails") {
  int received = 0, sent = 0;
  CHECK(answer_clock([&](std::uint64_t&) { return ++received > 0; }, [&](std::uint64_t) { return ++sent > 0; }));
  CHECK(received == kClockRoundTrips);
  CHECK(sent == kClockRoundTrips);
  CHECK_FALSE(answer_clock([](std::uint64_t&) { return false; }, [](std::uint64_t) { return true; }));
  CHECK_FALSE(answer_clock([](std::uint64_t&) { return true; }, [](std::uint64_t) { return false; }));
}

TEST_CASE(
    "what the ranks have agreed on tells launches apart, then the number of ranks, and the time within a second") {
  CHECK(together(job(7), job(7)));
  CHECK(together(job(7), later(job(7))));
  CHECK_FALSE(together(job(7), job(8)));
  CHECK(together(job(), job()));
  CHECK(together(job(7), job()));
  CHECK_FALSE(together(job(7), later(job())));
  CHECK_FALSE(together(job(), later(job())));
  Job soon = job(), other = job();
  soon.started = job().written + kSecond;
  soon.written = soon.started + kSecond;
  CHECK(together(job(), soon));
  soon.started += 2 * kSecond;
  CHECK_FALSE(together(job(), soon));
  other.ranks = 2;
  CHECK_FALSE(together(job(), other));
  other.ranks = 0;  // unknown
  CHECK(together(job(), other));
}

TEST_CASE("spawned processes are of the launch of the same time") {
  Job spawned = job(8);
  spawned.ranks = 2;
  spawned.spawned = true;
  CHECK(together(job(7), spawned));
  CHECK_FALSE(together(job(7), later(spawned)));
}

}  // namespace farside::trace_test

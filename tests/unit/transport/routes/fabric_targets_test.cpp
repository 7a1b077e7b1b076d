// SPDX-License-Identifier: BSD-3-Clause
// The ranks that were reached over the fabric: which of them are active, and for how long; and which operations towards
// them are queued where time or room decide (fabric_route_test.cpp has the rest).
#include "transport/routes/fabric/fabric_targets.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace farside::fabric_targets_test {

namespace {

using Use = FabricTargets::Use;
using Next = TargetOrder::Next;

// What is outstanding.
constexpr TargetOrder::Traffic kNothing{true, true, false}, kRdma{false, true, false};

const std::array<std::byte, kMostBeforeRelease> kData{};

DataOperation put(std::size_t bytes = 8) { return DataOperation::put(0, kData.data(), bytes); }

Next offer(TargetOrder& order, const TargetOrder::Traffic& traffic, const DataOperation& operation = put()) {
  return order.offer(operation, traffic);
}

// Takes the queued operations, as a route does to issue them. Returns whether there were any.
bool take(TargetOrder& order) {
  const auto taken = order.take(false);
  REQUIRE(taken.has_value());
  if (*taken == nullptr) return false;
  order.sent();
  return true;
}

FabricTarget& reach(FabricTargets& targets, int rank) {
  return targets.add(rank, static_cast<Peer>(rank) + 100, nullptr);
}

}  // namespace

TEST_CASE("a target at rest keeps its object until all are visited or too many are at rest") {
  FabricTargets targets;
  const auto use = [&](int rank) {
    FabricTarget& target = reach(targets, rank);
    const Use used(targets, target);
    return target.busy;
  };
  BusyTarget* const object = use(5);
  CHECK(targets.find(5)->busy == object);
  CHECK(use(5) == object);
  CHECK(targets.any_busy());
  targets.for_each_busy([](Use&) {});
  CHECK(targets.find(5)->busy == nullptr);
  CHECK_FALSE(targets.any_busy());

  constexpr int kMost = FabricTargets::kMostResting;
  for (int rank = 0; rank < 2 * kMost; ++rank) use(rank);
  const auto attached = [&] {
    int count = 0;
    for (int rank = 0; rank < 2 * kMost; ++rank) count += targets.find(rank)->busy != nullptr ? 1 : 0;
    return count;
  };
  CHECK(attached() == kMost);
  CHECK(targets.busy() == 0);
  // Not while one who visits all has it.
  targets.for_each_busy([&](Use& visited) { CHECK(use(visited->rank) == &*visited); });
  CHECK(attached() == 0);
}

TEST_CASE("a target stays active while anything is outstanding, and no longer") {
  FabricTargets targets;
  FabricTarget& target = reach(targets, 5);
  const auto again = [&](auto&& act) {
    const Use use(targets, target);
    act(*use);
  };
  SECTION("an operation of each class") {
    for (const auto each : {Pending::kWrites, Pending::kReads, Pending::kAtomics, Pending::kMessages}) {
      again([&](BusyTarget& active) { active.issued(each); });
      REQUIRE(targets.busy() == 1);
      target.busy->completed(each);
      REQUIRE(targets.busy() == 0);
    }
  }
  SECTION("an error that nobody has taken") {
    again([&](BusyTarget& active) {
      active.issued(Pending::kReads);
      active.failed(Error{ErrorKind::kPeer, "lost"});
      active.completed(Pending::kReads);
    });
    CHECK(targets.busy() == 1);
    again([](BusyTarget& active) {
      const Status status = active.take_error();
      CHECK_FALSE(status.ok());
      CHECK(status.error().rank == 5);
    });
  }
  SECTION("a queued operation") {
    again([](BusyTarget& active) { CHECK(offer(active.order, kRdma) == Next::kQueued); });
    CHECK(targets.busy() == 1);
    again([](BusyTarget& active) { active.order.drop(); });
  }
  SECTION("operations that a thread issues") {
    again([](BusyTarget& active) { CHECK(active.order.take(true).has_value()); });
    CHECK(targets.busy() == 1);
    again([](BusyTarget& active) { active.order.sent(); });
  }
  SECTION("an expected release") {
    again([](BusyTarget& active) { active.order.expect_release(); });
    CHECK(targets.busy() == 1);
    again([](BusyTarget& active) { active.order.flushed(); });
  }
  SECTION("a deferred lock") {
    again([](BusyTarget& active) { active.order.defer([] { return Status(); }); });
    CHECK(targets.busy() == 1);
    again([](BusyTarget& active) { (void)active.order.end_deferral(); });
    CHECK(targets.busy() == 1);
    again([](BusyTarget& active) { active.order.flushed(); });
  }
  CHECK(targets.busy() == 0);
}

TEST_CASE("operations that a list has no room for are offered again when it has left") {
  TargetOrder order;
  order.expect_release();
  int kept = 0;
  const DataOperation operation = put(kMostBeforeRelease);
  while (offer(order, kNothing, operation) == Next::kQueued) ++kept;
  CHECK(kept == static_cast<int>(OperationList::kMostBytes / kMostBeforeRelease));
  CHECK(take(order));
  CHECK(offer(order, kNothing, operation) == Next::kQueued);
  CHECK(take(order));
}

TEST_CASE("where bursts are expected the first operation is kept, too, until they last too long") {
  TargetOrder order(true);
  CHECK(order.expects_burst());
  const std::int64_t one = 1;
  CHECK(offer(order, kNothing, DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kInt64, &one, nullptr, 1)) ==
        Next::kQueued);
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begun <= Timing::kLongestBurst) continue;
  CHECK(offer(order, kNothing) == Next::kQueued);
  order.flush_begins();
  CHECK(take(order));
  CHECK_FALSE(order.expects_burst());
  CHECK(offer(order, kNothing) == Next::kIssue);
}

TEST_CASE("several operations and a flush within a short time are a burst, after which another one is expected") {
  // On a busy machine the time may be too long, and then this is no burst.
  for (bool short_enough = false; !short_enough;) {
    FabricTargets targets;
    {
      const Use use(targets, reach(targets, 5));
      const auto begun = std::chrono::steady_clock::now();
      CHECK(offer(use->order, kNothing) == Next::kIssue);
      CHECK(offer(use->order, kRdma) == Next::kQueued);
      CHECK(take(use->order));
      use->order.flush_begins();
      short_enough = std::chrono::steady_clock::now() - begun <= Timing::kLongestBurst;
      CHECK((use->order.expects_burst() || !short_enough));
      use->order.flushed();
    }
    targets.for_each_busy([](Use&) {});  // it is at rest, and has no object any more
    const Use again(targets, *targets.find(5)), other(targets, reach(targets, 6));
    if (short_enough) CHECK(offer(again->order, kNothing) == Next::kQueued);
    CHECK(offer(other->order, kNothing) == Next::kIssue);
    again->order.drop();
  }
  // Operations that complete before the next one are none, nor is a single one, nor what is queued because a release is
  // expected.
  TargetOrder order;
  for (const int operations : {3, 1}) {
    for (int i = 0; i < operations; ++i) CHECK(offer(order, kNothing) == Next::kIssue);
    order.flush_begins();
    CHECK_FALSE(order.expects_burst());
  }
  order.expect_release();
  CHECK(offer(order, kNothing) == Next::kQueued);
  CHECK(offer(order, kNothing) == Next::kQueued);
  order.flush_begins();
  CHECK_FALSE(order.expects_burst());
}

TEST_CASE("threads may use, complete and visit the same targets at once") {
  constexpr int kRanks = 12, kThreads = 4;
  constexpr int kRounds = 6000;
  FabricTargets targets;
  std::atomic<std::uint64_t> issued{0}, failed{0}, told{0};
  std::atomic<bool> over{false};
  // Takes errors, as a flush does.
  const auto take_errors = [&](Use& use) {
    while (!use->take_error()) ++told;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kRounds; ++i) {
        const int rank = static_cast<int>(random() % kRanks);
        FabricTarget& target = reach(targets, rank);
        Use use(targets, target);
        if (use->rank != rank || use->target != &target) std::abort();
        const Pending::Class counted = random() % 2 == 0 ? Pending::kWrites : Pending::kMessages;
        use->issued(counted);
        ++issued;
        if (random() % 64 == 0) {
          ++failed;
          use->failed(Error{ErrorKind::kPeer, std::to_string(rank)});
          take_errors(use);  // a second error before the first is taken is dropped
        }
        use->completed(counted);
      }
    });
  }
  std::thread visitor([&] {
    while (!over) {
      targets.for_each_busy([&](Use& use) {
        if (use->target != targets.find(use->rank)) std::abort();
      });
    }
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  visitor.join();
  targets.for_each_busy(take_errors);
  CHECK_FALSE(targets.any_busy());
  CHECK(issued == std::uint64_t{kThreads} * kRounds);
  CHECK(failed > 0);
  CHECK(told > 0);
  CHECK(told <= failed);
  CHECK(targets.reached() == kRanks);
  CHECK(targets.busy() == 0);
}

}  // namespace farside::fabric_targets_test

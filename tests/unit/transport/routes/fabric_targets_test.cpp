// SPDX-License-Identifier: BSD-3-Clause
// The ranks that were reached over the fabric: which of them are active, and for how long.
#include "transport/routes/fabric/fabric_targets.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace farside::fabric_targets_test {

namespace {

using Use = FabricTargets::Use;

FabricTarget& reach(FabricTargets& targets, int rank) {
  return targets.add(rank, static_cast<Peer>(rank) + 100, nullptr);
}

std::set<int> active_in(FabricTargets& targets) {
  std::set<int> ranks;
  targets.for_each_busy([&](Use& use) { ranks.insert(use->rank); });
  return ranks;
}

void keep_one(BusyTarget& target) {
  static const std::uint64_t word = 1;
  const DataOperation operation = DataOperation::put(0, &word, sizeof word);
  CHECK(target.order.offer(operation, {false, false, false}) == TargetOrder::Next::kQueued);
}

bool same(const TargetDescription& a, const TargetDescription& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE("a rank has an entry once it is reached, which is never replaced and does not move") {
  FabricTargets targets;
  CHECK(targets.find(0) == nullptr);
  std::vector<FabricTarget*> entries;
  for (int rank = 0; rank < 1000; ++rank) entries.push_back(&reach(targets, 3 * rank));
  CHECK(targets.reached() == 1000);
  for (int rank = 0; rank < 1000; ++rank) {
    REQUIRE(targets.find(3 * rank) == entries[static_cast<std::size_t>(rank)]);
    REQUIRE(targets.find(3 * rank)->peer == 3U * static_cast<unsigned>(rank) + 100);
    REQUIRE(targets.find(3 * rank + 1) == nullptr);
  }
  CHECK(&targets.add(3, 7, nullptr) == entries[1]);
  CHECK(entries[1]->peer == 103);
  CHECK(targets.reached() == 1000);
  CHECK_FALSE(targets.any_busy());
}

TEST_CASE("targets have a common description, or each its own, which is never replaced and does not move") {
  FabricTargets targets;
  const TargetDescription common{0, 0, 4, 0, 0, 4};
  targets.describe(targets.add(1, 1, &common), TargetDescription{0, 0, 5, 0, 0, 5});
  CHECK(same(targets.description(*targets.find(1)), common));
  const auto own = [](std::uint32_t i) { return TargetDescription{i, std::uint64_t{i} << 32, i, i, i, i}; };
  for (std::uint32_t i = 0; i < 1000; ++i) {
    FabricTarget& target = reach(targets, static_cast<int>(i) + 2);
    CHECK(target.description == 0);
    targets.describe(target, own(i));
    targets.describe(target, TargetDescription{0, 0, 7, 0, 0, 7});
  }
  for (std::uint32_t i = 0; i < 1000; ++i) {
    REQUIRE(same(targets.description(*targets.find(static_cast<int>(i) + 2)), own(i)));
  }
}

TEST_CASE("a target is active while it is used, by however many") {
  FabricTargets targets;
  FabricTarget& target = reach(targets, 5);
  CHECK_FALSE(Use(targets, target, true));
  {
    const Use first(targets, target);
    CHECK(targets.any_busy());
    CHECK((first->rank == 5 && first->target == &target && target.busy == &*first));
    {
      Use second(targets, target);
      const Use third(targets, target, true);
      const Use moved(std::move(second));
      CHECK((&*moved == &*first && &*third == &*first));
      CHECK_FALSE(second);  // NOLINT(bugprone-use-after-move)
    }
    CHECK(target.busy == &*first);
    CHECK(Use(targets, target, true));
  }
  CHECK(targets.busy() == 0);
  targets.for_each_busy([](Use&) {});
  CHECK_FALSE(Use(targets, target, true));
}

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
  // Nor do more keep one whose operations have completed before the flush.
  for (int rank = 0; rank < 2 * kMost; ++rank) {
    FabricTarget& target = *targets.find(rank);
    {
      const Use used(targets, target);
      used->issued(Pending::kWrites);
    }
    target.busy->completed(Pending::kWrites);
    CHECK(Use(targets, target, true));
  }
  CHECK(attached() == kMost);
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
    again(keep_one);
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

TEST_CASE("a target to whose counters requests refer stays active with the same object") {
  FabricTargets targets;
  FabricTarget& target = reach(targets, 5);
  BusyTarget* object = nullptr;
  std::optional<Pending> own;
  {
    const Use use(targets, target);
    own.emplace(&*use);
    object = &*use;
  }
  CHECK(target.busy == object);
  for (int rank = 6; rank < 10; ++rank) {
    const Use other(targets, reach(targets, rank));
    CHECK(&*other != object);
  }
  targets.for_each_busy([](Use&) {});
  CHECK(active_in(targets) == std::set<int>{5});
  own.reset();
  targets.for_each_busy([](Use&) {});
  CHECK(active_in(targets).empty());
}

TEST_CASE("an object that is used again for another target has nothing of the one before") {
  FabricTargets targets;
  {
    const Use use(targets, reach(targets, 5));
    use->issued(Pending::kWrites);
    use->completed(Pending::kWrites);
    use->order.expect_release();
    use->order.flushed();
  }
  targets.for_each_busy([](Use&) {});
  const Use use(targets, reach(targets, 6));
  CHECK((use->rank == 6 && use->target == targets.find(6)));
  CHECK(use->order.at_rest());
  CHECK(use->users.load() == 1);
  use->issued(Pending::kWrites);
  use->failed(Error{ErrorKind::kPeer, "lost"});
  use->completed(Pending::kWrites);
  CHECK(use->take_error().error().rank == 6);
}

TEST_CASE("a target that expects a burst does so when it is active again, and others do not") {
  FabricTargets targets;
  FabricTarget& target = reach(targets, 5);
  target.expects_burst = true;
  const auto rest = [&](bool expects) {
    const Use use(targets, target);
    CHECK(use->order.expects_burst() != expects);
    const Use other(targets, reach(targets, 6));
    CHECK_FALSE(other->order.expects_burst());
    use->order = TargetOrder(expects);
  };
  rest(false);
  targets.for_each_busy([](Use&) {});
  CHECK_FALSE(target.expects_burst);
  rest(true);
  targets.for_each_busy([](Use&) {});
  CHECK(target.expects_burst);
}

TEST_CASE("only busy targets are visited, and each as long as it is active") {
  FabricTargets targets;
  for (int rank = 0; rank < 100; ++rank) reach(targets, rank);
  CHECK(active_in(targets).empty());
  for (const int rank : {3, 50, 99, 7}) {
    const Use use(targets, *targets.find(rank));
    use->order.expect_release();
  }
  CHECK(active_in(targets) == std::set<int>{3, 7, 50, 99});
  CHECK(targets.busy() == 4);
  // In any order they come to rest, the others remain.
  std::set<int> left = {3, 7, 50, 99};
  for (const int rank : {50, 3, 99, 7}) {
    targets.for_each_busy([&](Use& use) {
      if (use->rank == rank) use->order.flushed();
    });
    left.erase(rank);
    REQUIRE(active_in(targets) == left);
    REQUIRE(targets.busy() == left.size());
  }
}

TEST_CASE("threads may use, complete and visit the same targets at once") {
  constexpr int kRanks = 12, kThreads = 4;
  constexpr int kRounds = 6000;
  FabricTargets targets;
  std::atomic<std::uint64_t> issued{0}, failed{0}, told{0};
  std::atomic<bool> over{false};
  // Takes errors, as a flush does.
  const auto take = [&](Use& use) {
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
          take(use);  // a second error before the first is taken is dropped
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
  targets.for_each_busy(take);
  CHECK_FALSE(targets.any_busy());
  CHECK(issued == std::uint64_t{kThreads} * kRounds);
  CHECK(failed > 0);
  CHECK(told > 0);
  CHECK(told <= failed);
  CHECK(targets.reached() == kRanks);
  CHECK(targets.busy() == 0);
  CHECK(active_in(targets).empty());
}

}  // namespace farside::fabric_targets_test

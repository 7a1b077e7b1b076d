// SPDX-License-Identifier: BSD-3-Clause
// The lock among more ranks than the explorer can try, in simulated time: every rank is served, none is overtaken,
// and the cost of a lock does not grow with the number of waiters. simulate/main.cpp runs the same on a large scale.
#include "tests/unit/epochs/simulate/simulation.hpp"

#include <catch2/catch.hpp>

#include "tests/unit/epochs/simulate/dec_lock.hpp"
#include "tests/unit/epochs/simulate/mcs_lock.hpp"
#include "tests/unit/epochs/simulate/rma_rw_lock.hpp"

namespace farside::simulation_test {

using namespace farside::simulate;
using farside::simulate::simulate;  // before the namespace of the same name

namespace {

Settings small(int ranks, int rounds, Arrival arrival, int readers) {
  Settings settings;
  settings.ranks = ranks;
  settings.rounds = rounds;
  settings.arrival = arrival;
  settings.readers = readers;
  // A run that needs more operations would not end.
  settings.most_operations = 100 * static_cast<std::uint64_t>(ranks * rounds);
  return settings;
}

void check_all_served(const Figures& figures) {
  CHECK_FALSE(figures.stuck);
  CHECK(figures.acquisitions == figures.asked);
  CHECK(figures.violations == 0);
}

}  // namespace

TEST_CASE("everyone gets the lock, in order of arrival, at a cost that does not grow with the waiters") {
  const int ranks = GENERATE(64, 1024, 8192);
  const Arrival arrival = GENERATE(Arrival::kOnce, Arrival::kSteady);
  const int readers = GENERATE(0, 50, 95);
  CAPTURE(ranks, static_cast<int>(arrival), readers);
  const Figures figures = simulate<FarsideLock>(small(ranks, ranks > 1024 ? 1 : 4, arrival, readers));
  check_all_served(figures);
  CHECK(figures.overtaken == 0);
  CHECK(figures.contended > 0);
  // 5 for a writer behind a writer, 6 for a reader, 8 for a writer behind readers, and one or two probes for those that
  // are far from the front.
  CHECK(figures.contended_mean <= (ranks == 64 ? 6.2 : 7.8));
  CHECK(figures.probes.max <= (ranks == 64 ? 1 : 3));
  // No call lets in more than 8.
  CHECK(figures.operations.max <= 40);
}

TEST_CASE("waiters beyond the ring come in time: a queue of any length goes nearly as fast as one that fits the ring") {
  const int readers = GENERATE(0, 50, 95);
  CAPTURE(readers);
  const auto time_per_lock = [&](int ranks, int rounds) {
    const Figures figures = simulate<FarsideLock>(small(ranks, rounds, Arrival::kOnce, readers));
    check_all_served(figures);
    return figures.seconds / static_cast<double>(figures.acquisitions);
  };
  // 200 ranks are never beyond the ring.
  CHECK(time_per_lock(8192, 1) <= 1.4 * time_per_lock(200, 40));
}

TEST_CASE("a hand-off that takes five times as long as assumed costs a waiter a few looks more, and no time") {
  Settings settings = small(8192, 1, Arrival::kOnce, 50);
  const double expected = simulate<FarsideLock>(settings).seconds;
  settings.network.hand_off /= 5;
  const Figures figures = simulate<FarsideLock>(settings);
  check_all_served(figures);
  CHECK(figures.probes.max <= 6);
  CHECK(figures.seconds <= 1.1 * expected);
}

TEST_CASE("readers among themselves cost an atomic for the lock and one for the unlock") {
  const int ranks = GENERATE(64, 1024);
  const Arrival arrival = GENERATE(Arrival::kOnce, Arrival::kSteady);
  const Figures figures = simulate<FarsideLock>(small(ranks, 4, arrival, 100));
  check_all_served(figures);
  CHECK(figures.contended == 0);
  CHECK(figures.operations.max == 2);
}

TEST_CASE("lock_all is one atomic to take and one to give back, an exclusive lock two and two") {
  Settings settings = small(GENERATE(64, 1024), 4, GENERATE(Arrival::kOnce, Arrival::kSteady), 100);
  settings.lock_all = true;
  const Figures figures = simulate<FarsideLock>(settings);
  check_all_served(figures);
  CHECK(figures.contended == 0);
  CHECK(figures.operations.max == 2);
  // Exclusive locks of different targets do not contend, and the answer of the target may come before that of the
  // global lock.
  settings = small(2, 50, Arrival::kSteady, 0);
  settings.lock_all = true;
  settings.load = 0.0001;
  CHECK(simulate<FarsideLock>(settings).operations.max == 4);
}

TEST_CASE(
    "lock_all and exclusive locks are served in order at the global lock, at a cost that does not grow with the "
    "waiters") {
  const int ranks = GENERATE(64, 1024);
  const Arrival arrival = GENERATE(Arrival::kOnce, Arrival::kSteady);
  const int readers = GENERATE(0, 50, 95);
  CAPTURE(ranks, static_cast<int>(arrival), readers);
  Settings settings = small(ranks, 4, arrival, readers);
  settings.lock_all = true;
  const Figures figures = simulate<FarsideLock>(settings);
  check_all_served(figures);
  CHECK(figures.overtaken == 0);
  CHECK(figures.contended > 0);
  // Among exclusive locks alone none waits at the global lock. Otherwise 6 for a member of a group or a next owner
  // behind a single member, 9 for a next owner behind several, and one or two probes for those that are far from the
  // front.
  CHECK(figures.contended_mean_at_global_lock <= (readers == 0 ? 0 : 8.2));
  // Includes the targets' locks. Asking for both locks at once means that some are acquired, released and acquired
  // again: 4.
  CHECK(figures.contended_mean <= 7.8);
  CHECK(figures.probes.max <= 3);
  // 8 waiters let in, at two locks.
  CHECK(figures.operations.max <= 50);
}

TEST_CASE("locks of several targets do not disturb one another") {
  Settings settings = small(64, 4, Arrival::kOnce, 50);
  settings.targets = 8;
  const Figures figures = simulate<FarsideLock>(settings);
  check_all_served(figures);
  CHECK(figures.overtaken == 0);
}

TEST_CASE("where all lock all the time, the slowest rank takes not much longer than the fastest") {
  const Figures figures = simulate<FarsideLock>(small(64, 20, Arrival::kOnce, 0));
  check_all_served(figures);
  CHECK(figures.slowest_to_fastest <= 1.5);
}

TEST_CASE("a simulation depends on its seed and on nothing else") {
  Settings settings = small(64, 4, Arrival::kSteady, 50);
  const Figures first = simulate<FarsideLock>(settings);
  CHECK(simulate<FarsideLock>(settings) == first);
  settings.seed = 2;
  CHECK_FALSE(simulate<FarsideLock>(settings) == first);
}

TEST_CASE(
    "the models of other locks exclude; that which polls lets waiters be overtaken, that which queues does "
    "not") {
  const Figures polling = simulate<PollingLock>(small(64, 4, Arrival::kOnce, 50));
  check_all_served(polling);
  CHECK(polling.overtaken > 10);
  const Figures queue = simulate<QueueLock>(small(64, 4, Arrival::kOnce, 50));
  check_all_served(queue);
  CHECK(queue.overtaken == 0);
  CHECK(queue.operations.max == 4);
}

TEST_CASE("the models of published locks exclude and serve everyone, on nodes of any size") {
  const int ranks = GENERATE(2, 64, 300);
  const Arrival arrival = GENERATE(Arrival::kOnce, Arrival::kSteady);
  const int readers = GENERATE(0, 50, 95, 100);
  const int ranks_per_node = GENERATE(1, 3, 16, 64);
  CAPTURE(ranks, static_cast<int>(arrival), readers, ranks_per_node);
  Settings settings = small(ranks, 8, arrival, readers);
  settings.network.ranks_per_node = ranks_per_node;
  settings.targets = GENERATE(1, 2);

  // In order of arrival, for a swap, a link and a flag.
  const Figures mcs = simulate<McsLock>(settings);
  check_all_served(mcs);
  CHECK(mcs.overtaken == 0);
  CHECK(mcs.operations.max <= 4);

  check_all_served(simulate<RmaRwLock>(settings));

  const Figures declock = simulate<DecLock>(settings);
  check_all_served(declock);
  CHECK(declock.overtaken == 0);
}

TEST_CASE("from one writer to the next pass one and three latencies in turn, by the models one or three") {
  Settings settings = small(64, 20, Arrival::kOnce, 0);
  settings.network.jitter = 0;
  settings.network.service = 1;
  settings.section = 0;
  const auto latencies = [&](const Figures& figures) {
    check_all_served(figures);
    return figures.seconds * 1e9 / static_cast<double>(figures.acquisitions * settings.network.latency);
  };
  CHECK(latencies(simulate<FarsideLock>(settings)) == Approx(2).epsilon(0.05));
  CHECK(latencies(simulate<McsLock>(settings)) == Approx(1).epsilon(0.05));
  CHECK(latencies(simulate<DecLock>(settings)) == Approx(3).epsilon(0.05));
}

TEST_CASE("RMA-RW hands the lock on within a node; only the counters of nodes cost more for more ranks") {
  Settings settings = small(1024, 4, Arrival::kOnce, 0);
  settings.network.ranks_per_node = 64;
  const Figures in_nodes = simulate<RmaRwLock>(settings);
  check_all_served(in_nodes);
  CHECK(in_nodes.overtaken > 0);
  CHECK(in_nodes.contended_mean <= 3.5);
  CHECK(in_nodes.seconds <= 0.7 * simulate<McsLock>(settings).seconds);
  // An uncontended writer changes 16 counters, reads them, and sets them back by two operations each.
  settings = small(1024, 1, Arrival::kSteady, 0);
  settings.network.ranks_per_node = 64;
  settings.load = 0.001;
  CHECK(simulate<RmaRwLock>(settings).operations.mean == Approx(4 + 4 * 16).epsilon(0.02));
  // A reader is two atomics within its node.
  settings.readers = 100;
  CHECK(simulate<RmaRwLock>(settings).operations.max == 2);
}

TEST_CASE("near hand-offs overtake no waiter more often than the bound allows") {
  Settings settings = small(GENERATE(256, 1024), 4, GENERATE(Arrival::kOnce, Arrival::kSteady), GENERATE(0, 50, 95));
  settings.network.ranks_per_node = GENERATE(4, 16, 64);
  settings.network.near_hand_offs = GENERATE(0, 1, 7);
  CAPTURE(settings.ranks, settings.readers, settings.network.ranks_per_node, settings.network.near_hand_offs);
  const Figures figures = simulate<FarsideLock>(settings);
  check_all_served(figures);
  CHECK(figures.overtaken <= figures.most_overtaken);
  if (settings.network.near_hand_offs == 0) CHECK(figures.most_overtaken == 0);
}

TEST_CASE("ranks of one node are near one another, and the figures of one rank per node do not depend on it") {
  Settings settings = small(64, 4, Arrival::kOnce, 50);
  const Figures far = simulate<FarsideLock>(settings);
  settings.network.node_latency = 1;
  CHECK(simulate<FarsideLock>(settings) == far);
  settings.network.ranks_per_node = 64;
  CHECK(simulate<FarsideLock>(settings).seconds < 0.5 * far.seconds);
}

}  // namespace farside::simulation_test

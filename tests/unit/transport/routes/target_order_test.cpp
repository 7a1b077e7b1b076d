// SPDX-License-Identifier: BSD-3-Clause
// Which operations towards a target are kept, and which leave: each phase of the state machine, and the ways between
// them.
#include "transport/routes/fabric/target_order.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace farside::target_order_test {

namespace {

using Next = TargetOrder::Next;

// The kinds of outstanding operations.
constexpr TargetOrder::Traffic kNothing{true, true, false};
constexpr TargetOrder::Traffic kRdma{false, true, false};
constexpr TargetOrder::Traffic kRequests{false, false, false};
constexpr TargetOrder::Traffic kNothingByNic{true, true, true};
constexpr TargetOrder::Traffic kRdmaByNic{false, true, true};
constexpr TargetOrder::Traffic kRequestsByNic{false, false, true};

const std::array<std::byte, kMostBeforeRelease + 1> kData{};

DataOperation put(std::size_t bytes = 8) { return DataOperation::put(0, kData.data(), bytes); }
DataOperation add() {
  return DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kInt64, kData.data(), nullptr, 1);
}

Next offer(TargetOrder& order, const TargetOrder::Traffic& traffic, const DataOperation& operation = put()) {
  TargetOrder::Offer offered{operation};
  return order.offer(offered, traffic);
}

// Takes the coalesced operations, as a route does to issue them, and returns their number: 2 for a list of several.
int take(TargetOrder& order) {
  std::optional<QueuedOperations> taken = order.take(false);
  REQUIRE(taken.has_value());
  const int operations = taken->empty() ? 0 : taken->one() != nullptr ? 1 : 2;
  if (operations > 0) order.sent(std::move(*taken));
  return operations;
}

// An order in the phase `release expected`.
TargetOrder expecting() {
  TargetOrder order;
  order.expect_release();
  return order;
}

// An order in the phase `deferred`.
TargetOrder deferring(int& acquired) {
  TargetOrder order;
  order.defer([&acquired] {
    ++acquired;
    return Status();
  });
  return order;
}

std::unique_ptr<OperationList> list_of(const DataOperation& operation) {
  auto list = std::make_unique<OperationList>();
  CHECK(list->add(operation));
  return list;
}

}  // namespace

TEST_CASE("a free target lets the first small operation leave, and keeps those that follow before it completes") {
  TargetOrder order;
  CHECK(offer(order, kNothing) == Next::kIssue);
  CHECK(order.at_rest());
  CHECK(offer(order, kRdma) == Next::kQueued);
  CHECK(order.any_queued());
  CHECK_FALSE(order.at_rest());
  // The order is kept, although the first one is complete.
  CHECK(offer(order, kNothing) == Next::kQueued);
  CHECK(take(order) == 2);
  CHECK(order.at_rest());
  CHECK(offer(order, kNothing) == Next::kIssue);
  CHECK(offer(order, kRequests) == Next::kQueued);
  CHECK(take(order) == 1);
}

TEST_CASE("a free target keeps an atomic only behind requests, to which it belongs") {
  TargetOrder order;
  CHECK(offer(order, kNothing, add()) == Next::kIssue);
  CHECK(offer(order, kRdma, add()) == Next::kIssue);
  CHECK(offer(order, kRequests, add()) == Next::kQueued);
  CHECK(offer(order, kNothing, add()) == Next::kQueued);
  CHECK(take(order) == 2);
}

TEST_CASE("an operation too large to be kept leaves, but not before what is queued") {
  TargetOrder order;
  CHECK(offer(order, kRdma, put(kMostCoalesced + 1)) == Next::kIssue);
  CHECK(offer(order, kRdma, put(kMostCoalesced)) == Next::kQueued);
  const DataOperation large = put(kMostCoalesced + 1);
  TargetOrder::Offer offered{large};
  CHECK(order.offer(offered, kRdma) == Next::kIssueQueued);
  CHECK(take(order) == 1);
  CHECK(order.offer(offered, kRequests) == Next::kIssue);
}

TEST_CASE("before a release every small operation is kept, and a little larger ones, too") {
  TargetOrder order = expecting();
  CHECK_FALSE(order.at_rest());
  CHECK(offer(order, kNothing, put(kMostBeforeRelease + 1)) == Next::kIssue);
  CHECK(offer(order, kNothing, put(kMostBeforeRelease)) == Next::kQueued);
  CHECK(offer(order, kNothing, put(kMostBeforeRelease + 1)) == Next::kIssueQueued);
  CHECK(take(order) == 1);
  CHECK(offer(order, kNothing) == Next::kQueued);
  CHECK(offer(order, kNothing, add()) == Next::kQueued);
  CHECK(take(order) == 2);
  // What has left with it does not end the phase; a flush does.
  CHECK(offer(order, kNothing) == Next::kQueued);
  CHECK(take(order) == 1);
  order.flushed();
  CHECK(order.at_rest());
  CHECK(offer(order, kNothing) == Next::kIssue);
}

TEST_CASE("behind a deferred lock operations are kept as before a release, and the lock is acquired once") {
  for (const bool expected : {false, true}) {
    INFO((expected ? "a release was expected" : "free"));
    int acquired = 0;
    TargetOrder order = deferring(acquired);
    if (expected) {
      order = expecting();
      order.defer([&] {
        ++acquired;
        return Status();
      });
    }
    CHECK(order.deferred());
    CHECK_FALSE(order.at_rest());
    CHECK(offer(order, kNothing, put(kMostBeforeRelease)) == Next::kQueued);
    CHECK(offer(order, kNothing, put(kMostBeforeRelease + 1)) == Next::kIssueQueued);
    // The route acquires the lock, and holds back what is queued meanwhile.
    const TargetOrder::Acquire acquire = order.end_deferral();
    CHECK_FALSE(order.deferred());
    CHECK(order.end_deferral() == nullptr);
    std::optional<QueuedOperations> held_back = order.take(true);
    REQUIRE(held_back.has_value());
    CHECK(held_back->one() != nullptr);
    order.sent({});
    CHECK(acquire().ok());
    CHECK(acquired == 1);
    order.queue_again(std::move(*held_back));
    CHECK(order.any_queued());
    // Now a release is expected.
    CHECK(take(order) == 1);
    CHECK(offer(order, kNothing) == Next::kQueued);
    CHECK(take(order) == 1);
    CHECK_FALSE(order.at_rest());
    order.flushed();
    CHECK(order.at_rest());
  }
}

TEST_CASE("a flush that finds nothing leaves a lock deferred, and operations are kept behind it") {
  int acquired = 0;
  TargetOrder order = deferring(acquired);
  order.flush_begins();
  CHECK(take(order) == 0);
  order.flushed();
  CHECK(order.deferred());
  CHECK(offer(order, kNothing) == Next::kQueued);
  CHECK(acquired == 0);
}

TEST_CASE("a deferral that ends with its epoch leaves nothing behind but the expected release") {
  int acquired = 0;
  TargetOrder order = deferring(acquired);
  (void)order.end_deferral();
  CHECK_FALSE(order.at_rest());
  order.flushed();
  CHECK(order.at_rest());
  CHECK(acquired == 0);
}

TEST_CASE("puts and gets by an adapter are never kept, whatever is expected, and atomics by messages are") {
  TargetOrder order;
  CHECK(offer(order, kRdmaByNic) == Next::kIssue);
  CHECK(offer(order, kRdmaByNic, add()) == Next::kIssue);
  CHECK(offer(order, kRequestsByNic, add()) == Next::kQueued);
  // But what is queued is not overtaken.
  CHECK(offer(order, kRequestsByNic) == Next::kQueued);
  CHECK(take(order) == 2);
  order.expect_release();
  CHECK(offer(order, kNothingByNic) == Next::kIssue);
  CHECK(offer(order, kNothingByNic, add()) == Next::kIssue);
}

TEST_CASE("operations that a list has no room for are offered again when it has left") {
  TargetOrder order = expecting();
  int kept = 0;
  const DataOperation operation = put(kMostBeforeRelease);
  while (offer(order, kNothing, operation) == Next::kQueued) ++kept;
  CHECK(kept == static_cast<int>(OperationList::kMostBytes / kMostBeforeRelease));
  TargetOrder::Offer offered{operation};
  CHECK(order.offer(offered, kNothing) == Next::kIssueQueued);
  std::optional<QueuedOperations> taken = order.take(false);
  REQUIRE(taken.has_value());
  CHECK_FALSE(taken->empty());
  order.sent(std::move(*taken));
  CHECK(order.offer(offered, kNothing) == Next::kQueued);
  CHECK(take(order) == 1);
}

TEST_CASE("a list of fragments is kept as a small operation is, unless others are kept already") {
  TargetOrder order;
  std::unique_ptr<OperationList> list = list_of(put());
  CHECK(order.offer(list, kNothing) == Next::kIssue);
  CHECK(list != nullptr);
  CHECK(order.offer(list, kRdma) == Next::kQueued);
  CHECK(list == nullptr);
  CHECK(order.any_queued());
  // An operation joins it, and another list does not.
  CHECK(offer(order, kNothing) == Next::kQueued);
  list = list_of(put());
  CHECK(order.offer(list, kNothing) == Next::kIssueQueued);
  CHECK(list != nullptr);
  std::optional<QueuedOperations> taken = order.take(false);
  REQUIRE((taken.has_value() && taken->list != nullptr));
  CHECK(taken->list->bytes().size() == sizeof(ListEntry) + 2 * 8);  // two blocks of one entry
  order.sent(std::move(*taken));
  CHECK(order.offer(list, kNothing) == Next::kIssue);
  // Atomics wait for requests only; before a release all wait.
  list = list_of(add());
  CHECK(order.offer(list, kRdma) == Next::kIssue);
  CHECK(order.offer(list, kRequests) == Next::kQueued);
  CHECK(take(order) == 2);
  order.expect_release();
  list = list_of(add());
  CHECK(order.offer(list, kNothing) == Next::kQueued);
}

TEST_CASE("while a thread issues what it has taken, no other one takes or issues anything") {
  TargetOrder order;
  CHECK(offer(order, kRdma) == Next::kQueued);
  std::optional<QueuedOperations> taken = order.take(false);
  REQUIRE(taken.has_value());
  CHECK_FALSE(order.at_rest());
  CHECK_FALSE(order.take(false).has_value());
  CHECK_FALSE(order.take(true).has_value());
  // Another operation is queued, or waits, although nothing is under way yet.
  CHECK(offer(order, kNothing) == Next::kIssueQueued);
  CHECK(offer(order, kRequests) == Next::kQueued);
  CHECK(offer(order, kRequests, put(kMostCoalesced + 1)) == Next::kIssueQueued);
  order.sent(std::move(*taken));
  CHECK(take(order) == 1);
  CHECK(order.at_rest());

  // A thread that issues something of its own takes, although nothing is queued.
  std::optional<QueuedOperations> nothing = order.take(true);
  REQUIRE(nothing.has_value());
  CHECK(nothing->empty());
  CHECK_FALSE(order.take(false).has_value());
  CHECK(offer(order, kNothing) == Next::kIssueQueued);
  order.sent({});
  CHECK(offer(order, kNothing) == Next::kIssue);
  // Where nothing is queued and nothing else is issued, nothing is taken.
  nothing = order.take(false);
  REQUIRE(nothing.has_value());
  CHECK(nothing->empty());
  CHECK(order.at_rest());
}

TEST_CASE("what is dropped is kept no longer, and other expectations stay") {
  TargetOrder order = expecting();
  CHECK(offer(order, kNothing) == Next::kQueued);
  order.drop();
  CHECK_FALSE(order.any_queued());
  CHECK_FALSE(order.at_rest());
  CHECK(take(order) == 0);
}

TEST_CASE("where bursts are expected the first operation is kept, too, unless the second comes too late") {
  TargetOrder order(true);
  CHECK(order.expects_burst());
  CHECK(offer(order, kNothing) == Next::kQueued);
  const auto begun = Bursts::Clock::now();
  while (Bursts::Clock::now() - begun <= Timing::kLongestBurst) continue;
  const DataOperation second = put();
  TargetOrder::Offer offered{second};
  CHECK(order.offer(offered, kNothing) == Next::kIssueQueued);
  CHECK(take(order) == 1);
  CHECK(order.offer(offered, kRequests) == Next::kQueued);
  CHECK(take(order) == 1);
  CHECK_FALSE(order.expects_burst());
  CHECK(offer(order, kNothing) == Next::kIssue);
}

TEST_CASE("an atomic of a burst that nothing precedes is kept, but a burst is none while something is under way") {
  TargetOrder order(true);
  CHECK(offer(order, kNothing, add()) == Next::kQueued);
  CHECK(take(order) == 1);
  TargetOrder other(true);
  CHECK(offer(other, kRdma, add()) == Next::kIssue);
}

TEST_CASE("several operations and a flush within a short time are a burst, after which another one is expected") {
  // On a busy machine the time may be too long, and then this is no burst.
  for (bool short_enough = false; !short_enough;) {
    TargetOrder order;
    const auto begun = Bursts::Clock::now();
    CHECK(offer(order, kNothing) == Next::kIssue);
    CHECK(offer(order, kRdma) == Next::kQueued);
    CHECK(take(order) == 1);
    order.flush_begins();
    short_enough = Bursts::Clock::now() - begun <= Timing::kLongestBurst;
    CHECK((order.expects_burst() || !short_enough));
    order.flushed();
    CHECK(order.at_rest());
    // The next target of this rank begins with that (FabricTarget::expects_burst).
    TargetOrder next(order.expects_burst());
    if (short_enough) CHECK(offer(next, kNothing) == Next::kQueued);
  }
  // A single operation is none, and neither is what is queued because a release is expected.
  TargetOrder order;
  CHECK(offer(order, kNothing) == Next::kIssue);
  order.flush_begins();
  CHECK_FALSE(order.expects_burst());
  order.expect_release();
  CHECK(offer(order, kNothing) == Next::kQueued);
  CHECK(offer(order, kNothing) == Next::kQueued);
  order.flush_begins();
  CHECK_FALSE(order.expects_burst());
}

}  // namespace farside::target_order_test

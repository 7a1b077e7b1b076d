// SPDX-License-Identifier: BSD-3-Clause
// Which operations towards a target are kept, and which leave: each phase of the state machine, and the ways between
// them.
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

#include "transport/routes/fabric/fabric_targets.hpp"

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
  CHECK(take(order));
  CHECK(order.at_rest());
  CHECK(offer(order, kNothing) == Next::kIssue);
  CHECK(offer(order, kRequests) == Next::kQueued);
  CHECK(take(order));
}

TEST_CASE("a free target keeps an atomic only behind requests, to which it belongs") {
  TargetOrder order;
  CHECK(offer(order, kNothing, add()) == Next::kIssue);
  CHECK(offer(order, kRdma, add()) == Next::kIssue);
  CHECK(offer(order, kRequests, add()) == Next::kQueued);
  CHECK(offer(order, kNothing, add()) == Next::kQueued);
  CHECK(take(order));
}

TEST_CASE("an operation too large to be kept leaves, but not before what is queued") {
  TargetOrder order;
  CHECK(offer(order, kRdma, put(kMostCoalesced + 1)) == Next::kIssue);
  CHECK(offer(order, kRdma, put(kMostCoalesced)) == Next::kQueued);
  CHECK(offer(order, kRdma, put(kMostCoalesced + 1)) == Next::kIssueQueued);
  CHECK(take(order));
  CHECK(offer(order, kRequests, put(kMostCoalesced + 1)) == Next::kIssue);
}

TEST_CASE("before a release every small operation is kept, and a little larger ones, too") {
  TargetOrder order = expecting();
  CHECK_FALSE(order.at_rest());
  CHECK(offer(order, kNothing, put(kMostBeforeRelease + 1)) == Next::kIssue);
  CHECK(offer(order, kNothing, put(kMostBeforeRelease)) == Next::kQueued);
  CHECK(offer(order, kNothing, put(kMostBeforeRelease + 1)) == Next::kIssueQueued);
  CHECK(take(order));
  CHECK(offer(order, kNothing) == Next::kQueued);
  CHECK(offer(order, kNothing, add()) == Next::kQueued);
  CHECK(take(order));
  // What has left with it does not end the phase; a flush does.
  CHECK(offer(order, kNothing) == Next::kQueued);
  CHECK(take(order));
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
    auto held_back = order.take(true);
    REQUIRE((held_back.has_value() && *held_back != nullptr));
    order.sent();
    CHECK(acquire().ok());
    CHECK(acquired == 1);
    order.queue_again(std::move(*held_back));
    CHECK(order.any_queued());
    // Now a release is expected.
    CHECK(take(order));
    CHECK(offer(order, kNothing) == Next::kQueued);
    CHECK(take(order));
    CHECK_FALSE(order.at_rest());
    order.flushed();
    CHECK(order.at_rest());
  }
}

TEST_CASE("a flush that finds nothing leaves a lock deferred, and operations are kept behind it") {
  int acquired = 0;
  TargetOrder order = deferring(acquired);
  order.flush_begins();
  CHECK_FALSE(take(order));
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
  CHECK(take(order));
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
  CHECK(take(order));
  CHECK(offer(order, kNothing, operation) == Next::kQueued);
  CHECK(take(order));
}

TEST_CASE("a list of fragments is kept as a small operation is, unless others are kept already") {
  TargetOrder order;
  std::unique_ptr<OperationList> list = list_of(put());
  CHECK_FALSE(order.offer(list, kNothing));
  CHECK(list != nullptr);
  CHECK(order.offer(list, kRdma));
  CHECK(list == nullptr);
  CHECK(order.any_queued());
  // An operation joins it, and another list does not.
  CHECK(offer(order, kNothing) == Next::kQueued);
  list = list_of(put());
  CHECK_FALSE(order.offer(list, kNothing));
  CHECK(list != nullptr);
  const auto taken = order.take(false);
  REQUIRE((taken.has_value() && *taken != nullptr));
  CHECK((*taken)->bytes().size() == sizeof(ListEntry) + 2 * 8);  // two blocks of one entry
  order.sent();
  CHECK_FALSE(order.offer(list, kNothing));
  // Atomics wait for requests only; before a release all wait.
  list = list_of(add());
  CHECK_FALSE(order.offer(list, kRdma));
  CHECK(order.offer(list, kRequests));
  CHECK(take(order));
  order.expect_release();
  list = list_of(add());
  CHECK(order.offer(list, kNothing));
}

TEST_CASE("while a thread issues what it has taken, no other one takes or issues anything") {
  TargetOrder order;
  CHECK(offer(order, kRdma) == Next::kQueued);
  const auto taken = order.take(false);
  REQUIRE(taken.has_value());
  CHECK_FALSE(order.at_rest());
  CHECK_FALSE(order.take(false).has_value());
  CHECK_FALSE(order.take(true).has_value());
  // Another operation is queued, or waits, although nothing is under way yet.
  CHECK(offer(order, kNothing) == Next::kIssueQueued);
  CHECK(offer(order, kRequests) == Next::kQueued);
  CHECK(offer(order, kRequests, put(kMostCoalesced + 1)) == Next::kIssueQueued);
  order.sent();
  CHECK(take(order));
  CHECK(order.at_rest());

  // A thread that issues something of its own takes, although nothing is queued.
  auto nothing = order.take(true);
  REQUIRE(nothing.has_value());
  CHECK(*nothing == nullptr);
  CHECK_FALSE(order.take(false).has_value());
  CHECK(offer(order, kNothing) == Next::kIssueQueued);
  order.sent();
  CHECK(offer(order, kNothing) == Next::kIssue);
  // Where nothing is queued and nothing else is issued, nothing is taken.
  nothing = order.take(false);
  REQUIRE(nothing.has_value());
  CHECK(*nothing == nullptr);
  CHECK(order.at_rest());
}

TEST_CASE("what is dropped is kept no longer, and other expectations stay") {
  TargetOrder order = expecting();
  CHECK(offer(order, kNothing) == Next::kQueued);
  order.drop();
  CHECK_FALSE(order.any_queued());
  CHECK_FALSE(order.at_rest());
  CHECK_FALSE(take(order));
}

TEST_CASE("where bursts are expected the first operation is kept, too, until they last too long") {
  TargetOrder order(true);
  CHECK(order.expects_burst());
  CHECK(offer(order, kNothing) == Next::kQueued);
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begun <= Timing::kLongestBurst) continue;
  CHECK(offer(order, kNothing) == Next::kQueued);
  order.flush_begins();
  CHECK(take(order));
  CHECK_FALSE(order.expects_burst());
  CHECK(offer(order, kNothing) == Next::kIssue);
}

TEST_CASE("an atomic of a burst that nothing precedes is kept, but a burst is none while something is under way") {
  TargetOrder order(true);
  CHECK(offer(order, kNothing, add()) == Next::kQueued);
  CHECK(take(order));
  TargetOrder other(true);
  CHECK(offer(other, kRdma, add()) == Next::kIssue);
}

TEST_CASE("several operations and a flush within a short time are a burst, after which another one is expected") {
  // On a busy machine the time may be too long, and then this is no burst.
  for (bool short_enough = false; !short_enough;) {
    TargetOrder order;
    const auto begun = std::chrono::steady_clock::now();
    CHECK(offer(order, kNothing) == Next::kIssue);
    CHECK(offer(order, kRdma) == Next::kQueued);
    CHECK(take(order));
    order.flush_begins();
    short_enough = std::chrono::steady_clock::now() - begun <= Timing::kLongestBurst;
    CHECK((order.expects_burst() || !short_enough));
    order.flushed();
    CHECK(order.at_rest());
    // The next target of this rank begins with that (FabricTarget::expects_burst).
    TargetOrder next(order.expects_burst());
    if (short_enough) CHECK(offer(next, kNothing) == Next::kQueued);
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

}  // namespace farside::target_order_test

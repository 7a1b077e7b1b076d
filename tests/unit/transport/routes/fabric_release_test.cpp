// SPDX-License-Identifier: BSD-3-Clause
// The end of an epoch over the fabric: releases, deferred locks, requests, dynamic spaces and adapter atomics.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fabric_route_fixture.hpp"
#include "transport/base/waiter.hpp"

namespace farside::fabric_release_test {

using namespace farside::testing;

namespace {

constexpr ControlStep kAcquire{ControlCall::kFetchAdd, {}, 64, 1, 2}, kRelease{ControlCall::kFetchAdd, {}, 64, 1, 0};

// Two regions that touch, of every rank.
struct TwoRegions final : RegionFinder {
  Result<Region> find(int rank, std::uint64_t address) override {
    ++asked;
    if (address < 4096 + 1000) return Region{4096, 1000, {0, static_cast<std::uint64_t>(10 * rank)}};
    if (address < 4096 + 9000) return Region{4096 + 1000, 8000, {0, static_cast<std::uint64_t>(10 * rank + 1)}};
    return Error{ErrorKind::kRange, "nothing is attached"};
  }
  int asked = 0;
};

}  // namespace

TEST_CASE("operations before a release travel with it, and one that follows a flush does not") {
  RouteFixture on;
  on.agree();
  on.route->expect_release(7);
  CHECK(on.put(7).ok());
  CHECK(on.get(7).ok());
  CHECK(on.calls().empty());
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.release(7).ok());
  CHECK(on.calls() == "message 7 of 2 and 1");
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls().empty());
  CHECK(on.route->targets().busy() == 0);
  CHECK(on.put(7).ok());
  CHECK(on.calls() == "write 7");
}

TEST_CASE("only a step that ends the access carries queued operations, and only those of its target") {
  RouteFixture on;
  on.agree();
  on.route->expect_release(7);
  CHECK(on.put(7).ok());
  std::uint64_t fetched = 0;
  for (const ControlCall call :
       {ControlCall::kFetchAdd, ControlCall::kRead, ControlCall::kWrite, ControlCall::kCompareAndSwap}) {
    Pending pending;
    CHECK(on.route->control().control({call, {}, 64, 0, 0}, DataAccess::kGoesOn, 7, pending, &fetched).ok());
    CHECK(on.calls() == "message 7 of 0 and 1");
  }
  for (const ControlCall call : {ControlCall::kFetchAdd, ControlCall::kWrite}) {
    CHECK(on.notify(7, call, DataAccess::kGoesOn).ok());
    CHECK(on.calls() == "notification 7 of 0 and 1");
  }
  CHECK(on.release(8).ok());
  CHECK(on.calls() == "message 8 of 0 and 1");
  CHECK(on.release(7).ok());
  CHECK(on.calls() == "message 7 of 1 and 1");
}

TEST_CASE("a get that a flush completes is not taken by the lock of another thread at the same rank") {
  RouteFixture on;
  on.agree();
  on.route->expect_release(7);
  CHECK(on.get(7).ok());
  CHECK(on.fetch_add(7).ok());
  CHECK(on.calls() == "message 7 of 0 and 1");
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls() == "message 7 of 1");
}

TEST_CASE("operations that a release carries are in flight for a flush by another thread until it is complete") {
  RouteFixture on;
  on.agree();
  on.endpoint.held = true;
  const ControlStep step{ControlCall::kFetchAdd, {}, 64, 1, 1};
  std::uint64_t fetched = 0;
  const auto release = [&](Pending& pending) {
    return on.route->control().control(step, DataAccess::kEnds, 7, pending, &fetched);
  };
  const auto in_flight = [&] {
    const BusyTarget* const busy = on.route->targets().find(7)->busy;
    return busy != nullptr ? busy->count(Pending::kMessages) : 0;
  };
  on.route->expect_release(7);
  CHECK(on.put(7).ok());
  Pending pending;
  CHECK(release(pending).ok());
  CHECK(in_flight() == 1);
  CHECK_FALSE(pending.done());
  CHECK(on.route->flush_all().ok());
  CHECK(pending.done());
  // One that carries nothing is no operation on data, and neither is the next step.
  on.route->expect_release(7);
  CHECK(release(pending).ok());
  CHECK(in_flight() == 0);
  on.endpoint.complete();
  CHECK(pending.done());
  // One that does not leave leaves nothing in flight.
  CHECK(on.put(7).ok());
  on.endpoint.fail_next(CallKind::kMessage, true);
  CHECK_FALSE(release(pending).ok());
  CHECK(in_flight() == 0);
  CHECK(on.route->control().control(step, DataAccess::kGoesOn, 7, pending, &fetched).ok());
  CHECK(in_flight() == 0);
  on.endpoint.complete();
  CHECK(pending.done());
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("a notification carries the queued operations, and has a reply only if they fetch") {
  RouteFixture on;
  on.agree();
  for (const ControlCall call : {ControlCall::kFetchAdd, ControlCall::kWrite}) {
    CHECK(on.notify(7, call).ok());
    CHECK(on.calls() == "notification 7 of 0 and 1");
    on.route->expect_release(7);
    CHECK(on.put(7).ok());
    CHECK(on.add(7).ok());
    CHECK(on.notify(8, call).ok());
    CHECK(on.notify(7, call).ok());
    CHECK(on.calls() == "notification 8 of 0 and 1, notification 7 of 2 and 1");
    CHECK(on.route->flush(7).ok());
    CHECK(on.calls().empty());
    on.route->expect_release(7);
    CHECK(on.put(7).ok());
    CHECK(on.get(7).ok());
    CHECK(on.notify(7, call).ok());
    CHECK(on.calls() == "message 7 of 2 and 1");
    CHECK(on.route->flush(7).ok());
    CHECK(on.route->targets().busy() == 0);
  }
}

TEST_CASE("a notified operation leaves in one message with its notification, which a flush completes") {
  RouteFixture on;
  on.agree();
  on.endpoint.held = true;
  const auto notified = [&](auto&& operate) {
    on.route->expect_notification(7);
    CHECK(operate().ok());
    CHECK(on.route->notify(7, 64, 0).ok());
    return on.calls();
  };
  CHECK(notified([&] { return on.put(7, kMostBeforeRelease); }) == "notification 7 of 1 and 1");
  CHECK(notified([&] { return on.get(7); }) == "message 7 of 1 and 1");
  CHECK(notified([&] { return on.put(7); }) == "notification 7 of 1 and 1");
  CHECK(on.endpoint.in_flight() == 3);
  CHECK(on.route->targets().busy() == 1);
  // The buffers are free without an answer; a flush asks for one, once.
  CHECK(on.route->flush(7, true).ok());
  CHECK(on.calls().empty());
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.route->targets().busy() == 1);
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls() == "message 7 of 0 and 1");
  CHECK(on.route->targets().busy() == 0);
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls().empty());
  // It is behind writes. For a read it waits.
  CHECK(on.put(7).ok());
  CHECK(notified([&] { return on.add(7); }) == "write 7, notification 7 of 1 and 1");
  CHECK(notified([&] { return on.put(7, 5000); }) == "write 7, notification 7 of 0 and 1");
  CHECK(on.endpoint.in_flight() == 4);
  CHECK(notified([&] { return on.get(7, 5000); }) == "read 7, notification 7 of 0 and 1");
  CHECK(on.endpoint.in_flight() == 1);
  CHECK(on.route->flush_all().ok());
  CHECK(on.calls() == "message 7 of 0 and 1");
  // Afterwards operations are not queued, also if an announced notification has not come.
  CHECK(on.put(7).ok());
  CHECK(on.calls() == "write 7");
  CHECK(on.route->flush(7).ok());
  on.route->expect_notification(7);
  CHECK(on.route->flush(7).ok());
  CHECK(on.put(7).ok());
  CHECK(on.calls() == "write 7");
  CHECK(on.route->flush(7).ok());
  // Its error is that of a flush, of which a failed read has none.
  on.endpoint.fail_next(CallKind::kNotification, false);
  notified([&] { return on.put(7); });
  CHECK(on.route->flush(7).error().kind == ErrorKind::kPeer);
  CHECK(on.calls() == "message 7 of 0 and 1");
  on.endpoint.fail_next(CallKind::kRead, false);
  CHECK(on.get(7, 5000).ok());
  CHECK_FALSE(on.route->notify(7, 64, 0).ok());
  CHECK(on.calls() == "read 7");
  CHECK(on.route->flush(7).ok());
  // It does not follow a failed write, nor on another connection.
  on.endpoint.held = false;
  on.endpoint.fail_next(CallKind::kWrite, false);
  CHECK(on.put(7, 5000).ok());
  CHECK_FALSE(on.route->notify(7, 64, 0).ok());
  CHECK(on.calls() == "write 7");
  CHECK(on.route->flush(7).ok());
  on.endpoint.lost[7].last_interruption = 3;
  CHECK(on.route->expect_notification(7) == 3);
  // The flush fails if the connection has ended since the notification.
  CHECK(on.route->notify(7, 64, 3).ok());
  on.endpoint.lost[7].last_interruption = 4;
  CHECK(on.route->flush(7).error().kind == ErrorKind::kPeer);
  CHECK(on.route->flush(7).ok());
  CHECK(on.route->targets().busy() == 0);
}

TEST_CASE("a local flush waits for operations that use local buffers, and not for messages with copies") {
  RouteFixture on;
  on.endpoint.ring = true;
  on.agree();
  on.endpoint.held = true;
  CHECK(on.put(7).ok());
  CHECK(on.put(7).ok());
  CHECK(on.calls() == "message 7 of 1");
  on.endpoint.fail_next(CallKind::kMessage, false);
  CHECK(on.route->flush(7, true).ok());
  CHECK(on.calls() == "message 7 of 1");
  CHECK(on.add(8).ok());
  CHECK(on.route->flush_all(true).ok());
  CHECK(on.endpoint.in_flight() == 3);
  CHECK(on.route->targets().busy() == 2);
  CHECK(on.route->flush(8).ok());
  CHECK(on.route->flush(7).error().kind == ErrorKind::kPeer);
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.route->targets().busy() == 0);
  for (const bool request : {false, true}) {
    std::unique_ptr<Pending> own;
    if (request) own = std::move(on.route->own_pending(7).value());
    CHECK(on.route->operate(7, DataOperation::get(0, on.data.data(), 8), own.get()).ok());
    CHECK(on.route->flush(7, true).ok());
    CHECK(on.endpoint.in_flight() == 0);
    CHECK(on.put(7, 5000).ok());
    CHECK(on.route->flush(7, true).ok());
    CHECK(on.endpoint.in_flight() == 0);
  }
}

TEST_CASE("a notified operation acquires the deferred lock first, and many of them wait for room") {
  RouteFixture on;
  on.agree();
  int acquired = 0;
  CHECK(on.route->control().defer(7, [&] { return ++acquired, Status(); }).ok());
  on.route->expect_notification(7);
  CHECK(on.put(7).ok());
  CHECK(acquired == 0);
  CHECK(on.route->notify(7, 64, 0).ok());
  CHECK(acquired == 1);
  CHECK(on.calls() == "notification 7 of 1 and 1");
  on.endpoint.held = true;
  for (std::uint32_t i = 0; i < 3 * kMostLists; ++i) {
    CHECK(on.route->notify(7, 64, 0).ok());
    CHECK(on.endpoint.in_flight() <= kMostLists);
  }
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("an adapter increments a counter behind the write, and behind messages once they are executed") {
  RouteFixture on;
  on.endpoint.chosen_keys = false;
  on.endpoint.atomics = true;
  on.agreed.rules.choose_domains(true, false);
  on.agree();
  on.endpoint.held = true;
  on.route->expect_notification(7);
  CHECK(on.put(7).ok());
  CHECK(on.route->notify(7, 72, 0).ok());
  const std::vector<Call> calls = on.endpoint.take_calls();
  CHECK(in_words(calls) == "description 7, write 7, control 7");
  CHECK((calls[2].key == 7007 && calls[2].offset == 72));
  CHECK(on.endpoint.in_flight() == 2);
  CHECK(on.add(7).ok());
  CHECK(on.route->notify(7, 72, 0).ok());
  CHECK(on.calls() == "message 7 of 1, control 7");
  CHECK(on.endpoint.in_flight() == 1);
  CHECK(on.route->flush(7).ok());
  CHECK(on.route->targets().busy() == 0);
}

TEST_CASE("RDMA behind a notification with operations waits until they were executed, messages do not") {
  RouteFixture on;
  on.agree();
  const auto notify_with_put = [&] {
    on.route->expect_release(7);
    CHECK(on.put(7).ok());
    CHECK(on.notify(7).ok());
    CHECK(on.route->flush(7).ok());
    CHECK(on.calls() == "notification 7 of 1 and 1");
  };
  // A message with a reply before the first, none before the next; the same for a read.
  notify_with_put();
  CHECK(on.put(7, 8000).ok());
  CHECK(on.put(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 0 and 1, write 7, write 7");
  CHECK(on.route->flush(7).ok());
  notify_with_put();
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 0 and 1, read 7");
  CHECK(on.route->flush(7).ok());
  // The rank itself has said that it has executed them.
  notify_with_put();
  on.route->control().post_received(7);
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "read 7");
  CHECK(on.route->flush(7).ok());
  // Accumulates are messages, which stay in order. A notification without operations changes nothing.
  notify_with_put();
  CHECK(on.add(7, nullptr, 8).ok());
  CHECK(on.notify(7).ok());
  CHECK(on.calls() == "message 7 of 1, notification 7 of 0 and 1");
  CHECK(on.get(8, 8000).ok());
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "read 8, message 7 of 0 and 1, read 7");
  CHECK(on.route->flush_all().ok());
  // A flush that waits for a later message has the answer to the question, but not that of an earlier message.
  notify_with_put();
  CHECK(on.add(7, nullptr, 8).ok());
  CHECK(on.route->flush(7).ok());
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 1, read 7");
  CHECK(on.add(7, nullptr, 8).ok());
  CHECK(on.calls() == "message 7 of 1");
  notify_with_put();
  CHECK(on.route->flush(7).ok());
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 0 and 1, read 7");
  CHECK(on.route->flush(7).ok());
  // If the question fails, the operation does, and the next one asks again.
  notify_with_put();
  on.endpoint.fail_next(CallKind::kMessage, false);
  CHECK_FALSE(on.get(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 0 and 1");
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 0 and 1, read 7");
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("RDMA behind a notification with a reply waits for no other message") {
  RouteFixture on;
  on.endpoint.acknowledges = true;
  on.agree();
  on.route->expect_release(7);
  CHECK(on.put(7).ok());
  CHECK(on.notify(7).ok());
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "notification 7 of 1 and 1, read 7");
  CHECK(on.route->flush(7).ok());
}

TEST_CASE(
    "a notification that is sent while another thread learns that the earlier ones were executed is no earlier one") {
  Unconfirmed unconfirmed;
  CHECK_FALSE(unconfirmed.any());
  unconfirmed.sent();
  const std::uint16_t latest = unconfirmed.last();
  unconfirmed.sent();
  unconfirmed.executed(latest);
  CHECK(unconfirmed.any());
  const std::uint16_t last = unconfirmed.last();
  unconfirmed.executed(last);
  CHECK_FALSE(unconfirmed.any());
  // Of two threads that have asked, the slower one knows nothing of what was sent since.
  unconfirmed.sent();
  unconfirmed.executed(last);
  CHECK(unconfirmed.any());
  for (int i = 0; i < 70'000; ++i) {
    unconfirmed.sent();
    CHECK(unconfirmed.any());
  }
}

TEST_CASE("a release returns the error of an operation before it, and a notification does not follow one") {
  RouteFixture on;
  on.agree();
  on.endpoint.fail_next(CallKind::kWrite, false);
  CHECK(on.put(7, 8000).ok());
  on.endpoint.complete();
  CHECK_FALSE(on.route->order_before_release(7).ok());
  CHECK(on.notify(7).ok());
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls() == "write 7, notification 7 of 0 and 1");
  on.endpoint.fail_next(CallKind::kWrite, false);
  CHECK(on.put(7, 8000).ok());
  on.endpoint.complete();
  CHECK_FALSE(on.notify(7).ok());
  CHECK(on.calls() == "write 7");
}

TEST_CASE("a release waits for what it would overtake: reads, but not writes") {
  RouteFixture on;
  on.agree();
  on.endpoint.held = true;
  CHECK(on.put(7, 8000).ok());
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.endpoint.in_flight() == 1);
  CHECK(on.get(7, 8000).ok());
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("a lock that is deferred travels with the operations of its epoch, if it is free") {
  RouteFixture on;
  on.agree();
  int acquired = 0;
  const auto acquire = [&] {
    ++acquired;
    return Status();
  };
  CHECK(on.route->locks() != nullptr);
  CHECK(on.route->locks()->defer(7, acquire).ok());
  CHECK(on.put(7).ok());
  CHECK(on.add(7).ok());
  CHECK(on.calls().empty());
  LockedResult free;
  CHECK(on.route->locks()->execute(7, kAcquire, kRelease, free).ok());
  CHECK(on.calls() == "message 7 of 2 and 2");
  CHECK_FALSE(free.stopped);
  CHECK(on.route->flush(7).ok());
  CHECK(on.route->targets().busy() == 0);

  // If it is not, the operations are queued again, for the release.
  on.endpoint.lock_is_free = false;
  CHECK(on.route->locks()->defer(7, acquire).ok());
  CHECK(on.put(7).ok());
  LockedResult stopped;
  CHECK(on.route->locks()->execute(7, kAcquire, kRelease, stopped).ok());
  REQUIRE((stopped.stopped && stopped.list != nullptr));
  on.route->locks()->queue_again(7, std::move(stopped.list));
  CHECK(on.calls() == "message 7 of 1 and 2");
  CHECK(on.release(7).ok());
  CHECK(on.calls() == "message 7 of 1 and 1");
  CHECK(on.route->flush(7).ok());
  CHECK(on.route->targets().busy() == 0);
  CHECK(acquired == 0);
}

TEST_CASE("a deferred lock is acquired, once, before the first operation leaves, and not by an empty flush") {
  struct Case {
    const char* what;
    const char* calls;
    std::function<void(RouteFixture&)> act;
  };
  const Case cases[] = {
      {"a large put", "message 7 of 0 and 1, message 7 of 1, write 7",
       [](RouteFixture& on) { CHECK(on.put(7, 8000).ok()); }},
      {"a flush", "message 7 of 0 and 1, message 7 of 1", [](RouteFixture& on) { CHECK(on.route->flush(7).ok()); }},
      {"a flush of all", "message 7 of 0 and 1, message 7 of 1",
       [](RouteFixture& on) { CHECK(on.route->flush_all().ok()); }},
      {"a request", "message 7 of 0 and 1, read 7",
       [](RouteFixture& on) {
         const auto own = std::move(on.route->own_pending(7).value());
         CHECK(on.route->operate(7, DataOperation::get(0, on.data.data(), 8), own.get()).ok());
       }},
      {"a list", "message 7 of 0 and 1, message 7 of 1, message 7 of 1",
       [](RouteFixture& on) { CHECK(on.send_list(7, false).ok()); }},
  };
  for (const Case& each : cases) {
    INFO(each.what);
    RouteFixture on;
    on.agree();
    int acquired = 0;
    const auto defer = [&] {
      const auto acquire = [&] {
        return on.route->locks()->take(7, [&] {
          ++acquired;
          return on.fetch_add(7);
        });
      };
      CHECK(on.route->locks()->defer(7, acquire).ok());
    };
    defer();
    CHECK(on.route->flush(7).ok());
    CHECK(on.route->flush_all().ok());
    CHECK(acquired == 0);
    CHECK(on.calls().empty());
    CHECK(on.put(7).ok());
    each.act(on);
    CHECK(acquired == 1);
    CHECK(on.calls() == each.calls);
    each.act(on);
    CHECK(acquired == 1);
    CHECK(on.route->flush_all().ok());
  }
}

TEST_CASE("a deferred lock that cannot be acquired is an error of the operation, which does not leave") {
  RouteFixture on;
  on.agree();
  const auto refuse = [&] {
    return on.route->locks()->take(7, [] { return Status(Error{ErrorKind::kConflict, "no"}); });
  };
  CHECK(on.route->locks()->defer(7, refuse).ok());
  CHECK(on.put(7).ok());
  CHECK(on.put(7, 8000).error().kind == ErrorKind::kConflict);
  CHECK(on.calls().empty());
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls().empty());
  CHECK(on.route->targets().busy() == 0);
}

TEST_CASE("a request has its own counter and errors, and a flush returns those of an abandoned one") {
  RouteFixture on;
  on.agree();
  on.endpoint.held = true;
  std::unique_ptr<Pending> own = std::move(on.route->own_pending(7).value());
  on.endpoint.fail_next(CallKind::kWrite, false);
  CHECK(on.put(7, 8, own.get()).ok());
  CHECK(on.put(7, 8000).ok());
  CHECK_FALSE(own->done());
  on.endpoint.complete();
  CHECK(own->done());
  CHECK(on.route->flush(7).ok());
  CHECK(own->take_error().error().rank == 7);

  own = std::move(on.route->own_pending(7).value());
  on.endpoint.fail_next(CallKind::kWrite, false);
  CHECK(on.put(7, 8, own.get()).ok());
  on.route->abandon(7, std::move(own));
  CHECK_FALSE(on.route->flush(7).ok());
  CHECK(on.route->flush(7).ok());
  // Without an error there is nothing to return.
  on.route->abandon(7, nullptr);
  own = std::move(on.route->own_pending(7).value());
  CHECK(on.put(7, 8, own.get()).ok());
  on.route->abandon(7, std::move(own));
  CHECK(on.route->flush_all().ok());
}

TEST_CASE("an atomic request keeps its place behind the queued operations, and a put need not") {
  RouteFixture on;
  on.agree();
  on.route->expect_release(7);
  CHECK(on.add(7).ok());
  CHECK(on.add(7).ok());
  const auto own = std::move(on.route->own_pending(7).value());
  CHECK(on.put(7, 8, own.get()).ok());
  CHECK(on.calls() == "write 7");
  CHECK(on.add(7, own.get()).ok());
  CHECK(on.calls() == "message 7 of 2, message 7 of 1");
}

TEST_CASE("an operation over two regions is one for each, and a release in a dynamic space waits for all") {
  RouteFixture on;
  TwoRegions regions;
  on.agreed.regions = &regions;
  on.agreed.first_address = 4096;
  on.agree();
  on.endpoint.held = true;
  CHECK(on.route->locks() == nullptr);
  CHECK(on.put(7, 4000, nullptr, 500).ok());
  const std::vector<Call> calls = on.endpoint.take_calls();
  REQUIRE(in_words(calls) == "write 7, write 7");
  CHECK((calls[0].key == 70 && calls[0].offset == 500 && calls[0].bytes == 500));
  CHECK((calls[1].key == 71 && calls[1].offset == 0 && calls[1].bytes == 3500));
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.endpoint.in_flight() == 0);
  // What is not attached is an error, after the part that was issued.
  CHECK(on.put(7, 8000, nullptr, 5000).error().kind == ErrorKind::kRange);
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("in a space of single elements adapters change words and integers, and puts are not queued") {
  RouteFixture on;
  on.endpoint.chosen_keys = false;
  on.endpoint.atomics = true;
  on.agreed.rules.choose_domains(true, true);
  on.agree();
  CHECK(on.route->locks() == nullptr);
  CHECK(on.release(7).ok());
  std::vector<Call> calls = on.endpoint.take_calls();
  CHECK(in_words(calls) == "description 7, control 7");
  CHECK((calls[1].key == 7007 && calls[1].offset == 64));
  on.route->expect_release(7);
  CHECK(on.put(7).ok());
  CHECK(on.put(7).ok());
  CHECK(on.add(7, nullptr, 3).ok());
  CHECK(on.calls() == "write 7, write 7, control 7, control 7, control 7");
  // Other accumulates are messages, which a release does not overtake.
  on.endpoint.held = true;
  const double one = 1;
  CHECK(
      on.route->operate(7, DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kDouble, &one, nullptr, 1), nullptr)
          .ok());
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.calls() == "message 7 of 1");
  CHECK(on.route->flush(7).ok());
  CHECK(on.route->targets().busy() == 0);
}

TEST_CASE("in a space of rows adapters change words, and integers go to the handler whatever their number is") {
  RouteFixture on;
  on.endpoint.chosen_keys = false;
  on.endpoint.atomics = true;
  on.agreed.rules.choose_domains(true, false);
  on.agree();
  on.endpoint.held = true;
  CHECK(on.route->locks() == nullptr);
  CHECK(on.add(7, nullptr, 1).ok());
  CHECK(on.calls() == "description 7, message 7 of 1");
  // A row is one message.
  CHECK(on.add(7, nullptr, 500).ok());
  CHECK(on.calls() == "message 7 of 1");
  std::int64_t compare = 0, before = 0;
  CHECK(
      on.route->operate(7, DataOperation::compare_and_swap(8, BasicType::kInt64, &compare, &compare, &before), nullptr)
          .ok());
  // The swap is queued behind them, and a put behind the swap.
  CHECK(on.put(7).ok());
  CHECK(on.calls().empty());
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.calls() == "message 7 of 2");
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.release(7).ok());
  CHECK(on.calls() == "control 7");
  const Result<bool> by_nic =
      on.route->goes_alone(7, DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kInt64, &before, nullptr, 1));
  REQUIRE(by_nic.ok());
  CHECK_FALSE(by_nic.value());
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("the executor of an integer is an error, and not the CPU, without the target's description") {
  for (const bool at_once : {true, false}) {
    RouteFixture on;
    on.endpoint.chosen_keys = false;
    on.endpoint.atomics = true;
    on.agreed.rules.choose_domains(true, true);
    on.agree();
    std::int64_t one = 1;
    const auto add = DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kInt64, &one, nullptr, 1);
    on.endpoint.fail_next(CallKind::kDescription, at_once);
    const Result<bool> failed = on.route->goes_alone(7, add);
    REQUIRE_FALSE(failed.ok());
    CHECK(failed.error().kind == ErrorKind::kPeer);
    const Result<bool> known = on.route->goes_alone(7, add);
    REQUIRE(known.ok());
    CHECK(known.value());
  }
}

TEST_CASE("a read for a report does not take the error of a lost notification") {
  RouteFixture on;
  on.agree();
  CHECK_FALSE(on.route->control().may_read(7));
  CHECK(on.put(7).ok());
  CHECK(on.route->flush(7).ok());
  CHECK(on.route->control().may_read(7));
  on.endpoint.lost[7].to_report = true;
  CHECK_FALSE(on.route->control().may_read(7));
}

TEST_CASE("what combines integers is one domain of a space") {
  alignas(8) std::array<std::byte, 16> memory{};
  AccumulateRules rules;
  for (const bool adapters : {false, true}) {
    for (const bool single : {false, true}) {
      rules.choose_domains(adapters, single);
      CHECK(rules.by_nic == adapters);
      for (const BasicType type : {BasicType::kInt64, BasicType::kUint64})
        CHECK(rules.nic(type, memory.data()) == (adapters && single));
      CHECK_FALSE(rules.nic(BasicType::kInt64, memory.data() + 4));
      CHECK_FALSE(rules.nic(BasicType::kInt32, memory.data()));
      CHECK_FALSE(rules.nic(BasicType::kDouble, memory.data()));
    }
  }
  rules.always_locked = true;
  CHECK_FALSE(rules.nic(BasicType::kInt64, memory.data()));
}

}  // namespace farside::fabric_release_test

// SPDX-License-Identifier: BSD-3-Clause
// Notifications over the fabric: what travels with them, what waits for them, and what a flush completes.
#include <cstdint>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fabric_route_fixture.hpp"

namespace farside::fabric_notification_test {

using namespace farside::testing;

TEST_CASE("a notification carries the queued operations, and has a reply only if they fetch") {
  AgreedRoute on;
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
  AgreedRoute on;
  on.endpoint.held = true;
  const auto notified = [&](auto&& operate) {
    on.route->expect_notification(7);
    CHECK(operate().ok());
    CHECK(on.route->notify(7, 64, 0).ok());
    return on.calls();
  };
  CHECK(notified([&] { return on.put(7, kMostBeforeRelease); }) == "notification 7 of 1 and 1");
  CHECK(notified([&] { return on.get(7); }) == "message 7 of 1 and 1");
  CHECK(on.endpoint.in_flight() == 2);
  // The buffers are free without an answer; a flush asks for one, once.
  CHECK(on.route->flush(7, true).ok());
  CHECK(on.calls().empty());
  CHECK((on.endpoint.in_flight() == 0 && on.route->targets().busy() == 1));
  CHECK(on.calls_to(7) == "message 7 of 0 and 1");
  CHECK(on.all_at_rest());
  CHECK(on.calls_to(7).empty());
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
  on.route->expect_notification(7);
  CHECK(on.route->flush(7).ok());
  CHECK(on.put(7).ok());
  CHECK(on.calls_to(7) == "write 7");
  // Its error is that of a flush, of which a failed read has none.
  on.endpoint.fail_next(CallKind::kNotification, false);
  notified([&] { return on.put(7); });
  CHECK(on.route->flush(7).error().kind == ErrorKind::kPeer);
  CHECK(on.calls() == "message 7 of 0 and 1");
  // It does not follow a failed read or write, nor on another connection.
  on.endpoint.held = false;
  for (const CallKind failing : {CallKind::kRead, CallKind::kWrite}) {
    on.endpoint.fail_next(failing, false);
    CHECK((failing == CallKind::kRead ? on.get(7, 5000) : on.put(7, 5000)).ok());
    CHECK_FALSE(on.route->notify(7, 64, 0).ok());
    CHECK(on.calls_to(7) == (failing == CallKind::kRead ? "read 7" : "write 7"));
  }
  on.endpoint.lost[7].last_interruption = 3;
  CHECK(on.route->expect_notification(7) == 3);
  CHECK(on.route->notify(7, 64, 3).ok());
  on.endpoint.lost[7].last_interruption = 4;
  CHECK(on.route->flush(7).error().kind == ErrorKind::kPeer);
  CHECK(on.route->flush(7).ok());
  CHECK(on.all_at_rest());
}

TEST_CASE("a notified operation acquires the deferred lock first, and many of them wait for room") {
  AgreedRoute on;
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

TEST_CASE("RDMA behind a notification with operations waits until they were executed, messages do not") {
  AgreedRoute on;
  const auto notify_with_put = [&] {
    CHECK(on.route->flush(7).ok());
    on.route->expect_release(7);
    CHECK((on.put(7).ok() && on.notify(7).ok() && on.route->flush(7).ok()));
    CHECK(on.calls() == "notification 7 of 1 and 1");
  };
  // A message with a reply before the first, none before the next; the same for a read.
  notify_with_put();
  CHECK((on.put(7, 8000).ok() && on.put(7, 8000).ok()));
  CHECK(on.calls() == "message 7 of 0 and 1, write 7, write 7");
  notify_with_put();
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 0 and 1, read 7");
  // The rank itself has said that it has executed them.
  notify_with_put();
  on.route->control().post_received(7);
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "read 7");
  // Accumulates are messages, which stay in order. A notification without operations changes nothing.
  notify_with_put();
  CHECK((on.add(7, nullptr, 8).ok() && on.notify(7).ok()));
  CHECK((on.get(8, 8000).ok() && on.get(7, 8000).ok()));
  CHECK(on.calls() == "message 7 of 1, notification 7 of 0 and 1, read 8, message 7 of 0 and 1, read 7");
  // A flush that waits for a later message has the answer to the question.
  notify_with_put();
  CHECK(on.add(7, nullptr, 8).ok());
  CHECK(on.route->flush(7).ok());
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 1, read 7");
  // If the question fails, the operation does, and the next one asks again.
  notify_with_put();
  on.endpoint.fail_next(CallKind::kMessage, false);
  CHECK_FALSE(on.get(7, 8000).ok());
  CHECK(on.get(7, 8000).ok());
  CHECK(on.calls() == "message 7 of 0 and 1, message 7 of 0 and 1, read 7");
  CHECK(on.route->flush_all().ok());
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

}  // namespace farside::fabric_notification_test

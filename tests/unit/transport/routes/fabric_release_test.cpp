// SPDX-License-Identifier: BSD-3-Clause
// The end of an epoch over the fabric: releases, local flushes, deferred locks, requests and dynamic spaces.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fabric_route_fixture.hpp"

namespace farside::fabric_release_test {

using namespace farside::testing;

namespace {

constexpr ControlStep kAcquire{ControlCall::kFetchAdd, {}, 64, 1, 2}, kRelease{ControlCall::kFetchAdd, {}, 64, 1, 0};

// Two regions that touch, of every rank.
struct TwoRegions {
  Result<Region> operator()(int rank, std::uint64_t address) {
    ++asked;
    if (address < 4096 + 1000) return Region{4096, 1000, {0, static_cast<std::uint64_t>(10 * rank)}};
    if (address < 4096 + 9000) return Region{4096 + 1000, 8000, {0, static_cast<std::uint64_t>(10 * rank + 1)}};
    return Error{ErrorKind::kRange, "nothing is attached"};
  }
  int asked = 0;
};

}  // namespace

TEST_CASE("operations before a release travel with it, and one that follows a flush does not") {
  AgreedRoute on;
  on.route->expect_release(7);
  CHECK((on.put(7).ok() && on.get(7).ok()));
  CHECK(on.calls().empty());
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.release(7).ok());
  CHECK(on.calls() == "message 7 of 2 and 1");
  // Up to a size. A larger one follows what is queued.
  CHECK((on.put(7, kMostBeforeRelease).ok() && on.put(7, kMostBeforeRelease + 1).ok()));
  CHECK(on.calls() == "message 7 of 1, write 7");
  CHECK(on.calls_to(7).empty());
  CHECK(on.all_at_rest());
  CHECK(on.put(7).ok());
  CHECK(on.calls() == "write 7");
}

TEST_CASE("only a step that ends the access carries queued operations, and only those of its target") {
  AgreedRoute on;
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

TEST_CASE("operations that a release carries are in flight for a flush by another thread until it is complete") {
  AgreedRoute on;
  on.endpoint.held = true;
  std::uint64_t fetched = 0;
  const auto release = [&](Pending& pending) {
    on.route->expect_release(7);
    return on.route->control().control({ControlCall::kFetchAdd, {}, 64, 1, 1}, DataAccess::kEnds, 7, pending, &fetched);
  };
  const auto in_flight = [&] {
    const BusyTarget* const busy = on.route->targets().find(7)->busy;
    return busy != nullptr ? busy->count(Pending::kMessages) : 0;
  };
  on.route->expect_release(7);
  CHECK(on.put(7).ok());
  Pending pending;
  CHECK(release(pending).ok());
  CHECK((in_flight() == 1 && !pending.done()));
  CHECK(on.route->flush_all().ok());
  CHECK(pending.done());
  // One that carries nothing is no operation on data.
  CHECK(release(pending).ok());
  CHECK(in_flight() == 0);
  on.endpoint.complete();
  // One that does not leave leaves nothing in flight.
  CHECK(on.put(7).ok());
  on.endpoint.fail_next(CallKind::kMessage, true);
  CHECK_FALSE(release(pending).ok());
  CHECK((in_flight() == 0 && pending.done()));
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("a release returns the error of an operation before it, and a notification does not follow one") {
  AgreedRoute on;
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
  AgreedRoute on;
  on.endpoint.held = true;
  CHECK(on.put(7, 8000).ok());
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.endpoint.in_flight() == 1);
  CHECK(on.get(7, 8000).ok());
  CHECK(on.route->order_before_release(7).ok());
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.route->flush(7).ok());
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

TEST_CASE("a lock that is deferred travels with the operations of its epoch, if it is free") {
  AgreedRoute on;
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
    AgreedRoute on;
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
  AgreedRoute on;
  const auto refuse = [&] {
    return on.route->locks()->take(7, [] { return Status(Error{ErrorKind::kUnsupported, "no"}); });
  };
  CHECK(on.route->locks()->defer(7, refuse).ok());
  CHECK(on.put(7).ok());
  CHECK(on.put(7, 8000).error().kind == ErrorKind::kUnsupported);
  CHECK(on.calls().empty());
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls().empty());
  CHECK(on.route->targets().busy() == 0);
}

TEST_CASE("a request has its own counter and errors, and a flush returns those of an abandoned one") {
  AgreedRoute on;
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
  AgreedRoute on;
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
  on.agreed.regions = std::ref(regions);
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

TEST_CASE("a read for a report does not take the error of a lost notification") {
  AgreedRoute on;
  CHECK_FALSE(on.route->control().may_read(7));
  CHECK(on.put(7).ok());
  CHECK(on.route->flush(7).ok());
  CHECK(on.route->control().may_read(7));
  on.endpoint.lost[7].to_report = true;
  CHECK_FALSE(on.route->control().may_read(7));
}

}  // namespace farside::fabric_release_test

// SPDX-License-Identifier: BSD-3-Clause
// How ranks become known to a route over the fabric, which of them a flush visits, and what it asks of the endpoint.
#include "transport/routes/fabric/fabric_route.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fabric_route_fixture.hpp"
#include "transport/routes/fabric/fabric_targets.hpp"

namespace farside::fabric_route_test {

using namespace farside::testing;

TEST_CASE("where all ranks are alike, no rank is asked for its description") {
  AgreedRoute on;
  CHECK(on.endpoint.inserted() == 0);
  CHECK(on.route->extent(7).value().bytes == on.data.size());
  CHECK(on.route->extent(7).value().unit == RouteFixture::kUnit);
  CHECK(on.endpoint.inserted() == 0);
  CHECK(on.put(7).ok());
  CHECK(on.put(8).ok());
  CHECK(on.endpoint.inserted() == 2);
  const std::vector<Call> calls = on.endpoint.take_calls();
  CHECK(in_words(calls) == "write 7, write 8");
  // Every rank has chosen the same key for its data as this one.
  TargetDescription own;
  REQUIRE(on.endpoint.published(RouteFixture::kRegion) != nullptr);
  const MessageHandler::ServedSpace& published = *on.endpoint.published(RouteFixture::kRegion);
  REQUIRE(published.description_bytes == sizeof own);
  std::memcpy(&own, published.description.data(), sizeof own);
  CHECK((own.bytes == on.data.size() && own.unit == RouteFixture::kUnit));
  CHECK((own.data_key == 0 && own.control_key == 0));
  CHECK(calls[0].key != 0);
}

TEST_CASE("a rank without data has chosen the same key for data as the others") {
  RouteFixture with, without;
  for (RouteFixture* on : {&with, &without}) {
    on->agreed.same_bytes = false;
    on->agree(on == &with ? RouteFixture::kBytes : 0);
    CHECK(on->get(7).ok());
  }
  const std::uint64_t key = with.endpoint.take_calls().back().key;
  CHECK(key != 0);
  CHECK(without.endpoint.take_calls().back().key == key);
}

TEST_CASE("a small put or get is a message where messages go through rings, unless it has a request") {
  AgreedRoute on;
  on.endpoint.ring = true;
  for (const std::size_t bytes : {std::size_t{8}, kMostPutInRing}) {
    CHECK(on.put(7, bytes).ok());
    CHECK(on.calls_to(7) == "message 7 of 1");
  }
  CHECK(on.put(7, kMostPutInRing + 1).ok());
  CHECK(on.calls_to(7) == "write 7");
  CHECK(on.get(7, kMostGetInRing).ok());
  CHECK(on.calls_to(7) == "message 7 of 1");
  CHECK(on.get(7, kMostGetInRing + 1).ok());
  CHECK(on.calls_to(7) == "read 7");
  const std::unique_ptr<Pending> own = std::move(on.route->own_pending(7).value());
  CHECK(on.put(7, 8, own.get()).ok());
  CHECK(own->done());
  CHECK(on.calls_to(7) == "write 7");
  on.endpoint.ring = false;
  CHECK((on.put(7).ok() && on.get(7).ok()));
  CHECK(on.calls_to(7) == "write 7, read 7");
}

TEST_CASE(
    "an interruption concerns one rank, and waits that began before it; a start, all since the rank's last post") {
  AgreedRoute on;
  FabricControl& route = on.route->control();
  CHECK(route.first_interruptions() == 0);
  const auto interrupted_since_post = [&](int rank) {
    return route.losses(rank).interrupted_after(route.interruptions_at_post(rank));
  };
  CHECK_FALSE(route.losses(7).interrupted_after(0));
  on.endpoint.interrupted = 5;
  on.endpoint.lost[7].last_interruption = 5;
  on.endpoint.lost[8].last_interruption = 3;
  CHECK(route.losses(7).interrupted_after(0));
  CHECK(route.losses(7).interrupted_after(4));
  CHECK_FALSE(route.losses(7).interrupted_after(5));
  CHECK(route.losses(8).interrupted_after(2));
  CHECK_FALSE(route.losses(8).interrupted_after(3));
  CHECK_FALSE(route.losses(9).interrupted_after(0));
  for (const int rank : {7, 8}) CHECK(interrupted_since_post(rank));
  CHECK_FALSE(interrupted_since_post(9));
  route.post_received(8);
  CHECK_FALSE(interrupted_since_post(8));
  CHECK(interrupted_since_post(7));
  on.endpoint.interrupted = 6;
  on.endpoint.lost[8].last_interruption = 6;
  CHECK(interrupted_since_post(8));
}

TEST_CASE("the first use of a rank that differs asks for its description, once") {
  struct Case {
    const char* what;
    bool same_bytes, same_units, chosen_keys;
  };
  for (const Case& each :
       {Case{"sizes", false, true, true}, {"units", true, false, true}, {"keys", true, true, false}}) {
    INFO("other " << each.what);
    RouteFixture on;
    on.agreed.same_bytes = each.same_bytes;
    on.agreed.same_units = each.same_units;
    on.endpoint.chosen_keys = each.chosen_keys;
    on.agree();
    // Other keys alone are no other extent.
    const auto extent_is_right = [&](int rank) {
      const Result<Route::Extent> extent = on.route->extent(rank);
      return extent.ok() && (each.chosen_keys ? extent.value().bytes == 100U * static_cast<unsigned>(rank) &&
                                                    extent.value().unit == static_cast<unsigned>(rank)
                                              : extent.value().bytes == on.data.size());
    };
    CHECK(extent_is_right(6));
    CHECK(on.calls() == (each.chosen_keys ? "description 6" : ""));
    CHECK(on.put(7).ok());
    std::vector<Call> calls = on.endpoint.take_calls();
    CHECK(in_words(calls) == "description 7, write 7");
    CHECK((calls.back().key == 9007) == !each.chosen_keys);
    CHECK(on.route->flush(7).ok());
    CHECK(on.put(7).ok());
    CHECK(extent_is_right(7));
    CHECK(on.calls() == "write 7");
    // Another rank is another description; an atomic, a list and a counter for requests use it as well.
    CHECK(on.add(8).ok());
    CHECK(on.calls() == "description 8, message 8 of 1");
    CHECK(on.route->own_pending(9).ok());
    CHECK(on.calls() == "description 9");
    CHECK(on.send_list(10, true).ok());
    CHECK(on.calls() == "description 10, message 10 of 1");
  }
}

TEST_CASE("control words and tables of regions need no description") {
  RouteFixture on;
  on.agreed.same_bytes = false;
  on.agree();
  CHECK(on.release(7).ok());
  CHECK(on.calls() == "message 7 of 0 and 1");
  std::array<std::byte, 64> page{};
  CHECK(on.route->ask_for_regions(7, 0, page).ok());
  CHECK(on.calls() == "regions 7");
  on.route->expect_release(7);
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls().empty());
}

TEST_CASE("a description that fails is an error of the operation, and is asked for again") {
  for (const bool at_once : {true, false}) {
    INFO((at_once ? "at once" : "later"));
    RouteFixture on;
    on.agreed.same_bytes = false;
    on.agree();
    const auto fails = [&](auto&& act) {
      on.endpoint.fail_next(CallKind::kDescription, at_once);
      const Status status = act();
      CHECK(on.calls() == "description 7");
      return !status.ok() && status.error().kind == ErrorKind::kPeer && status.error().rank == 7;
    };
    CHECK(fails([&] { return on.put(7); }));
    CHECK(fails([&] { return on.add(7); }));
    CHECK(fails([&] { return on.route->extent(7).status(); }));
    CHECK(fails([&] { return on.route->own_pending(7).status(); }));
    CHECK(fails([&] { return on.send_list(7, true); }));
    CHECK(fails([&] { return on.route->locks()->defer(7, nullptr); }));
    CHECK_FALSE(on.route->targets().any_busy());
    CHECK(on.route->flush(7).ok());
    CHECK(on.put(7).ok());
    CHECK(on.calls() == "description 7, write 7");
  }
}

TEST_CASE("threads that use a rank for the first time at once all have its description") {
  for (int round = 0; round < 20; ++round) {
    RouteFixture on;
    on.agreed.same_bytes = on.endpoint.chosen_keys = false;
    on.agree();
    std::atomic<int> ready{0};
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        ++ready;
        while (ready < 4) continue;
        for (int rank = 1; rank < 40; ++rank) {
          if (!on.put(rank, 8000).ok()) ++failed;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failed == 0);
    CHECK(on.route->flush_all().ok());
    std::map<int, int> writes;
    for (const Call& call : on.endpoint.take_calls()) {
      if (call.kind != CallKind::kWrite) continue;
      REQUIRE(call.key == 9000 + static_cast<std::uint64_t>(call.rank));
      ++writes[call.rank];
    }
    for (int rank = 1; rank < 40; ++rank) REQUIRE(writes[rank] == 4);
    CHECK(on.endpoint.inserted() == 39);
    CHECK(on.route->targets().busy() == 0);
  }
}

TEST_CASE("a flush of all visits the busy targets, and none that is at rest") {
  AgreedRoute on;
  // Ranks that were never reached ask for nothing.
  CHECK((on.route->flush(7).ok() && on.route->flush_all().ok() && on.route->order_before_release(7).ok()));
  CHECK((on.endpoint.inserted() == 0 && on.route->targets().reached() == 0 && on.waiting.polls == 0));
  for (int rank = 1; rank < 500; ++rank) {
    CHECK(on.put(rank).ok());
    CHECK(on.route->flush(rank).ok());
  }
  on.endpoint.take_calls();
  CHECK(on.route->targets().reached() == 499);
  CHECK(on.route->targets().busy() == 0);
  CHECK(on.route->flush_all().ok());
  CHECK(on.calls().empty());

  on.endpoint.held = true;
  for (const int rank : {400, 3, 77}) {
    on.route->expect_release(rank);
    CHECK(on.put(rank).ok());
    CHECK(on.get(rank).ok());
  }
  CHECK(on.put(250).ok());
  CHECK(on.calls() == "write 250");
  CHECK(on.route->targets().busy() == 4);
  // The queued operations leave towards all before the flush waits for any.
  CHECK(on.endpoint.in_flight() == 1);
  CHECK(on.route->flush_all().ok());
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.calls() == "message 400 of 2, message 3 of 2, message 77 of 2");
  CHECK(on.route->targets().busy() == 0);
  const std::uint64_t polls = on.waiting.polls;
  CHECK(on.route->flush_all().ok());
  CHECK(on.waiting.polls == polls);
  CHECK(on.calls().empty());
}

TEST_CASE("a flush returns the error of an operation once, with the rank, whichever flush it is") {
  for (const bool all : {false, true}) {
    INFO((all ? "flush_all" : "flush"));
    AgreedRoute on;
    const auto flush = [&] { return all ? on.route->flush_all() : on.route->flush(7); };
    for (const CallKind failing : {CallKind::kWrite, CallKind::kRead, CallKind::kMessage}) {
      on.endpoint.fail_next(failing, false);
      CHECK((failing == CallKind::kWrite ? on.put(7) : failing == CallKind::kRead ? on.get(7) : on.add(7)).ok());
      CHECK(on.route->targets().busy() == 1);
      const Status status = flush();
      REQUIRE_FALSE(status.ok());
      CHECK(status.error().rank == 7);
      CHECK(flush().ok());
      CHECK(on.route->targets().busy() == 0);
    }
    // An operation that cannot be issued is an error of the call.
    on.endpoint.fail_next(CallKind::kWrite, true);
    CHECK_FALSE(on.put(7).ok());
    CHECK(flush().ok());
  }
  // One of several errors is returned, and everything is complete.
  AgreedRoute on;
  on.endpoint.held = true;
  for (const int rank : {3, 4, 5}) {
    if (rank != 4) on.endpoint.fail_next(CallKind::kWrite, false);
    CHECK(on.put(rank).ok());
  }
  CHECK_FALSE(on.route->flush_all().ok());
  CHECK((on.route->flush_all().ok() && on.all_at_rest()));
}

TEST_CASE("small operations that follow one in flight leave as one message, at a flush or before a large one") {
  AgreedRoute on;
  on.endpoint.held = true;
  for (int i = 0; i < 10; ++i) CHECK(on.put(7, 8, nullptr, 100 * static_cast<std::uint64_t>(i * i)).ok());
  CHECK(on.calls() == "write 7");
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls() == "message 7 of 9");
  CHECK((on.put(8).ok() && on.put(8).ok() && on.get(8, 8000).ok()));
  CHECK(on.calls() == "write 8, message 8 of 1, read 8");
  CHECK(on.route->flush(8).ok());
  // An atomic follows only messages.
  CHECK((on.put(9).ok() && on.add(9).ok() && on.add(9).ok() && on.put(9).ok()));
  CHECK(on.calls() == "write 9, message 9 of 1");
  CHECK(on.calls_to(9) == "message 9 of 2");
  // One that is larger than a message leaves in parts.
  on.endpoint.held = false;
  CHECK(on.add(10, nullptr, 2500).ok());
  CHECK(on.calls() == "message 10 of 1, message 10 of 1, message 10 of 1");
  CHECK(on.route->flush(10).ok());
}

TEST_CASE("a route that ends drops what is queued, and waits for what is in flight") {
  AgreedRoute on;
  on.endpoint.held = true;
  CHECK(on.put(7).ok());
  CHECK(on.put(7).ok());
  on.route->expect_release(8);
  CHECK(on.put(8).ok());
  CHECK(on.endpoint.in_flight() == 1);
  CHECK(on.endpoint.published(RouteFixture::kRegion) != nullptr);
  on.route.reset();
  CHECK(on.endpoint.in_flight() == 0);
  CHECK(on.calls() == "write 7");
  CHECK(on.endpoint.published(RouteFixture::kRegion) == nullptr);
}

TEST_CASE("a second space of the same id is refused, and the first one stays") {
  AgreedRoute on;
  {
    FabricRoute other(FabricRoute::Setup{on.endpoint, on.waiting, on.wake_event, 0, on.kRegion});
    MessageHandler::ServedSpace space;
    space.control = on.control.data();
    space.control_bytes = on.control.size();
    const Status refused = other.register_memory(space, 0, 0);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().text.find("same id") != std::string::npos);
  }
  CHECK(on.endpoint.published(RouteFixture::kRegion) != nullptr);
}

}  // namespace farside::fabric_route_test

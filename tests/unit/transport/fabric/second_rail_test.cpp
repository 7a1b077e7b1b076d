// SPDX-License-Identifier: BSD-3-Clause
// Which operations a route splits between two devices, which half the second device carries, and which operations wait
// for it.
#include "transport/fabric/second_rail.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fabric_route_fixture.hpp"

namespace farside::second_rail_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kSplit = SecondRail::kSplitFrom;

// Progress that completes operations of both endpoints.
class CompletesBoth final : public Progress {
 public:
  CompletesBoth(FakeEndpoint& first, FakeEndpoint& second) : first_(first), second_(second) {}
  void poll() override {
    first_.complete();
    second_.complete();
  }
  void poll_runtime() override {}
  void listen(WakeEvent&) override {}
  void stop_listening(WakeEvent&) override {}

 private:
  FakeEndpoint& first_;
  FakeEndpoint& second_;
};

// A route over an endpoint with a second rail. The fixture has what ranks have in common.
struct RailFixture : RouteFixture {
  FakeEndpoint second;
  std::optional<SecondRail> rail;
  CompletesBoth both{endpoint, second};
  std::vector<std::byte> large = std::vector<std::byte>(8 * kSplit);

  // `bytes`: of data on all ranks.
  void agree_on_rails(bool all_have_rails = true, std::size_t bytes = 8 * kSplit) {
    second.chosen_keys = endpoint.chosen_keys;
    if (!rail) rail.emplace(endpoint, second);
    endpoint.rail = &*rail;
    route = std::make_unique<FabricRoute>(FabricRoute::Setup{endpoint, both, wake_event, 0, kRegion});
    MessageHandler::ServedSpace space;
    space.base = large.data();
    space.bytes = bytes;
    space.lock = &lock;
    space.control = control.data();
    space.control_bytes = control.size();
    REQUIRE(route->register_memory(space, bytes, kUnit).ok());
    agreed.second_rails = all_have_rails;
    route->agree(agreed);
  }
  ~RailFixture() { route.reset(); }
  Status put_large(int rank, std::size_t bytes, std::uint64_t offset = 0) {
    return route->operate(rank, DataOperation::put(offset, large.data(), bytes), nullptr);
  }
  // A release waits for outstanding operations of the second device. From then on the test makes that device hold its
  // operations.
  void release_waits() {
    second.held = true;
    CHECK(put_large(7, kSplit).ok());
    CHECK(second.in_flight() == 1);
    CHECK(route->order_before_release(7).ok());
    CHECK(second.in_flight() == 0);
  }
  Status get_large(int rank, std::size_t bytes, std::uint64_t offset = 0) {
    return route->operate(rank, DataOperation::get(offset, large.data(), bytes), nullptr);
  }
};

}  // namespace

TEST_CASE("the first part is half, in whole pages, and all of a small transfer") {
  CHECK(SecondRail::first_part(kSplit - 1) == kSplit - 1);
  CHECK(SecondRail::first_part(kSplit) == kSplit / 2);
  CHECK(SecondRail::first_part(kSplit + 2) == kSplit / 2 + 4096);
  CHECK(SecondRail::first_part(std::size_t{1} << 40) == std::size_t{1} << 39);
}

TEST_CASE("large puts and gets are split; small ones, and all else, go by the first device") {
  RailFixture on;
  on.agree_on_rails();
  CHECK(on.route->uses_second_rail());
  CHECK(on.put_large(7, kSplit - 1).ok());
  CHECK(on.calls() == "write 7");
  CHECK(on.second.take_calls().empty());
  CHECK(on.put_large(7, 3 * kSplit, 5000).ok());
  CHECK(on.get_large(8, kSplit, 64).ok());
  CHECK(on.put_large(7, kSplit).ok());
  const std::vector<Call> first = on.endpoint.take_calls(), second = on.second.take_calls();
  // A peer is asked once for its second address.
  CHECK(in_words(first) == "description 7, write 7, description 8, read 8, write 7");
  CHECK(in_words(second) == "write 7, read 8, write 7");
  CHECK((first[1].offset == 5000 && first[1].bytes == 3 * kSplit / 2));
  CHECK((second[0].offset == 5000 + 3 * kSplit / 2 && second[0].bytes == 3 * kSplit / 2));
  CHECK((first[3].offset == 64 && second[1].offset == 64 + kSplit / 2 && second[1].bytes == kSplit / 2));
  // Processes choose the same key for both devices.
  CHECK(second[0].key == first[1].key);
  CHECK(on.add(7).ok());
  CHECK(on.route->flush(7).ok());
  CHECK(on.calls() == "message 7 of 1");
  CHECK(on.second.take_calls().empty());
}

TEST_CASE("where the provider chooses keys, a rank's description has that of its second device") {
  RailFixture on;
  on.endpoint.chosen_keys = false;
  for (auto& [rank, description] : on.endpoint.descriptions) description.second_key = 500 + rank;
  on.agreed.same_bytes = false;
  on.agree_on_rails();
  CHECK(on.put_large(9, kSplit).ok());
  const std::vector<Call> first = on.endpoint.take_calls(), second = on.second.take_calls();
  CHECK(in_words(first) == "description 9, description 9, write 9");
  REQUIRE(in_words(second) == "write 9");
  CHECK(second[0].key == 509);
  CHECK(first[2].key == 9009);
}

TEST_CASE("a flush, a release and a failed operation wait for both devices") {
  RailFixture on;
  on.agree_on_rails();
  on.release_waits();
  CHECK(on.put_large(7, kSplit).ok());
  CHECK(on.route->flush(7).ok());
  CHECK(on.second.in_flight() == 0);
  CHECK(on.get_large(7, kSplit).ok());
  CHECK(on.route->flush_all().ok());
  CHECK(on.second.in_flight() == 0);
  // An error of the second device is the operation's.
  on.second.fail_next(CallKind::kWrite, false);
  CHECK(on.put_large(7, kSplit).ok());
  const Status flushed = on.route->flush(7);
  REQUIRE_FALSE(flushed.ok());
  CHECK(flushed.error().rank == 7);
  // If the first device accepts nothing, the route waits for the half that was issued.
  on.endpoint.fail_next(CallKind::kWrite, true);
  CHECK_FALSE(on.put_large(7, kSplit).ok());
  CHECK(on.second.in_flight() == 0);
  // A request has a counter of its own.
  std::unique_ptr<Outstanding> own = std::move(on.route->own_outstanding(7).value());
  CHECK(on.route->operate(7, DataOperation::put(0, on.large.data(), kSplit), own.get()).ok());
  CHECK_FALSE(own->done());
  on.second.complete();
  on.endpoint.complete();
  CHECK(own->done());
  on.route->abandon(7, std::move(own));
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("without second rails on all ranks, after a failed trial and in a small space the first device carries all") {
  SECTION("not agreed") {
    RailFixture on;
    on.agree_on_rails(false);
    CHECK_FALSE(on.route->uses_second_rail());
    CHECK(on.put_large(7, kSplit).ok());
    CHECK(on.calls() == "write 7");
  }
  SECTION("after a failed trial") {
    RailFixture on;
    on.rail.emplace(on.endpoint, on.second);
    on.rail->passed();
    on.rail->failed();
    on.rail->passed();
    CHECK(on.rail->state() == SecondRail::State::kFailed);
    on.agree_on_rails();
    CHECK_FALSE(on.route->uses_second_rail());
    CHECK(on.put_large(7, kSplit).ok());
    CHECK(on.calls() == "write 7");
    CHECK(on.second.take_calls().empty());
  }
  SECTION("small") {
    RailFixture on;
    on.agree_on_rails(true, kSplit - 1);
    CHECK(on.route->uses_second_rail());
    CHECK(on.put_large(7, kSplit - 1).ok());
    CHECK(on.calls() == "write 7");
    CHECK(on.second.take_calls().empty());
  }
}

TEST_CASE("behind writes by a second adapter, a flush and a release read a word back, once") {
  RailFixture on;
  on.rail.emplace(on.endpoint, on.second, 0, true);
  on.agree_on_rails();
  const auto by_second = [&] { return in_words(on.second.take_calls()); };
  CHECK(on.put_large(7, kSplit).ok());
  CHECK(on.get_large(8, kSplit).ok());
  CHECK(by_second() == "write 7, read 8");
  CHECK(on.route->order_before_release(7).ok());
  CHECK(by_second() == "read 7");
  CHECK(on.route->flush_all().ok());
  CHECK(by_second().empty());
  CHECK(on.put_large(7, kSplit).ok());
  CHECK(on.put_large(7, kSplit, 64).ok());
  CHECK(on.route->flush_all().ok());
  const std::vector<Call> calls = on.second.take_calls();
  REQUIRE(in_words(calls) == "write 7, write 7, read 7");
  CHECK((calls[2].bytes == 8 && calls[2].offset == calls[1].offset));
  // A failure is reported by the flush.
  CHECK(on.put_large(7, kSplit).ok());
  on.second.fail_next(CallKind::kRead, false);
  CHECK_FALSE(on.route->flush(7).ok());
  CHECK(on.route->flush(7).ok());
}

TEST_CASE("a release by an adapter's atomic waits for the second device, too") {
  RailFixture on;
  on.endpoint.atomics = true;
  on.agreed.rules.choose_domains(true, true);
  on.agree_on_rails();
  on.release_waits();
}

}  // namespace farside::second_rail_test

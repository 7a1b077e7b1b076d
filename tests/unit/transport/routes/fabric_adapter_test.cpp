// SPDX-License-Identifier: BSD-3-Clause
// A route over an adapter with atomics: which words and integers it changes, and what the handler does.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fabric_route_fixture.hpp"

namespace farside::fabric_adapter_test {

using namespace farside::testing;

namespace {

// `single`: of a space with the hint that accumulates are of single elements.
struct AdapterRoute : RouteFixture {
  explicit AdapterRoute(bool single) {
    endpoint.chosen_keys = false;
    endpoint.atomics = true;
    agreed.rules.choose_domains(true, single);
    agree();
  }
};

}  // namespace

TEST_CASE("an adapter increments a counter behind the write, and behind messages once they are executed") {
  AdapterRoute on(false);
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

TEST_CASE("in a space of single elements adapters change words and integers, and puts are not queued") {
  AdapterRoute on(true);
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
  AdapterRoute on(false);
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
    AdapterRoute on(true);
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

}  // namespace farside::fabric_adapter_test

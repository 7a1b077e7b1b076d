// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/adaptive_polling.hpp"

#include <optional>

#include <catch2/catch.hpp>

namespace farside::adaptive_polling_test {

using namespace std::chrono_literals;

namespace {

using Time = AdaptivePolling::Clock::time_point;
using BackOff = std::optional<std::chrono::microseconds>;

const Time kBegin = Time{} + 1h;

// Somebody polls all the time; how long the thread stays away at last.
BackOff polled_for(AdaptivePolling& polling, Time& now, std::chrono::microseconds time) {
  const Time end = now + time;
  BackOff back_off = polling.next(true, now);
  while (back_off && now + *back_off <= end) {
    now += *back_off;
    back_off = polling.next(true, now);
  }
  return back_off;
}

}  // namespace

TEST_CASE("the progress thread stays away only while others poll") {
  AdaptivePolling polling;
  CHECK(polling.next(false, kBegin) == std::nullopt);
  CHECK(polling.next(true, kBegin) == AdaptivePolling::kShortest);
  CHECK(polling.next(false, kBegin + 50us) == std::nullopt);
  CHECK(polling.next(true, kBegin + 60us) == AdaptivePolling::kShortest);
}

TEST_CASE("the longer others have polled, the longer the thread stays away, within bounds") {
  AdaptivePolling polling;
  Time now = kBegin;
  CHECK(polled_for(polling, now, 300us) == AdaptivePolling::kShortest);
  const BackOff after_2_ms = polled_for(polling, now, 1700us);
  REQUIRE(after_2_ms);
  CHECK(*after_2_ms > 150us);
  CHECK(*after_2_ms <= 250us);
  CHECK(polled_for(polling, now, 20ms) == AdaptivePolling::kLongest);
  // After a pause it begins anew.
  now += 3ms;
  CHECK(polling.next(false, now) == std::nullopt);
  CHECK(polling.next(true, now) == AdaptivePolling::kShortest);
}

TEST_CASE("threads that wait in the runtime serve for a while, then the thread looks") {
  AdaptivePolling polling;
  CHECK_FALSE(polling.runtime_serves());
  polling.leave_to_runtime(kBegin);
  CHECK(polling.runtime_serves());
  // It goes before they can have polled.
  CHECK(polling.next(false, kBegin) == AdaptivePolling::kShortest);
  Time now = kBegin + 50us;
  CHECK(polled_for(polling, now, AdaptivePolling::kRuntimeServes - 100us));
  CHECK(polling.runtime_serves());
  now = kBegin + AdaptivePolling::kRuntimeServes;
  CHECK(polling.next(true, now) == std::nullopt);
  CHECK_FALSE(polling.runtime_serves());
  // Left to them again at once, they have polled for long.
  polling.leave_to_runtime(now);
  const BackOff again = polling.next(false, now);
  REQUIRE(again);
  CHECK(*again > 500us);
}

TEST_CASE("when no thread waits in the runtime any more, the progress thread serves again") {
  AdaptivePolling polling;
  polling.leave_to_runtime(kBegin);
  CHECK(polling.next(true, kBegin) == AdaptivePolling::kShortest);
  CHECK(polling.next(false, kBegin + 50us) == std::nullopt);
  CHECK_FALSE(polling.runtime_serves());
}

TEST_CASE("a progress thread that is needed does not back off, even if other threads poll") {
  AdaptivePolling polling;
  polling.leave_to_runtime(kBegin);
  polling.end();
  CHECK_FALSE(polling.runtime_serves());
  CHECK(polling.next(false, kBegin) == std::nullopt);
}

}  // namespace farside::adaptive_polling_test

// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include <catch2/catch.hpp>

#include "transport/fabric/progress_thread.hpp"

namespace farside::adaptive_polling_test {

using namespace std::chrono_literals;

namespace {

using Time = AdaptivePolling::Clock::time_point;
using BackOff = std::optional<std::chrono::microseconds>;

const Time kBegin = Time{} + 1h;

// Other threads poll for this time. Returns the last back-off of the progress thread.
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
  CHECK(polling.next(true, kBegin) == Timing::kShortestBackOff);
  CHECK(polling.next(false, kBegin + 50us) == std::nullopt);
  CHECK(polling.next(true, kBegin + 60us) == Timing::kShortestBackOff);
}

TEST_CASE("the longer others have polled, the longer the thread stays away, within bounds") {
  AdaptivePolling polling;
  Time now = kBegin;
  CHECK(polled_for(polling, now, 300us) == Timing::kShortestBackOff);
  const BackOff after_2_ms = polled_for(polling, now, 1700us);
  REQUIRE(after_2_ms);
  CHECK(*after_2_ms > 150us);
  CHECK(*after_2_ms <= 250us);
  CHECK(polled_for(polling, now, 20ms) == Timing::kLongestBackOff);
  // After a pause it begins anew.
  now += 100us;
  CHECK(polling.next(false, now) == std::nullopt);
  CHECK(polling.next(true, now) == Timing::kShortestBackOff);
}

TEST_CASE("threads that wait in the runtime serve for a while, then the thread looks") {
  AdaptivePolling polling;
  CHECK_FALSE(polling.runtime_serves());
  polling.delegate_to_runtime(kBegin, 10us);
  CHECK(polling.runtime_serves());
  // The thread backs off before the waiting threads can have polled.
  CHECK(polling.next(false, kBegin) == Timing::kShortestBackOff);
  Time now = kBegin + 50us;
  CHECK(polled_for(polling, now, Timing::kRuntimeServes - 100us));
  CHECK(polling.runtime_serves());
  CHECK_FALSE(polling.probe_is_due(now));
  now = kBegin + Timing::kRuntimeServes;
  CHECK(polling.probe_is_due(now));
  // The waiting threads continue to poll, and have polled for long.
  polling.runtime_serves_on(now);
  CHECK_FALSE(polling.probe_is_due(now));
  const BackOff again = polling.next(true, now);
  REQUIRE(again);
  CHECK(*again > 500us);
}

TEST_CASE("after long work the thread stays away for as long as it has worked") {
  AdaptivePolling polling;
  polling.delegate_to_runtime(kBegin, 300us);
  CHECK(polling.next(false, kBegin) == 300us);
  CHECK(polling.next(true, kBegin + 300us) == Timing::kShortestBackOff);
  polling.delegate_to_runtime(kBegin + 400us, 1s);
  CHECK(polling.next(false, kBegin + 400us) == Timing::kLongestBackOff);
}

TEST_CASE("when no thread waits in the runtime any more, the progress thread serves again") {
  AdaptivePolling polling;
  polling.delegate_to_runtime(kBegin, {});
  CHECK(polling.next(true, kBegin) == Timing::kShortestBackOff);
  CHECK(polling.next(false, kBegin + 50us) == std::nullopt);
  CHECK_FALSE(polling.runtime_serves());
}

TEST_CASE("a progress thread that is needed does not back off, even if other threads poll") {
  AdaptivePolling polling;
  polling.delegate_to_runtime(kBegin, {});
  polling.end();
  CHECK_FALSE(polling.runtime_serves());
  CHECK(polling.next(false, kBegin) == std::nullopt);
}

}  // namespace farside::adaptive_polling_test

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

// Other threads poll for this time, with pauses or without. Returns the last back-off of the progress thread.
BackOff polled_for(AdaptivePolling& polling, Time& now, std::chrono::microseconds time, bool without_pause = false) {
  const Time end = now + time;
  BackOff back_off = polling.next(true, without_pause, now);
  while (back_off && now + *back_off <= end) {
    now += *back_off;
    back_off = polling.next(true, without_pause, now);
  }
  return back_off;
}

}  // namespace

TEST_CASE("the progress thread stays away only while others poll") {
  AdaptivePolling polling;
  CHECK(polling.next(false, false, kBegin) == std::nullopt);
  CHECK(polling.next(true, false, kBegin) == Timing::kShortestBackOff);
  CHECK(polling.next(false, false, kBegin + 50us) == std::nullopt);
  CHECK(polling.next(true, false, kBegin + 60us) == Timing::kShortestBackOff);
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
  CHECK(polling.next(false, false, now) == std::nullopt);
  CHECK(polling.next(true, false, now) == Timing::kShortestBackOff);
}

TEST_CASE("beside a thread that polls without a pause the thread stays away for longer") {
  AdaptivePolling polling;
  Time now = kBegin;
  CHECK(polled_for(polling, now, 300us, true) == Timing::kShortestBackOff);
  const BackOff after_16_ms = polled_for(polling, now, 16ms, true);
  REQUIRE(after_16_ms);
  CHECK(*after_16_ms > 1ms);
  CHECK(*after_16_ms <= 2ms);
  CHECK(polled_for(polling, now, 80ms, true) == Timing::kLongestBesidePoller);
  // One pause that is seen, and it takes as long again.
  CHECK(polling.next(true, false, now) == Timing::kLongestBackOff);
  CHECK(polling.next(true, true, now) == Timing::kLongestBackOff);
  now += 16ms;
  CHECK(polling.next(true, true, now) == 2ms);
  CHECK(polling.next(false, true, now) == std::nullopt);
  CHECK(polling.next(true, true, now) == Timing::kShortestBackOff);
}

TEST_CASE("threads that wait in the runtime serve for a while, then the thread looks") {
  AdaptivePolling polling;
  CHECK_FALSE(polling.runtime_serves());
  polling.delegate_to_runtime(kBegin, 10us);
  CHECK(polling.runtime_serves());
  // The thread backs off before the waiting threads can have polled.
  CHECK(polling.next(false, false, kBegin) == Timing::kShortestBackOff);
  Time now = kBegin + 50us;
  CHECK(polled_for(polling, now, Timing::kRuntimeServes - 100us));
  CHECK(polling.runtime_serves());
  CHECK_FALSE(polling.probe_is_due(now));
  now = kBegin + Timing::kRuntimeServes;
  CHECK(polling.probe_is_due(now));
  // The waiting threads continue to poll, and have polled for long.
  polling.runtime_serves_on(now);
  CHECK_FALSE(polling.probe_is_due(now));
  const BackOff again = polling.next(true, false, now);
  REQUIRE(again);
  CHECK(*again > 500us);
}

TEST_CASE("after long work the thread stays away for as long as it has worked") {
  AdaptivePolling polling;
  polling.delegate_to_runtime(kBegin, 300us);
  CHECK(polling.next(false, false, kBegin) == 300us);
  CHECK(polling.next(true, false, kBegin + 300us) == Timing::kShortestBackOff);
  polling.delegate_to_runtime(kBegin + 400us, 1s);
  CHECK(polling.next(false, false, kBegin + 400us) == Timing::kLongestBackOff);
}

TEST_CASE("when no thread waits in the runtime any more, the progress thread serves again") {
  AdaptivePolling polling;
  polling.delegate_to_runtime(kBegin, {});
  CHECK(polling.next(true, false, kBegin) == Timing::kShortestBackOff);
  CHECK(polling.next(false, false, kBegin + 50us) == std::nullopt);
  CHECK_FALSE(polling.runtime_serves());
}

TEST_CASE("a thread that did not wait in the runtime, although it had polled, is not taken to wait there again soon") {
  AdaptivePolling polling;
  CHECK(polling.recent_poll(kBegin) == Timing::kRecentPoll);
  // One that leaves the runtime later was rightly taken to wait there.
  polling.delegate_to_runtime(kBegin, {});
  CHECK(polling.next(false, false, kBegin));
  CHECK(polling.next(true, false, kBegin + 50us));
  CHECK(polling.next(false, false, kBegin + 100us) == std::nullopt);
  CHECK(polling.recent_poll(kBegin + 100us) == Timing::kRecentPoll);

  // Nor is one that was interrupted by a sleeper that needs the thread.
  polling.delegate_to_runtime(kBegin + 100us, {});
  CHECK(polling.next(false, false, kBegin + 100us));
  polling.end();
  CHECK(polling.next(false, false, kBegin + 150us) == std::nullopt);
  CHECK(polling.recent_poll(kBegin + 150us) == Timing::kRecentPoll);

  polling.delegate_to_runtime(kBegin + 200us, {});
  CHECK(polling.next(false, false, kBegin + 200us));
  const Time in_vain = kBegin + 250us;
  CHECK(polling.next(false, false, in_vain) == std::nullopt);
  CHECK(polling.recent_poll(in_vain) == 0us);
  CHECK(polling.recent_poll(in_vain + Timing::kDelegationPause) == Timing::kRecentPoll);
}

TEST_CASE("a progress thread that is needed does not back off, even if other threads poll") {
  AdaptivePolling polling;
  polling.delegate_to_runtime(kBegin, {});
  polling.end();
  CHECK_FALSE(polling.runtime_serves());
  CHECK(polling.next(false, false, kBegin) == std::nullopt);
}

}  // namespace farside::adaptive_polling_test

// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include <catch2/catch.hpp>

#include "transport/fabric/absence.hpp"

using namespace farside;
using namespace std::chrono_literals;

namespace {

using Time = Absence::Clock::time_point;
using Away = std::optional<std::chrono::microseconds>;

const Time kBegin = Time{} + 1h;

// Somebody polls all the time, from `polls` on; how long the thread stays away at last.
Away polled_for(Absence& absence, std::uint32_t& polls, Time& now, std::chrono::microseconds time) {
  const Time end = now + time;
  Away away = absence.next(++polls, now);
  while (away && now + *away <= end) {
    now += *away;
    away = absence.next(++polls, now);
  }
  return away;
}

}  // namespace

TEST_CASE("the progress thread stays away only while others poll") {
  Absence absence;
  CHECK(absence.next(0, kBegin) == std::nullopt);
  CHECK(absence.next(7, kBegin) == Absence::kShortest);
  CHECK(absence.next(7, kBegin + 50us) == std::nullopt);
  CHECK(absence.next(8, kBegin + 60us) == Absence::kShortest);
}

TEST_CASE("the longer others have polled, the longer the thread stays away, within bounds") {
  Absence absence;
  std::uint32_t polls = 0;
  Time now = kBegin;
  CHECK(polled_for(absence, polls, now, 300us) == Absence::kShortest);
  const Away after_2_ms = polled_for(absence, polls, now, 1700us);
  REQUIRE(after_2_ms);
  CHECK(*after_2_ms > 150us);
  CHECK(*after_2_ms <= 250us);
  CHECK(polled_for(absence, polls, now, 20ms) == Absence::kLongest);
  // After a pause it begins anew.
  now += 3ms;
  CHECK(absence.next(polls, now) == std::nullopt);
  CHECK(absence.next(++polls, now) == Absence::kShortest);
}

TEST_CASE("threads that wait in the runtime serve for a while, then the thread looks") {
  Absence absence;
  CHECK_FALSE(absence.runtime_serves());
  absence.leave_to_runtime(kBegin);
  CHECK(absence.runtime_serves());
  // It goes before they can have polled.
  CHECK(absence.next(0, kBegin) == Absence::kShortest);
  std::uint32_t polls = 0;
  Time now = kBegin + 50us;
  CHECK(polled_for(absence, polls, now, Absence::kRuntimeServes - 100us));
  CHECK(absence.runtime_serves());
  now = kBegin + Absence::kRuntimeServes;
  CHECK(absence.next(++polls, now) == std::nullopt);
  CHECK_FALSE(absence.runtime_serves());
  // Left to them again at once, they have polled for long.
  absence.leave_to_runtime(now);
  const Away again = absence.next(polls, now);
  REQUIRE(again);
  CHECK(*again > 500us);
}

TEST_CASE("when nobody waits in the runtime any more, the thread is back, and they serve no longer") {
  Absence absence;
  absence.leave_to_runtime(kBegin);
  CHECK(absence.next(3, kBegin) == Absence::kShortest);
  CHECK(absence.next(3, kBegin + 50us) == std::nullopt);
  CHECK_FALSE(absence.runtime_serves());
}

TEST_CASE("a thread that is needed does not go, whoever polls") {
  Absence absence;
  absence.leave_to_runtime(kBegin);
  absence.end(5);
  CHECK_FALSE(absence.runtime_serves());
  CHECK(absence.next(5, kBegin) == std::nullopt);
}

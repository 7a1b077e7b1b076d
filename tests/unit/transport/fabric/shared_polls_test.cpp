// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include "transport/fabric/progress_thread.hpp"

namespace farside::shared_polls_test {

TEST_CASE("a poll counts for other threads for as long as it took") {
  SharedPolls polls;
  CHECK_FALSE(polls.repeats(0, 1'000'000));
  polls.polled(0, 1'000'000, 1'004'000);
  CHECK(polls.repeats(1, 1'004'000));
  CHECK(polls.repeats(1, 1'007'999));
  CHECK_FALSE(polls.repeats(1, 1'008'000));
}

TEST_CASE("a thread repeats its own polls") {
  SharedPolls polls;
  polls.polled(0, 1'000'000, 1'004'000);
  CHECK_FALSE(polls.repeats(0, 1'004'001));
  polls.polled(1, 1'005'000, 1'006'000);
  CHECK(polls.repeats(0, 1'006'500));
  CHECK_FALSE(polls.repeats(1, 1'006'500));
}

TEST_CASE("a poll whose thread lost its core counts for a limited time") {
  SharedPolls polls;
  polls.polled(0, 1'000'000, 9'000'000);
  CHECK(polls.repeats(1, 9'000'000 + SharedPolls::kLongestNs - 1));
  CHECK_FALSE(polls.repeats(1, 9'000'000 + SharedPolls::kLongestNs));
}

TEST_CASE("a thread polls just now if its last poll ended a moment ago") {
  SharedPolls polls;
  CHECK_FALSE(polls.polled_just_now(1'000'000));
  polls.polled(0, 1'000'000, 1'002'000);
  CHECK(polls.polled_just_now(1'002'000));
  CHECK(polls.polled_just_now(1'004'000 + SharedPolls::kPauseNs - 1));
  CHECK_FALSE(polls.polled_just_now(1'004'000 + SharedPolls::kPauseNs));
}

}  // namespace farside::shared_polls_test

// SPDX-License-Identifier: BSD-3-Clause
// The epoch state machine call by call: legal calls, refused calls, which must change nothing, and the texts.
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/epoch_states.hpp"

namespace farside::epoch_state_test {

using namespace farside::epochs;
using namespace farside::epochs::testing;

TEST_CASE("a violation names the rule, the advice and the section", "[epochs]") {
  std::set<const Violation*> broken = {&rules::kBadTarget, &rules::kBadGroup, &rules::kNoPut, &rules::kStillLocking};
  for (std::size_t call = 0; call < kCalls; ++call) {
    for (const AccessCell& each : table::kAccess[call]) broken.insert(each.rule);
    for (const ExposureCell& each : table::kExposure[call]) broken.insert(each.rule);
  }
  CHECK(broken.erase(nullptr) == 1);
  std::set<std::string> texts;
  for (const Violation* each : broken) {
    CHECK(*each);
    CHECK(texts.insert(each->what).second);
    CHECK(std::string(each->advice) != "");
  }
  EpochState state = make("locked", "none");
  CHECK(std::string(state.lock(kMember, LockType::kShared).what) ==
        "lock of a target that this process has already locked");
  CHECK(std::string(state.operation(kOther).what) == "the target is not locked");
  CHECK(std::string(state.start(kGroup).what) == "start while this process holds locks");
  CHECK(std::string(state.unlock_all().what) == "unlock_all of locks taken by MPI_Win_lock");
}

TEST_CASE("a target outside the window is refused in every state", "[epochs]") {
  for (const std::string& access : kAccessNames) {
    EpochState state = make(access, "none");
    const std::string before = seen(state);
    for (const int target : {-1, -2147483647 - 1, kRanks, kRanks + 1, 2147483647}) {
      CHECK(state.operation(target).error == ErrorClass::kRank);
      CHECK(state.request_operation(target).error == ErrorClass::kRank);
      CHECK(state.flush(target).error == ErrorClass::kRank);
      CHECK(state.lock(target, LockType::kExclusive).error == ErrorClass::kRank);
      CHECK(state.unlock(target).error == ErrorClass::kRank);
      CHECK(!state.locked(target));
      const std::vector<int> group = {0, target};
      CHECK(state.start(group).error == ErrorClass::kGroup);
      CHECK(state.post(group).error == ErrorClass::kGroup);
    }
    CHECK(seen(state) == before);
  }
}

TEST_CASE("the first and the last rank are targets", "[epochs]") {
  for (const int ranks : {1, 2, 63, 64, 65, 128, 1000}) {
    for (const int target : {0, ranks - 1}) {
      EpochState state(ranks);
      REQUIRE(!state.lock(target, LockType::kExclusive));
      CHECK(!state.operation(target));
      CHECK(!state.unlock(target));
      CHECK(!state.start(std::vector<int>{target}));
      CHECK(!state.operation(target));
      CHECK(!state.complete());
      CHECK(!state.fence(kNoAssert));
      CHECK(!state.operation(target));
      CHECK(!state.fence(kNoSucceed));
      CHECK(!state.lock_all());
      CHECK(!state.request_operation(target));
      CHECK(!state.unlock_all());
    }
  }
}

TEST_CASE("several targets may be locked at once, each with its type", "[epochs]") {
  EpochState state(kRanks);
  CHECK(!state.lock(0, LockType::kExclusive));
  CHECK(!state.lock(64, LockType::kShared));
  CHECK(!state.lock(69, LockType::kExclusive));
  CHECK(state.locks_held() == 3);
  CHECK(state.locked(0));
  CHECK(state.locked(64));
  CHECK(state.locked(69));
  CHECK(!state.locked(1));
  CHECK(!state.unlock(0));
  CHECK(state.operation(0));
  CHECK(!state.operation(64));
  CHECK(!state.lock(0, LockType::kShared));
  CHECK(state.locked(0));
  CHECK(!state.unlock(64));
  CHECK(!state.unlock(0));
  CHECK(state.access() == Access::kLocked);
  CHECK(!state.unlock(69));
  CHECK(state.access() == Access::kNone);
  CHECK(state.locks_held() == 0);
  CHECK(!state.lock_all());
  CHECK(state.locked(5));
  CHECK(state.locks_held() == 0);
}

TEST_CASE("a process may post and start at once, to itself too, in either order", "[epochs]") {
  EpochState state(2);
  const std::vector<int> both = {0, 1};
  for (int round = 0; round < 3; ++round) {
    CHECK(!state.post(both));
    CHECK(!state.start(both));
    CHECK(!state.operation(0));
    CHECK(!state.operation(1));
    CHECK(!state.test());  // the test returns false: nothing changes
    CHECK(state.exposure().state == Exposure::kPosted);
    CHECK(!state.complete());
    CHECK(!state.test());
    state.exposure_ended(Call::kTest);
    CHECK(state.exposure().state == Exposure::kNone);
    CHECK(std::string(state.exposure().closed_by) == "MPI_Win_test");
    CHECK(state.wait());  // the test that returned true was the wait
  }
  CHECK(!state.start(both));
  CHECK(!state.post(both));
  CHECK(!state.wait());
  state.exposure_ended();
  CHECK(!state.complete());
}

// MPI 4.0 section 12.5.2: "A call is a noop, if the group argument is empty."
TEST_CASE("start and post with an empty group open nothing, and may be closed once", "[epochs]") {
  for (const std::string& access : kAccessNames) {
    for (const std::string& exposure : kExposureNames) {
      if (locks_all(access) && is_posted(exposure)) continue;
      INFO(access << ", " << exposure);
      EpochState state = make(access, exposure);
      const std::string before = seen(state);
      CHECK(!state.start({}));
      CHECK(!state.post({}));
      CHECK(seen(state) == before);
      if (access != "starting" && access != "started") {
        CHECK(!state.complete());
        CHECK(state.complete());
      }
      if (!is_posted(exposure)) {
        CHECK(!state.test());
        CHECK(!state.begin_wait());
        CHECK(state.wait());
      }
      CHECK(seen(state) == before);
    }
  }
}

TEST_CASE("with reports only, locks of what is locked are counted, and an epoch of start or fence goes on below locks",
          "[epochs]") {
  EpochState state(kRanks);
  state.report_only();
  CHECK(!state.lock(1, LockType::kShared));
  CHECK(state.lock(1, LockType::kExclusive));
  CHECK(!state.lock(1, LockType::kShared));
  CHECK(state.locks_held() == 1);
  CHECK(!state.allows_fast(Call::kUnlock, 1));
  CHECK(!state.unlock(1));
  CHECK(state.locked(1));
  CHECK(!state.unlock(1));
  CHECK(state.access() == Access::kNone);

  CHECK(!state.lock_all());
  CHECK(!state.lock_all());
  CHECK(!state.lock(2, LockType::kShared));
  CHECK(!state.unlock(2));
  CHECK(!state.unlock_all());
  CHECK(state.access() == Access::kLockedAll);
  CHECK(!state.unlock_all());
  CHECK(state.access() == Access::kNone);

  const std::vector<int> single = {kMember};
  for (const std::vector<int>& group : {kGroup, single}) {
    for (const bool all : {false, true}) {
      CHECK(!state.start(group));
      CHECK(!(all ? state.lock_all() : state.lock(3, LockType::kExclusive)));
      CHECK(state.started());
      CHECK(!(all ? state.unlock_all() : state.unlock(3)));
      CHECK(state.access() == Access::kStarted);
      CHECK(state.allows_fast(Call::kOperation, kMember));
      CHECK(!state.allows_fast(Call::kOperation, 3));
      CHECK(!state.complete());
      // The other way round, and the epochs overlap.
      CHECK(!(all ? state.lock_all() : state.lock(3, LockType::kExclusive)));
      CHECK(!state.start(group));
      CHECK(state.start(group));
      CHECK(!(all ? state.unlock_all() : state.unlock(3)));
      CHECK(state.access() == Access::kStarted);
      CHECK(state.allows_fast(Call::kOperation, kMember));
      CHECK(!state.lock(3, LockType::kShared));
      CHECK(!state.complete());
      CHECK(!state.started());
      CHECK(!state.unlock(3));
      CHECK(state.access() == Access::kNone);
    }
  }
  CHECK(!state.fence({}));
  CHECK(!state.operation(0));
  CHECK(!state.lock(3, LockType::kShared));
  CHECK(!state.unlock(3));
  CHECK(state.access() == Access::kFenceActive);
  CHECK(!state.start(single));
  CHECK(!state.complete());
  CHECK(state.access() == Access::kFenceActive);
}

TEST_CASE("a start group leaves nothing behind for the next epoch", "[epochs]") {
  EpochState state(kRanks);
  CHECK(!state.start(std::vector<int>{2, 66}));
  CHECK(!state.complete());
  CHECK(std::vector<int>(state.started_group().begin(), state.started_group().end()) == std::vector<int>{2, 66});
  CHECK(!state.start(std::vector<int>{3}));
  CHECK(state.operation(2));
  CHECK(state.operation(66));
  CHECK(!state.operation(3));
  CHECK(!state.complete());
  CHECK(!state.lock(5, LockType::kShared));
  CHECK(state.operation(3));
}

TEST_CASE("what a protocol finds refused was never open", "[epochs]") {
  for (const std::string access : {"none", "open"}) {
    for (const std::string exposure : {"none", "fence"}) {
      INFO(access << ", " << exposure);
      EpochState state = make(access, exposure);
      const std::string before = seen(state);
      REQUIRE(!state.lock(kMember, LockType::kExclusive));
      state.refused(Call::kLock, kMember);
      CHECK(seen(state) == before);
      REQUIRE(!state.lock_all());
      state.refused(Call::kLockAll);
      CHECK(seen(state) == before);
      REQUIRE(!state.start(kGroup));
      state.refused(Call::kStart);
      CHECK(name(state.access()) == access);
      CHECK(!state.started());
      REQUIRE(!state.post(kGroup));
      state.refused(Call::kPost);
      CHECK(name(state.exposure().state) == exposure);
      CHECK(state.wait());
    }
  }
}

TEST_CASE("a lock refused while another is held leaves the other", "[epochs]") {
  EpochState state = make("open", "fence");
  REQUIRE(!state.lock(1, LockType::kShared));
  REQUIRE(!state.lock(2, LockType::kExclusive));
  state.refused(Call::kLock, 2);
  CHECK(state.operation(2));
  CHECK(!state.operation(1));
  CHECK(state.locks_held() == 1);
  REQUIRE(!state.lock(2, LockType::kShared));
  REQUIRE(!state.unlock(1));
  state.refused(Call::kLock, 2);  // the fence epoch ended with the lock of 1
  CHECK(state.access() == Access::kNone);
}

TEST_CASE("a lock that a thread still waits for cannot be used or given back by another, and both go on", "[epochs]") {
  for (const std::string access : {"none", "open"}) {
    EpochState state = make(access, "none");
    const std::string before = seen(state);
    REQUIRE(!state.begin_lock(kMember, LockType::kExclusive));
    const std::string waiting = seen(state);
    CHECK(std::string(state.unlock(kMember).what) == rules::kStillLocking.what);
    for (const Violation& refused :
         {state.operation(kMember), state.request_operation(kMember), state.flush(kMember),
          state.lock(kMember, LockType::kShared), state.flush_all(), state.lock_all(), state.unlock_all(),
          state.fence(kNoAssert), state.start(kGroup), state.complete(), state.free()}) {
      CHECK(refused.error == ErrorClass::kRmaSync);
    }
    CHECK(state.operation(kOther).error == ErrorClass::kRmaSync);
    CHECK(seen(state) == waiting);
    CHECK(!state.locked(kMember));
    CHECK(state.locks_held() == 0);
    CHECK(state.describe_access() == "1 target is waited for (MPI_Win_lock)");
    // The lock of another target by another thread.
    REQUIRE(!state.begin_lock(kOther, LockType::kExclusive));
    state.opened(Call::kLock, kOther);
    CHECK(state.describe_access() == "1 target is locked (MPI_Win_lock), 1 target is waited for (MPI_Win_lock)");
    CHECK(!state.operation(kOther));
    CHECK(!state.flush_all());
    CHECK(state.unlock(kMember));
    CHECK(!state.unlock(kOther));
    CHECK(state.access() == Access::kLocked);
    CHECK(state.operation(kOther));
    state.opened(Call::kLock, kMember);
    CHECK(!state.operation(kMember));
    CHECK(state.locked(kMember));
    CHECK(!state.unlock(kMember));
    CHECK(state.access() == Access::kNone);

    EpochState refused = make(access, "none");
    REQUIRE(!refused.begin_lock(kMember, LockType::kShared));
    refused.refused(Call::kLock, kMember);
    CHECK(seen(refused) == before);
  }
}

TEST_CASE("locks that are waited for together keep their types, in whatever order they are acquired", "[epochs]") {
  for (const int first : {0, 1, 2}) {
    EpochState state(kRanks);
    const LockType types[] = {LockType::kExclusive, LockType::kShared, LockType::kExclusive};
    for (int target = 0; target < 3; ++target) REQUIRE(!state.begin_lock(target, types[target]));
    for (int k = 0; k < 3; ++k) state.opened(Call::kLock, (first + k) % 3);
    for (int target = 0; target < 3; ++target) CHECK(state.locked(target));
    CHECK(state.locks_held() == 3);
    for (int target = 0; target < 3; ++target) CHECK(!state.unlock(target));
    CHECK(state.access() == Access::kNone);
  }
}

TEST_CASE("a start, a lock_all and a post that a thread is still in open nothing for another", "[epochs]") {
  for (const std::string access : {"none", "open"}) {
    for (const std::vector<int>& group : {std::vector<int>{kMember}, kGroup}) {
      EpochState state = make(access, "none");
      const std::string before = seen(state);
      REQUIRE(!state.begin_start(group));
      const std::string waiting = seen(state);
      CHECK(std::string(state.complete().what) == rules::kStillStarting.what);
      CHECK(state.operation(kMember));
      CHECK(state.start(group));
      CHECK(seen(state) == waiting);
      EpochState refused = state;
      refused.refused(Call::kStart);
      CHECK(refused.access() == make(access, "none").access());
      CHECK(refused.allows_fast(Call::kOperation, kMember) ==
            make(access, "none").allows_fast(Call::kOperation, kMember));
      state.opened(Call::kStart);
      CHECK(!state.operation(kMember));
      CHECK(!state.complete());
    }
    EpochState state = make(access, "none");
    const std::string before = seen(state);
    REQUIRE(!state.begin_lock_all());
    const std::string waiting = seen(state);
    CHECK(std::string(state.unlock_all().what) == rules::kStillLockingAll.what);
    CHECK(state.operation(kMember));
    CHECK(state.flush_all());
    CHECK(!state.locked(kMember));
    CHECK(seen(state) == waiting);
    EpochState refused = state;
    refused.refused(Call::kLockAll);
    CHECK(seen(refused) == before);
    state.opened(Call::kLockAll);
    CHECK(!state.operation(kMember));
    CHECK(!state.unlock_all());
  }
  EpochState state(kRanks);
  REQUIRE(!state.begin_post(kGroup));
  CHECK(std::string(state.wait().what) == rules::kStillPosting.what);
  CHECK(state.test());
  state.opened(Call::kPost);
  CHECK(!state.test());
  CHECK(!state.begin_wait());
  CHECK(std::string(state.begin_wait().what) == rules::kWaitTwice.what);
  CHECK(state.test());
  CHECK(state.post(kGroup));
  state.exposure_ended();
  CHECK(state.exposure().state == Exposure::kNone);
}

TEST_CASE("a target that promised MPI_MODE_NOPUT is not updated until the epoch ends, and may be read") {
  EpochState state(kRanks);
  const auto refused = [&](int target) {
    const std::string before = seen(state);
    const Violation v = state.operation(target, true);
    return std::string(v.what) == rules::kNoPut.what && seen(state) == before;
  };
  // After a fence: from the first operation on, whichever targets are accessed.
  REQUIRE(!state.fence(kNoAssert));
  state.asserted_no_put(kMember);
  CHECK(refused(kMember));
  CHECK(state.access() == Access::kFenceOpen);
  CHECK(!state.operation(kMember, false));
  CHECK(!state.operation(kOther, true));
  CHECK(refused(kMember));
  CHECK(!state.operation(kMember, false));
  CHECK(state.operation(kRanks, false).error == ErrorClass::kRank);
  REQUIRE(!state.fence(kNoAssert));
  CHECK(!state.operation(kMember, true));
  REQUIRE(!state.fence(kNoSucceed));
  // After a start.
  REQUIRE(!state.start(kGroup));
  state.asserted_no_put(1);
  CHECK(refused(1));
  CHECK(!state.operation(1, false));
  CHECK(!state.operation(kMember, true));
  CHECK(std::string(state.operation(kOther, true).what) == rules::kNotInGroup.what);
  REQUIRE(!state.complete());
  REQUIRE(!state.start(kGroup));
  CHECK(!state.operation(1, true));
  REQUIRE(!state.complete());
  // The assertion of a fence that no operation followed does not apply to locks.
  REQUIRE(!state.fence(kNoAssert));
  state.asserted_no_put(kMember);
  REQUIRE(!state.lock(kMember, LockType::kShared));
  CHECK(!state.operation(kMember, true));
  CHECK(!state.flush(kMember));
  REQUIRE(!state.unlock(kMember));
}

TEST_CASE("the calls that opened and closed an epoch are known", "[epochs]") {
  EpochState state(kRanks);
  CHECK(state.closed_by() == nullptr);
  CHECK(state.describe_access() == "no access epoch is open");
  CHECK(state.exposure().describe() == "the window is not exposed");
  CHECK(!state.fence(kNoPrecede));
  CHECK(state.closed_by() == nullptr);
  CHECK(!state.operation(1));
  CHECK(!state.fence(kNoSucceed));
  CHECK(std::string(state.closed_by()) == "MPI_Win_fence with MPI_MODE_NOSUCCEED");
  CHECK(state.describe_access() ==
        "no access epoch is open (the last was closed by MPI_Win_fence with MPI_MODE_NOSUCCEED)");
  CHECK(!state.lock(1, LockType::kShared));
  CHECK(state.describe_access() == "1 target is locked (MPI_Win_lock)");
  CHECK(!state.lock(2, LockType::kShared));
  CHECK(state.describe_access() == "2 targets are locked (MPI_Win_lock)");
  CHECK(!state.unlock(1));
  CHECK(!state.unlock(2));
  CHECK(std::string(state.closed_by()) == "MPI_Win_unlock");
  CHECK(!state.post(kGroup));
  CHECK(state.exposure().describe() == "the window is posted to 2 origins (MPI_Win_post)");
  state.exposure_ended();
  CHECK(state.exposure().describe() == "the window is not exposed (the last exposure was closed by MPI_Win_wait)");
}

TEST_CASE("a broken rule is reported where the call is executed anyway", "[epochs]") {
  std::vector<std::string> reports;
  EpochState state = make("locked", "none");
  const EpochState::Report report = [&reports](const Violation& broken, int target) {
    reports.push_back(std::to_string(target) + ": " + broken.what);
  };
  state.report_only(report);
  const std::string before = seen(state);  // which tries calls
  reports.clear();
  CHECK(!state.operation(kMember));
  CHECK(reports.empty());
  CHECK(!state.operation(kOther));
  CHECK(!state.flush(kOther));
  CHECK(reports.size() == 2);
  CHECK(reports.front() == std::to_string(kOther) + ": the target is not locked");
  CHECK(state.operation(kRanks).error == ErrorClass::kRank);
  CHECK(state.lock_all().error == ErrorClass::kRmaSync);
  CHECK(reports.size() == 2);
  CHECK(!state.fence({}));
  CHECK(!state.unlock(kOther));
  CHECK(reports.size() == 4);
  CHECK(name(state.access()) == "locked");
}

TEST_CASE("a fence that asserts MPI_MODE_NOPRECEDE after operations is carried out if rules are only reported",
          "[epochs]") {
  int reports = 0;
  EpochState state(kRanks);
  const EpochState::Report report = [&reports](const Violation& broken, int target) {
    reports += broken.error == ErrorClass::kAssert && target < 0 ? 1 : 0;
  };
  state.report_only(report);
  CHECK(!state.fence({}));
  CHECK(!state.fence({.no_precede = true}));
  CHECK(!state.operation(0));
  CHECK(reports == 0);
  CHECK(!state.fence({.no_precede = true}));
  CHECK(reports == 1);
  CHECK(state.access() == Access::kFenceOpen);
}

}  // namespace farside::epoch_state_test

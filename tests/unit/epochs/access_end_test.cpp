// SPDX-License-Identifier: BSD-3-Clause
// Which steps of the protocols end the access to their target's data (remote_memory.hpp, DataAccess): the first step of
// a release that ends an epoch, a complete and the writes of a barrier, and no others. Such a step carries the
// operations that the memory keeps for the target. One of these may belong to another thread, which holds a lock at
// that rank.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "epochs/protocols/barrier.hpp"
#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_calls.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "tests/unit/epochs/failing_memory.hpp"
#include "tests/unit/epochs/one_thread.hpp"

namespace farside::access_end_test {

namespace {

using namespace farside::epochs;

constexpr int kHome = 0, kTarget = 1, kSelf = 2, kOther = 3;
using Ranks = std::vector<int>;
using Table = LockTable<OneThread>;

void finish(auto& protocol) {
  for (int i = 0; i < 100 && !protocol.advance(); ++i) {
  }
}

// What a protocol of `memory` has done since the last call.
struct Done {
  Ranks reached, ended;
};
Done take(FailingMemory& memory) { return {std::exchange(memory.reached, {}), std::exchange(memory.ended, {})}; }

}  // namespace

TEST_CASE("a lock ends no access when it is acquired, and its release ends one with its first step", "[epochs]") {
  for (const LockType type : {LockType::kShared, LockType::kExclusive}) {
    Words words;
    FailingMemory memory(words, kSelf), other(words, kOther);
    AcquireLock<FailingMemory> acquire(memory, kSelf, kTarget, type);
    finish(acquire);
    REQUIRE(acquire.held());
    CHECK(take(memory).ended.empty());
    // Another process waits, so that the release also hands the lock off.
    AcquireLock<FailingMemory> waits(other, kOther, kTarget, LockType::kExclusive);
    finish(waits);
    CHECK_FALSE(waits.held());
    ReleaseLock<FailingMemory> release(memory, kTarget, type, acquire.token(), LockOf::kTarget, DataAccess::kEnds);
    finish(release);
    const Done done = take(memory);
    CHECK(done.reached.size() > 1);
    CHECK(done.ended == Ranks{kTarget});
    finish(waits);
    CHECK(waits.held());
    CHECK(take(other).ended.empty());
  }
}

TEST_CASE("a release in the drain word ends the access, and so does that of a lock_all's lock", "[epochs]") {
  for (const LockOf of : {LockOf::kTarget, LockOf::kAll}) {
    Words words;
    FailingMemory memory(words, kSelf);
    ReleaseLock<FailingMemory> release(memory, kTarget, LockType::kShared,
                                       LockToken(0, LockToken::kReleasedBySuccessor), of, DataAccess::kEnds);
    finish(release);
    CHECK(take(memory).ended == Ranks{kTarget});
  }
}

TEST_CASE("a lock that is refused, since its target is exposed, ends no access, and its unlock ends one", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf), target(words, kTarget);
  Table table(kSelf, 2, Table::kNoGlobalLock);
  REQUIRE(ExposureMark<FailingMemory>::set(target));
  {
    LockTarget<FailingMemory, Table> lock(memory, table, kTarget, LockType::kShared);
    finish(lock);
    CHECK(lock.saw_exposure());
  }
  // It arrives and departs.
  const Done refused = take(memory);
  CHECK(refused.reached == Ranks{kTarget, kTarget});
  CHECK(refused.ended.empty());
  ExposureMark<FailingMemory>::clear(target);
  LockTarget<FailingMemory, Table> lock(memory, table, kTarget, LockType::kShared);
  finish(lock);
  REQUIRE(lock.ok());
  UnlockTarget<FailingMemory, Table> unlock(
      memory, table, {.target = kTarget, .type = LockType::kShared, .needs_release = true, .token = lock.token()});
  finish(unlock);
  CHECK(take(memory).ended == Ranks{kTarget});
}

TEST_CASE("a lock that is given back, since the global lock cannot be had, ends no access", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  memory.fails = [](int rank, std::uint32_t) { return rank == kHome; };
  AcquireLocks<FailingMemory> both(memory, kSelf, kTarget, kHome, 0, 1);
  for (int i = 0; i < 100 && !both.advance(); ++i) {
    while (auto* failed = both.failed_operation()) (void)failed->take_error();
  }
  CHECK(words.at(kTarget, ControlBlock::kLock) % LockWord::kTicket == 0);
  CHECK(take(memory).ended.empty());
}

TEST_CASE("the global lock ends no access to the data of its home", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  AcquireLocks<FailingMemory> both(memory, kSelf, kTarget, kHome, 0, 1);
  finish(both);
  CHECK(take(memory).ended.empty());
  ReleaseLocks<FailingMemory, 2> release;
  release.add(memory, kTarget, LockType::kExclusive, both.token(), LockOf::kTarget, DataAccess::kEnds);
  release.add(memory, kHome, LockType::kExclusive, both.global_lock_token(), LockOf::kGlobal);
  finish(release);
  CHECK(take(memory).ended == Ranks{kTarget});
}

TEST_CASE("a complete ends the access to its targets, and a post does not end that to its origins", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  constexpr std::array group{kTarget, kOther};
  using Notifies = Notify<FailingMemory>;
  for (const Notifies::What what : {Notifies::What::kPosted, Notifies::What::kPostedNoPut}) {
    Notifies post(memory, kSelf, what, group);
    const Done done = take(memory);
    CHECK(done.reached == Ranks{kTarget, kOther});
    CHECK(done.ended.empty());
  }
  Notifies complete(memory, kSelf, Notifies::What::kCompleted, group);
  CHECK(take(memory).ended == Ranks{kTarget, kOther});
}

TEST_CASE("the writes of a barrier end the access", "[epochs]") {
  Words words;
  FailingMemory memory(words, 0);
  const BarrierSchedule schedule = BarrierSchedule::flat(0, 2);
  Barrier<FailingMemory> barrier(memory, schedule, BarrierWord::make(1, 0, 0), 0);
  CHECK_FALSE(barrier.advance());
  CHECK(take(memory).ended == Ranks{1});
}

}  // namespace farside::access_end_test

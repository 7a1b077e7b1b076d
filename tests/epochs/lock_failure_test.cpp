// SPDX-License-Identifier: BSD-3-Clause
// Failing operations while a lock and the global lock are acquired together: what is held is released, and what is
// not held is never released.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/protocols/lock_target.hpp"
#include "epochs/protocols/lock_with_global.hpp"
#include "tests/epochs/failing_memory.hpp"

namespace {

using namespace farside;
using namespace farside::epochs;

constexpr int kHome = 0, kTarget = 1, kSelf = 2, kOther = 3;
using Both = AcquireWithGlobalLock<FailingMemory>;

// Advances until nothing more happens; true if acquired.
bool advance(Both& both) {
  for (int i = 0; i < 10; ++i) {
    if (both.advance()) return true;
    if (both.failed_operation() != nullptr) return false;
  }
  return false;
}
bool advance_after_failure(Both& both) {
  (void)both.failed_operation()->take_error();
  for (int i = 0; i < 10; ++i) {
    if (both.advance_after_failure()) return true;
  }
  return false;
}
std::uint64_t present(Words& words, int rank, std::uint32_t word) { return words.at(rank, word) % LockWord::kTicket; }

}  // namespace

TEST_CASE("where the global lock's rank is lost, the lock of the target is given back, and the global lock is not",
          "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  memory.fails = [](int rank, std::uint32_t) { return rank == kHome; };
  Both both(memory, kSelf, kTarget, kHome, 0, 1);
  CHECK(!advance(both));
  CHECK(advance_after_failure(both));
  CHECK(!both.global_lock_held());
  CHECK(present(words, kTarget, TargetLock::kWord) == 0);
  CHECK(present(words, kHome, GlobalLock::kWord) == 0);
}

TEST_CASE("where the target is lost, a global lock that was passed is held, to be given back", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  memory.fails = [](int rank, std::uint32_t) { return rank == kTarget; };
  Both both(memory, kSelf, kTarget, kHome, 0, 1);
  CHECK(!advance(both));
  CHECK(advance_after_failure(both));
  REQUIRE(both.global_lock_held());
  ReleaseLock<FailingMemory, GlobalLock> release(memory, kHome, LockType::kExclusive, both.global_lock_token());
  CHECK(release.advance());
  CHECK(present(words, kHome, GlobalLock::kWord) == 0);
}

TEST_CASE(
    "where the target is lost while a lock_all holds the global lock, nothing is given back before the global lock is "
    "passed",
    "[epochs]") {
  Words words;
  FailingMemory other(words, kOther), memory(words, kSelf);
  AcquireLock<FailingMemory, GlobalLock> all(other, kOther, kHome, LockType::kShared, 0);
  for (int i = 0; i < 3 && !all.advance(); ++i) {
  }
  REQUIRE(all.held());
  memory.fails = [](int rank, std::uint32_t) { return rank == kTarget; };
  Both both(memory, kSelf, kTarget, kHome, 0, 1);
  CHECK(!advance(both));
  // It waits for the lock_all, whose departure will find it.
  CHECK(!advance_after_failure(both));
  CHECK(!both.global_lock_held());
  CHECK(LockWord::readers(words.at(kHome, GlobalLock::kWord)) == 1);
  CHECK(LockWord::writers(words.at(kHome, GlobalLock::kWord)) == 1);
  ReleaseLock<FailingMemory, GlobalLock> depart(other, kHome, LockType::kShared, all.token());
  for (int i = 0; i < 3 && !depart.advance(); ++i) {
  }
  bool over = false;
  for (int i = 0; i < 10 && !over; ++i) over = both.advance_after_failure();
  CHECK(over);
  REQUIRE(both.global_lock_held());
  ReleaseLock<FailingMemory, GlobalLock> release(memory, kHome, LockType::kExclusive, both.global_lock_token());
  CHECK(release.advance());
  CHECK(present(words, kHome, GlobalLock::kWord) == 0);
  CHECK(words.at(kHome, GlobalLock::drain_word(LockType::kShared)) == 0);
  // The next lock_all holds at once.
  AcquireLock<FailingMemory, GlobalLock> again(other, kOther, kHome, LockType::kShared, 0);
  for (int i = 0; i < 3 && !again.advance(); ++i) {
  }
  CHECK(again.held());
}

TEST_CASE("where both are lost, nothing is given back", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  memory.fails = [](int rank, std::uint32_t) { return rank == kHome || rank == kTarget; };
  Both both(memory, kSelf, kTarget, kHome, 0, 1);
  CHECK(!advance(both));
  CHECK(advance_after_failure(both));
  CHECK(!both.global_lock_held());
}

namespace {

struct OneThread {
  static constexpr std::size_t kMostRanks = 4;
  template <class T>
  using List = std::vector<T>;
  struct Mutex {};
  struct Guard {
    explicit Guard(Mutex&) {}
    ~Guard() {}  // so that one which nobody uses is no mistake
  };
};
using Table = LockTable<OneThread>;

// As a process runs a protocol, for so long as it goes on by itself.
template <class Protocol>
bool run(Protocol& protocol) {
  for (int i = 0; i < 10; ++i) {
    if (protocol.advance()) return true;
    while (auto* failed = protocol.failed_operation()) (void)failed->take_error();
  }
  return false;
}

}  // namespace

TEST_CASE("a failed lock that stops waiting in a queue keeps its wake word, and lets the other threads go on",
          "[epochs]") {
  Words words;
  FailingMemory other(words, kOther), memory(words, kSelf);
  AcquireLock<FailingMemory, GlobalLock> all(other, kOther, kHome, LockType::kShared, 0);
  REQUIRE(run(all));
  Table table(kSelf, 4, kHome);
  memory.fails = [](int rank, std::uint32_t) { return rank == kTarget; };
  LockTarget lock(memory, table, kTarget, LockType::kExclusive);
  // It waits for the lock_all, to be taken out of the queue of the global lock.
  CHECK(!run(lock));
  REQUIRE(table.enter_global_lock() == Table::Entry::kWait);
  CHECK(lock.stop_waiting());
  CHECK(run(lock));
  CHECK(!lock.ok());
  CHECK(table.is_idle());
  CHECK(table.kept_wake_words() >= 1);
  CHECK(table.enter_global_lock() == Table::Entry::kFirst);
}

TEST_CASE("a lock of a lost rank that failed in no queue keeps no wake word", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  memory.fails = [](int rank, std::uint32_t) { return rank == kTarget; };
  for (const int home : {kHome, Table::kNoGlobalLock}) {
    Table table(kSelf, 4, home);
    LockTarget lock(memory, table, kTarget, LockType::kExclusive);
    CHECK(run(lock));
    CHECK(!lock.ok());
    CHECK(!lock.stop_waiting());
    CHECK(table.is_idle());
    CHECK(table.wake_words_in_use() == 0);
  }
}

TEST_CASE("a lock that failed in a queue keeps its wake word, and a process without one cannot wait any more",
          "[epochs]") {
  Words words;
  FailingMemory other(words, kOther), memory(words, kSelf);
  for (const int home : {Table::kNoGlobalLock, kHome}) {
    CAPTURE(home);
    AcquireLock<FailingMemory> holder(other, kOther, kTarget, LockType::kExclusive, 0);
    REQUIRE(run(holder));
    Table table(kSelf, 4, home);
    for (std::uint32_t kept = 0; table.can_have_wake_words(home == kHome ? 2 : 1); ++kept) {
      REQUIRE(kept < ControlBlock::kWakeWords);
      // The ticket is taken, and the slot cannot be.
      memory.fails = [](int rank, std::uint32_t word) { return rank == kTarget && word >= ControlBlock::kRing; };
      LockTarget lock(memory, table, kTarget, LockType::kExclusive);
      CHECK(run(lock));
      CHECK(!lock.ok());
      CHECK(table.kept_wake_words() == kept + 1);
      CHECK(table.is_idle());
    }
    LockTarget lock(memory, table, 0, LockType::kExclusive);
    CHECK(run(lock));
    CHECK(!lock.ok());
    CHECK(lock.out_of_wake_words());
    CHECK(table.is_idle());
    words = {};
  }
}

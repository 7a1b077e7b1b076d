// SPDX-License-Identifier: BSD-3-Clause
// Failing operations while a lock and the global lock are acquired together, or a lock_all, and in the queue of a lock:
// what is held is released, what is not held is never released, and a wake word stays in use while a peer may write.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_calls.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "tests/unit/epochs/failing_memory.hpp"
#include "tests/unit/epochs/one_thread.hpp"

namespace farside::lock_failure_test {

namespace {

using namespace farside::epochs;

constexpr int kHome = 0, kTarget = 1, kSelf = 2, kOther = 3;
using Both = AcquireLocks<FailingMemory>;
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
std::uint64_t present(Words& words, int rank, std::uint32_t word) { return words.at(rank, word) % LockWord::kTicket; }

}  // namespace

TEST_CASE("where the global lock's rank is lost, the lock of the target is given back, and the global lock is not",
          "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  memory.fails = [](int rank, std::uint32_t) { return rank == kHome; };
  Both both(memory, kSelf, kTarget, kHome, 0, 1);
  CHECK(run(both));
  CHECK(!both.ok());
  CHECK(!both.global_lock_held());
  CHECK(present(words, kTarget, ControlBlock::kLock) == 0);
  CHECK(present(words, kHome, ControlBlock::kGlobalLock) == 0);
}

TEST_CASE("where the target is lost, a global lock that was passed is held, to be given back", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  memory.fails = [](int rank, std::uint32_t) { return rank == kTarget; };
  Both both(memory, kSelf, kTarget, kHome, 0, 1);
  CHECK(run(both));
  CHECK(!both.ok());
  REQUIRE(both.global_lock_held());
  ReleaseLock<FailingMemory> release(memory, kHome, LockType::kExclusive, both.global_lock_token(), LockOf::kGlobal);
  CHECK(release.advance());
  CHECK(present(words, kHome, ControlBlock::kGlobalLock) == 0);
}

TEST_CASE(
    "where the target is lost while a lock_all holds the global lock, nothing is given back before the global lock is "
    "passed",
    "[epochs]") {
  Words words;
  FailingMemory other(words, kOther), memory(words, kSelf);
  AcquireLock<FailingMemory> all(other, kOther, kHome, LockType::kShared, 0, LockOf::kGlobal);
  for (int i = 0; i < 3 && !all.advance(); ++i) {
  }
  REQUIRE(all.held());
  memory.fails = [](int rank, std::uint32_t) { return rank == kTarget; };
  Both both(memory, kSelf, kTarget, kHome, 0, 1);
  // It waits for the lock_all, whose departure will find it.
  CHECK(!run(both));
  CHECK(!both.global_lock_held());
  CHECK(LockWord::readers(words.at(kHome, ControlBlock::kGlobalLock)) == 1);
  CHECK(LockWord::writers(words.at(kHome, ControlBlock::kGlobalLock)) == 1);
  ReleaseLock<FailingMemory> depart(other, kHome, LockType::kShared, all.token(), LockOf::kGlobal);
  for (int i = 0; i < 3 && !depart.advance(); ++i) {
  }
  CHECK(run(both));
  REQUIRE(both.global_lock_held());
  ReleaseLock<FailingMemory> release(memory, kHome, LockType::kExclusive, both.global_lock_token(), LockOf::kGlobal);
  CHECK(release.advance());
  CHECK(present(words, kHome, ControlBlock::kGlobalLock) == 0);
  CHECK(words.at(kHome, kGlobalLock.drain_word(LockType::kShared)) == 0);
  // The next lock_all holds at once.
  AcquireLock<FailingMemory> again(other, kOther, kHome, LockType::kShared, 0, LockOf::kGlobal);
  for (int i = 0; i < 3 && !again.advance(); ++i) {
  }
  CHECK(again.held());
}

TEST_CASE("where both are lost, nothing is given back", "[epochs]") {
  Words words;
  FailingMemory memory(words, kSelf);
  memory.fails = [](int rank, std::uint32_t) { return rank == kHome || rank == kTarget; };
  Both both(memory, kSelf, kTarget, kHome, 0, 1);
  CHECK(run(both));
  CHECK(!both.ok());
  CHECK(!both.global_lock_held());
}

TEST_CASE("a failed lock that stops waiting in a queue keeps its wake word, and lets the other threads go on",
          "[epochs]") {
  Words words;
  FailingMemory other(words, kOther), memory(words, kSelf);
  AcquireLock<FailingMemory> all(other, kOther, kHome, LockType::kShared, 0, LockOf::kGlobal);
  REQUIRE(run(all));
  Table table(kSelf, 4, kHome);
  memory.fails = [](int rank, std::uint32_t) { return rank == kTarget; };
  LockTarget lock(memory, table, kTarget, LockType::kExclusive);
  // It waits for the lock_all, to be taken out of the queue of the global lock.
  CHECK(!run(lock));
  REQUIRE(table.enter_global_lock() == Table::Entry::kWait);
  REQUIRE(lock.awaited());
  lock.stop_waiting();
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
    CHECK(!lock.awaited());
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
    // With a global lock it takes two.
    CHECK(table.kept_wake_words() == ControlBlock::kWakeWords - (home == kHome ? 1 : 0));
    LockTarget lock(memory, table, 0, LockType::kExclusive);
    CHECK(run(lock));
    CHECK(!lock.ok());
    CHECK(lock.out_of_wake_words());
    CHECK(table.is_idle());
    words = {};
  }
}

namespace {

bool is_wake_word(std::uint32_t word) {
  return word >= ControlBlock::kWake && word < ControlBlock::kWake + 8 * ControlBlock::kWakeWords;
}
// The wake words of kSelf that a peer has written to, as bits.
std::uint32_t woken(Words& words) {
  std::uint32_t bits = 0;
  for (std::uint32_t i = 0; i < ControlBlock::kWakeWords; ++i) {
    if (words.at(kSelf, ControlBlock::wake_word(i)) != 0) bits |= 1U << i;
  }
  return bits;
}

}  // namespace

TEST_CASE("a lock that has stopped waiting keeps the wake word that a peer still writes to, in either queue",
          "[epochs]") {
  for (const bool at_global_lock : {true, false}) {
    CAPTURE(at_global_lock);
    Words words;
    FailingMemory other(words, kOther), memory(words, kSelf);
    AcquireLock<FailingMemory> all(other, kOther, kHome, LockType::kShared, 0, LockOf::kGlobal);
    AcquireLock<FailingMemory> holder(other, kOther, kTarget, LockType::kExclusive, 0);
    REQUIRE((at_global_lock ? run(all) : run(holder)));
    Table table(kSelf, 4, kHome);
    memory.fails = [&](int rank, std::uint32_t) { return rank == (at_global_lock ? kTarget : kHome); };
    LockTarget lock(memory, table, kTarget, LockType::kExclusive);
    CHECK(!run(lock));
    REQUIRE(lock.awaited());
    lock.stop_waiting();
    CHECK(run(lock));
    CHECK(table.is_idle());
    if (at_global_lock) {
      ReleaseLock<FailingMemory> release(other, kHome, LockType::kShared, all.token(), LockOf::kGlobal);
      CHECK(run(release));
    } else {
      ReleaseLock<FailingMemory> release(other, kTarget, LockType::kExclusive, holder.token());
      CHECK(run(release));
    }
    REQUIRE(woken(words) != 0);
    CHECK((woken(words) & ~table.wake_words_in_use()) == 0);
  }
}

TEST_CASE("a lock that stops waiting although nothing has failed is not held, and keeps its wake word", "[epochs]") {
  for (const int home : {Table::kNoGlobalLock, kHome}) {
    CAPTURE(home);
    Words words;
    FailingMemory other(words, kOther), memory(words, kSelf);
    AcquireLock<FailingMemory> holder(other, kOther, kTarget, LockType::kExclusive, 0);
    REQUIRE(run(holder));
    Table table(kSelf, 4, home);
    LockTarget lock(memory, table, kTarget, LockType::kExclusive);
    CHECK(!run(lock));
    REQUIRE(lock.awaited());
    CHECK(lock.awaited()->rank == kTarget);
    CHECK(lock.awaited()->word == ControlBlock::kLock);
    lock.stop_waiting();
    CHECK(run(lock));
    CHECK(!lock.ok());
    CHECK(table.is_idle());
    CHECK(table.kept_wake_words() == 1);
    CHECK(present(words, kHome, ControlBlock::kGlobalLock) == 0);
    LockAll all(memory, table);
    const bool with_global_lock = home == kHome;
    CHECK(run(all) == with_global_lock);
    if (with_global_lock) continue;
    REQUIRE(all.awaited());
    CHECK(all.awaited()->rank == kTarget);
    all.stop_waiting();
    CHECK(run(all));
    CHECK(!all.ok());
    for (int rank = 0; rank < kTarget; ++rank) CHECK(present(words, rank, ControlBlock::kLock) == 0);
  }
}

TEST_CASE("exclusive locks do without the global lock when a lock_all waits for a dead one", "[epochs]") {
  Words words;
  FailingMemory dead(words, kOther), all_memory(words, kTarget), memory(words, kSelf);
  Table dead_table(kOther, 4, kHome), all_table(kTarget, 4, kHome), table(kSelf, 4, kHome);
  LockAll held(all_memory, all_table);
  REQUIRE(run(held));
  farside::epochs::LoseGlobalLock<FailingMemory> too_early(memory, kHome);
  REQUIRE(run(too_early));
  CHECK(!too_early.lost());
  UnlockAll held_no_more(all_memory, all_table);
  REQUIRE(run(held_no_more));
  LockTarget of_dead(dead, dead_table, kTarget, LockType::kExclusive);
  REQUIRE(run(of_dead));
  LockAll all(all_memory, all_table);
  CHECK(!run(all));
  LockTarget lock(memory, table, kHome, LockType::kExclusive);
  CHECK(!run(lock));
  REQUIRE(lock.awaited());
  CHECK(lock.awaited()->word == ControlBlock::kGlobalLock);
  for (int again = 0; again < 2; ++again) {
    farside::epochs::LoseGlobalLock<FailingMemory> lose(memory, kHome);
    REQUIRE(run(lose));
    CHECK(lose.lost());
  }
  lock.stop_waiting();
  REQUIRE(run(lock));
  table.lose_global_lock();
  LockTarget again(memory, table, kHome, LockType::kExclusive);
  REQUIRE(run(again));
  CHECK(again.ok());
  // The lock_all never holds, even if the holder lives after all.
  farside::epochs::UnlockTarget release(dead, dead_table,
                                        {kTarget, LockType::kExclusive, true, false, 0, of_dead.token()});
  REQUIRE(run(release));
  release.data_complete();
  REQUIRE(run(release));
  CHECK(!run(all));
}

TEST_CASE("a lock without a wake word, within another exclusive lock, leaves the global lock to that one", "[epochs]") {
  Words words;
  FailingMemory other(words, kOther), memory(words, kSelf);
  AcquireLock<FailingMemory> holder(other, kOther, kTarget, LockType::kExclusive, 0);
  REQUIRE(run(holder));
  Table table(kSelf, 4, kHome);
  LockTarget outer(memory, table, kHome, LockType::kExclusive);
  REQUIRE(run(outer));
  memory.fails = [](int rank, std::uint32_t word) { return rank == kTarget && word >= ControlBlock::kRing; };
  for (std::uint32_t kept = 0; kept <= ControlBlock::kWakeWords; ++kept) {
    LockTarget inner(memory, table, kTarget, LockType::kExclusive);
    CHECK(run(inner));
    CHECK(!inner.ok());
    CHECK(inner.out_of_wake_words() == (kept == ControlBlock::kWakeWords));
    CHECK(LockWord::writers(words.at(kHome, ControlBlock::kGlobalLock)) == 1);
  }
  UnlockTarget unlock(memory, table, HeldLock{kHome, LockType::kExclusive, true, false, 0, outer.token()});
  CHECK(run(unlock));
  unlock.data_complete();
  CHECK(run(unlock));
  CHECK(table.is_idle());
  CHECK(present(words, kHome, ControlBlock::kGlobalLock) == 0);
}

TEST_CASE("a lock that is held, but cannot pass its hand-off on, is released, and keeps no wake word", "[epochs]") {
  constexpr int kLost = 0;
  Words words;
  FailingMemory other(words, kOther), lost(words, kLost), memory(words, kSelf);
  // In the queue behind `other`: this rank, a reader that is lost then, and a writer.
  AcquireLock<FailingMemory> holder(other, kOther, kTarget, LockType::kExclusive, 0);
  REQUIRE(run(holder));
  const std::uint64_t before = words.at(kTarget, ControlBlock::kLock);
  words.at(kTarget, ControlBlock::kLock) += LockWord::arrive(LockType::kShared);
  AcquireLock<FailingMemory> reader(lost, kLost, kTarget, LockType::kShared, 0);
  AcquireLock<FailingMemory> writer(other, kOther, kTarget, LockType::kExclusive, 1);
  CHECK(!run(reader));
  CHECK(!run(writer));
  ReleaseLock<FailingMemory> release(other, kTarget, LockType::kExclusive, holder.token());
  CHECK(run(release));
  // This rank finds the hand-off in its slot, and cannot read the slots behind its own.
  memory.fails = [](int rank, std::uint32_t word) { return rank == kTarget && word == ControlBlock::ring_word(2); };
  Table table(kSelf, 4, Table::kNoGlobalLock);
  LockTarget lock(memory, table, kTarget, LockType::kShared, before);
  CHECK(run(lock));
  CHECK(!lock.ok());
  CHECK(table.is_idle());
  CHECK(table.wake_words_in_use() == 0);
  // It has departed, as a reader does that its successor takes off the lock word.
  CHECK(DrainWord::departed(words.at(kTarget, ControlBlock::kDrain)) == 1);
}

TEST_CASE("a lock_all that is held, but cannot pass its hand-off on, is released, and keeps no wake word", "[epochs]") {
  constexpr int kLost = 1;
  Words words;
  FailingMemory other(words, kOther), lost(words, kLost), memory(words, kSelf);
  AcquireLock<FailingMemory> holder(other, kOther, kHome, LockType::kExclusive, 0, LockOf::kGlobal);
  REQUIRE(run(holder));
  Table table(kSelf, 4, kHome);
  LockAll all(memory, table);
  AcquireLock<FailingMemory> behind(lost, kLost, kHome, LockType::kShared, 0, LockOf::kGlobal);
  CHECK(!run(all));
  CHECK(!run(behind));
  ReleaseLock<FailingMemory> release(other, kHome, LockType::kExclusive, holder.token(), LockOf::kGlobal);
  CHECK(run(release));
  memory.fails = [](int rank, std::uint32_t word) {
    return rank == kHome && word == ControlBlock::global_lock_ring_word(2);
  };
  CHECK(run(all));
  CHECK(!all.ok());
  CHECK(table.is_idle());
  CHECK(table.wake_words_in_use() == 0);
  CHECK(LockWord::readers(words.at(kHome, ControlBlock::kGlobalLock)) == 1);
}

TEST_CASE("an unlock that cannot wake the next one ends", "[epochs]") {
  constexpr int kLost = 0;
  Words words;
  FailingMemory lost(words, kLost), memory(words, kSelf);
  Table table(kSelf, 4, Table::kNoGlobalLock);
  LockTarget lock(memory, table, kTarget, LockType::kExclusive);
  REQUIRE(run(lock));
  AcquireLock<FailingMemory> next(lost, kLost, kTarget, LockType::kExclusive, 0);
  CHECK(!run(next));
  memory.fails = [](int rank, std::uint32_t word) { return rank == kLost && is_wake_word(word); };
  UnlockTarget unlock(memory, table, HeldLock{kTarget, LockType::kExclusive, true, false, 0, lock.token()});
  CHECK(run(unlock));
  unlock.data_complete();
  CHECK(run(unlock));
  CHECK(table.is_idle());
}

TEST_CASE(
    "a lock_all that failed in a queue keeps its wake word, and a process without one cannot wait for a lock_all any "
    "more",
    "[epochs]") {
  for (const int home : {Table::kNoGlobalLock, kHome}) {
    CAPTURE(home);
    Words words;
    FailingMemory other(words, kOther), memory(words, kSelf);
    AcquireLock<FailingMemory> of_target(other, kOther, kTarget, LockType::kExclusive, 0);
    AcquireLock<FailingMemory> global(other, kOther, kHome, LockType::kExclusive, 0, LockOf::kGlobal);
    REQUIRE((home == kHome ? run(global) : run(of_target)));
    Table table(kSelf, 4, home);
    // The ticket is taken, and the place in the queue cannot be.
    memory.fails = [&](int rank, std::uint32_t word) {
      return home == kHome ? rank == kHome && word > ControlBlock::kGlobalLock
                           : rank == kTarget && word >= ControlBlock::kRing;
    };
    for (std::uint32_t kept = 0; kept <= ControlBlock::kWakeWords; ++kept) {
      LockAll all(memory, table);
      CHECK(run(all));
      CHECK(!all.ok());
      CHECK(all.out_of_wake_words() == (kept == ControlBlock::kWakeWords));
      CHECK(table.kept_wake_words() == std::min(kept + 1, ControlBlock::kWakeWords));
      CHECK(table.is_idle());
      CHECK(present(words, 0, ControlBlock::kLock) == 0);
    }
  }
}

TEST_CASE("a release that fails ends: it wakes nobody, and the others go on", "[epochs]") {
  Words words;
  FailingMemory other(words, kOther), memory(words, kSelf);
  const auto woken_other = [&] { return std::exchange(words.at(kOther, ControlBlock::wake_word(0)), 0) != 0; };
  SECTION("of a target's lock") {
    Table table(kSelf, 4, Table::kNoGlobalLock);
    LockTarget lock(memory, table, kTarget, LockType::kExclusive);
    REQUIRE(run(lock));
    AcquireLock<FailingMemory> next(other, kOther, kTarget, LockType::kExclusive, 0);
    CHECK(!run(next));
    memory.fails = [](int rank, std::uint32_t word) { return rank == kTarget && word == ControlBlock::kLock; };
    UnlockTarget unlock(memory, table, HeldLock{kTarget, LockType::kExclusive, true, false, 0, lock.token()});
    CHECK(run(unlock));
    unlock.data_complete();
    CHECK(run(unlock));
    CHECK(!woken_other());
  }
  SECTION("of the global lock, beside that of a target") {
    Table table(kSelf, 4, kHome);
    LockTarget lock(memory, table, kTarget, LockType::kExclusive);
    REQUIRE(run(lock));
    AcquireLock<FailingMemory> next(other, kOther, kHome, LockType::kShared, 0, LockOf::kGlobal);
    CHECK(!run(next));
    memory.fails = [](int rank, std::uint32_t word) { return rank == kHome && word == ControlBlock::kGlobalLock; };
    UnlockTarget unlock(memory, table, HeldLock{kTarget, LockType::kExclusive, true, false, 0, lock.token()});
    CHECK(run(unlock));
    unlock.data_complete();
    CHECK(run(unlock));
    CHECK(!woken_other());
    CHECK(table.is_idle());
    CHECK(present(words, kTarget, ControlBlock::kLock) == 0);
  }
  SECTION("of the global lock, by unlock_all") {
    Table table(kSelf, 4, kHome);
    LockAll all(memory, table);
    REQUIRE(run(all));
    AcquireLock<FailingMemory> next(other, kOther, kHome, LockType::kExclusive, 0, LockOf::kGlobal);
    CHECK(!run(next));
    memory.fails = [](int rank, std::uint32_t word) { return rank == kHome && word == ControlBlock::kGlobalLock; };
    UnlockAll unlock(memory, table);
    CHECK(run(unlock));
    CHECK(!woken_other());
    CHECK(table.is_idle());
  }
  SECTION("of one rank's lock, by unlock_all") {
    Table table(kSelf, 4, Table::kNoGlobalLock);
    LockAll all(memory, table);
    REQUIRE(run(all));
    AcquireLock<FailingMemory> next(other, kOther, kTarget, LockType::kExclusive, 0);
    CHECK(!run(next));
    memory.fails = [](int rank, std::uint32_t word) { return rank == kTarget && word == ControlBlock::kLock; };
    UnlockAll unlock(memory, table);
    CHECK(run(unlock));
    CHECK(!woken_other());
    CHECK(table.is_idle());
    for (const int rank : {0, 2, 3}) CHECK(present(words, rank, ControlBlock::kLock) == 0);
  }
}

}  // namespace farside::lock_failure_test

// SPDX-License-Identifier: BSD-3-Clause
// The lock table in all interleavings of a few ranks and threads: locks of several targets, the global lock, deferred
// locks, lock_all, the loss of a rank at any moment; and for each rule of the table a table that breaks it, which must
// be caught.
#include <string>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/lock_table_program.hpp"

namespace farside::lock_table_explorer_test {

namespace {

using namespace farside::explore;
using Seen = LockTableProgram<>::Seen;

void must_hold(const LockTableCase& each, const Options& options = {}, Seen* seen = nullptr) {
  const Report report = explore_lock_table(each, options, seen);
  for (const std::string& script : each.scripts) UNSCOPED_INFO(script);
  INFO(report.text());
  CHECK(report.failure.empty());
  CHECK(report.complete);
  CHECK(report.ends > 0);
}

template <class Table>
std::string fault(const LockTableCase& each, const Options& options = {}) {
  Options first = options;
  first.shorten = false;
  return explore_lock_table<Table>(each, first).failure;
}
std::string fault_of_caller(LockTableCase each, const TableMistakes& mistakes) {
  each.mistakes = mistakes;
  return fault<RightTable>(each);
}

const std::string kDeadlock = "deadlock: nothing can happen any more, and not all are done";
constexpr int kHome = 0;
constexpr std::uint64_t bit(int rank) { return std::uint64_t{1} << rank; }

struct SharesWakeWords : RightTable {
  using RightTable::RightTable;
  bool claim_wake_words(std::span<std::uint32_t> words) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i);
    return true;
  }
};

}  // namespace

TEST_CASE("locks of one rank, within one another and one after another, exclude those of others") {
  must_hold({{"X0(X1) S0", "S0(S1) X1"}, {2, 3}, RightTable::kNoGlobalLock, 4});
  must_hold({{"X0(S1)", "X1", "S0(X1)"}, {2, 3, 1}, RightTable::kNoGlobalLock, 4}, {.late = true});
}

TEST_CASE("under the global lock the process acquires it once, and releases it with its last exclusive lock") {
  must_hold({{"X0(X1)", "L"}, {2, 3}, kHome, 4});
  must_hold({{"X1(S0)", "L L"}, {2, 3}, kHome, 4});
  // The home of the global lock is the process itself, or the target.
  must_hold({{"X1 X0", "L"}, {0, 3}, kHome, 4}, {.late = true});
}

TEST_CASE("two threads of a process share one acquisition of the global lock") {
  must_hold({{"X0", "X1", "L"}, {2, 2, 3}, kHome, 4});
  must_hold({{"X1", "X0", "L"}, {0, 0, 3}, kHome, 4});
}

TEST_CASE(
    "a lock_all without a global lock acquires every rank's lock, and waits for the preceding one of its process") {
  must_hold({{"L", "X0(X1)", "S1"}, {0, 1, 2}, RightTable::kNoGlobalLock, 2});
  must_hold({{"L", "L", "X1"}, {0, 0, 1}, RightTable::kNoGlobalLock, 2});
  // Each lock word counts the lock_all of the other rank apart, and not that of its own.
  must_hold({{"L L", "L X0"}, {0, 1}, RightTable::kNoGlobalLock, 2});
}

TEST_CASE("a deferred lock is one message if the lock is free, and is acquired before any other lock") {
  Seen seen;
  must_hold({{"D0 d1 D0", "X0", "S1"}, {2, 3, 1}, RightTable::kNoGlobalLock, 4}, {}, &seen);
  CHECK(seen.one_message > 0);
  CHECK(seen.stopped > 0);
  must_hold({{"D0(X1)", "D0(X1)"}, {2, 3}, RightTable::kNoGlobalLock, 4});
  must_hold({{"D0(D1)", "X0(X1)"}, {2, 3}, RightTable::kNoGlobalLock, 4});
}

TEST_CASE("a lock that sees an exposure is refused, and nothing of it is left") {
  const LockTableCase cases[] = {{{"X1", "X0"}, {2, 3}, RightTable::kNoGlobalLock, 4, 1},
                                 {{"S1", "X0"}, {2, 3}, RightTable::kNoGlobalLock, 4, 1},
                                 {{"D1 d1"}, {2}, RightTable::kNoGlobalLock, 4, 1},
                                 {{"X1", "L"}, {2, 3}, kHome, 4, 1},
                                 {{"X1", "X0", "L"}, {2, 2, 3}, kHome, 4, 1}};
  for (const LockTableCase& each : cases) {
    Seen seen;
    must_hold(each, {}, &seen);
    CHECK(seen.refused > 0);
    CHECK(seen.failed == 0);
  }
}

TEST_CASE("when a rank is lost at any moment, what is held elsewhere is released, and others go on") {
  Seen seen;
  must_hold({{"X0(X1) S0"}, {2}, RightTable::kNoGlobalLock, 4}, {.may_lose = bit(0) | bit(1)}, &seen);
  must_hold({{"D0(X1) D1"}, {2}, RightTable::kNoGlobalLock, 4}, {.may_lose = bit(0) | bit(1)}, &seen);
  must_hold({{"L"}, {2}, RightTable::kNoGlobalLock, 4}, {.may_lose = bit(0) | bit(1) | bit(3)}, &seen);
  must_hold({{"X1(X3)"}, {2}, kHome, 4}, {.may_lose = bit(0) | bit(1) | bit(3)}, &seen);
  must_hold({{"X1", "X0"}, {2, 2}, kHome, 4}, {.may_lose = bit(0) | bit(1)}, &seen);
  must_hold({{"X1", "X3"}, {0, 0}, kHome, 4}, {.may_lose = bit(1) | bit(3)}, &seen);
  CHECK(seen.failed > 0);
  // The target of one process is lost, while another waits at the global lock.
  must_hold({{"X1", "L"}, {2, 3}, kHome, 4}, {.may_lose = bit(1)}, &seen);
  must_hold({{"L X1", "L"}, {2, 3}, kHome, 4}, {.may_lose = bit(1)}, &seen);
}

// Rule 1.
TEST_CASE("no wake word is claimed twice before its use has ended, and a claim gets all of its words or none") {
  RightTable table;
  std::array<std::uint32_t, 2> two{};
  std::array<std::uint32_t, 1> one{};
  std::uint32_t claimed = 0;
  for (std::uint32_t count = 0; count + 2 < ControlBlock::kWakeWords; count += 2) {
    REQUIRE(table.claim_wake_words(two));
    for (const std::uint32_t word : two) {
      CHECK((claimed >> word & 1) == 0);
      claimed |= 1U << word;
    }
    CHECK(table.wake_words_in_use() == claimed);
  }
  REQUIRE(table.claim_wake_words(one));
  CHECK((claimed >> one[0] & 1) == 0);
  claimed |= 1U << one[0];
  CHECK(!table.claim_wake_words(two));
  CHECK(table.wake_words_in_use() == claimed);
  table.end_wake_word(one[0], false);
  CHECK(table.claim_wake_words(two));
  CHECK(table.wake_words_in_use() == (1U << ControlBlock::kWakeWords) - 1);
  CHECK(!table.claim_wake_words(one));
}

TEST_CASE("a table that gives one wake word to two threads is caught") {
  CHECK(fault<SharesWakeWords>({{"X0", "X1", "X0", "X1"}, {2, 2, 3, 3}, RightTable::kNoGlobalLock, 4}) != "");
}

TEST_CASE("a table that forgets wake words is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    void end_wake_word(std::uint32_t, bool) {}
  };
  CHECK(fault<Broken>({{"X0"}, {2}, RightTable::kNoGlobalLock, 4}) == "in the end a wake word is in use");
}

// Rule 2.
TEST_CASE("a table by which each exclusive lock acquires the global lock anew is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    Entry enter_global_lock() {
      (void)RightTable::enter_global_lock();
      return Entry::kFirst;
    }
  };
  CHECK(fault<Broken>({{"X0(X1)", "L"}, {2, 3}, kHome, 4}) != "");
}

TEST_CASE("a table that lets a thread in while another still acquires the global lock is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    Entry enter_global_lock() {
      const Entry entry = RightTable::enter_global_lock();
      if (entry != Entry::kWait) return entry;
      entered_early = true;
      return Entry::kInside;
    }
    bool entered_early = false;
  };
  CHECK(fault<Broken>({{"X0", "X1", "L"}, {2, 2, 3}, kHome, 4}) != "");
}

// Rule 3.
TEST_CASE("a table that releases the global lock while another exclusive lock is held is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    void entered(const std::optional<LockToken>& token) { RightTable::entered(kept = token.value_or(kept)); }
    std::optional<LockToken> leave_global_lock_if_alone() {
      (void)RightTable::leave_global_lock();
      return kept;
    }
    LockToken kept;
  };
  CHECK(fault<Broken>({{"X0(X1)", "L"}, {2, 3}, kHome, 4}) != "");
}

TEST_CASE("a table that never releases the global lock is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    std::optional<LockToken> leave_global_lock_if_alone() { return {}; }
    std::optional<LockToken> leave_global_lock() {
      (void)RightTable::leave_global_lock();
      return {};
    }
  };
  CHECK(fault<Broken>({{"X1", "L"}, {2, 3}, kHome, 4}) != "");
}

TEST_CASE("a caller that releases a global lock elsewhere before the data are complete is caught") {
  const LockTableCase each{{"X1", "L"}, {2, 3}, kHome, 4};
  CHECK(fault_of_caller(each, {.overtakes_data = true}) == "a lock is held before the data of the last");
}

// Rule 4.
TEST_CASE("a caller that acquires another lock before the deferred one is caught") {
  const TableMistakes forgets{.forgets_deferred = true};
  CHECK(fault_of_caller({{"D0(X1)"}, {2}, RightTable::kNoGlobalLock, 4}, forgets) == "");
  CHECK(fault_of_caller({{"D0(X1)", "X0(X1)"}, {2, 3}, RightTable::kNoGlobalLock, 4}, forgets) == kDeadlock);
}

// Rule 5.
TEST_CASE("a table that begins a lock_all before the preceding one is released is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    bool begin_lock_all() {
      (void)RightTable::begin_lock_all();
      return true;
    }
  };
  CHECK(fault<Broken>({{"L", "L", "X1"}, {0, 0, 1}, RightTable::kNoGlobalLock, 2}) ==
        "a lock word counts two lock_alls of one process");
}

// Rule 6.
TEST_CASE("a refused lock that is not released is caught") {
  const LockTableCase each{{"X1"}, {2}, RightTable::kNoGlobalLock, 4, 1};
  const Sabotage keep = [](Request& r) {
    r.dropped = r.word == ControlBlock::kLock && r.operand == LockWord::depart(LockType::kExclusive);
  };
  CHECK(fault<RightTable>(each, {.sabotage = keep}) == "in the end someone is left in a lock word");
}

// Rule 7.
TEST_CASE("a table that counts a failed user of the global lock on is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    void entered(const std::optional<LockToken>& token) {
      if (token) return RightTable::entered(token);
      RightTable::entered(LockToken());
    }
  };
  CHECK(fault<Broken>({{"X1"}, {2}, kHome, 4}, {.may_lose = bit(0)}) != "");
}

TEST_CASE("a table that keeps the global lock of a target that was lost is caught") {
  struct Broken : RightTable {
    using RightTable::RightTable;
    std::optional<LockToken> leave_global_lock() {
      (void)RightTable::leave_global_lock();
      return {};
    }
  };
  CHECK(fault<Broken>({{"X1", "L"}, {2, 3}, kHome, 4}, {.may_lose = bit(1)}) != "");
}

}  // namespace farside::lock_table_explorer_test

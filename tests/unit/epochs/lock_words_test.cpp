// SPDX-License-Identifier: BSD-3-Clause
// The fields of the words of the lock.
#include "epochs/protocols/lock_words.hpp"

#include <catch2/catch.hpp>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_table.hpp"

namespace farside::lock_words_test {

using namespace farside::epochs;

TEST_CASE("the bits in the way of a lock are there exactly if it does not hold at once, or the rank is exposed",
          "[epochs]") {
  constexpr std::uint64_t kMost = LockWord::kMostPresent;
  for (const std::uint64_t readers : {std::uint64_t{0}, std::uint64_t{1}, kMost / 2 + 1, kMost}) {
    for (const std::uint64_t writers : {std::uint64_t{0}, std::uint64_t{1}, kMost / 2 + 1, kMost}) {
      for (const std::uint64_t exposed : {std::uint64_t{0}, LockWord::kExposed}) {
        for (const std::uint64_t ticket : {std::uint64_t{0}, std::uint64_t{1}, LockWord::kTickets - 1}) {
          const std::uint64_t word =
              readers * LockWord::kReader + writers * LockWord::kWriter + exposed + ticket * LockWord::kTicket;
          for (const LockType type : {LockType::kShared, LockType::kExclusive}) {
            const bool free = kTargetLock.holds_at_once(word, type) && !LockWord::exposed(word);
            CHECK(((word & LockWord::contenders(type)) == 0) == free);
          }
        }
      }
    }
  }
}

TEST_CASE("the parts of a lock word do not touch each other", "[epochs]") {
  const std::uint64_t counts[] = {0, 1, LockWord::kMostPresent};
  for (const std::uint64_t readers : counts) {
    for (const std::uint64_t writers : counts) {
      for (const std::uint64_t lock_alls : {std::uint64_t{0}, std::uint64_t{1}, LockWord::kMostLockAlls}) {
        if (lock_alls > readers) continue;
        for (const std::uint64_t ticket : {std::uint64_t{0}, LockWord::kTickets - 1}) {
          for (const bool exposed : {false, true}) {
            const std::uint64_t word = readers * LockWord::kReader + writers * LockWord::kWriter +
                                       lock_alls * LockWord::kLockAll + ticket * LockWord::kTicket +
                                       (exposed ? LockWord::kExposed : 0);
            CHECK(LockWord::readers(word) == readers);
            CHECK(LockWord::writers(word) == writers);
            CHECK(LockWord::lock_alls(word) == lock_alls);
            CHECK(LockWord::ticket(word) == ticket);
            CHECK(LockWord::exposed(word) == exposed);
            CHECK(LockWord::locked(word) == (readers != lock_alls || writers != 0));
          }
        }
      }
    }
  }
  const std::uint64_t both = LockWord::arrive(LockType::kShared, LockOf::kAll) + LockWord::arrive(LockType::kShared);
  CHECK(LockWord::locked(both));
  CHECK(!LockWord::locked(both + LockWord::depart(LockType::kShared)));
  CHECK(LockWord::locked(both + LockWord::depart(LockType::kShared, LockOf::kAll)));
  CHECK((both + LockWord::depart(LockType::kShared) + LockWord::depart(LockType::kShared, LockOf::kAll)) %
            LockWord::kTicket ==
        0);
}

TEST_CASE("the last rank that a window may have is told apart from the others, and one more has no room", "[epochs]") {
  const int last = static_cast<int>(WaiterId::kMostRanks) - 1;
  CHECK(WaiterId::has_room_for(last + 1));
  CHECK(!WaiterId::has_room_for(last + 2));
  for (std::uint32_t node = 0; node < WaiterId::kWakeIndexes; ++node) {
    const std::uint64_t id = WaiterId::make(last, node);
    CHECK(WaiterId::rank(id) == last);
    CHECK(WaiterId::wake_word(id) == ControlBlock::wake_word(node));
    // In all words that hold the id, next to the largest values of the other fields.
    const std::uint64_t drain = DrainWord::announce(id, WaiterId::kMostRanks, WaiterId::kMostRanks);
    CHECK(DrainWord::waiter(drain) == id);
    CHECK(DrainWord::end(drain) == WaiterId::kMostRanks);
    CHECK(DrainWord::departed(drain) == -static_cast<std::int64_t>(WaiterId::kMostRanks));
    const std::uint64_t slot = RingSlot::make(RingSlot::kWaiting, LockWord::kTickets - 1, id, LockType::kExclusive);
    CHECK(RingSlot::what(slot) == id);
    CHECK(RingSlot::ticket(slot) == LockWord::kTickets - 1);
    CHECK(LockToken(LockWord::kTickets - 1, LockToken::kSuccessor, id).successor() == id);
  }
  CHECK(LockWord::present(WaiterId::kMostRanks * LockWord::kReader, LockType::kExclusive) == 0);
  CHECK(!LockWord::exposed(WaiterId::kMostRanks * LockWord::kWriter));
  // With one lock of each rank present, members that departed in the drain word may still be counted.
  CHECK(LockWord::present((WaiterId::kMostRanks + kMostReleasedBySuccessor) * LockWord::kReader,
                          LockType::kExclusive) == 0);
  CHECK(!LockWord::exposed((WaiterId::kMostRanks + kMostReleasedBySuccessor + 1) * LockWord::kWriter));
}

TEST_CASE("a lock of a mapped word is acquired by one compare-and-swap if it is free, whatever the guess", "[epochs]") {
  std::uint64_t word = 7 * LockWord::kTicket;
  const auto acquires = [&](LockType type, std::uint64_t guess) {
    const std::uint64_t held = word;
    CHECK(guess == LockWord::with_nobody_present(guess));
    const bool acquired = try_acquire(word, type, guess);
    CHECK(guess == held);
    CHECK(word == held + (acquired ? LockWord::arrive(type) : 0));
    return acquired;
  };
  for (const std::uint64_t guess : {word, std::uint64_t{0}, 3 * LockWord::kTicket}) {
    CHECK(acquires(LockType::kExclusive, guess));
    CHECK(!acquires(LockType::kExclusive, guess));
    CHECK(!acquires(LockType::kShared, guess));
    word = 7 * LockWord::kTicket;
    CHECK(acquires(LockType::kShared, guess));
    CHECK(acquires(LockType::kShared, guess));
    CHECK(!acquires(LockType::kExclusive, guess));
    word = 7 * LockWord::kTicket + LockWord::kExposed;
    CHECK(!acquires(LockType::kShared, guess));
    word = 7 * LockWord::kTicket;
  }
}

TEST_CASE("the entry of an exclusive lock tells its holder from those that have released it or wait", "[epochs]") {
  const auto held = [](std::uint64_t ticket, LockToken::How how = LockToken::kPlain, std::uint64_t what = 0) {
    HeldLock lock{.target = 3, .type = LockType::kExclusive, .needs_release = true};
    lock.token = LockToken(ticket, how, what);
    return lock;
  };
  std::uint64_t word = 7 * LockWord::kTicket;
  CHECK(!held(6).holds_alone(3, word));  // released
  word += LockWord::arrive(LockType::kExclusive);
  CHECK(held(7).holds_alone(3, word));
  CHECK(!held(7).holds_alone(2, word));
  CHECK(!held(6).holds_alone(3, word));
  word += LockWord::arrive(LockType::kShared) + LockWord::arrive(LockType::kExclusive);
  CHECK(held(7).holds_alone(3, word));
  CHECK(!held(9).holds_alone(3, word));
  word += LockWord::depart(LockType::kExclusive);
  CHECK(!held(7).holds_alone(3, word));
  // Two readers have departed, and are taken off the word together with the writer that follows them.
  std::uint64_t after_readers = 2 * LockWord::arrive(LockType::kShared) + LockWord::arrive(LockType::kExclusive);
  CHECK(held(2, LockToken::kReleasesPredecessors, 2).holds_alone(3, after_readers));
  // A writer has woken the next one instead of a departure.
  const std::uint64_t owed = 2 * LockWord::arrive(LockType::kExclusive);
  CHECK(held(1, LockToken::kOwesDeparture).holds_alone(3, owed));
  CHECK(!held(1).holds_alone(3, owed));
  // Of tickets that come around.
  CHECK(held(LockWord::kTickets - 1)
            .holds_alone(3, (LockWord::kTickets - 1) * LockWord::kTicket + LockWord::arrive(LockType::kExclusive)));
}

}  // namespace farside::lock_words_test

// SPDX-License-Identifier: BSD-3-Clause
// What the words of the lock say, in two ways that must agree.
#include <catch2/catch.hpp>

#include "epochs/lock_words.hpp"

using namespace farside::epochs;

TEST_CASE("the bits in the way of a lock are there exactly if it does not hold at once, or the rank is exposed", "[epochs]") {
  constexpr std::uint64_t kMost = LockWord::kWriter - 1;
  for (const std::uint64_t readers : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 19, kMost}) {
    for (const std::uint64_t writers : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 19, kMost}) {
      for (const std::uint64_t exposed : {std::uint64_t{0}, LockWord::kExposed}) {
        for (const std::uint64_t ticket : {std::uint64_t{0}, std::uint64_t{1}, LockWord::kTickets - 1}) {
          const std::uint64_t word = readers * LockWord::kReader + writers * LockWord::kWriter + exposed + ticket * LockWord::kTicket;
          for (const LockType type : {LockType::kShared, LockType::kExclusive}) {
            const bool free = TargetLock::holds_at_once(word, type) && !LockWord::exposed(word);
            CHECK(((word & LockWord::in_the_way(type)) == 0) == free);
          }
        }
      }
    }
  }
}

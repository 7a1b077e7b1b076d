// SPDX-License-Identifier: BSD-3-Clause
// Locks in stripes: by one thread, and by threads while another one closes and opens the stripes.
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "epochs/protocols/lock_table.hpp"
#include "transport/base/threads.hpp"

namespace farside::lock_stripes_test {

using namespace farside::epochs;
using Stripes = LockStripes<BiasedMutex>;

namespace {

constexpr int kTargets = 40;

struct Words {
  std::array<std::uint64_t, kTargets> words{};
  int asked = 0;
  std::uint64_t& operator[](int target) { return words[static_cast<std::size_t>(target)]; }
  auto word_of() {
    return [this](int target) {
      ++asked;
      return &(*this)[target];
    };
  }
};

std::vector<HeldLock> closed(Stripes& stripes, bool taken) {
  std::vector<HeldLock> locks;
  CHECK(stripes.close([&](const HeldLock& lock) { locks.push_back(lock); }) == taken);
  CHECK_FALSE(stripes.is_open());
  return locks;
}

}  // namespace

TEST_CASE("a lock in a stripe is taken and released by its word") {
  Stripes stripes;
  Words words;
  HeldLock lock;
  std::uint64_t before = 0;
  CHECK_FALSE(stripes.try_lock(3, LockType::kExclusive, words.word_of()));  // closed
  CHECK(words[3] == 0);
  stripes.open();
  CHECK(stripes.try_lock(3, LockType::kExclusive, words.word_of()));
  CHECK(words[3] == LockWord::arrive(LockType::kExclusive));
  CHECK(stripes.holds(3));
  CHECK_FALSE(stripes.holds(4));
  CHECK_FALSE(stripes.holds(3 + int{Stripes::kStripes}));
  CHECK_FALSE(stripes.try_lock(3, LockType::kShared, words.word_of()));  // held by this process
  CHECK_FALSE(stripes.try_lock(3 + int{Stripes::kStripes}, LockType::kShared, words.word_of()));  // the same stripe
  CHECK(stripes.try_lock(4, LockType::kShared, words.word_of()));
  CHECK_FALSE(stripes.try_unlock(5, lock, before));
  CHECK(stripes.try_unlock(3, lock, before));
  CHECK(before == LockWord::arrive(LockType::kExclusive));
  CHECK(lock.target == 3);
  CHECK(lock.type == LockType::kExclusive);
  CHECK_FALSE(stripes.holds(3));
  CHECK_FALSE(stripes.try_unlock(3, lock, before));
  const int asked = words.asked;
  CHECK(stripes.try_lock(3, LockType::kShared, words.word_of()));
  CHECK(words.asked == asked);
  CHECK(stripes.try_unlock(3, lock, before));
  CHECK(lock.token == LockToken(1));  // the second ticket of the word
  CHECK_FALSE(stripes.try_lock(6, LockType::kShared, [](int) -> std::uint64_t* { return nullptr; }));
  CHECK(stripes.try_lock(6, LockType::kShared, words.word_of()));
}

TEST_CASE("a lock that others hold, and one of an exposed rank, are not taken") {
  Stripes stripes;
  Words words;
  stripes.open();
  const auto takes = [&](std::uint64_t word, LockType type) {
    words[2] = word;
    const bool taken = stripes.try_lock(2, type, words.word_of());
    HeldLock lock;
    std::uint64_t before = 0;
    if (taken) CHECK(stripes.try_unlock(2, lock, before));
    if (!taken) CHECK(words[2] == word);
    return taken;
  };
  using enum LockType;
  CHECK(takes(LockWord::kReader, kShared));
  CHECK_FALSE(takes(LockWord::kReader, kExclusive));
  CHECK_FALSE(takes(LockWord::kWriter, kShared));
  CHECK_FALSE(takes(LockWord::kWriter, kExclusive));
  CHECK_FALSE(takes(LockWord::kExposed, kShared));
  CHECK(takes(LockWord::kTicket * 7, kExclusive));
}

TEST_CASE("a stripe without a lock holds none of a number that is no rank") {
  Stripes stripes;
  Words words;
  stripes.open();
  CHECK(stripes.try_lock(15, LockType::kExclusive, words.word_of()));
  HeldLock lock;
  std::uint64_t before = 0;
  CHECK(stripes.try_unlock(15, lock, before));
  const std::uint64_t word = words[15];
  // MPI_PROC_NULL is such a number; -1 selects the stripe of rank 15.
  for (const int none : {-1, -2, -17, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    CHECK_FALSE(stripes.holds(none));
    CHECK_FALSE(stripes.try_unlock(none, lock, before));
  }
  CHECK(words[15] == word);
}

TEST_CASE("closing gives the locks that are held") {
  Stripes stripes;
  Words words;
  CHECK(closed(stripes, false).empty());
  stripes.open();
  CHECK(closed(stripes, false).empty());
  stripes.open();
  CHECK(stripes.try_lock(1, LockType::kShared, words.word_of()));
  HeldLock lock;
  std::uint64_t before = 0;
  CHECK(stripes.try_unlock(1, lock, before));
  CHECK(closed(stripes, true).empty());
  stripes.open();
  CHECK(stripes.try_lock(1, LockType::kShared, words.word_of()));
  CHECK(stripes.try_lock(18, LockType::kExclusive, words.word_of()));
  const std::vector<HeldLock> locks = closed(stripes, true);
  REQUIRE(locks.size() == 2);
  CHECK(locks[0].target == 1);
  CHECK(locks[0].type == LockType::kShared);
  CHECK(locks[0].needs_release);
  CHECK(locks[0].token == LockToken(1));
  CHECK(locks[1].target == 18);
  CHECK(locks[1].type == LockType::kExclusive);
  CHECK_FALSE(stripes.holds(1));
  CHECK_FALSE(stripes.try_unlock(18, lock, before));
  CHECK_FALSE(stripes.try_lock(7, LockType::kShared, words.word_of()));
}

// Three threads lock and unlock a target each, two of them in one stripe. The fourth closes the stripes, releases the
// locks that it is given, and opens them. Each lock is released exactly once, and no two holders share a lock.
TEST_CASE("locks of threads are released once, by their threads or by the one that closes the stripes") {
  constexpr int kTimes = 20'000;
  Stripes stripes;
  Words words;
  std::mutex guard;
  std::array<std::atomic<int>, kTargets> holders{};
  std::atomic<int> working = 3, wrong = 0;
  std::atomic<std::int64_t> given = 0, taken = 0, released = 0;
  const auto release = [&](const HeldLock& lock) {
    if (holders[static_cast<std::size_t>(lock.target)].fetch_sub(1) != 1) ++wrong;
  };
  const auto work = [&](int target) {
    const auto word_of = [&](int of) { return &words[of]; };
    // However the threads are scheduled, they go on until both kinds of releases have occurred.
    for (int times = 0; times < kTimes || given == 0 || released == 0; ++times) {
      if (!stripes.try_lock(target, LockType::kExclusive, word_of)) {
        if (times % 64 == 0) std::this_thread::yield();
        continue;
      }
      ++taken;
      if (holders[static_cast<std::size_t>(target)].fetch_add(1) != 0) ++wrong;
      if (times % 64 == 0) std::this_thread::yield();
      // The holder withdraws before it releases, but only if nobody was given the lock.
      const std::scoped_lock held(guard);
      HeldLock lock;
      std::uint64_t before = 0;
      if (!stripes.holds(target)) continue;
      release({.target = target});
      if (!stripes.try_unlock(target, lock, before)) ++wrong;
      ++released;
    }
    --working;
  };
  std::vector<std::thread> threads;
  for (const int target : {1, 2, 18}) threads.emplace_back(work, target);
  while (working > 0) {
    const std::scoped_lock held(guard);
    stripes.close([&](const HeldLock& lock) {
      ++given;
      while (holders[static_cast<std::size_t>(lock.target)] == 0) std::this_thread::yield();
      release(lock);
      ControlWord::fetch_add(words[lock.target], LockWord::depart(lock.type));
    });
    stripes.open();
  }
  for (std::thread& each : threads) each.join();
  stripes.close([&](const HeldLock&) { ++wrong; });
  CHECK(wrong == 0);
  CHECK(taken == given + released);
  CHECK(given > 0);
  CHECK(released > 0);
  for (const std::uint64_t word : words.words) CHECK(!LockWord::locked(word));
}

}  // namespace farside::lock_stripes_test

// SPDX-License-Identifier: BSD-3-Clause
// LockStripes: the locks that threads take on mapped targets without the guard of their window, so that threads on
// different targets write to no common cache line. A stripe holds at most one lock. The target selects the stripe, so
// threads that lock or unlock the same target exclude each other by the mutex of that stripe.
//
// Rules:
//
//   1. While the stripes are open, the epoch state has no open access epoch, and does not know of the locks in the
//      stripes. A thread opens them under the guard of the window.
//   2. A thread that has the guard closes the stripes before it reads or changes the epoch state. close() gives the
//      locks that they hold to the epoch state and the lock table, and from then on these have the whole state.
//   3. A lock is taken at once or not at all: by a compare-and-swap that finds no contender in the lock word. It takes
//      no ticket that it would have to wait for, and so needs no wake word (rule 1 of lock_table.hpp).
//
// close() first sets open_ to false and then locks the mutex of each stripe that was ever used. A thread that has
// locked this mutex before has finished by then, and a thread that locks it later sees that the stripes are closed. At
// the first use of a stripe, either close() sees the bit in used_, or the thread sees open_ = false, because all
// accesses to both are sequentially consistent.
//
// Thread safety: any thread; open(), close() under the guard. Cost: per lock and unlock one entry of a biased mutex and
// one atomic on the lock word, which is mapped. Memory: 2 KiB.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "transport/base/atomics.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

template <class Mutex>
class LockStripes {
 public:
  static constexpr std::size_t kStripes = 16;

  bool is_open() const { return open_.load(std::memory_order_relaxed); }
  // Whether a stripe holds a lock of the target, which may be any number. If it changes during the call, the result is
  // either.
  bool holds(int target) const { return at(target).target == target; }

  // Takes a lock, or returns false and changes nothing. word_of(target) returns the lock word of the target, or null if
  // that is not mapped; it is not asked again for the target that the stripe held last.
  template <class WordOf>
  [[gnu::always_inline]] bool try_lock(int target, LockType type, WordOf&& word_of) {
    Stripe& stripe = at(target);
    const std::scoped_lock held(stripe.mutex);
    if (!stripe.used) begin_use(stripe);
    if (!open_.load(std::memory_order_seq_cst) || stripe.target != kNobody) return false;
    if (stripe.known != target) {
      std::uint64_t* const word = word_of(target);
      if (word == nullptr) return false;
      stripe.known = target;
      stripe.word = word;
    }
    std::uint64_t before = LockWord::with_nobody_present(ControlWord::look(*stripe.word));
    if (!try_acquire(*stripe.word, type, before)) return false;
    stripe.token = LockToken(LockWord::ticket(before));
    stripe.type = type;
    stripe.taken = true;
    stripe.target = target;
    return true;
  }

  // Releases the lock that a stripe holds on the target. False: none does, and nothing has changed. `before`: what the
  // lock word held; if others wait (LockPlace::nobody_waits()), the caller hands `lock` off.
  [[gnu::always_inline]] bool try_unlock(int target, HeldLock& lock, std::uint64_t& before) {
    Stripe& stripe = at(target);
    const std::scoped_lock held(stripe.mutex);
    if (stripe.target != target) return false;
    lock = lock_of(stripe);
    before = ControlWord::fetch_add(*stripe.word, LockWord::depart(stripe.type));
    stripe.target = kNobody;
    return true;
  }

  void open() { open_.store(true, std::memory_order_seq_cst); }
  // Calls give(lock) for each lock that a stripe holds. Returns whether any lock was taken since the stripes were
  // opened. Does nothing if they are closed.
  template <class Give>
  bool close(Give&& give) {
    if (!is_open()) return false;
    open_.store(false, std::memory_order_seq_cst);
    const std::uint32_t used = used_.load(std::memory_order_seq_cst);
    bool taken = false;
    for (std::size_t i = 0; i < kStripes; ++i) {
      if ((used >> i & 1) == 0) continue;
      Stripe& stripe = stripes_[i];
      const std::scoped_lock held(stripe.mutex);
      taken = taken || stripe.taken;
      stripe.taken = false;
      if (stripe.target == kNobody) continue;
      give(lock_of(stripe));
      stripe.target = kNobody;
    }
    return taken;
  }

 private:
  // Differs from each int, so it is equal to no rank that the program may pass.
  static constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::min();
  // Processors load cache lines in pairs.
  struct alignas(128) Stripe {
    Mutex mutex;
    Published<std::int64_t> target = kNobody;  // of the lock that it holds
    // Guarded by the mutex:
    std::int64_t known = kNobody;  // whose word `word` is
    std::uint64_t* word = nullptr;
    LockToken token;
    LockType type = LockType::kShared;
    bool used = false;   // its bit in used_ is set
    bool taken = false;  // a lock was, since close()
  };

  static std::size_t index_of(int target) { return static_cast<unsigned>(target) % kStripes; }
  Stripe& at(int target) { return stripes_[index_of(target)]; }
  const Stripe& at(int target) const { return stripes_[index_of(target)]; }
  static HeldLock lock_of(const Stripe& stripe) {
    return {
        .target = static_cast<int>(stripe.target), .type = stripe.type, .needs_release = true, .token = stripe.token};
  }
  void begin_use(Stripe& stripe) {
    stripe.used = true;
    used_.fetch_or(1U << (&stripe - stripes_.data()), std::memory_order_seq_cst);
  }

  std::atomic<bool> open_{false};
  std::atomic<std::uint32_t> used_{0};  // a bit per stripe
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace farside::epochs

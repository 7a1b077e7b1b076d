// SPDX-License-Identifier: BSD-3-Clause
// The state of a process's locks in one window: the locks of targets, the global lock behind them, the wake words
// of its waiting threads, a deferred lock, and the locks of a lock_all. LockTable is that state, with its rules. The
// window enters the locks of targets and removes them; the protocols of lock_calls.hpp change the rest.
//
// Rules:
//
//   1. A thread that may wait owns one wake word for each lock that it waits at. It owns them from before it takes a
//      ticket until no peer can write to them any more.
//   2. An exclusive lock needs the global lock, in a window that has one. One thread acquires the global lock for all
//      exclusive locks of the process, and the others wait for that thread: a second acquisition would wait for a
//      lock_all that waits for the first one.
//   3. The last exclusive lock of the process releases the global lock, after the data of all of them are complete. The
//      release may accompany that of the target's lock if no other exclusive lock is left, and if the data are complete
//      or the home of the global lock is the target, whose route orders the release behind them.
//   4. At most one lock of the process is deferred: the one that was requested last. The process acquires it before any
//      other lock, because locks are acquired in the order of the calls.
//   5. A lock_all begins when the preceding one is released. Without a global lock it acquires every rank's lock in the
//      order of ranks, and a lock word counts at most one lock_all of each process (LockWord::kMostLockAlls).
//   6. A lock that saw an exposure (ExposureMark) is released and refused, or kept with FARSIDE_CHECK=warn.
//   7. If an operation fails, the protocol releases exactly what it has acquired. A wake word that a peer may still
//      write to after a failed acquisition stays in use.
//   8. An exclusive lock that acquires the global lock for its process may use a near lock (near_lock.hpp). It passes
//      to the next rank of the node together with the global lock, which no other exclusive lock of the process may
//      need, once its data are complete at the target. One thread of a process uses the near words at a time.
//   9. If no lock_all can ever acquire the global lock again (LoseGlobalLock), exclusive locks do without it, and
//      without near locks, whose ranks must agree on whether they hand on the global lock.
//
// Thread safety: the functions are called with the guard held, but for the tokens of a lock_all, which belong to the
// thread that is in that lock_all. Memory: 16 bytes per lock held.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "transport/base/atomics.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::epochs {

// A lock of a target that this process holds, or has deferred.
struct HeldLock {
  std::int32_t target = 0;
  LockType type = LockType::kShared;
  bool needs_release = false;  // false with MPI_MODE_NOCHECK
  bool fast = false;           // taken by one atomic, on the fast path
  std::uint8_t near = 0;       // in a near lock (near_lock.hpp): 1 + the hand-offs in a row; else 0
  LockToken token = {};        // for the release

  // Whether this is the exclusive lock of `rank` that is held now, given the rank's lock word: the holder has the
  // earliest ticket of those that are present. The result is also correct for an entry whose lock was released by a
  // departure long ago, unless the ticket counter has wrapped around since.
  bool holds_alone(int rank, std::uint64_t lock_word) const {
    if (target != rank || type != LockType::kExclusive || !needs_release) return false;
    const std::uint64_t present = LockWord::writers(lock_word) + LockWord::readers(lock_word);
    return LockWord::writers(lock_word) > 0 &&
           LockWord::distance(LockWord::ticket(lock_word), token.ticket()) + token.predecessors() + token.owed() ==
               present;
  }
};
// Its two words are read by other ranks (ControlBlock::kHeld).
static_assert(sizeof(HeldLock) == 16 && std::is_trivially_copyable_v<HeldLock>);

// Traits: what a process and the explorer of interleavings do differently.
//   List<T>         push_back, back, pop_back, end, empty, size, rbegin, rend
//   Guard           what guard() returns: holds a mutex where there are threads
//   Mutex           its argument
//   kMostRanks      of a window without a global lock
template <class Traits>
class LockTable {
 public:
  static constexpr int kNoGlobalLock = -1;
  static constexpr std::size_t kMostRanks = Traits::kMostRanks;
  using Locks = typename Traits::template List<HeldLock>;

  LockTable() = default;
  // `home`: the rank that has the global lock, or kNoGlobalLock.
  LockTable(int self, int ranks, int home) : self_(self), ranks_(ranks), home_(home) {}

  using Guard = typename Traits::Guard;
  [[nodiscard]] Guard guard() { return Guard(mutex_); }
  typename Traits::Mutex& mutex() { return mutex_; }
  const typename Traits::Mutex& mutex() const { return mutex_; }

  int self() const { return self_; }
  int ranks() const { return ranks_; }
  int home() const { return home_; }
  bool has_global_lock() const { return home_ != kNoGlobalLock; }
  bool needs_global_lock(LockType type) const {
    return has_global_lock() && type == LockType::kExclusive && !global_lock_lost_;
  }
  void lose_global_lock() { global_lock_lost_ = true; }  // rule 9

  // The locks of targets, in the order in which they were acquired; a deferred lock is the last one.
  Locks& locks() { return locks_; }
  const Locks& locks() const { return locks_; }
  // The type of the lock of the target; shared if there is none.
  LockType type_of(int target) const {
    const auto found =
        std::find_if(locks_.begin(), locks_.end(), [&](const HeldLock& l) { return l.target == target; });
    return found == locks_.end() ? LockType::kShared : found->type;
  }
  // Takes the lock of the target out of the table. Precondition: there is one.
  HeldLock take(int target) {
    // The last one acquired is mostly the first one released.
    const auto found =
        std::find_if(locks_.rbegin(), locks_.rend(), [&](const HeldLock& l) { return l.target == target; });
    std::rotate(std::next(found).base(), found.base(), locks_.end());
    const HeldLock lock = locks_.back();
    // Other ranks may still read the entry, whose lock they cannot tell from one that is held (LockToken::kSuccessor).
    // Atomic, or the compiler may omit the store, since the entry ends here.
    std::atomic_ref(locks_.back().needs_release).store(false, std::memory_order_relaxed);
    locks_.pop_back();
    return lock;
  }

  // Rule 4.
  void defer(int target, LockType type) {
    locks_.push_back({target, type, true});
    deferred_ = true;
  }
  bool has_deferred() const { return deferred_; }
  HeldLock& deferred() { return locks_.back(); }
  // Ends the deferral, when the lock is acquired or its message is sent.
  void resume_deferred() { deferred_ = false; }

  // Rule 1. Returns false and changes nothing if not so many words are free.
  bool claim_wake_words(std::span<std::uint32_t> words) {
    std::uint32_t in_use = wake_words_;
    for (std::uint32_t& word : words) {
      word = static_cast<std::uint32_t>(std::countr_one(in_use));
      if (word >= ControlBlock::kWakeWords) return false;
      in_use |= 1U << word;
    }
    wake_words_ = in_use;
    return true;
  }
  // Ends the use of a claimed word. `may_wake`: a peer may still write to it, and it stays in use for ever (rule 7).
  void end_wake_word(std::uint32_t word, bool may_wake) {
    if (may_wake) {
      ++kept_wake_words_;
    } else {
      wake_words_ &= ~(1U << word);
    }
  }
  // Whether `count` wake words are free or can become free.
  bool can_have_wake_words(std::uint32_t count) const { return kept_wake_words_ + count <= ControlBlock::kWakeWords; }
  std::uint32_t kept_wake_words() const { return kept_wake_words_; }
  std::uint32_t wake_words_in_use() const { return wake_words_; }

  // Rule 2. kFirst: the caller acquires the global lock and calls entered(). kWait: another thread is acquiring it.
  enum class Entry : std::uint8_t { kWait, kFirst, kInside };
  Entry enter_global_lock() {
    if (entering_) return Entry::kWait;
    entering_ = users_++ == 0;
    return entering_ ? Entry::kFirst : Entry::kInside;
  }
  // `token`: that of the global lock; nothing if its acquisition has failed.
  void entered(const std::optional<LockToken>& token) {
    if (token) {
      global_lock_token_ = *token;
    } else {
      users_ = 0;
    }
    entering_ = false;
  }
  // Rule 3. The token of the global lock, if the caller is its last user and releases it now.
  std::optional<LockToken> leave_global_lock() {
    return --users_ == 0 ? std::optional(global_lock_token_) : std::nullopt;
  }
  std::optional<LockToken> leave_global_lock_if_alone() {
    if (users_ != 1) return {};
    users_ = 0;
    return global_lock_token_;
  }

  // Rules 8 and 9. Returns false if the near words of this rank are in use, or must not be used.
  bool begin_near() { return !global_lock_lost_ && !std::exchange(near_, true); }
  void end_near() { near_ = false; }

  // Rule 5. Returns false if the preceding lock_all is not released yet.
  bool begin_lock_all() { return !std::exchange(in_lock_all_, true); }
  void end_lock_all() { in_lock_all_ = false; }
  // The locks of a lock_all: the global lock, or one per rank; where they are, and their tokens. A lock word counts
  // lock_alls of other ranks in its own field. That of the rank itself needs no such mark, because the rank does
  // not post during its own lock_all.
  int locks_of_lock_all() const { return has_global_lock() ? 1 : ranks_; }
  int rank_of_lock_all(int lock) const { return has_global_lock() ? home_ : lock; }
  LockOf of_lock_all(int lock) const {
    return has_global_lock() ? LockOf::kGlobal : lock == self_ ? LockOf::kTarget : LockOf::kAll;
  }
  LockToken& lock_all_token(int lock) { return lock_all_tokens_[static_cast<std::size_t>(lock)]; }

  // Whether nothing is held or waited for.
  bool is_idle() const { return locks_.empty() && !deferred_ && users_ == 0 && !entering_ && !in_lock_all_ && !near_; }

 private:
  typename Traits::Mutex mutex_;
  Locks locks_;
  std::int32_t self_ = 0;
  std::int32_t ranks_ = 1;
  std::int32_t home_ = kNoGlobalLock;
  std::uint32_t wake_words_ = 0;       // bits: those in use
  std::uint32_t kept_wake_words_ = 0;  // of these, in use for ever
  std::uint32_t users_ = 0;            // exclusive locks that this process holds or waits for, under the global lock
  bool entering_ = false;              // a thread acquires the global lock, and the others wait for it
  bool deferred_ = false;              // the last lock in locks_ is
  bool in_lock_all_ = false;
  bool global_lock_lost_ = false;
  bool near_ = false;            // a thread uses the near words of this rank
  LockToken global_lock_token_;  // of the exclusive locks
  std::array<LockToken, kMostRanks> lock_all_tokens_{};
};

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

// SPDX-License-Identifier: BSD-3-Clause
// Passive target synchronization of a window (MPI 4.0 sections 12.5.3 and 12.5.4): locks, flushes, sync. Each function
// without try_ is one MPI call: it checks the arguments, asks the epoch state, acts, and returns a Status. The try_
// functions are fast paths, inline in the entry point: an uncontended lock or unlock is one atomic, and a flush of a
// mapped target is a fence. Each condition there is a condition of the slow path, or stricter. always_inline: without
// it the compiler stops inlining them as soon as they grow a little, and a call costs a fifth of their time.
//
// Cost in remote operations: epochs/lock.md. Thread safety: that of WindowState.
#pragma once

#include <cstdint>
#include <optional>

#include "epochs/protocols/lock_words.hpp"
#include "epochs/protocols/near_lock.hpp"
#include "pmpi/window/window_state.hpp"

namespace farside::pmpi {

class PassiveTarget {
 public:
  explicit PassiveTarget(WindowState& window) : window_(window) {}

  [[gnu::always_inline]] bool try_flush(int rank);
  // kContended: other processes are in the lock word. lock() then makes the whole call. An unlock has departed; the
  // previous value of the word is in `before`, and hand_off() completes the call, with the lock in `lock`.
  [[gnu::always_inline]] FastPath try_lock(int lock_type, int rank, int assert);
  [[gnu::always_inline]] FastPath try_unlock(int rank, epochs::HeldLock& lock, std::uint64_t& before);
  // The same for a lock that a stripe holds (epochs/protocols/lock_table.hpp), in programs with threads.
  [[gnu::always_inline]] bool lock_in_stripe(int lock_type, int rank, int assert);
  [[gnu::always_inline]] FastPath unlock_in_stripe(int rank, epochs::HeldLock& lock, std::uint64_t& before);
  // Hands off a lock after its departure, which found `before` in the lock word, because others wait.
  Status hand_off(const epochs::HeldLock& lock, std::uint64_t before);

  Status lock(int lock_type, int rank, int assert);
  // `lock`: the one that is released, if the call succeeds.
  Status unlock(int rank, epochs::HeldLock& lock);
  Status lock_all(int assert);
  Status unlock_all();
  Status flush(int rank, bool locally);
  Status flush_all(bool locally);
  Status sync();

  // Acquires the deferred lock of this window, or of any.
  Status acquire_deferred_lock();
  static Status acquire_deferred() {
    return library().deferring != nullptr ? PassiveTarget(*library().deferring).acquire_deferred_lock() : Status();
  }
  // Makes the lock stripes of a window for several threads. Does nothing with FARSIDE_CHECK=strict, which must see each
  // lock, or if the control words of the node's ranks are not mapped.
  void use_stripes() {
    if (window_.strict != nullptr || !window_.space->words().mapped_in_nodes() || window_.lock_stripes != nullptr)
      return;
    window_.locks.locks().reserve(WindowLockStripes::kStripes);
    window_.lock_stripes = std::make_unique<WindowLockStripes>();
  }

 private:
  // The lock word of a target that is mapped and whose operations are complete when they return; else null.
  std::uint64_t* lock_word(int rank) const { return window_.space->words().fast(rank, epochs::kTargetLock.word()); }
  std::uint64_t* fast_lock_word(int rank);  // keeps the last one
  // Opens the stripes for a lock of the rank; returns whether it has.
  bool open_stripes(int rank);
  Status lock_slow(int lock_type, int rank, int assert);
  Status unlock_slow(int rank, epochs::HeldLock& lock);
  // Calls attempt() whenever the lock of the rank, whose word is mapped, is free, until attempt() does not return
  // kContended or a limit is reached.
  template <class Attempt>
  FastPath acquire_while_free(epochs::LockType type, int rank, Attempt&& attempt);
  // Acquires a lock by the lock table, and waits until it is held. `taken`: what the lock word held when a message took
  // the ticket of the lock, if one did.
  Status acquire(epochs::HeldLock& lock, const std::optional<std::uint64_t>& taken = {});
  Status acquire_or_defer(epochs::HeldLock lock);
  epochs::NearPlace near_place(const epochs::HeldLock& lock) const;
  // A lock may be deferred, to travel with its operations and its release in one message (MPI 4.0 section 12.5.3 lets
  // MPI_Win_lock return before the lock is held): one lock of the process, as the lock table says.
  bool may_defer(const epochs::HeldLock& lock) const;
  // Unlocks a lock that is still deferred. `over`: the epoch was one message; else the lock is held now.
  Status unlock_deferred(epochs::HeldLock& lock, bool& over);
  // Runs a protocol of the lock table to its end, also after failures of its operations, and returns the first error.
  // While it waits for a lock, it looks for dead ranks (LostLocks). Success without protocol.ok(): the lock needs the
  // global lock no longer, and is to be acquired again. `peer`: the target, for messages.
  Status run_to_end(auto& protocol, int peer = 0);

  WindowState& window_;
};

inline bool PassiveTarget::try_flush(int rank) {
  const bool fast =
      window_.fast == Fast::kReleases || (window_.fast == Fast::kLocks && !window_.space->queued_puts().any());
  if (!fast || !(window_.epoch.allows_fast(epochs::Call::kFlush, rank) || window_.holds_in_stripe(rank)) ||
      !window_.space->fast_immediate(rank))
    return false;
  WindowState::progress_runtime();
  this_thread.stores.drain();
  return true;
}

inline std::uint64_t* PassiveTarget::fast_lock_word(int rank) {
  if (rank == window_.last_locked) [[likely]]
    return window_.last_lock_word;
  std::uint64_t* word = lock_word(rank);
  if (word == nullptr) return nullptr;
  window_.last_locked = rank;
  window_.last_lock_word = word;
  window_.last_lock_value = 0;
  return word;
}

// An uncontended lock or unlock is one atomic. Precondition of both functions: no strict checks, and the guard is held
// if there are threads.
[[gnu::always_inline]] inline FastPath PassiveTarget::try_lock(int lock_type, int rank, int assert) {
  using epochs::LockType, epochs::LockWord;
  const LockType type = lock_type == MPI_LOCK_EXCLUSIVE ? LockType::kExclusive : LockType::kShared;
  const bool plain = (type == LockType::kExclusive || lock_type == MPI_LOCK_SHARED) && assert == 0;
  if (!plain || library().deferring != nullptr || window_.locks.needs_global_lock(type) ||
      !window_.epoch.allows_fast(epochs::Call::kLock))
    return FastPath::kNotTaken;
  std::uint64_t* word = fast_lock_word(rank);
  if (word == nullptr) return FastPath::kNotTaken;
  std::uint64_t before = window_.last_lock_value;
  if (!epochs::try_acquire(*word, type, before)) [[unlikely]]
    return FastPath::kContended;
  window_.epoch.pass_fast(epochs::Call::kLock, rank);
  // This lock is the only one, and the constructor has reserved memory for several. So the compiler may omit the code
  // that grows the vector.
  if (window_.locks.locks().size() == window_.locks.locks().capacity()) __builtin_unreachable();
  window_.locks.locks().push_back({.target = rank,
                                   .type = type,
                                   .needs_release = true,
                                   .fast = true,
                                   .token = epochs::LockToken(LockWord::ticket(before))});
  return FastPath::kDone;
}

[[gnu::always_inline]] inline FastPath PassiveTarget::try_unlock(int rank, epochs::HeldLock& lock,
                                                                 std::uint64_t& before) {
  using epochs::LockWord;
  auto& locks = window_.locks.locks();
  if (locks.empty() || locks.back().target != rank || !locks.back().fast ||
      !window_.epoch.allows_fast(epochs::Call::kUnlock, rank))
    return FastPath::kNotTaken;
  lock = locks.back();
  // The data have arrived already. last_lock_word belongs to this lock, which is the last lock of the fast path.
  before = ControlWord::fetch_add(*window_.last_lock_word, LockWord::depart(lock.type));
  window_.last_lock_value = LockWord::with_nobody_present(before);
  locks.pop_back();
  window_.epoch.pass_fast(epochs::Call::kUnlock);
  this_thread.stores.drained_by_atomic();
  return epochs::kTargetLock.nobody_waits(before, lock.type) ? FastPath::kDone : FastPath::kContended;
}

inline bool PassiveTarget::lock_in_stripe(int lock_type, int rank, int assert) {
  using epochs::LockType;
  const LockType type = lock_type == MPI_LOCK_EXCLUSIVE ? LockType::kExclusive : LockType::kShared;
  const bool plain = (type == LockType::kExclusive || lock_type == MPI_LOCK_SHARED) && assert == 0;
  if (window_.lock_stripes == nullptr || !plain || window_.locks.needs_global_lock(type)) return false;
  do {
    if (window_.lock_stripes->try_lock(
            rank, type, [&window = window_](int target) { return PassiveTarget(window).lock_word(target); })) [[likely]]
      return true;
  } while (open_stripes(rank));
  return false;
}

inline FastPath PassiveTarget::unlock_in_stripe(int rank, epochs::HeldLock& lock, std::uint64_t& before) {
  if (window_.lock_stripes == nullptr || !window_.lock_stripes->try_unlock(rank, lock, before))
    return FastPath::kNotTaken;
  this_thread.stores.drained_by_atomic();
  return epochs::kTargetLock.nobody_waits(before, lock.type) ? FastPath::kDone : FastPath::kContended;
}

}  // namespace farside::pmpi

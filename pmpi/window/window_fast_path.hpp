// SPDX-License-Identifier: BSD-3-Clause
// The fast path of the most frequent calls, executed in the entry point. An operation with one predefined datatype
// without gaps, in an epoch that allows it, on a mapped target, is a load or a store. A flush of such a target is a
// fence. An uncontended lock and a notification of a peer are one atomic each. Each condition here is a condition of
// the slow path (window_operations.cpp, window_passive.cpp), or stricter: a call that does not meet it takes the slow
// path, which executes or refuses it. window.hpp includes this file. The functions are inline and make no calls if they
// succeed; the slow path is a separate function (entry.hpp), so that an entry point saves no registers for it. The
// functions of put, get and flush have the attribute always_inline. Without it the compiler stops inlining them as soon
// as they grow a little, and a call costs a fifth of their time.
#pragma once

#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "pmpi/datatypes/reduce_op.hpp"
#include "pmpi/window/window.hpp"
#include "transport/node/device_memory.hpp"

namespace farside::pmpi {

// The size of `count` contiguous elements, or 0 if the type is not predefined or has gaps.
inline std::size_t plain_bytes(MPI_Datatype type, std::int64_t count) {
  if (static_cast<std::uint64_t>(count) >> 48 != 0) return 0;  // negative, or so large that the product may overflow
  return static_cast<std::size_t>(count) * predefined_table.plain_size(type);
}

// Whether the address is not null and its memory is known to be accessible to the CPU.
inline bool is_usable(const void* address) {
  return address != nullptr && (!DeviceMemory::possible() || DeviceMemory::is_known_host(address));
}

// Whether two buffers of so many bytes, at least one, have bytes in common.
inline bool overlap(const void* one, const void* other, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(one) - reinterpret_cast<std::uintptr_t>(other) + (bytes - 1) < 2 * bytes - 1;
}

inline Window::FastPlace Window::fast_place(int rank, MPI_Aint displacement, std::size_t bytes) const {
  if (bytes == 0 || !(epoch_.allows_fast_operation(rank) || holds_in_stripe(rank))) return {};
  const NodeTarget* target = nullptr;
  if (fast_targets_.contains(rank)) [[likely]] {
    target = &fast_targets_[rank];
  } else {
    target = fast_path_ ? space_->fast_target(rank) : nullptr;
    if (target == nullptr) return {};
  }
  std::byte* const data = target->data;
  if (data == nullptr) return {};
  std::int64_t offset = 0;
  if (__builtin_mul_overflow(std::int64_t{displacement}, std::int64_t{target->unit}, &offset)) return {};
  const auto at = static_cast<std::uint64_t>(offset);  // beyond any memory, if the displacement is negative
  if (at > target->bytes || bytes > target->bytes - at) return {};
  return {target, data + at};
}

[[gnu::always_inline]] inline bool Window::try_put(const LocalBuffer& origin, const RemoteBuffer& target) {
  if (origin.type != target.type || origin.count != target.count) return false;
  const std::size_t bytes = plain_bytes(origin.type, origin.count);
  const FastPlace to = fast_place(target.rank, target.displacement, bytes);
  if (to.at == nullptr || !is_usable(origin.address)) return false;
  space_->put_at(*to.target, to.at, origin.address, bytes);
  return true;
}

[[gnu::always_inline]] inline bool Window::try_get(const LocalBuffer& origin, const RemoteBuffer& target) {
  if (origin.type != target.type || origin.count != target.count) return false;
  const std::size_t bytes = plain_bytes(origin.type, origin.count);
  const FastPlace from = fast_place(target.rank, target.displacement, bytes);
  if (from.at == nullptr || !is_usable(origin.address)) return false;
  space_->get_at(*from.target, from.at, origin.address, bytes);
  return true;
}

// An exclusive lock excludes all other processes, unless it was locked with MPI_MODE_NOCHECK. It does not exclude other
// threads of this process, nor operations without a lock that are carried out all the same.
inline Space::Access Window::access(int rank) const {
  const auto& locks = locks_.locks();
  const bool alone = trusts_locks_ && !locks.empty() && locks.back().target == rank && locks.back().needs_release &&
                     locks.back().type == epochs::LockType::kExclusive;
  return alone ? Space::Access::kAlone : Space::Access::kShared;
}

inline bool Window::try_combine(const void* origin, void* result, std::int64_t count, MPI_Datatype type, int rank,
                                MPI_Aint displacement, MPI_Op op) {
  const Datatype* found = predefined_table.find(type);
  const std::optional<ReduceOp> reduce = find_reduce_op(op);
  if (found == nullptr || !found->basic || !reduce || !allowed(*reduce, *found->basic)) return false;
  if (result == nullptr && *reduce == ReduceOp::kNoOp) return false;
  const std::size_t bytes = plain_bytes(type, count);
  const FastPlace to = fast_place(rank, displacement, bytes);
  if (to.at == nullptr || (*reduce != ReduceOp::kNoOp && !is_usable(origin))) return false;
  const Space::Access among = access(rank);
  const auto elements = static_cast<std::size_t>(count);
  if (space_->try_add_at(*to.target, to.at, *reduce, *found->basic, origin, result, elements, among)) return true;
  if (result != nullptr && overlap(origin, result, bytes)) [[unlikely]]
    return false;
  space_->accumulate_at(*to.target, to.at, *reduce, *found->basic, origin, result, elements, among);
  return true;
}

inline bool Window::try_accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target,
                                   MPI_Op op) {
  const auto as_target = [&](const LocalBuffer& buffer) {
    return buffer.type == target.type && buffer.count == target.count;
  };
  if (!as_target(origin) || (result != nullptr && (!as_target(*result) || !is_usable(result->address)))) return false;
  return try_combine(origin.address, result != nullptr ? result->address : nullptr, target.count, target.type,
                     target.rank, target.displacement, op);
}

inline bool Window::try_fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank,
                                     MPI_Aint displacement, MPI_Op op) {
  return is_usable(result) && try_combine(origin, result, 1, type, rank, displacement, op);
}

inline bool Window::try_compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type,
                                         int rank, MPI_Aint displacement) {
  const Datatype* found = predefined_table.find(type);
  if (found == nullptr || !found->basic || !can_compare_and_swap(*found->basic)) return false;
  const FastPlace to = fast_place(rank, displacement, plain_bytes(type, 1));
  if (to.at == nullptr || !is_usable(origin) || !is_usable(compare) || !is_usable(result)) return false;
  space_->compare_and_swap_at(*to.target, to.at, *found->basic, origin, compare, result);
  return true;
}

inline bool Window::try_flush(int rank) {
  const bool fast = fast_releases_ || (fast_locks_ && !space_->keeps_puts());
  if (!fast || !(epoch_.allows_fast_flush(rank) || holds_in_stripe(rank)) || !space_->fast_immediate(rank))
    return false;
  progress_runtime();
  space_->drain_stores();
  return true;
}

inline std::uint64_t* Window::fast_lock_word(int rank) {
  if (rank == last_locked_) [[likely]]
    return last_lock_word_;
  std::uint64_t* word = lock_word(rank);
  if (word == nullptr) return nullptr;
  last_locked_ = rank;
  last_lock_word_ = word;
  last_lock_value_ = 0;
  return word;
}

// An uncontended lock or unlock is one atomic. Precondition of both functions: fast_path_, and the guard is held if
// there are threads.
[[gnu::always_inline]] inline Window::FastPath Window::try_lock(int lock_type, int rank, int assert) {
  using epochs::LockType, epochs::LockWord;
  const LockType type = lock_type == MPI_LOCK_EXCLUSIVE ? LockType::kExclusive : LockType::kShared;
  const bool plain = (type == LockType::kExclusive || lock_type == MPI_LOCK_SHARED) && assert == 0;
  if (!plain || deferring_ != nullptr || locks_.needs_global_lock(type) || !epoch_.allows_fast_lock())
    return FastPath::kNotTaken;
  std::uint64_t* word = fast_lock_word(rank);
  if (word == nullptr) return FastPath::kNotTaken;
  std::uint64_t before = last_lock_value_;
  if (!epochs::try_acquire(*word, type, before)) [[unlikely]]
    return FastPath::kContended;
  epoch_.fast_locked(rank, type);
  // This lock is the only one, and the constructor has reserved memory for several. So the compiler may omit the code
  // that grows the vector.
  if (locks_.locks().size() == locks_.locks().capacity()) __builtin_unreachable();
  locks_.locks().push_back({.target = rank,
                            .type = type,
                            .needs_release = true,
                            .fast = true,
                            .token = epochs::LockToken(LockWord::ticket(before))});
  return FastPath::kDone;
}

[[gnu::always_inline]] inline Window::FastPath Window::try_unlock(int rank, epochs::HeldLock& lock,
                                                                  std::uint64_t& before) {
  using epochs::LockWord, epochs::TargetLock;
  auto& locks = locks_.locks();
  if (locks.empty() || locks.back().target != rank || !locks.back().fast || !epoch_.allows_fast_unlock(rank))
    return FastPath::kNotTaken;
  lock = locks.back();
  // The data have arrived already. last_lock_word_ belongs to this lock, which is the last lock of the fast path.
  before = ControlMemory::fetch_add_now(*last_lock_word_, LockWord::depart(lock.type));
  last_lock_value_ = LockWord::with_nobody_present(before);
  locks.pop_back();
  epoch_.fast_unlocked();
  space_->stores_drained_by_atomic();
  return TargetLock::nobody_waits(before, lock.type) ? FastPath::kDone : FastPath::kContended;
}

inline bool Window::lock_in_stripe(int lock_type, int rank, int assert) {
  using epochs::LockType;
  const LockType type = lock_type == MPI_LOCK_EXCLUSIVE ? LockType::kExclusive : LockType::kShared;
  const bool plain = (type == LockType::kExclusive || lock_type == MPI_LOCK_SHARED) && assert == 0;
  if (lock_stripes_ == nullptr || !plain || locks_.needs_global_lock(type)) return false;
  do {
    if (lock_stripes_->try_lock(rank, type, [this](int target) { return lock_word(target); })) [[likely]]
      return true;
  } while (open_stripes(rank));
  return false;
}

inline Window::FastPath Window::unlock_in_stripe(int rank, epochs::HeldLock& lock, std::uint64_t& before) {
  if (lock_stripes_ == nullptr || !lock_stripes_->try_unlock(rank, lock, before)) return FastPath::kNotTaken;
  space_->stores_drained_by_atomic();
  return epochs::TargetLock::nobody_waits(before, lock.type) ? FastPath::kDone : FastPath::kContended;
}

// Spins for the time of some hand-offs between two cores, without progress of the endpoint or the runtime, until
// probe() returns kDone or kNotTaken. Returns that, or kContended if the time is over.
template <class Probe>
Window::FastPath spin_briefly(Probe&& probe) {
  constexpr int kProbes = 64;
  for (int probes = 0;; ++probes) {
    const Window::FastPath result = probe();
    if (result != Window::FastPath::kContended || probes == kProbes) return result;
    relax();
  }
}

// The only member of a group that is `known`, or MPI_UNDEFINED.
inline int Window::only_member(MPI_Group group, const KnownGroup& known) {
  return known.is(group) && known.members().size() == 1 ? known.members().front() : MPI_UNDEFINED;
}

// Precondition of the following five functions: fast_notifications_.
inline Window::FastPath Window::try_fence(int assert, std::uint64_t& word) {
  using epochs::BarrierWord, epochs::ControlBlock;
  const int rank = space_->rank(), ranks = space_->ranks();
  if (assert != 0 || ranks == 1 || !release_puts()) return FastPath::kNotTaken;
  {
    const auto held = guard();
    if (!epoch_.allows_fast_fence()) return FastPath::kNotTaken;
    epoch_.fast_fenced();
    word = enter_barrier(0);
  }
  const std::uint64_t count = BarrierWord::count(word);
  for (int round = 0, distance = 1; distance < ranks; ++round, distance *= 2) {
    const std::uint32_t at = ControlBlock::barrier_round(round);
    control_.notify_by_write(rank + distance < ranks ? rank + distance : rank + distance - ranks, at, word);
    std::uint64_t seen = 0;
    const FastPath passed = spin_briefly([&] {
      seen = control_.own(at);
      return BarrierWord::count(seen) >= count ? FastPath::kDone : FastPath::kContended;
    });
    if (passed != FastPath::kDone || BarrierWord::flags(seen, count) != 0) return FastPath::kContended;
  }
  space_->stores_drained_by_atomic();
  if (!fast_releases_) [[unlikely]]
    space_->finish_puts();
  progress_runtime();
  return FastPath::kDone;
}

inline bool Window::try_post(MPI_Group group, int assert) {
  using Notify = epochs::Notify<ControlMemory>;
  int origin = MPI_UNDEFINED;
  {
    const auto held = guard();
    origin = only_member(group, last_posted_);
    if (assert != 0 || origin == MPI_UNDEFINED || !epoch_.allows_fast_post(origin)) return false;
    if (marks_exposure_ && !epochs::ExposureMark<ControlMemory>::set(control_)) return false;
    epoch_.fast_posted();
  }
  const Notify::Notification notification = Notify::notification_of(space_->rank(), Notify::What::kPosted);
  control_.notify_now(origin, notification.word, notification.added);
  space_->stores_drained_by_atomic();
  return true;
}

inline bool Window::try_start(MPI_Group group, int assert) {
  using epochs::ControlBlock;
  // Each probe checks the epoch as well, since another thread may have started one meanwhile, and taken the post.
  return spin_briefly([&] {
           const auto held = guard();
           const int target = only_member(group, last_started_);
           if (assert != 0 || target == MPI_UNDEFINED || !epoch_.allows_fast_start(target)) return FastPath::kNotTaken;
           const std::uint32_t word = ControlBlock::posted_word(target);
           const std::uint64_t post = ControlBlock::posted_bit(target), no_put = ControlBlock::no_put_bit(target);
           const std::uint64_t posted = control_.own(word) & (post | no_put);
           if (posted == 0) return FastPath::kContended;
           if (posted != post) return FastPath::kNotTaken;
           ControlMemory::fetch_add_now(*space_->own_control_word(word), -post);
           epoch_.fast_started(target);
           return FastPath::kDone;
         }) == FastPath::kDone;
}

inline bool Window::try_complete() {
  if (!release_puts()) return false;
  int target = MPI_UNDEFINED;
  {
    const auto held = guard();
    if (!epoch_.allows_fast_complete()) return false;
    target = epoch_.started_group().front();
    epoch_.fast_completed();
  }
  control_.notify_now(target, epochs::ControlBlock::kCompleted, 1);
  space_->stores_drained_by_atomic();
  progress_runtime();
  return true;
}

inline bool Window::try_wait() {
  // Each probe checks the epoch as well, since another thread may have waited meanwhile.
  const FastPath ended = spin_briefly([&] {
    const auto held = guard();
    if (!epoch_.allows_fast_wait()) return FastPath::kNotTaken;
    if (!completions_.take(control_, 1)) return FastPath::kContended;
    if (marks_exposure_) epochs::ExposureMark<ControlMemory>::clear(control_);
    epoch_.exposure_ended(epochs::Call::kWait);
    return FastPath::kDone;
  });
  if (ended != FastPath::kDone) return false;
  if (!fast_releases_) [[unlikely]]
    space_->finish_puts();
  progress_runtime();
  return true;
}

inline void Window::progress_runtime() {
  constexpr unsigned kEvery = 64;
  if (calls_++ % kEvery == 0) [[unlikely]]
    progress_runtime_now();
}

}  // namespace farside::pmpi

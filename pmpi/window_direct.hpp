// SPDX-License-Identifier: BSD-3-Clause
// The direct way: what most calls are, done in place. An operation with one predefined datatype without gaps, in an epoch
// that allows it, within a target whose memory is mapped, is a load or a store; a flush of such a target is a fence; a
// lock that nobody holds is one atomic, and so is a notice to a peer. Each condition here is one of the general way (window_operations.cpp,
// window_passive.cpp), or stricter: a call that does not meet it goes there, to be done or to be refused with words.
// Included by window.hpp; inline, and without calls where it goes well, so that an entry point needs neither frame nor
// saved registers for it: what else there is to do is a function of its own (entry.hpp).
#pragma once

#include "epochs/exposure.hpp"
#include "epochs/lock_words.hpp"
#include "pmpi/reduce_op.hpp"
#include "pmpi/window.hpp"

namespace farside::pmpi {

// The size of `count` elements that lie in a row, or 0 if it is not to be told at a glance.
inline std::size_t plain_bytes(MPI_Datatype type, std::int64_t count) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;  // no product overflows; negative counts are beyond it
  if (static_cast<std::uint64_t>(count) > kMost) return 0;
  return static_cast<std::size_t>(count) * predefined_table.plain_size(type);
}

// Where `bytes` at the displacement lie in this process, if an operation may go there now; else null.
inline std::byte* Window::direct_address(int rank, MPI_Aint displacement, std::size_t bytes) const {
  if (!direct_ || bytes == 0 || !epoch_.operation_quickly(rank)) return nullptr;
  std::uint64_t at = 0;
  // A negative displacement is one beyond any memory.
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(displacement), static_cast<std::uint64_t>(displacement_unit(rank)),
                             &at)) {
    return nullptr;
  }
  const std::uint64_t room = space_->bytes(rank);
  if (at > room || bytes > room - at) return nullptr;
  std::byte* data = space_->mapped(rank);
  return data != nullptr ? data + at : nullptr;
}

[[gnu::always_inline]] inline bool Window::put_direct(const LocalBuffer& origin, const RemoteBuffer& target) {
  if (origin.type != target.type || origin.count != target.count) return false;
  const std::size_t bytes = plain_bytes(origin.type, origin.count);
  std::byte* to = direct_address(target.rank, target.displacement, bytes);
  if (to == nullptr || origin.address == nullptr) return false;
  space_->put_at(target.rank, to, origin.address, bytes);
  return true;
}

[[gnu::always_inline]] inline bool Window::get_direct(const LocalBuffer& origin, const RemoteBuffer& target) {
  if (origin.type != target.type || origin.count != target.count) return false;
  const std::size_t bytes = plain_bytes(origin.type, origin.count);
  const std::byte* from = direct_address(target.rank, target.displacement, bytes);
  if (from == nullptr || origin.address == nullptr) return false;
  space_->get_at(target.rank, from, origin.address, bytes);
  return true;
}

// An exclusive lock that was really taken keeps all others out; threads of this process it does not.
inline Space::Access Window::access(int rank) const {
  const bool alone = !threaded_ && !held_.empty() && held_.back().rank == rank && held_.back().taken &&
                     held_.back().type == epochs::LockType::kExclusive;
  return alone ? Space::Access::kAlone : Space::Access::kShared;
}

inline bool Window::combine_direct(const void* origin, void* result, std::int64_t count, MPI_Datatype type, int rank,
                                   MPI_Aint displacement, MPI_Op op) {
  const Datatype* found = predefined_table.find(type);
  const std::optional<ReduceOp> reduce = find_reduce_op(op);
  if (found == nullptr || !found->basic || !reduce || !allowed(*reduce, *found->basic)) return false;
  if (result == nullptr && *reduce == ReduceOp::kNoOp) return false;
  std::byte* at = direct_address(rank, displacement, plain_bytes(type, count));
  if (at == nullptr || (origin == nullptr && *reduce != ReduceOp::kNoOp)) return false;
  space_->accumulate_at(rank, at, *reduce, *found->basic, origin, result, static_cast<std::size_t>(count), access(rank));
  return true;
}

inline bool Window::accumulate_direct(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target,
                                      MPI_Op op) {
  const auto as_target = [&](const LocalBuffer& buffer) {
    return buffer.type == target.type && buffer.count == target.count;
  };
  if (!as_target(origin) || (result != nullptr && (!as_target(*result) || result->address == nullptr))) return false;
  return combine_direct(origin.address, result != nullptr ? result->address : nullptr, target.count, target.type,
                        target.rank, target.displacement, op);
}

inline bool Window::fetch_and_op_direct(const void* origin, void* result, MPI_Datatype type, int rank,
                                        MPI_Aint displacement, MPI_Op op) {
  return result != nullptr && combine_direct(origin, result, 1, type, rank, displacement, op);
}

inline bool Window::compare_and_swap_direct(const void* origin, const void* compare, void* result, MPI_Datatype type,
                                            int rank, MPI_Aint displacement) {
  const Datatype* found = predefined_table.find(type);
  if (found == nullptr || !found->basic || !can_compare_and_swap(*found->basic)) return false;
  std::byte* at = direct_address(rank, displacement, plain_bytes(type, 1));
  if (at == nullptr || origin == nullptr || compare == nullptr || result == nullptr) return false;
  space_->compare_and_swap_at(rank, at, *found->basic, origin, compare, result);
  return true;
}

inline bool Window::flush_direct(int rank) {
  if (!direct_ || !epoch_.flush_quickly(rank) || !space_->immediate(rank)) return false;
  look_after_runtime(direct_flushes_);
  space_->settle_stores();
  return true;
}

// The lock word of a target, if a lock of it can go the direct way: it is mapped, and operations there are complete when they
// return. Else null.
inline std::uint64_t* Window::direct_lock_word(int rank) {
  if (rank == direct_target_) [[likely]] return direct_word_;
  if (static_cast<unsigned>(rank) >= static_cast<unsigned>(epoch_.ranks()) || !space_->immediate(rank)) return nullptr;
  std::uint64_t* word = space_->control_word(rank, epochs::TargetLock::kWord);
  if (word == nullptr) return nullptr;
  direct_target_ = rank;
  direct_word_ = word;
  return word;
}

// A lock that nobody holds is one atomic, and so is its end. Precondition: direct_.
inline Window::Direct Window::lock_direct(int lock_type, int rank, int assert, std::uint64_t& before) {
  using epochs::LockType, epochs::LockWord, epochs::TargetLock;
  const LockType type = lock_type == MPI_LOCK_EXCLUSIVE ? LockType::kExclusive : LockType::kShared;
  const bool plain = (type == LockType::kExclusive || lock_type == MPI_LOCK_SHARED) && assert == 0;
  if (!plain || putting_off_ != nullptr || passes_gate(type) || !epoch_.may_lock_quickly()) return Direct::kNot;
  std::uint64_t* word = direct_lock_word(rank);
  if (word == nullptr) return Direct::kNot;
  before = ControlMemory::fetch_add_now(*word, LockWord::come(type));
  epoch_.locked_quickly(rank, type);
  if (!TargetLock::holds_at_once(before, type) || LockWord::exposed(before)) [[unlikely]] return Direct::kContended;
  // The only one, and for one there is room (the constructor): what a vector does if there is none is not even compiled.
  if (held_.size() == held_.capacity()) __builtin_unreachable();
  held_.push_back({rank, type, true, true, true, epochs::Hold(LockWord::ticket(before))});
  return Direct::kDone;
}

// Precondition: direct_.
inline Window::Direct Window::unlock_direct(int rank, std::uint64_t& before) {
  using epochs::LockWord, epochs::TargetLock;
  if (held_.empty() || held_.back().rank != rank || !held_.back().direct || !epoch_.may_unlock_quickly(rank)) return Direct::kNot;
  const epochs::LockType type = held_.back().type;
  // The data is there already. Nobody was locked directly since.
  before = ControlMemory::fetch_add_now(*direct_word_, LockWord::leave(type));
  if (!TargetLock::nobody_waits(before, type)) [[unlikely]] return Direct::kContended;
  end_direct_lock();
  look_after_runtime();
  return Direct::kDone;
}

inline void Window::end_direct_lock() {
  space_->stores_settled_by_atomic();
  held_.pop_back();
  epoch_.unlocked_quickly();
}

// Looks for a moment, without moving anything meanwhile: some hand-overs between two cores. True as soon as `come` does.
template <class Come>
bool look_briefly(Come&& come) {
  constexpr int kLooks = 64;
  for (int looks = 0; !come(); ++looks) {
    if (looks == kLooks) return false;
    relax();
  }
  return true;
}

// The only member of a group, or of what was the last group here; else nobody.
inline int Window::only_member(MPI_Group group, const KnownGroup& known) {
  return known.is(group) && known.members().size() == 1 ? known.members().front() : MPI_UNDEFINED;
}

// Precondition of these five: direct_notices_.
inline Window::Direct Window::fence_direct(int assert, std::uint64_t& word) {
  using epochs::BarrierWord, epochs::ControlBlock;
  const int rank = space_->rank(), ranks = space_->ranks();
  if (assert != 0 || ranks == 1 || !epoch_.may_fence_quickly()) return Direct::kNot;
  epoch_.fenced_quickly();
  word = enter_barrier(0);
  for (int round = 0, distance = 1; distance < ranks; ++round, distance *= 2) {
    const std::uint32_t at = ControlBlock::barrier_word(round);
    control_.tell_word_now(rank + distance < ranks ? rank + distance : rank + distance - ranks, at, word);
    std::uint64_t heard = 0;
    const bool met = look_briefly([&] {
      heard = control_.own(at);
      return BarrierWord::count(heard) >= barriers_;
    });
    if (!met || BarrierWord::said(heard, barriers_) != 0) return Direct::kContended;
  }
  space_->stores_settled_by_atomic();
  look_after_runtime();
  return Direct::kDone;
}

inline bool Window::post_direct(MPI_Group group, int assert) {
  using Notify = epochs::Notify<ControlMemory>;
  const int origin = only_member(group, last_posted_);
  if (assert != 0 || origin == MPI_UNDEFINED || !epoch_.may_post_quickly(origin)) return false;
  if (marks_exposure_ && !epochs::ExposureMark<ControlMemory>::set(control_)) return false;
  epoch_.posted_quickly();
  const Notify::Notice notice = Notify::notice_of(space_->rank(), Notify::What::kPosted);
  control_.tell_now(origin, notice.word, notice.added);
  space_->stores_settled_by_atomic();
  return true;
}

inline bool Window::start_direct(MPI_Group group, int assert) {
  using epochs::ControlBlock;
  const int target = only_member(group, last_started_);
  if (assert != 0 || target == MPI_UNDEFINED || !epoch_.may_start_quickly(target)) return false;
  const std::uint32_t word = ControlBlock::posted_word(target);
  const std::uint64_t post = ControlBlock::posted_bit(target), promise = ControlBlock::no_put_bit(target);
  if (!look_briefly([&] { return (control_.own(word) & (post | promise)) != 0; })) return false;
  if ((control_.own(word) & promise) != 0) return false;
  ControlMemory::fetch_add_now(*space_->own_control_word(word), -post);
  epoch_.started_quickly(target);
  return true;
}

inline bool Window::complete_direct() {
  if (!epoch_.may_complete_quickly()) return false;
  const int target = epoch_.started_group().front();
  epoch_.completed_quickly();
  control_.tell_now(target, epochs::ControlBlock::kCompleted, 1);
  space_->stores_settled_by_atomic();
  look_after_runtime();
  return true;
}

inline bool Window::wait_direct() {
  if (!epoch_.may_wait_quickly() || !look_briefly([&] { return completions_.take(control_, 1); })) return false;
  if (marks_exposure_) epochs::ExposureMark<ControlMemory>::clear(control_);
  epoch_.exposure_ended(epochs::Call::kWait);
  look_after_runtime();
  return true;
}

inline void Window::look_after_runtime(std::atomic<std::uint64_t>& calls) {
  // Not a counter to rely on where there are threads: they may lose each other's steps.
  constexpr std::uint64_t kEvery = 64;
  const std::uint64_t count = calls.load(std::memory_order_relaxed) + 1;
  calls.store(count, std::memory_order_relaxed);
  if (count % kEvery == 0) [[unlikely]] look_after_runtime_now();
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/calls.hpp"

#include <utility>

#include "pmpi/window/active_target.hpp"
#include "pmpi/window/passive_target.hpp"
#include "pmpi/window/strict_calls.hpp"

namespace farside::pmpi {
namespace {

using Moment = WindowStatistics::Moment;

EpochKind kind_of(bool shared) { return shared ? EpochKind::kLockShared : EpochKind::kLockExclusive; }

// The call itself has succeeded.
template <class Enter>
void count(Enter&& enter) {
  (void)without_bad_alloc([&] { return enter(), Status(); });
}

}  // namespace

Calls::Calls(WindowState& window, std::unique_ptr<WindowStatistics> statistics, std::unique_ptr<StrictCalls> strict)
    : window_(window), strict_(std::move(strict)), statistics_(std::move(statistics)) {
  if (statistics_ != nullptr) window.fast_locks = window.fast_releases = window.fast_notifications = false;
}

Calls::~Calls() = default;

Outcome Calls::transfer(const LocalBuffer& origin, const RemoteBuffer& target, bool put) {
  Operations operations(window_);
  if (strict_ == nullptr && statistics_ == nullptr && is_usable(origin.address)) [[likely]] {
    if (std::optional<Outcome> done = operations.transfer_plain(origin, target, put)) return std::move(*done);
  }
  CheckedOperation checked;
  return execute(operations.check_transfer(origin, target, put, checked), checked);
}

Outcome Calls::accumulate(const LocalBuffer& origin, const LocalBuffer* result, const RemoteBuffer& target, MPI_Op op) {
  CheckedOperation checked;
  return execute(Operations(window_).check_accumulate(origin, result, target, op, checked), checked);
}

Outcome Calls::fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint displacement,
                            MPI_Op op) {
  if (Outcome o = Operations::check_fetch_and_op(type); !o) return o;
  const LocalBuffer from{const_cast<void*>(origin), 1, type}, to{result, 1, type};
  return accumulate(from, &to, {rank, displacement, 1, type}, op);
}

Outcome Calls::compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                                MPI_Aint displacement) {
  const LocalBuffer fetched{result, 1, type};
  const RemoteBuffer target{rank, displacement, 1, type};
  CheckedOperation checked;
  return execute(Operations(window_).check_compare_and_swap(origin, compare, fetched, target, checked), checked);
}

Outcome Calls::execute(Outcome valid, const CheckedOperation& operation) {
  if (!valid || operation.bytes == 0) return valid;
  if (DeviceMemory::possible()) [[unlikely]] {
    if (std::optional<Outcome> staged = stage(operation)) return std::move(*staged);
  }
  return execute_on_host(operation);
}

Outcome Calls::execute_on_host(const CheckedOperation& operation) {
  const int rank = operation.target.rank;
  // Its checks and delays are not counted as time of the operation.
  if (strict_ != nullptr) [[unlikely]]
    return strict_->execute(operation);
  // Loads and stores are counted by the space.
  if (statistics_ == nullptr || window_.space->mapped_target(rank) != nullptr) [[likely]]
    return Operations(window_).execute(operation);
  const Moment begun = WindowStatistics::begin();
  Outcome outcome = Operations(window_).execute(operation);
  if (outcome) count([&] { statistics_->operated(rank, operation.call, operation.bytes, begun); });
  return outcome;
}

template <class Call, class Enter, class... Args>
Outcome Calls::counted(Call&& call, Enter enter, Args... arguments) {
  if (statistics_ == nullptr) [[likely]]
    return call();
  const Moment begun = WindowStatistics::begin();
  Outcome outcome = call();
  if (outcome) count([&] { (*statistics_.*enter)(arguments..., begun); });
  return outcome;
}

Outcome Calls::request_completed(std::uint64_t watched) {
  return strict_ == nullptr || watched == 0 ? Outcome() : strict_->request_completed(watched);
}

Outcome Calls::fence(int assert) {
  return counted([&] { return strict_ != nullptr ? strict_->fence(assert) : ActiveTarget(window_).fence(assert); },
                 &WindowStatistics::fenced, (assert& MPI_MODE_NOSUCCEED) != 0);
}

Outcome Calls::post(MPI_Group group, int assert) {
  return counted([&] { return ActiveTarget(window_).post(group, assert); }, &WindowStatistics::opened, EpochKind::kPost,
                 -1, WaitKind::kWait);
}

Outcome Calls::start(MPI_Group group, int assert) {
  return counted([&] { return ActiveTarget(window_).start(group, assert); }, &WindowStatistics::opened,
                 EpochKind::kStart, -1, WaitKind::kStart);
}

Outcome Calls::complete() {
  return counted([&] { return strict_ != nullptr ? strict_->complete() : ActiveTarget(window_).complete(); },
                 &WindowStatistics::closed, EpochKind::kStart, -1, WaitKind::kComplete);
}

Outcome Calls::wait() {
  return counted([&] { return strict_ != nullptr ? strict_->wait() : ActiveTarget(window_).wait(); },
                 &WindowStatistics::closed, EpochKind::kPost, -1, WaitKind::kWait);
}

Outcome Calls::test(int* flag) {
  const Moment begun = statistics_ != nullptr ? WindowStatistics::begin() : Moment{};
  Outcome outcome = strict_ != nullptr ? strict_->test(flag) : ActiveTarget(window_).test(flag);
  if (statistics_ != nullptr && outcome && *flag != 0)
    count([&] { statistics_->closed(EpochKind::kPost, -1, WaitKind::kWait, begun); });
  return outcome;
}

Outcome Calls::lock(int lock_type, int rank, int assert) {
  const auto call = [&] { return PassiveTarget(window_).lock(lock_type, rank, assert); };
  if (rank == MPI_PROC_NULL) return call();
  return counted(call, &WindowStatistics::opened, kind_of(lock_type == MPI_LOCK_SHARED), rank, WaitKind::kLock);
}

Outcome Calls::unlock(int rank) {
  epochs::HeldLock released;
  const Moment begun = statistics_ != nullptr ? WindowStatistics::begin() : Moment{};
  Outcome outcome =
      strict_ != nullptr ? strict_->unlock(rank, released) : PassiveTarget(window_).unlock(rank, released);
  const EpochKind kind = kind_of(released.type == epochs::LockType::kShared);
  if (statistics_ != nullptr && outcome && rank != MPI_PROC_NULL)
    count([&] { statistics_->closed(kind, rank, WaitKind::kUnlock, begun); });
  return outcome;
}

Outcome Calls::lock_all(int assert) {
  return counted([&] { return PassiveTarget(window_).lock_all(assert); }, &WindowStatistics::opened,
                 EpochKind::kLockAll, -1, WaitKind::kLock);
}

Outcome Calls::unlock_all() {
  return counted([&] { return strict_ != nullptr ? strict_->unlock_all() : PassiveTarget(window_).unlock_all(); },
                 &WindowStatistics::closed, EpochKind::kLockAll, -1, WaitKind::kUnlock);
}

Outcome Calls::flush_target(int rank, Completion completion) {
  const auto call = [&] {
    return strict_ != nullptr ? strict_->flush(rank, completion) : PassiveTarget(window_).flush(rank);
  };
  return rank == MPI_PROC_NULL ? call() : counted(call, &WindowStatistics::flushed, rank);
}

Outcome Calls::flush_targets(Completion completion) {
  const auto call = [&] {
    return strict_ != nullptr ? strict_->flush_all(completion) : PassiveTarget(window_).flush_all();
  };
  return counted(call, &WindowStatistics::flushed, -1);
}

Outcome Calls::sync() { return PassiveTarget(window_).sync(); }

}  // namespace farside::pmpi

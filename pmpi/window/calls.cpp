// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <utility>

#include "epochs/protocols/exposure.hpp"
#include "pmpi/check/strict.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "pmpi/window/window.hpp"
#include "transport/data/layout.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

using epochs::Access, epochs::EpochState, epochs::Exposure, epochs::LockType;
using Moment = WindowStatistics::Moment;

constexpr epochs::Violation kOperationWhilePosted =
    locked_and_exposed("operation under a lock_all on a target whose window is exposed by its MPI_Win_post",
                       "access it before that post or after the target's MPI_Win_wait");

EpochKind kind_of(bool shared) { return shared ? EpochKind::kLockShared : EpochKind::kLockExclusive; }

// A copy says whether the rules will allow a call.
EpochState epoch_of(WindowState& window) {
  const auto held = window.guard();
  return window.epoch;
}

bool holds_alone(WindowState& window, int rank) {
  const auto held = window.guard();
  return window.locks.type_of(rank) == LockType::kExclusive;
}

// Executes a call. If it succeeds, count(statistics, begun) records it in the window statistics.
template <class Count, class Call>
Status counted(WindowState& window, Count&& count, Call&& call) {
  WindowStatistics* const statistics = window.statistics.get();
  if (statistics == nullptr) [[likely]]
    return call();
  const Moment begun = WindowStatistics::begin();
  Status done = call();
  if (done) (void)without_bad_alloc([&] { count(*statistics, begun); });
  return done;
}

// The same for a call that completes operations. With FARSIDE_CHECK=strict, look(strict) looks at them before the call
// notifies other ranks, if the rules allow the call; the call follows whatever it finds.
template <class Count, class Look, class Call>
Status watched(WindowState& window, Count&& count, Look&& look, Call&& call) {
  if (window.strict == nullptr) [[likely]]
    return counted(window, count, call);
  Status found = without_bad_alloc([&]() -> Status { return look(*window.strict); });
  return first_of(counted(window, count, call), std::move(found));
}

// The same for a call that may end the exposure of the window.
template <class Count, class Call>
Status ending_exposure(WindowState& window, Count&& count, Call&& call) {
  const auto exposure = [&] { return epoch_of(window).exposure().state; };
  const bool exposed = window.strict != nullptr && exposure() == Exposure::kPosted;
  Status done = counted(window, count, call);
  if (!exposed || exposure() >= Exposure::kPosting) return done;
  return first_of(std::move(done), without_bad_alloc([&] { return window.strict->exposure_ended(); }));
}

// Counters of the calls that open and close epochs.
auto opened(EpochKind kind, int target, WaitKind waits) {
  return [=](WindowStatistics& statistics, const Moment& begun) { statistics.opened(kind, target, waits, begun); };
}
auto closed(EpochKind kind, int target, WaitKind waits) {
  return [=](WindowStatistics& statistics, const Moment& begun) { statistics.closed(kind, target, waits, begun); };
}
auto flushed(int target) {
  return [=](WindowStatistics& statistics, const Moment& begun) { statistics.flushed(target, begun); };
}

// Operations whose local buffers are in the memory of a GPU (transport/node/device_memory.hpp) use copies in the memory
// of the host, and are complete when the call returns.

// Such a buffer, and its copy in the memory of the host.
class StagedBuffer {
 public:
  StagedBuffer(const LocalBuffer& device, const Datatype& type) : device_(device), type_(type) {
    const auto count = static_cast<std::ptrdiff_t>(device.count);
    if (type.contiguous) {
      bytes_ = static_cast<std::size_t>(count) * type.size;
      return;
    }
    const std::ptrdiff_t stretch = (count - 1) * type.layout->extent();
    first_ = type.layout->true_lower_bound() + std::min<std::ptrdiff_t>(stretch, 0);
    const std::ptrdiff_t last = type.layout->true_upper_bound() + std::max<std::ptrdiff_t>(stretch, 0);
    bytes_ = static_cast<std::size_t>(last - first_);
  }
  // Takes memory for the copy: kNoMemory. If the operation reads the buffer, copies all bytes from the first to the
  // last one, gaps included, to the host.
  Status make(bool read) {
    copy_ = Process::instance().device_staging().take(bytes_, byte_at(device_.address, first_));
    if (copy_ == nullptr)
      return Error{ErrorKind::kNoMemory, fmt::format("no memory for a copy of {} bytes of a GPU's memory", bytes_)};
    return read ? Process::instance().device_memory().copy(copy_.get(), byte_at(device_.address, first_), bytes_)
                : Status();
  }
  // Copies the bytes of the data to the GPU, and leaves its gaps as they are.
  Status store() {
    DeviceMemory& memory = Process::instance().device_memory();
    if (type_.contiguous) return memory.copy(device_.address, copy_.get(), bytes_);
    const auto flat = Layout::basic(BasicType::kByte);
    ByteFragments fragments(*type_.layout, static_cast<std::size_t>(device_.count), *flat,
                            static_cast<std::size_t>(device_.count) * type_.size);
    for (Fragment fragment; fragments.next(fragment);) {
      const std::byte* const from = copy_.get() + (fragment.origin_offset - first_);
      if (Status done = memory.copy(byte_at(device_.address, fragment.origin_offset), from, fragment.count); !done)
        return done;
    }
    return {};
  }
  // The copy, in the place of the buffer. Valid as long as this object. Its address may be outside of the address
  // space, as only its sums with offsets of the data are used.
  LocalBuffer on_host() const { return {byte_at(copy_.get(), -first_), device_.count, device_.type}; }

 private:
  LocalBuffer device_;
  Datatype type_;
  std::ptrdiff_t first_ = 0;  // byte of the buffer, from its address
  std::size_t bytes_ = 0;
  DeviceStaging::Memory copy_;
};

}  // namespace

Status Window::operate(Operation& operation) {
  Operations operations(state_);
  const bool moves = operation.call == Counted::kPut || operation.call == Counted::kGet;
  if (moves && state_.strict == nullptr && state_.statistics == nullptr && is_usable(operation.origin.address))
      [[likely]] {
    if (std::optional<Status> done = operations.transfer_plain(operation)) return std::move(*done);
  }
  Status valid = operations.check(operation);
  if (!valid || operation.bytes == 0) return valid;
  if (DeviceMemory::possible()) [[unlikely]] {
    if (std::optional<Status> staged = stage(operation)) return std::move(*staged);
  }
  return execute(operation);
}

std::optional<Status> Window::stage(Operation& operation) {
  const bool get = operation.call == Counted::kGet;
  LocalBuffer compare{const_cast<void*>(operation.compare), 1, operation.target.type};
  struct Side {
    LocalBuffer* buffer;
    const Datatype* type;  // null: the operation has no such buffer
    bool read;
    std::shared_ptr<StagedBuffer> copy = {};
  };
  std::array<Side, 3> sides{
      {{&operation.origin, operation.reads_origin || get ? operation.origin_type : nullptr, operation.reads_origin},
       {&compare, operation.call == Counted::kCompareAndSwap ? operation.target_type : nullptr, true},
       {&operation.result, operation.fetches() ? operation.result_type : nullptr, false}}};
  bool any = false;
  for (Side& side : sides) {
    if (side.type == nullptr) continue;
    const std::ptrdiff_t first = side.type->contiguous ? 0 : side.type->layout->true_lower_bound();
    if (!Process::instance().device_memory().holds(byte_at(side.buffer->address, first))) continue;
    any = true;
    side.copy = std::make_shared<StagedBuffer>(*side.buffer, *side.type);
    if (Status made = side.copy->make(side.read); !made) return made;
    *side.buffer = side.copy->on_host();
  }
  if (!any) return std::nullopt;
  operation.compare = compare.address;
  Status done = execute(operation);
  if (!done) {
    // Parts of the operation may be under way, and use its copies.
    (void)state_.space->flush_all();
    return done;
  }
  const RemoteBuffer& target = operation.target;
  Status complete = state_.space->route(target.rank).flush(target.rank);
  for (Side& side : sides) {
    if (side.copy == nullptr) continue;
    // The call that completes the request reports its error.
    const bool has_failed = target.own != nullptr && target.own->has_error();
    if (complete && !side.read && !has_failed) complete = side.copy->store();
    if (state_.strict != nullptr) state_.strict->keep(std::move(side.copy));
  }
  return complete;
}

Status Window::execute(const Operation& operation) {
  const int rank = operation.target.rank;
  // Its checks and delays are not counted as time of the operation.
  if (state_.strict != nullptr) [[unlikely]]
    return execute_strictly(operation);
  // Loads and stores are counted by the space.
  if (state_.statistics == nullptr || &state_.space->route(rank) == &state_.space->mapped_route()) [[likely]]
    return Operations(state_).execute(operation);
  const Moment begun = WindowStatistics::begin();
  Status status = Operations(state_).execute(operation);
  if (status)
    (void)without_bad_alloc([&] { state_.statistics->operated(rank, operation.call, operation.bytes, begun); });
  return status;
}

Status Window::execute_strictly(const Operation& operation) {
  Strict::Epoch epoch = Strict::Epoch::kFence;
  bool of_lock_all = false;
  {
    const auto held = state_.guard();
    const Access access = state_.epoch.access();
    of_lock_all = access == Access::kLockedAll && !state_.lock_all_unchecked;
    if (access == Access::kStarted) epoch = Strict::Epoch::kStarted;
    if (access == Access::kLocked || access == Access::kLockedAll) epoch = Strict::Epoch::kPassive;
  }
  if (of_lock_all) {
    epochs::ReadExposure<ControlMemory> look(state_.control, operation.target.rank);
    if (Status looked = run(state_.space->words().wake_event(), look); !looked) return looked;
    if (look.exposed()) return fault_of(kOperationWhilePosted);
  }
  return state_.strict->watch(operation, epoch, [&] { return Operations(state_).execute(operation); });
}

Status Window::request_completed(std::uint64_t watched) {
  return state_.strict == nullptr || watched == 0 ? Status() : state_.strict->request_completed(watched);
}

Status Window::fence(int assert) {
  bool passes = false;
  const auto count = [&](WindowStatistics& statistics, const Moment& begun) {
    statistics.fenced((assert& MPI_MODE_NOSUCCEED) != 0, begun);
  };
  const auto look = [&](Strict& strict) {
    passes =
        (assert & ~ActiveTarget::kFenceAsserts) == 0 && !epoch_of(state_).fence(ActiveTarget::assert_of_fence(assert));
    return passes ? strict.fence_reached() : Status();
  };
  Status done = watched(state_, count, look, [&] { return active().fence(assert); });
  if (!passes) return done;
  Status kept = without_bad_alloc([&] { return state_.strict->fence_passed(); });
  // No rank accesses the window of another before that one has kept its bytes.
  return first_of(first_of(std::move(done), active().barrier(0)), std::move(kept));
}

Status Window::post(MPI_Group group, int assert) {
  const auto count = opened(EpochKind::kPost, -1, WaitKind::kWait);
  const auto look = [](Strict& strict) { return Status(strict.keep_image(Strict::Epoch::kStarted)); };
  return watched(state_, count, look, [&] { return active().post(group, assert); });
}

Status Window::sync() {
  const Status kept = state_.strict == nullptr ? Status() : state_.strict->keep_image();
  return first_of(passive().sync(), kept);
}

Status Window::start(MPI_Group group, int assert) {
  const auto count = opened(EpochKind::kStart, -1, WaitKind::kStart);
  return counted(state_, count, [&] { return active().start(group, assert); });
}

Status Window::complete() {
  const auto look = [&](Strict& strict) {
    EpochState before = epoch_of(state_);
    return before.started() && !before.complete() ? strict.start_completed() : Status();
  };
  const auto count = closed(EpochKind::kStart, -1, WaitKind::kComplete);
  return watched(state_, count, look, [&] { return active().complete(); });
}

Status Window::wait() {
  const auto count = closed(EpochKind::kPost, -1, WaitKind::kWait);
  return ending_exposure(state_, count, [&] { return active().wait(); });
}

Status Window::test(int* flag) {
  const auto count = [&](WindowStatistics& statistics, const Moment& begun) {
    if (*flag != 0) statistics.closed(EpochKind::kPost, -1, WaitKind::kWait, begun);
  };
  return ending_exposure(state_, count, [&] { return active().test(flag); });
}

Status Window::lock(int lock_type, int rank, int assert) {
  const auto call = [&] { return passive().lock(lock_type, rank, assert); };
  if (rank == MPI_PROC_NULL) return call();
  return counted(state_, opened(kind_of(lock_type == MPI_LOCK_SHARED), rank, WaitKind::kLock), call);
}

Status Window::unlock(int rank) {
  epochs::HeldLock released;
  const auto count = [&](WindowStatistics& statistics, const Moment& begun) {
    const EpochKind kind = kind_of(released.type == LockType::kShared);
    if (rank != MPI_PROC_NULL) statistics.closed(kind, rank, WaitKind::kUnlock, begun);
  };
  const auto look = [&](Strict& strict) {
    EpochState after = epoch_of(state_);
    if (!state_.has_rank(rank) || !after.locked(rank) || after.unlock(rank) || after.locked(rank)) return Status();
    return strict.completed(rank, false, holds_alone(state_, rank));
  };
  return watched(state_, count, look, [&] { return passive().unlock(rank, released); });
}

Status Window::lock_all(int assert) {
  const auto count = opened(EpochKind::kLockAll, -1, WaitKind::kLock);
  return counted(state_, count, [&] { return passive().lock_all(assert); });
}

Status Window::unlock_all() {
  const auto look = [&](Strict& strict) {
    EpochState after = epoch_of(state_);
    const bool locked = after.access() == Access::kLockedAll;
    return locked && !after.unlock_all() && after.access() != Access::kLockedAll ? strict.completed_all() : Status();
  };
  const auto count = closed(EpochKind::kLockAll, -1, WaitKind::kUnlock);
  return watched(state_, count, look, [&] { return passive().unlock_all(); });
}

Status Window::wait_notified(int counter, MPI_Count threshold) {
  const auto count = [](WindowStatistics& statistics, const Moment& begun) { statistics.notified(begun); };
  return counted(state_, count, [&] { return Notifications(state_).wait(counter, threshold); });
}

Status Window::flush_target(int rank, bool locally) {
  const auto look = [&](Strict& strict) {
    EpochState before = epoch_of(state_);
    if (!state_.has_rank(rank) || before.flush(rank)) return Status();
    strict.flushes(rank);
    return strict.completed(rank, locally, holds_alone(state_, rank));
  };
  const auto call = [&] { return passive().flush(rank, locally); };
  return rank == MPI_PROC_NULL ? call() : watched(state_, flushed(rank), look, call);
}

Status Window::flush_targets(bool locally) {
  const auto look = [&](Strict& strict) {
    if (epoch_of(state_).flush_all()) return Status();
    if (!locally) return strict.completed_all();
    Status first;
    for (int rank = 0; rank < state_.space->ranks(); ++rank) first.keep(strict.completed(rank, true, false));
    return first;
  };
  return watched(state_, flushed(-1), look, [&] { return passive().flush_all(locally); });
}

}  // namespace farside::pmpi

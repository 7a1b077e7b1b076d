// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/notifications.hpp"

#include <atomic>
#include <memory>
#include <ranges>

#include "pmpi/window/wait_reports.hpp"
#include "transport/process.hpp"
#include "transport/routes/fabric/fabric_route.hpp"

namespace farside::pmpi {
namespace {

constexpr epochs::Violation kInEpoch{epochs::ErrorClass::kRmaSync, "notification counters attached in an access epoch",
                                     "close the epoch first, on all processes", "MPI 4.0 section 12.5, mpi-issues 59"};

Status check_counter(int counter, std::uint32_t attached, int rank) {
  if (static_cast<std::uint32_t>(counter) < attached) return {};
  return Fault{MPI_ERR_RMA_RANGE,
               fmt::format("rank {} has {} notification counters, from 0 on, and no counter {}; attach more by "
                           "MPIX_Win_set_num_notify, on all processes (mpi-issues 59)",
                           rank, attached, counter)};
}

}  // namespace

Status Notifications::check(int counter) const {
  const std::uint64_t own = window_.control.own(attached_word());
  return check_counter(counter, static_cast<std::uint32_t>(own), window_.space->rank());
}

Result<std::uint32_t> Notifications::attached(int rank) {
  if (const ControlWords::Mapped block = window_.space->words().on_node(rank))
    return static_cast<std::uint32_t>(ControlWord::look(block.word(attached_word())));
  NotificationCounters* const counters = window_.notification_counters.get();
  if (counters == nullptr) return 0U;
  {
    const std::scoped_lock held(counters->mutex);
    if (const auto known = counters->attached.find(rank); known != counters->attached.end()) return known->second;
  }
  ControlMemory::Operation read;
  window_.control.read(read, rank, attached_word());
  if (Status done = window_.control.await(read); !done) return done.error();
  const std::scoped_lock held(counters->mutex);
  return counters->attached[rank] = static_cast<std::uint32_t>(read.value());
}

Status Notifications::begin(int rank, int counter, std::uint32_t& last_interruption) {
  if (!window_.has_rank(rank)) return {};  // MPI_PROC_NULL, or the operation will be refused
  const Result<std::uint32_t> there = attached(rank);
  if (!there) return there.status();
  Status valid = check_counter(counter, there.value(), rank);
  if (valid && !window_.space->route(rank).immediate())
    last_interruption = window_.space->fabric_route()->expect_notification(rank);
  return valid;
}

Status Notifications::notify(int rank, int counter, std::uint32_t last_interruption) {
  if (rank == MPI_PROC_NULL) return {};
  Route& route = window_.space->route(rank);
  route.count(rank, Counted::kNotified, 0);
  if (!route.immediate()) return window_.space->fabric_route()->notify(rank, word(counter), last_interruption);
  const bool by_cpu = window_.control.mapped(rank);
  if (Status ordered = by_cpu ? route.order_before_release(rank) : route.flush(rank); !ordered) return ordered;
  if (by_cpu) {
    window_.control.notify_now(rank, word(counter), 1);
    this_thread.stores.drained_by_atomic();
    return {};
  }
  // The adapter adds. A flush of a target whose data are mapped waits for nothing, so this does.
  ControlMemory::Operation add;
  window_.control.fetch_add(add, rank, word(counter), 1);
  return window_.control.await(add);
}

Status Notifications::set_count(int count) {
  {
    const auto held = window_.guard();
    if (window_.epoch.access() > epochs::Access::kFenceOpen) return fault_of(kInEpoch);
  }
  Status own;
  if (count < 0 || count > static_cast<int>(ControlBlock::kNotificationCounters)) {
    own = Fault{MPI_ERR_ARG, fmt::format("{} notification counters are asked for; a process has 0 to {} in a window "
                                         "(mpi-issues 59)",
                                         count, ControlBlock::kNotificationCounters)};
  }
  auto& counters = window_.notification_counters;
  if (own && counters == nullptr)
    own = without_bad_alloc([&] { return counters = std::make_unique<NotificationCounters>(), Status(); });
  // Behind the first barrier none uses the old numbers, behind the second all have the new ones. Failures skip neither.
  ActiveTarget active(window_);
  own = first_of(active.barrier(0), std::move(own));
  if (own) {
    for (std::size_t i = 0; i < counters->own.size(); ++i)
      counters->own[i].reset(window_.control, word(static_cast<int>(i)));
    counters->interruptions = window_.control.interruptions();
    std::atomic_ref(*window_.space->words().own(attached_word()))
        .store(static_cast<std::uint64_t>(count), std::memory_order_release);
  }
  if (counters != nullptr) counters->attached.clear();
  return first_of(std::move(own), active.barrier(0));
}

Status Notifications::count(int rank, int* count) {
  if (Status o = window_.check_rank(rank); !o) return o;
  const Result<std::uint32_t> there = attached(rank);
  if (there) *count = static_cast<int>(there.value());
  return there.status();
}

Status Notifications::value(int counter, MPI_Count* value) {
  if (Status o = check(counter); !o) return o;
  // Programs poll with it, so this makes progress.
  WindowState::progress_runtime();
  Process::instance().poll();
  *value = now(counter);
  return {};
}

Status Notifications::reset(int counter, MPI_Count* value) {
  if (Status o = check(counter); !o) return o;
  auto& own = window_.notification_counters->own[static_cast<std::size_t>(counter)];
  *value = static_cast<MPI_Count>(own.reset(window_.control, word(counter)));
  return {};
}

Status Notifications::test(int counter, MPI_Count threshold, int* flag) {
  *flag = 0;
  if (Status o = check(counter); !o) return o;
  Process::instance().poll_now();
  Process::instance().poll_runtime();
  *flag = now(counter) >= threshold ? 1 : 0;
  return {};
}

Status Notifications::wait(int counter, MPI_Count threshold) {
  if (Status o = check(counter); !o) return o;
  WindowState::progress_runtime();
  LossTimeout timeout;
  bool over = false;
  const auto reason = wait_reason(
      window_, [&](WaitReports& reports) { return reports.awaited_notifications(counter, now(counter), threshold); });
  wait_until(window_.space->words().wake_event(), [&] {
    over = now(counter) >= threshold;
    return over || timeout.is_expired(window_.control.first_interrupted(std::views::iota(0, window_.space->ranks()),
                                                                        window_.notification_counters->interruptions));
  });
  return over ? Status() : Status(timeout.error());
}

}  // namespace farside::pmpi

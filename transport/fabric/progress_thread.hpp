// SPDX-License-Identifier: BSD-3-Clause
// AdaptivePolling: when the progress thread backs off, and for how long. Application threads that poll the endpoint
// handle arrivals sooner than the progress thread, which must be woken first, and which competes with them for the
// provider's locks (fi_trywait alone makes progress). Application threads poll while they issue and wait in farside.
// Threads that wait in the MPI runtime poll only for a limited time after the progress thread has left arrivals to
// them; otherwise every MPI call would pay for polls of an idle endpoint. The time is extended if they have taken
// arrivals and still poll.
//
// When the pollers stop, the first arrival waits for the end of the back-off. The back-off is one eighth of the
// preceding polling time, at least 50 us and at most 1 ms, so that the thread wakes seldom during long polling, and
// resumes soon after short polling. (Put and flush between two hosts, target in MPI_Barrier: 38 us when the thread
// served, 19 us when the barrier did.) Two threads that take one large transfer's data in turn may each lose their core
// while they have the endpoint's mutex. Only the progress thread uses it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <sys/eventfd.h>
#include <thread>
#include <utility>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/files.hpp"
#include "transport/base/result.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/wake_event.hpp"

namespace farside {

class AdaptivePolling {
 public:
  // Returns the length of the next back-off; none: the thread is needed. `polled`: application threads have polled
  // since the last call.
  std::optional<std::chrono::microseconds> next(bool polled, Clock::time_point now) {
    const std::chrono::microseconds delegated = std::exchange(delegated_back_off_, {});
    if (!polled && delegated.count() == 0) {
      end();
      return std::nullopt;
    }
    if (!since_) since_ = now;
    const auto share = std::chrono::duration_cast<std::chrono::microseconds>(now - *since_) / Timing::kBackOffShare;
    return std::clamp(std::max(share, delegated), Timing::kShortestBackOff, Timing::kLongestBackOff);
  }

  // Notes that something arrived, and that a thread polls that is assumed to wait in the runtime. If it does not, the
  // arrival waits for a back-off. `worked`: for how long the progress thread has taken arrivals. It stays away for as
  // long, since a thread in the runtime may have lost its core to it.
  void delegate_to_runtime(Clock::time_point now, Clock::duration worked) {
    delegated_back_off_ = std::max(std::chrono::ceil<std::chrono::microseconds>(worked), Timing::kShortestBackOff);
    runtime_serves_on(now);
  }
  bool runtime_serves() const { return runtime_serves_until_.has_value(); }
  // Returns whether threads in the runtime have served for so long that the progress thread must look whether they
  // still do. The caller then calls runtime_serves_on(), or else end().
  bool probe_is_due(Clock::time_point now) const { return runtime_serves_until_ && now >= *runtime_serves_until_; }
  void runtime_serves_on(Clock::time_point now) { runtime_serves_until_ = now + Timing::kRuntimeServes; }

  // The thread is needed, whether others poll or not.
  void end() { *this = {}; }

 private:
  std::optional<Clock::time_point> runtime_serves_until_;
  std::chrono::microseconds delegated_back_off_{};  // the least back-off after delegate_to_runtime(); else zero
  std::optional<Clock::time_point> since_;          // since then, others have polled in each back-off
};

// ProgressThread: the thread that sleeps on the completion queue's file descriptor and executes what arrives, so that a
// target that computes never delays an origin. While application threads poll, it backs off (AdaptivePolling);
// while they sleep, it wakes them. At regular times it calls Work::check, which checks the peers with operations under
// way.
//
// It does not use libfabric: its Work object does the work, and returns how long the thread may sleep.
//
// Thread safety: any thread may call all members but start() and stop(). Cost: polled() and taken() a load,
// polled_from_runtime() two loads, and each a store after a pass of the thread; wake_listeners() a fence and a load
// while no thread sleeps, wake() a system call. Per arrival that wakes the thread, it calls Work three times (virtual
// calls). Memory: nothing per peer.
class ProgressThread {
 public:
  // The work of the thread, which calls all members without holding a lock.
  class Work {
   public:
    struct Sleep {
      std::chrono::milliseconds limit;  // if nothing arrives
      int events_fd = -1;               // of connection events; -1: it shall not wake the thread
    };
    // At regular times.
    virtual void check() = 0;
    // After a back-off, since polls that are rare seldom take connection events. Does nothing while endpoint_is_busy().
    virtual void read_connection_events() = 0;
    // Takes what has arrived. `connection_woke`: events_fd was readable.
    virtual Sleep progress(bool connection_woke) = 0;
    // Returns whether another thread works on the endpoint at this moment, such as one that takes arrivals.
    virtual bool endpoint_is_busy() = 0;
    // Returns whether the thread may sleep (fi_trywait(3)): false if something has arrived that does not wake it. The
    // call may make progress.
    virtual bool may_sleep() = 0;

   protected:
    ~Work() = default;
  };

  ~ProgressThread() { stop(); }

  // `queue_fd` wakes the thread when something arrives. `work` must outlive the thread. Errors: kOther if there is no
  // descriptor or no thread.
  Status start(Work& work, int queue_fd) {
    if (!wake_fd_.valid()) return Error{ErrorKind::kOther, "no descriptor for an eventfd"};
    return start_own_thread(thread_, "farside", [this, &work, queue_fd] { run(work, queue_fd); });
  }
  bool running() const { return thread_.joinable(); }
  void stop() {
    if (!thread_.joinable()) return;
    stop_.store(true, std::memory_order_release);
    back_off_event_.wake();
    wake();
    thread_.join();
  }
  // Ends the present sleep of the thread, but not its back-off.
  void wake() { eventfd_write(wake_fd_.get(), 1); }

  // Notes that an application thread polls, or is about to issue an operation: the thread backs off.
  void polled() {
    if (!polled_) polled_ = true;
  }
  // Notes that an application thread has taken arrivals.
  void taken() {
    if (!taken_) taken_ = true;
  }
  // Notes that a thread waits in the MPI runtime. Returns whether arrivals are left to such threads now.
  bool polled_from_runtime() {
    if (!runtime_polled_) runtime_polled_ = true;
    return runtime_serves_.load(std::memory_order_relaxed);
  }

  // Between these calls `wake_event` is signalled when something arrives.
  void listen(WakeEvent& wake_event) {
    const std::scoped_lock held(listeners_mutex_);
    listeners_.push_back(&wake_event);
    (void)listening_.arm();
    back_off_event_.wake_if_armed();
  }
  void stop_listening(WakeEvent& wake_event) {
    const std::scoped_lock held(listeners_mutex_);
    const auto found = std::find(listeners_.begin(), listeners_.end(), &wake_event);
    if (found == listeners_.end()) return;  // it began to sleep before the endpoint was opened
    listeners_.erase(found);
    listening_.disarm();
  }
  // Signals them. To be called by a thread that has taken arrivals, without Fabric's mutex.
  void wake_listeners() {
    if (!listening_.armed_behind_changes()) return;
    const std::scoped_lock held(listeners_mutex_);
    for (WakeEvent* wake_event : listeners_) wake_event->wake();
  }

 private:
  void rest(std::chrono::microseconds time) {
    const std::uint32_t seen = back_off_event_.arm();
    if (!listening_.armed() && !stop_.load(std::memory_order_acquire)) back_off_event_.sleep(seen, time);
    back_off_event_.disarm();
  }
  bool back_off_for(AdaptivePolling& polling, Work& work);
  void run(Work& work, int queue_fd);
  void work_until_stopped(Work& work, int queue_fd);

  // A poller writes a flag only if the thread has cleared it. So many threads that poll share a cache line that seldom
  // changes.
  RelaxedFlag polled_;          // an application thread has polled since the thread looked: the thread backs off
  RelaxedFlag runtime_polled_;  // likewise a thread that waits in the runtime
  RelaxedFlag taken_;           // application threads have taken arrivals
  std::atomic<bool> runtime_serves_{false};  // the thread leaves arrivals to threads in the runtime
  WakeEvent back_off_event_;                 // of the thread in its back-off
  WakeEvent listening_;                      // armed for each of listeners_, read without its mutex
  std::mutex listeners_mutex_;
  std::vector<WakeEvent*> listeners_;  // of application threads that sleep
  std::atomic<bool> stop_{false};
  UniqueFd wake_fd_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::thread thread_;
};

}  // namespace farside

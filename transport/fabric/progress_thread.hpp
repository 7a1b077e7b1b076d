// SPDX-License-Identifier: BSD-3-Clause
// ProgressThread: the thread that sleeps on the completion queue's file descriptor and executes what arrives, so that a
// target that computes never delays an origin. While application threads poll, it backs off (adaptive_polling.hpp);
// while they sleep, it wakes them. At regular times it calls Work::check, which checks the peers with operations under
// way.
//
// It does not use libfabric: its Work object does the work, and returns how long the thread may sleep.
//
// Thread safety: any thread may call all members but start() and stop(). Errors: kOther if there is no descriptor or no
// thread. Cost: polled() and taken() a load, polled_from_runtime() two loads, and each a store after a pass of the
// thread; wake_listeners() a fence and a load while no thread sleeps, wake() a system call. Per arrival that wakes the
// thread, it calls Work three times (virtual calls). Memory: nothing per peer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <sys/eventfd.h>
#include <thread>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/files.hpp"
#include "transport/base/result.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/adaptive_polling.hpp"

namespace farside {

class ProgressThread {
 public:
  // The longest sleep while something is under way, and the time between two calls of Work::check.
  static constexpr std::chrono::milliseconds kSafetyNet{250};
  // Between two calls of Work::read_connection_events.
  static constexpr std::chrono::milliseconds kReadEventsEvery{1};

  // What the thread does. It calls all members, without any lock.
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
    // Returns whether another thread polls at this moment, or has polled a moment ago (shared_polls.hpp).
    virtual bool others_poll_now() = 0;
    // Returns whether the thread may sleep (fi_trywait(3)): false if something has arrived that does not wake it. The
    // call may make progress.
    virtual bool may_sleep() = 0;

   protected:
    ~Work() = default;
  };

  ProgressThread() = default;
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  ~ProgressThread() { stop(); }

  // Makes wake() possible. Errors: kOther.
  Status prepare();
  // `queue_fd` wakes the thread when something arrives. `work` must outlive the thread. Precondition: prepare().
  Status start(Work& work, int queue_fd);
  bool running() const { return thread_.joinable(); }
  void stop();
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
  void listen(WakeEvent& wake_event);
  void stop_listening(WakeEvent& wake_event);
  // Signals them. To be called by a thread that has taken arrivals, without Fabric's mutex.
  void wake_listeners();

 private:
  void rest(std::chrono::microseconds time);
  bool polled_lately(Work& work);
  bool runtime_still_serves(Work& work);
  bool back_off_for(AdaptivePolling& polling, Work& work);
  void run(Work& work, int queue_fd);
  void work_until_stopped(Work& work, int queue_fd);

  // A poller writes a flag only if the thread has cleared it. So many threads that poll share a cache line that seldom
  // changes.
  RelaxedFlag polled_;          // an application thread has polled since the thread looked: the thread backs off
  RelaxedFlag runtime_polled_;  // likewise a thread that waits in the runtime
  RelaxedFlag taken_;           // application threads have taken arrivals
  std::atomic<bool> runtime_serves_{false};      // the thread leaves arrivals to threads in the runtime
  WakeEvent back_off_event_;                     // of the thread in its back-off
  Listening listening_;                          // size of listeners_, read without its mutex
  std::mutex listeners_mutex_;
  std::vector<WakeEvent*> listeners_;  // of application threads that sleep
  std::atomic<bool> stop_{false};
  UniqueFd wake_fd_;
  std::thread thread_;
};

}  // namespace farside

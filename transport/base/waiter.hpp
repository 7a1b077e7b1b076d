// SPDX-License-Identifier: BSD-3-Clause
// All waits of farside. A waiter spins briefly, then yields, then sleeps; while a large transfer is on its way, whose
// data the polls move, it goes on yielding. Meanwhile it progresses this process's endpoint and the MPI runtime,
// because peers may depend on them (for instance on a pending MPI_Isend of this rank). Ranks may outnumber cores, so a
// wait that only spins would take a time slice.
//
//   for (Waiter waiter(progress, wake_event); !done();) waiter.pause();
//
// A wait that takes long is reported, if its thread has announced a reason (LongWait).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "transport/base/state.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/wake_event.hpp"

namespace farside {

// FARSIDE_HANG: a thread that has waited for so long in one wait says once what it waits for, and again after each
// doubling of that time. Code that begins a wait announces its reason by an object of a class derived from
// LongWait::Reason, which exists while the thread waits. Waiter looks at the clock where it sleeps, and calls report().
// The innermost reason of the thread answers; a wait without a reason reports nothing.
//
// Thread safety: any; reasons belong to their thread. Cost: a reason two stores when it begins and one when it ends; a
// wait that sleeps one look at the clock per sleep, one that yields one look per 4,096 rounds; else nothing.
class LongWait {
 public:
  // Why the calling thread waits, while the object exists. Reasons of one thread end in the reverse order in which
  // they begin.
  class Reason : NotCopied {
   public:
    Reason() : outer_(innermost()) { this_thread.reason = this; }
    // The sentence to be logged; empty: none. The thread calls it between two looks at the awaited condition, and holds
    // no lock. It may read words of peers and wait for the answers for a short time.
    virtual std::string text(std::chrono::seconds waited) const = 0;
    // The name of the call in which the thread waits, and its target; negative: none.
    virtual const char* call() const { return outer_ != nullptr ? outer_->call() : "a call"; }
    virtual int target() const { return outer_ != nullptr ? outer_->target() : -1; }

   protected:
    ~Reason() { this_thread.reason = outer_; }

   private:
    const Reason* outer_;
  };

  // Sets the time after which waits are reported. 0: never.
  static void report_after(std::chrono::seconds limit) {
    this_process.hang_limit.store(limit.count(), std::memory_order_relaxed);
  }
  static std::chrono::seconds limit() {
    return std::chrono::seconds(this_process.hang_limit.load(std::memory_order_relaxed));
  }
  // Logs the reason of the calling thread. Does nothing if this thread is just finding out another reason.
  static void report(std::chrono::seconds waited);
  // The reason of the calling thread; null outside calls.
  static const Reason* innermost() { return static_cast<const Reason*>(this_thread.reason); }
};

// A reason whose sentence is that of text(waited).
template <class Text>
class ReasonOf final : public LongWait::Reason {
 public:
  explicit ReasonOf(Text of) : text_(std::move(of)) {}
  std::string text(std::chrono::seconds waited) const override { return text_(waited); }

 private:
  Text text_;
};

// The progress that a waiting application thread makes. One object per process (transport/process.hpp).
class Progress {
 public:
  // Progresses the endpoint, without blocking.
  virtual void poll() = 0;
  // Progresses the MPI runtime, without blocking. Only called from application threads.
  virtual void poll_runtime() = 0;
  // Between these two calls, arrivals at the endpoint signal `wake_event`, too.
  virtual void listen(WakeEvent& wake_event) = 0;
  virtual void stop_listening(WakeEvent& wake_event) = 0;
  // Returns whether polls are expected to move the data of a large transfer now. A waiter then does not sleep.
  virtual bool transfers() const { return false; }
  // Returns the maximal sleep of a waiter. It limits the delay of the runtime, which has no wake event.
  virtual std::chrono::microseconds longest_sleep() const { return Timing::kTryAgain; }

 protected:
  ~Progress() = default;
};

class Waiter : NotCopied {
 public:
  // A change of the awaited condition must signal `wake_event`. Arrivals at the endpoint signal it, too.
  Waiter(Progress& progress, WakeEvent& wake_event) : progress_(progress), wake_event_(wake_event) {}
  ~Waiter() {
    if (armed_) disarm();
    if (begun_ != 0) [[unlikely]]
      note_end();
  }

  // Whether waits are measured (ThreadState::waited), from measure() on.
  static bool measured() { return this_process.measures_waits.load(std::memory_order_relaxed); }
  static void measure() { this_process.measures_waits.store(true, std::memory_order_relaxed); }

  // One step of the wait, to be called between two reads of the awaited condition.
  void pause() {
    if (rounds_ >= Timing::kSpins) return pause_longer();
    if (rounds_ == 0 && measured()) [[unlikely]]
      begun_ = ticks();
    ++rounds_;
    relax();
    if (rounds_ % 8 == 0) progress_.poll();
  }
  // Whether the next step may sleep; and whether the last one has yielded.
  bool may_sleep() const { return rounds_ >= Timing::kSpins + Timing::kYields; }
  bool has_yielded() const { return rounds_ > Timing::kSpins; }

 private:
  void pause_longer();
  void arm();
  void disarm() {
    wake_event_.disarm();
    progress_.stop_listening(wake_event_);
    armed_ = false;
  }
  void note_end() const;
  void look_at_clock();

  Progress& progress_;
  WakeEvent& wake_event_;
  std::uint32_t rounds_ = 0;
  std::uint32_t seen_ = 0;
  bool armed_ = false;
  Ticks begun_ = 0;  // 0 unless waits are measured
  // When the wait first looked at the clock, and after how long it is reported next.
  Clock::time_point since_{};
  std::chrono::seconds next_report_{};
};

// The progress of a process without an MPI runtime, whose endpoints have their own progress threads.
struct NoProgress final : Progress {
  void poll() override {}
  void poll_runtime() override {}
  void listen(WakeEvent&) override {}
  void stop_listening(WakeEvent&) override {}
};

}  // namespace farside

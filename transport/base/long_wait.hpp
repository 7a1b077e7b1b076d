// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_HANG: a thread that has waited for so long in one wait says once what it waits for, and again after each
// doubling of that time. Code that begins a wait announces its reason by an object of a class derived from
// LongWait::Reason, which exists while the thread waits. Waiter looks at the clock where it sleeps, and calls report().
// The innermost reason of the thread answers; a wait without a reason reports nothing.
//
// Thread safety: any; reasons belong to their thread. Cost: a reason two stores when it begins and one when it ends; a
// wait that sleeps one look at the clock per sleep, one that yields one look per 4,096 rounds; else nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

namespace farside {

class LongWait {
 public:
  using Clock = std::chrono::steady_clock;

  // What the calling thread waits for, while the object exists. Reasons of one thread end in the reverse order in which
  // they begin.
  class Reason {
   public:
    Reason() : outer_(innermost_) { innermost_ = this; }
    Reason(const Reason&) = delete;
    Reason& operator=(const Reason&) = delete;
    // The sentence to be logged; empty: none. The thread calls it between two looks at the awaited condition, and holds
    // no lock. It may read words of peers and wait for the answers for a short time.
    virtual std::string text(std::chrono::seconds waited) const = 0;
    // The name of the call in which the thread waits.
    virtual const char* call() const { return outer_ != nullptr ? outer_->call() : "a call"; }

   protected:
    ~Reason() { innermost_ = outer_; }

   private:
    const Reason* outer_;
  };

  // Sets the time after which waits are reported. 0: never.
  static void report_after(std::chrono::seconds limit) { limit_.store(limit.count(), std::memory_order_relaxed); }
  static std::chrono::seconds limit() { return std::chrono::seconds(limit_.load(std::memory_order_relaxed)); }
  // Logs the reason of the calling thread. Does nothing if this thread is just finding out another reason.
  static void report(std::chrono::seconds waited);

 private:
  static inline std::atomic<std::chrono::seconds::rep> limit_{0};
  // In static thread-local storage: these few bytes fit into the loader's reserve for libraries.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local const Reason* innermost_;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local bool reporting_;
};

}  // namespace farside

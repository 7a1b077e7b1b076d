// SPDX-License-Identifier: BSD-3-Clause
// A small number for each thread of this process that uses windows, so that threads can write to places of their own.
// Thread safety: any thread. Cost: one load; an atomic at a thread's first call and at its end.
#pragma once

namespace farside {

// At most this many threads at a time have a number of their own, from 0 on.
inline constexpr int kOwnSlots = 7;

class ThreadSlot {
 public:
  // The calling thread's number, or kOwnSlots if all are taken: then other threads have the same. A thread that has
  // ended leaves its number to later ones.
  static int get() {
    const int known = number_;
    return known >= 0 ? known : take();
  }

 private:
  struct Owned;
  static int take();

  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit int number_ = -1;
};

}  // namespace farside

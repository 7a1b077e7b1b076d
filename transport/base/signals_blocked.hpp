// SPDX-License-Identifier: BSD-3-Clause
// Blocks all signals of the calling thread during its life: a signal handler that needs a mutex of farside (as fork(2)
// does) would deadlock if its own thread held the mutex. Cost: two system calls.
#pragma once

#include <csignal>

namespace farside {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    // With these arguments pthread_sigmask(3) cannot fail. The same holds for the call in the destructor.
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace farside

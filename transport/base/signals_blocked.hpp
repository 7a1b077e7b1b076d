// SPDX-License-Identifier: BSD-3-Clause
// While an object of this class lives, its thread takes no signal: a handler that calls back into what the thread is
// doing (fork(2) does) would wait for a mutex that the same thread holds. Two system calls.
#pragma once

#include <csignal>

namespace farside {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    // With these arguments pthread_sigmask(3) has no error to report; the same holds below.
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace farside

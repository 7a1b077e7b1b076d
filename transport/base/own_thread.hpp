// SPDX-License-Identifier: BSD-3-Clause
// The threads of farside. They block all signals, which belong to the application's threads, but not those of faults:
// a fault whose signal is blocked ends the process, whatever its handler.
#pragma once

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/base/result.hpp"

namespace farside {

// Starts a thread. `name`: at most 15 characters (pthread_setname_np(3)). Errors: kOther.
template <class Run>
Status start_own_thread(std::thread& thread, const char* name, Run&& run) {
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string refused;
  Status begun = without_bad_alloc([&]() -> Status {
    try {
      thread = std::thread([run = std::forward<Run>(run)]() mutable {
        if (Status carried = without_bad_alloc([&]() -> Status { return run(), Status(); }); !carried)
          Log::write_parts({"farside: error: a thread of farside has ended: out of memory\n"});
      });
    } catch (const std::system_error& error) {
      refused = error.what();
    }
    return {};
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!begun) return begun;
  if (!thread.joinable()) return Error{ErrorKind::kOther, fmt::format("no thread {}: {}", name, refused)};
  pthread_setname_np(thread.native_handle(), name);
  return {};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_STATS or FARSIDE_TRACE, SIGTERM and SIGUSR1 write the files of this rank, because batch systems send
// these signals before they end a job. The handler only wakes a thread of farside, which writes the files: the
// interrupted thread continues and can release any mutex that it holds. The default action of the signal follows and
// ends the process. In a job of several ranks it follows one second later. The reason is Hydra (MPICH): when one rank
// has died by a signal, Hydra kills the other ranks within 50 ms, and these may still be writing.
//
// A handler in the program's own file stays installed, and so do SIG_IGN and what is installed after the first window.
// The handler of a library is called after the files are written, in place of the default action. (MPICH has one of
// SIGUSR1, by which its launcher announces failed processes, and PSM one of SIGTERM.) In a child of fork(2) the earlier
// action applies.
//
// Thread safety: any. Cost: one thread that sleeps.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <dlfcn.h>
#include <mutex>
#include <semaphore.h>
#include <sys/auxv.h>
#include <thread>
#include <unistd.h>

#include "pmpi/library/library.hpp"
#include "pmpi/observe/observation.hpp"
#include "transport/base/log.hpp"
#include "transport/base/threads.hpp"

namespace farside::pmpi {

constexpr std::chrono::milliseconds kForOthers{1000};  // from the end of writing to the end of the process

// One of the signals. The handler reads it.
struct Watched {
  int signal = 0;
  struct sigaction before {};        // the default action, or a handler of a library
  std::atomic<bool> arrived{false};  // and is not served yet
};

class FilesOnSignal {
 public:
  FilesOnSignal() { sem_init(&wake, 0, 0); }
  std::array<Watched, 2> watched{{{.signal = SIGTERM}, {.signal = SIGUSR1}}};
  sem_t wake;  // of the thread
  std::atomic<bool> ends{false};
  pid_t owner = 0;
  std::mutex mutex;  // guards what follows, and `before`
  std::thread thread;
};

namespace {

// Restores the earlier action and raises the signal. Async-signal-safe; also called in a forked child, which has no
// thread of farside.
void restore_and_raise(const Watched& watched) {
  sigaction(watched.signal, &watched.before, nullptr);
  raise(watched.signal);
}

void on_signal(int signal) {
  const int before = errno;
  FilesOnSignal& all = *library().files_on_signal;
  Watched& watched = all.watched[signal == SIGTERM ? 0 : 1];
  if (getpid() == all.owner) {
    watched.arrived.store(true, std::memory_order_release);
    sem_post(&all.wake);
  } else {
    restore_and_raise(watched);  // as soon as this handler has returned
  }
  errno = before;
}

struct sigaction action_of(int signal) {
  struct sigaction now {};
  (void)sigaction(signal, nullptr, &now);  // fails for no such signal only
  return now;
}

void* handler_of(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(action.sa_sigaction)
                                             : reinterpret_cast<void*>(action.sa_handler);
}

bool is_ours(const Watched& watched) {
  return handler_of(action_of(watched.signal)) == reinterpret_cast<void*>(on_signal);
}

// Whether the handler is in a loaded library, not in the program's own file.
bool is_of_library(const struct sigaction& action) {
  Dl_info handler{}, program{};
  return dladdr(handler_of(action), &handler) != 0 &&
         dladdr(reinterpret_cast<void*>(getauxval(AT_ENTRY)), &program) != 0 && handler.dli_fbase != program.dli_fbase;
}

void serve(const FilesOnSignal& all, const Watched& watched) {
  write_statistics();
  write_trace();
  if (handler_of(watched.before) != nullptr) {
    if ((watched.before.sa_flags & SA_SIGINFO) == 0) return watched.before.sa_handler(watched.signal);
    siginfo_t information{};
    information.si_signo = watched.signal;
    return watched.before.sa_sigaction(watched.signal, &information, nullptr);
  }
  // Gives the other ranks time to write their files, unless MPI_Finalize waits for this thread.
  constexpr std::chrono::milliseconds kStep{20};
  for (auto left = this_job().ranks > 1 ? kForOthers : kStep * 0; left.count() > 0 && !all.ends.load(); left -= kStep)
    std::this_thread::sleep_for(kStep);
  // A handler that the program has installed meanwhile has called this one, or comes next time.
  if (!is_ours(watched)) return;
  sigset_t this_one;
  sigemptyset(&this_one);
  sigaddset(&this_one, watched.signal);
  pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
  restore_and_raise(watched);
}

void run(FilesOnSignal& all) {
  do {
    while (sem_wait(&all.wake) != 0) continue;
    for (Watched& watched : all.watched) {
      if (watched.arrived.exchange(false, std::memory_order_acquire)) serve(all, watched);
    }
  } while (!all.ends.load());
}

void install(Watched& watched) {
  const struct sigaction now = action_of(watched.signal);
  if (is_ours(watched) || (handler_of(now) != nullptr && !is_of_library(now))) return;
  watched.before = now;
  struct sigaction ours {};
  ours.sa_handler = &on_signal;
  ours.sa_flags = SA_RESTART | (now.sa_flags & SA_ONSTACK);
  sigemptyset(&ours.sa_mask);
  (void)sigaction(watched.signal, &ours, nullptr);  // fails for no such signal only
}

}  // namespace

void begin_files_on_signal() {
  FilesOnSignal& all = *library().files_on_signal;
  const std::scoped_lock held(all.mutex);
  if (all.thread.joinable()) return;
  all.owner = getpid();
  all.ends.store(false);
  if (const Status started = start_own_thread(all.thread, "farside-signals", [&all] { run(all); }); !started) {
    log(LogLevel::kWarn, "{}; SIGTERM and SIGUSR1 write no files", started.error().text);
    return;
  }
  for (Watched& watched : all.watched) install(watched);
}

void end_files_on_signal() {
  FilesOnSignal& all = *library().files_on_signal;
  const std::scoped_lock held(all.mutex);
  if (!all.thread.joinable()) return;
  all.ends.store(true);
  sem_post(&all.wake);
  all.thread.join();
  for (Watched& watched : all.watched) {
    if (is_ours(watched)) (void)sigaction(watched.signal, &watched.before, nullptr);
    // A signal that came too late for the thread.
    if (watched.arrived.exchange(false, std::memory_order_acquire)) restore_and_raise(watched);
  }
}

}  // namespace farside::pmpi

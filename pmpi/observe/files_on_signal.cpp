// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/files_on_signal.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <dlfcn.h>
#include <mutex>
#include <semaphore.h>
#include <sys/auxv.h>
#include <thread>
#include <unistd.h>

#include <mpi.h>

#include "pmpi/library/library.hpp"
#include "pmpi/observe/statistics_file.hpp"
#include "pmpi/observe/this_job.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/log.hpp"
#include "transport/base/threads.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {

constexpr time_t kMostSeconds = 5;                     // of writing; launchers send SIGKILL a few seconds after SIGTERM
constexpr std::chrono::milliseconds kForOthers{1000};  // from the end of writing to the end of the process

// One of the signals. The handler reads it.
struct Watched {
  int signal = 0;
  bool installed = false;
  struct sigaction before {};  // the default action, or a handler of the runtime or of a library
  bool by_runtime = false;
  std::atomic<bool> arrived{false};  // and is not served yet
};

class FilesOnSignal {
 public:
  FilesOnSignal() {
    watched[0].signal = SIGTERM;
    watched[1].signal = SIGUSR1;
    sem_init(&wake, 0, 0);
    sem_init(&written, 0, 0);
  }
  std::array<Watched, 2> watched;
  sem_t wake;     // of the thread
  sem_t written;  // by the writing thread
  std::atomic<bool> ends{false};
  std::atomic<bool> writing{false};
  pid_t owner = 0;
  std::mutex mutex;  // guards what follows, and `installed`
  std::thread thread;
};

namespace {

// Restores the earlier action and raises the signal. Async-signal-safe; also called in a forked child, which has no
// thread of farside.
void restore_and_raise(const Watched& watched) {
  sigaction(watched.signal, &watched.before, nullptr);
  raise(watched.signal);
}

void on_signal(int signal, siginfo_t* information, void* context) {
  const int before = errno;
  FilesOnSignal& all = *library().files_on_signal;
  Watched& watched = all.watched[signal == SIGTERM ? 0 : 1];
  if (watched.by_runtime) {
    if ((watched.before.sa_flags & SA_SIGINFO) != 0) {
      watched.before.sa_sigaction(signal, information, context);
    } else {
      watched.before.sa_handler(signal);
    }
  }
  if (getpid() == all.owner) {
    watched.arrived.store(true, std::memory_order_release);
    sem_post(&all.wake);
  } else if (!watched.by_runtime) {
    restore_and_raise(watched);  // as soon as this handler has returned
  }
  errno = before;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_signal;
}

void* handler_of(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(action.sa_sigaction)
                                             : reinterpret_cast<void*>(action.sa_handler);
}

// The handlers of SIGTERM and SIGUSR1.
std::array<void*, 2> present_handlers() {
  std::array<void*, 2> handlers{};
  constexpr std::array<int, 2> kSignals = {SIGTERM, SIGUSR1};
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    if (sigaction(kSignals[i], nullptr, &now) == 0) handlers[i] = handler_of(now);
  }
  return handlers;
}

// The handlers that libraries had installed when farside's was loaded, or have installed while the runtime started
// (libpsm_infinipath has one for SIGTERM). If farside is preloaded or linked, it is loaded before the program begins.
// If farside is loaded later, a handler in the program's own file counts as a handler of the program.
std::array<void*, 2> handlers_of_libraries{};
[[gnu::constructor]] void note_handlers() { handlers_of_libraries = present_handlers(); }
bool is_of_library(const struct sigaction& action, int signal) {
  if (handler_of(action) != handlers_of_libraries[signal == SIGTERM ? 0 : 1]) return false;
  Dl_info handler{}, program{};
  return dladdr(handler_of(action), &handler) != 0 &&
         dladdr(reinterpret_cast<void*>(getauxval(AT_ENTRY)), &program) != 0 && handler.dli_fbase != program.dli_fbase;
}

// Whether the handler is a function of the runtime's library.
bool is_of_runtime(const struct sigaction& action) {
  Dl_info handler{}, runtime_function{};
  return dladdr(handler_of(action), &handler) != 0 &&
         dladdr(reinterpret_cast<void*>(runtime().Win_free), &runtime_function) != 0 &&
         handler.dli_fbase == runtime_function.dli_fbase;
}

// Returns false if the writing has not ended in time.
bool write_files(FilesOnSignal& all) {
  // A writer that was late may still be busy.
  for (int pauses = 0; all.writing.exchange(true); ++pauses) {
    if (pauses == 100 * kMostSeconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  while (sem_trywait(&all.written) == 0) continue;
  const auto write = [&all] {
    write_statistics();
    write_trace();
    sem_post(&all.written);
    all.writing.store(false);
  };
  std::thread writer;
  if (!start_own_thread(writer, "farside-files", write)) {
    write();
  } else {
    writer.detach();
  }
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kMostSeconds;
  int code = 0;
  while ((code = sem_clockwait(&all.written, CLOCK_MONOTONIC, &until)) != 0 && errno == EINTR) continue;
  return code == 0;
}

// Gives the other ranks time to write their files, unless MPI_Finalize waits for this thread.
void wait_for_other_ranks(const FilesOnSignal& all) {
  constexpr std::chrono::milliseconds kStep{20};
  for (std::chrono::milliseconds waited{0}; waited < kForOthers && !all.ends.load(); waited += kStep)
    std::this_thread::sleep_for(kStep);
}

void serve(FilesOnSignal& all, Watched& watched) {
  log(LogLevel::kInfo, "signal {}: writes the files of FARSIDE_STATS and FARSIDE_TRACE", watched.signal);
  const bool written = write_files(all);
  if (!written) {
    log(LogLevel::kWarn, "signal {}: the files of FARSIDE_STATS and FARSIDE_TRACE were not written within {} s",
        watched.signal, kMostSeconds);
  }
  if (written && !watched.by_runtime && this_job().ranks > 1) wait_for_other_ranks(all);
  // A handler that the program has installed meanwhile has called this one, or comes next time. MPI_Finalize may have
  // restored the earlier one.
  struct sigaction now {};
  if (watched.by_runtime || sigaction(watched.signal, nullptr, &now) != 0 ||
      !(is_ours(now) || (all.ends.load() && handler_of(now) == handler_of(watched.before)))) {
    return;
  }
  sigset_t this_one;
  sigemptyset(&this_one);
  sigaddset(&this_one, watched.signal);
  pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
  restore_and_raise(watched);
}

void run(FilesOnSignal& all) {
  while (true) {
    while (sem_wait(&all.wake) != 0) continue;
    for (Watched& watched : all.watched) {
      if (watched.arrived.exchange(false, std::memory_order_acquire)) serve(all, watched);
    }
    if (all.ends.load()) return;
  }
}

void install(Watched& watched) {
  struct sigaction now {};
  if (watched.installed || sigaction(watched.signal, nullptr, &now) != 0) return;
  const bool has_handler = (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL;
  const bool by_runtime = has_handler && now.sa_handler != SIG_IGN && !is_ours(now) && is_of_runtime(now);
  if (has_handler && !by_runtime && (now.sa_handler == SIG_IGN || !is_of_library(now, watched.signal))) return;
  watched.before = now;
  watched.by_runtime = by_runtime;
  struct sigaction ours {};
  ours.sa_sigaction = &on_signal;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | (now.sa_flags & SA_ONSTACK);
  sigemptyset(&ours.sa_mask);
  watched.installed = sigaction(watched.signal, &ours, nullptr) == 0;
}

}  // namespace

HandlersOfLibraries::HandlersOfLibraries() : before_(present_handlers()) {}

HandlersOfLibraries::~HandlersOfLibraries() {
  const std::array<void*, 2> now = present_handlers();
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] != before_[i]) handlers_of_libraries[i] = now[i];
  }
}

void begin_files_on_signal() {
  const Result<const Settings*> settings = Process::instance().settings();
  if (!settings || (settings.value()->stats.empty() && settings.value()->trace.empty())) return;
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
  for (Watched& watched : all.watched) {
    struct sigaction now {};
    if (watched.installed && sigaction(watched.signal, nullptr, &now) == 0 && is_ours(now))
      (void)sigaction(watched.signal, &watched.before, nullptr);
    watched.installed = false;
  }
  all.ends.store(true);
  sem_post(&all.wake);
  all.thread.join();
  // A signal that came too late for the thread.
  for (Watched& watched : all.watched) {
    if (watched.arrived.exchange(false, std::memory_order_acquire) && !watched.by_runtime) restore_and_raise(watched);
  }
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// The calls of the C library by which threads wait, take the time, and find other processes, for all ranks: this
// executable comes first in the dynamic linker's search order, so its definitions serve the ranks' copies of the
// program, and libstdc++. Outside of the simulation's threads they are the C library's.
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <map>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulation/faults.hpp"
#include "tests/simulation/host.hpp"
#include "tests/simulation/network/objects.hpp"

namespace simulation {

Job job;

Rank* Job::of_pid(pid_t pid) {
  for (Rank& each : ranks)
    if (each.pid == pid) return &each;
  return nullptr;
}

namespace {

void write_state(const Rank& rank, char state, int threads = 2) {
  const std::string text = std::to_string(rank.pid) + " (rank) " + state + " 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 " +
                           std::to_string(threads) + " 0 100 0 0\n";
  (void)!pwrite(rank.status_file, text.data(), text.size(), 0);
}

}  // namespace

void begin(Rank& rank) {
  rank.pid = 4'000'000 + rank.index;
  rank.status_file = memfd_create("status", MFD_CLOEXEC);
  write_state(rank, 'R');
}

void stop(Rank& rank) {
  write_state(rank, 'T');
  scheduler->stop(rank.index);
}

void proceed(Rank& rank) {
  if (rank.end != Rank::End::kNone) return;
  write_state(rank, 'R');
  scheduler->proceed(rank.index);
}

void die(Rank& rank) {
  rank.end = scheduler->random().one_in(2) ? Rank::End::kZombie : Rank::End::kGone;
  write_state(rank, 'Z', 1);
  network::die(rank.index);
  scheduler->kill(rank.index);
}

namespace {

constexpr Key kDescriptors{1, 0};                 // those who poll
constexpr Time kStart = 1'800'000'000 * kSecond;  // of the simulation, on the calendar

Time nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

// Each look at a clock takes some time, so that no loop around it is endless.
Time look(clockid_t clock) {
  scheduler->pass(10);
  scheduler->yield();
  return scheduler->now() + (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? kStart : 100 * kSecond);
}
Time deadline(clockid_t clock, const timespec* until) {
  return until == nullptr ? kNever : scheduler->now() + nanoseconds(*until) - look(clock);
}

// ---- shared memory: two ranks have one word at two addresses ----

struct SharedMapping {
  std::uintptr_t end;
  std::uint64_t file, offset;
};
std::map<std::uintptr_t, SharedMapping> shared_mappings;  // by address

void forget_mappings(std::uintptr_t begin, std::uintptr_t end) {
  auto each = shared_mappings.upper_bound(begin);
  if (each != shared_mappings.begin()) --each;
  while (each != shared_mappings.end() && each->first < end) {
    const auto [from, old] = *each;
    if (old.end <= begin) {
      ++each;
      continue;
    }
    each = shared_mappings.erase(each);
    if (from < begin) shared_mappings[from] = {begin, old.file, old.offset};
    if (old.end > end) shared_mappings[end] = {old.end, old.file, old.offset + (end - from)};
  }
}

Key key_of_word(const void* word) {
  const auto address = reinterpret_cast<std::uintptr_t>(word);
  auto next = shared_mappings.upper_bound(address);
  if (next == shared_mappings.begin()) return {0, address};
  const auto& [begin, mapping] = *--next;
  if (address >= mapping.end) return {0, address};
  return {mapping.file, mapping.offset + (address - begin)};
}

long futex(std::uint32_t* word, int operation, std::uint32_t value, const timespec* limit) {
  scheduler->yield();
  switch (operation & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET: {
      if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) return errno = EAGAIN, -1;
      Time until = kNever;
      if (limit != nullptr) {
        const bool absolute = (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
        const clockid_t clock = (operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        until = absolute ? deadline(clock, limit) : scheduler->now() + nanoseconds(*limit);
      }
      return scheduler->block(key_of_word(word), until, "waits for a futex") ? 0 : (errno = ETIMEDOUT, -1);
    }
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET: return scheduler->wake(key_of_word(word), static_cast<int>(value));
    default: host::fail("futex operation " + std::to_string(operation) + " is not simulated");
  }
}

// ---- mutexes: the words of pthread_mutex_t as glibc uses them, so that initializers and kinds are its own ----

bool try_lock(pthread_mutex_t* mutex) {
  auto& words = mutex->__data;
  const int self = current() != nullptr ? current()->id : -1;
  if (words.__lock != 0) {
    if ((words.__kind & 3) != PTHREAD_MUTEX_RECURSIVE || words.__owner != self) return false;
    ++words.__count;
    return true;
  }
  words.__lock = 1;
  words.__owner = self;
  words.__count = 1;
  return true;
}

int lock_until(pthread_mutex_t* mutex, Time until) {
  if (current() != nullptr) scheduler->yield();
  while (!try_lock(mutex)) {
    if (current() == nullptr) host::fail("a mutex is locked outside of the simulation");
    if (!scheduler->block(key_of_word(mutex), until, "waits for a mutex") && scheduler->now() >= until)
      return ETIMEDOUT;
  }
  return 0;
}

int wait_until(pthread_cond_t* condition, pthread_mutex_t* mutex, Time until) {
  pthread_mutex_unlock(mutex);
  const bool woken = scheduler->block(key_of_word(condition), until, "waits for a condition");
  lock_until(mutex, kNever);
  return woken ? 0 : ETIMEDOUT;
}

int wait_until(sem_t* semaphore, Time until) {
  auto* const value = reinterpret_cast<unsigned*>(semaphore);
  scheduler->yield();
  while (*value == 0) {
    if (!scheduler->block(key_of_word(semaphore), until, "waits for a semaphore") && scheduler->now() >= until)
      return errno = ETIMEDOUT, -1;
  }
  --*value;
  return 0;
}

// ---- threads ----

struct Barrier {
  unsigned threads, arrived = 0, round = 0;
};
std::map<pthread_barrier_t*, Barrier> barriers;

struct Started {
  Thread* thread;
  void* result = nullptr;
};
std::map<pthread_t, Started> started;
std::vector<void (*)(void*)> destructors;  // of pthread_key_t

pthread_t handle_of(const Thread& thread) { return static_cast<pthread_t>(thread.storage); }

void destroy_specific(Thread& thread) {
  for (int round = 0; round < PTHREAD_DESTRUCTOR_ITERATIONS && !thread.specific.empty(); ++round) {
    const auto values = std::exchange(thread.specific, {});
    for (const auto& [key, value] : values)
      if (value != nullptr && destructors[key] != nullptr) destructors[key](value);
  }
}

// ---- processes ----

// Where the file is on this machine. Fails, with ESRCH's path, for the process id of a rank that has ended.
std::string local_path(const char* path) {
  if (path == nullptr) return {};
  int pid = 0, used = 0;
  const bool own = std::strncmp(path, "/proc/self/", 11) == 0;
  if (!own && (std::sscanf(path, "/proc/%d/%n", &pid, &used) != 1 || used == 0)) return path;
  const Rank* const rank = own ? &this_rank() : job.of_pid(pid);
  if (rank == nullptr) return path;
  const std::string rest(path + (own ? 11 : used));
  if (rank->end == Rank::End::kGone || (rank->end == Rank::End::kZombie && rest != "stat")) return "/no such process";
  return rest == "stat" ? "/proc/self/fd/" + std::to_string(rank->status_file) : "/proc/self/" + rest;
}

// The process that has the rank's memory; 0: none any more.
pid_t with_memory(pid_t pid) {
  const Rank* const rank = job.of_pid(pid);
  if (rank == nullptr) return pid;
  static auto* const self = reinterpret_cast<decltype(&::getpid)>(host::find("getpid"));
  return rank->end == Rank::End::kNone ? self() : 0;
}

std::array<struct sigaction, 65> actions{};

void take_signal(int number, siginfo_t* info, void* context) {
  const struct sigaction& given = actions[static_cast<std::size_t>(number)];
  if ((given.sa_flags & SA_SIGINFO) != 0) return given.sa_sigaction(number, info, context);
  ::signal(number, SIG_DFL);
  host::fail("signal " + std::to_string(number), true);
}

}  // namespace

namespace host {

std::string replay, program;
int terminal = -1;

void* find(const char* name) {
  using Find = void*(void*, const char*);
  static auto* const next = reinterpret_cast<Find*>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return next(RTLD_NEXT, name);
}

void fail(const std::string& why, bool report) {
  std::fflush(nullptr);
  if (terminal >= 0) dup2(terminal, STDERR_FILENO);  // the program may have redirected it
  if (report) scheduler->report();
  std::fputs(faults::journal().c_str(), stderr);
  if (current() != nullptr) std::fprintf(stderr, "simulation: rank %d: ", current()->rank);
  std::fprintf(stderr, "%s\nsimulation: repeat by %s\n", why.c_str(), replay.c_str());
  std::fflush(nullptr);
  leave(1);
}

void leave(int code) {
  std::fflush(nullptr);
  static auto* const exit = reinterpret_cast<void (*)(int)>(find("_exit"));
  exit(code);
  __builtin_unreachable();
}

void begin_run() {
  terminal = dup(STDERR_FILENO);
  struct sigaction action {};
  action.sa_sigaction = take_signal;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  static auto* const act = reinterpret_cast<decltype(&::sigaction)>(find("sigaction"));
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) act(number, &action, nullptr);
}

void signal_descriptor(int fd) {
  static auto* const raise = reinterpret_cast<decltype(&::eventfd_write)>(find("eventfd_write"));
  raise(fd, 1);
  scheduler->wake(kDescriptors);
}

}  // namespace host

}  // namespace simulation

using namespace simulation;

// The C library's function, for calls that the simulation does not answer.
#define REAL(name, ...)                                                                     \
  ([&] {                                                                                    \
    static auto* const own_##name = reinterpret_cast<decltype(&::name)>(host::find(#name)); \
    return own_##name(__VA_ARGS__);                                                         \
  }())

extern "C" {

int __cxa_thread_atexit_impl(void (*)(void*), void*, void*);

int pthread_mutex_lock(pthread_mutex_t* mutex) { return lock_until(mutex, kNever); }
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  return lock_until(mutex, deadline(clock, until));
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  if (current() != nullptr) scheduler->yield();
  return try_lock(mutex) ? 0 : EBUSY;
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  auto& words = mutex->__data;
  if (--words.__count != 0) return 0;
  words.__owner = 0;
  words.__lock = 0;
  if (current() == nullptr) return 0;
  scheduler->wake(key_of_word(mutex), 1);
  scheduler->yield();
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return wait_until(condition, mutex, kNever);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  return wait_until(condition, mutex, deadline(CLOCK_REALTIME, until));
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  return wait_until(condition, mutex, deadline(clock, until));
}
int pthread_cond_signal(pthread_cond_t* condition) {
  if (current() != nullptr) scheduler->wake(key_of_word(condition), 1);
  return 0;
}
int pthread_cond_broadcast(pthread_cond_t* condition) {
  if (current() != nullptr) scheduler->wake(key_of_word(condition));
  return 0;
}

int pthread_barrier_init(pthread_barrier_t* barrier, const pthread_barrierattr_t*, unsigned threads) noexcept {
  barriers[barrier] = {threads};
  return 0;
}
int pthread_barrier_wait(pthread_barrier_t* place) noexcept {
  Barrier& barrier = barriers.at(place);
  if (++barrier.arrived == barrier.threads) {
    barrier.arrived = 0;
    ++barrier.round;
    scheduler->wake(key_of(place));
    return PTHREAD_BARRIER_SERIAL_THREAD;
  }
  for (const unsigned round = barrier.round; barrier.round == round;)
    scheduler->block(key_of(place), kNever, "waits for a barrier of threads");
  return 0;
}
int pthread_barrier_destroy(pthread_barrier_t* barrier) noexcept { return barriers.erase(barrier), 0; }

int sem_init(sem_t* semaphore, int, unsigned value) {
  std::memset(semaphore, 0, sizeof *semaphore);
  *reinterpret_cast<unsigned*>(semaphore) = value;
  return 0;
}
int sem_wait(sem_t* semaphore) { return wait_until(semaphore, kNever); }
int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  return wait_until(semaphore, deadline(clock, until));
}
int sem_timedwait(sem_t* semaphore, const timespec* until) {
  return wait_until(semaphore, deadline(CLOCK_REALTIME, until));
}
int sem_trywait(sem_t* semaphore) {
  auto* const value = reinterpret_cast<unsigned*>(semaphore);
  if (*value == 0) return errno = EAGAIN, -1;
  --*value;
  return 0;
}
int sem_post(sem_t* semaphore) {
  ++*reinterpret_cast<unsigned*>(semaphore);
  scheduler->wake(key_of_word(semaphore), 1);
  return 0;
}

int pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  if (current() == nullptr) return REAL(pthread_create, made, attributes, run, argument);
  Thread& thread = scheduler->start(current()->rank, "a thread", [run, argument] {
    void* const result = run(argument);
    for (auto& ends = current()->ends; !ends.empty();) {
      const auto end = std::move(ends.back());
      ends.pop_back();
      end();
    }
    destroy_specific(*current());
    started[handle_of(*current())].result = result;
  });
  *made = handle_of(thread);
  started[*made] = {&thread};
  scheduler->yield();
  return 0;
}
// The destructors of thread_local objects.
int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* library) {
  if (current() == nullptr) return REAL(__cxa_thread_atexit_impl, destroy, object, library);
  current()->ends.emplace_back([=] { destroy(object); });
  return 0;
}
int pthread_join(pthread_t handle, void** result) {
  const Started& joined = started.at(handle);
  while (!joined.thread->ended) scheduler->block(key_of(joined.thread), kNever, "waits for a thread");
  if (result != nullptr) *result = joined.result;
  return 0;
}
int pthread_detach(pthread_t) { return 0; }
int pthread_setname_np(pthread_t handle, const char* name) {
  if (const auto found = started.find(handle); found != started.end()) found->second.thread->name = name;
  return 0;
}
int pthread_sigmask(int, const sigset_t*, sigset_t* before) {
  if (before != nullptr) sigemptyset(before);
  return 0;
}
int pthread_once(pthread_once_t* once, void (*run)()) {
  enum : int { kNew, kRuns, kDone };
  while (*once == kRuns && current() != nullptr) scheduler->block(key_of(once), kNever, "waits for pthread_once");
  if (*once == kDone) return 0;
  *once = kRuns;
  run();
  *once = kDone;
  if (current() != nullptr) scheduler->wake(key_of(once));
  return 0;
}
int pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) {
  if (current() == nullptr) return REAL(pthread_key_create, key, destructor);
  if (destructors.empty()) destructors.resize(PTHREAD_KEYS_MAX);  // those of the C library are below
  *key = static_cast<pthread_key_t>(destructors.size());
  destructors.push_back(destructor);
  return 0;
}
int pthread_setspecific(pthread_key_t key, const void* value) {
  if (current() == nullptr || key < PTHREAD_KEYS_MAX) return REAL(pthread_setspecific, key, value);
  current()->specific[key] = const_cast<void*>(value);
  return 0;
}
void* pthread_getspecific(pthread_key_t key) {
  if (current() == nullptr || key < PTHREAD_KEYS_MAX) return REAL(pthread_getspecific, key);
  const auto found = current()->specific.find(key);
  return found != current()->specific.end() ? found->second : nullptr;
}

int clock_gettime(clockid_t clock, timespec* time) {
  if (scheduler == nullptr) return REAL(clock_gettime, clock, time);
  const Time now = look(clock);
  *time = {now / kSecond, now % kSecond};
  return 0;
}
int gettimeofday(timeval* time, void*) {
  const Time now = look(CLOCK_REALTIME);
  *time = {now / kSecond, now % kSecond / 1000};
  return 0;
}
time_t time(time_t* time) {
  if (scheduler == nullptr) return REAL(time, time);
  const Time now = look(CLOCK_REALTIME) / kSecond;
  if (time != nullptr) *time = now;
  return now;
}
int nanosleep(const timespec* time, timespec*) {
  scheduler->sleep(nanoseconds(*time));
  return 0;
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec*) {
  scheduler->sleep((flags & TIMER_ABSTIME) != 0 ? deadline(clock, time) - scheduler->now() : nanoseconds(*time));
  return 0;
}
int usleep(useconds_t time) {
  scheduler->sleep(time * kMicrosecond);
  return 0;
}
unsigned sleep(unsigned seconds) {
  scheduler->sleep(seconds * kSecond);
  return 0;
}
int sched_yield() {
  if (current() == nullptr) return REAL(sched_yield);
  scheduler->yield(true);
  return 0;
}

long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  std::array<long, 6> words;
  for (long& each : words) each = va_arg(list, long);
  va_end(list);
  if (current() != nullptr && number == SYS_futex) {
    return futex(reinterpret_cast<std::uint32_t*>(words[0]), static_cast<int>(words[1]),
                 static_cast<std::uint32_t>(words[2]), reinterpret_cast<const timespec*>(words[3]));
  }
  if (number == SYS_membarrier) return 0;  // there is one kernel thread
  return REAL(syscall, number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

int poll(pollfd* files, nfds_t count, int milliseconds) {
  const auto now = [&] { return REAL(poll, files, count, 0); };
  if (current() == nullptr) return REAL(poll, files, count, milliseconds);
  scheduler->yield();
  const Time until = milliseconds < 0 ? kNever : scheduler->now() + milliseconds * 1000 * kMicrosecond;
  int ready = now();
  while (ready == 0 && scheduler->now() < until) {
    scheduler->block(kDescriptors, until, "polls");
    ready = now();
  }
  return ready;
}
int eventfd_write(int fd, eventfd_t value) {
  const int result = REAL(eventfd_write, fd, value);
  if (current() != nullptr) scheduler->wake(kDescriptors), scheduler->yield();
  return result;
}

void* mmap(void* place, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  void* const base = REAL(mmap, place, bytes, protection, flags, fd, offset);
  if (base == MAP_FAILED || scheduler == nullptr) return base;
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  forget_mappings(begin, begin + bytes);
  struct stat info {};
  if ((flags & MAP_SHARED) != 0 && fd >= 0 && REAL(fstat, fd, &info) == 0)
    shared_mappings[begin] = {begin + bytes, info.st_ino, static_cast<std::uint64_t>(offset)};
  return base;
}
int munmap(void* base, size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  forget_mappings(begin, begin + bytes);
  return REAL(munmap, base, bytes);
}

pid_t getpid() { return current() != nullptr ? this_rank().pid : REAL(getpid); }
pid_t gettid() { return current() != nullptr ? 4'100'000 + current()->id : REAL(gettid); }
int kill(pid_t pid, int number) {
  Rank* const rank = job.of_pid(pid);
  if (rank == nullptr) return REAL(kill, pid, number);
  if (rank->end == Rank::End::kGone) return errno = ESRCH, -1;
  switch (number) {
    case 0: return 0;
    case SIGSTOP: stop(*rank); return 0;
    case SIGCONT: proceed(*rank); return 0;
    default: host::fail("signal " + std::to_string(number) + " to a rank is not simulated");
  }
}
int gethostname(char* name, size_t bytes) {
  if (current() == nullptr) return REAL(gethostname, name, bytes);
  std::snprintf(name, bytes, "%s", job.host_name(this_rank().node).c_str());
  return 0;
}
ssize_t getrandom(void* buffer, size_t bytes, unsigned flags) {
  if (current() == nullptr) return REAL(getrandom, buffer, bytes, flags);
  for (size_t i = 0; i < bytes; ++i) static_cast<char*>(buffer)[i] = static_cast<char>(scheduler->random().next());
  return static_cast<ssize_t>(bytes);
}
int prctl(int option, ...) {
  va_list list;
  va_start(list, option);
  const unsigned long argument = va_arg(list, unsigned long);
  va_end(list);
  return option == PR_SET_PTRACER ? 0 : REAL(prctl, option, argument, 0, 0, 0);
}
ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long locals, const iovec* remote,
                         unsigned long remotes, unsigned long flags) {
  scheduler->yield();
  const pid_t real = with_memory(pid);
  return real > 0 ? REAL(process_vm_readv, real, local, locals, remote, remotes, flags) : (errno = ESRCH, -1);
}
ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long locals, const iovec* remote,
                          unsigned long remotes, unsigned long flags) {
  scheduler->yield();
  const pid_t real = with_memory(pid);
  return real > 0 ? REAL(process_vm_writev, real, local, locals, remote, remotes, flags) : (errno = ESRCH, -1);
}

// farside's lines.
ssize_t write(int fd, const void* data, size_t bytes) {
  if (current() != nullptr && fd == STDERR_FILENO) faults::note({static_cast<const char*>(data), bytes});
  return REAL(write, fd, data, bytes);
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const unsigned mode = va_arg(list, unsigned);
  va_end(list);
  return current() != nullptr ? REAL(open, local_path(path).c_str(), flags, mode) : REAL(open, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  return current() != nullptr ? REAL(fopen, local_path(path).c_str(), mode) : REAL(fopen, path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  return current() != nullptr ? REAL(fopen64, local_path(path).c_str(), mode) : REAL(fopen64, path, mode);
}
DIR* opendir(const char* path) {
  return current() != nullptr ? REAL(opendir, local_path(path).c_str()) : REAL(opendir, path);
}

int sigaction(int number, const struct sigaction* action, struct sigaction* before) {
  if (current() == nullptr) return REAL(sigaction, number, action, before);
  auto& known = actions[static_cast<std::size_t>(number)];
  if (before != nullptr) *before = known;
  if (action != nullptr) known = *action;
  return 0;
}
void _exit(int code) { faults::end_job("_exit(" + std::to_string(code) + ")"); }
void exit(int code) {
  if (current() == nullptr) {
    REAL(exit, code);
    __builtin_unreachable();
  }
  faults::end_job("exit(" + std::to_string(code) + ")");
}

int dl_iterate_phdr(int (*visit)(dl_phdr_info*, size_t, void*), void* data) {
  const auto run = [&] { return REAL(dl_iterate_phdr, visit, data); };
  return current() != nullptr ? scheduler->alone(run) : run();
}

// The MPI library, and libfabric, are this executable.
void* dlsym(void* handle, const char* name) noexcept {
  using Find = void*(void*, const char*);
  static auto* const real = reinterpret_cast<Find*>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return real(handle == RTLD_NEXT ? RTLD_DEFAULT : handle, name);
}
}

// SPDX-License-Identifier: BSD-3-Clause
// The ranks as processes, their files and signals, and the end of the run (system.hpp).
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
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/simulation/faults.hpp"
#include "tests/simulation/network/objects.hpp"
#include "tests/simulation/system.hpp"

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

bool lacks_files() {
  if (current() == nullptr || this_rank().short_of_files <= scheduler->now()) return false;
  return errno = EMFILE, true;
}
bool lacks_memory() {
  if (current() == nullptr || this_rank().short_of_memory <= scheduler->now()) return false;
  return errno = ENOMEM, true;
}

namespace {

// Where the file is on this machine. Fails, with ESRCH's path, for the process id of a rank that has ended. The memory
// that other processes leave would make runs differ.
std::string local_path(const char* path) {
  if (path == nullptr) return {};
  for (const char* const file : {"/proc/meminfo", "/proc/self/cgroup", "/proc/self/status"})
    if (std::strcmp(path, file) == 0) return "/no such file";
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

void* find(const char* name) {
  using Find = void*(void*, const char*);
  static auto* const next = reinterpret_cast<Find*>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return next(RTLD_NEXT, name);
}

void fail(const std::string& why, bool report) {
  std::fflush(nullptr);
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
  struct sigaction action {};
  action.sa_sigaction = take_signal;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  static auto* const act = reinterpret_cast<decltype(&::sigaction)>(find("sigaction"));
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU}) act(number, &action, nullptr);
}

void signal_descriptor(int fd) {
  static auto* const raise = reinterpret_cast<decltype(&::eventfd_write)>(find("eventfd_write"));
  raise(fd, 1);
  scheduler->wake(kDescriptors);
}

}  // namespace host

}  // namespace simulation

using namespace simulation;

extern "C" {

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

// farside's lines. Those of the programs go another way, inside of the C library.
ssize_t write(int fd, const void* data, size_t bytes) {
  if (current() != nullptr && fd == STDERR_FILENO) {
    faults::note({static_cast<const char*>(data), bytes});
    if (this_rank().error_output >= 0) fd = this_rank().error_output;
  }
  return REAL(write, fd, data, bytes);
}
int dup2(int from, int to) noexcept {
  if (current() == nullptr || to != STDERR_FILENO) return REAL(dup2, from, to);
  return this_rank().error_output = from, to;
}

int memfd_create(const char* name, unsigned flags) noexcept {
  return lacks_files() ? -1 : REAL(memfd_create, name, flags);
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const unsigned mode = va_arg(list, unsigned);
  va_end(list);
  if (lacks_files()) return -1;
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

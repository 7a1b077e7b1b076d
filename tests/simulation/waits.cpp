// SPDX-License-Identifier: BSD-3-Clause
// Clocks, futexes, mutexes, condition variables, semaphores, descriptors, and shared memory (system.hpp).
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <linux/futex.h>
#include <map>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulation/system.hpp"

namespace simulation {

namespace {

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

}  // namespace

Key key_of_word(const void* word) {
  const auto address = reinterpret_cast<std::uintptr_t>(word);
  auto next = shared_mappings.upper_bound(address);
  if (next == shared_mappings.begin()) return {0, address};
  const auto& [begin, mapping] = *--next;
  if (address >= mapping.end) return {0, address};
  return {mapping.file, mapping.offset + (address - begin)};
}

bool is_shared(const void* word) { return key_of_word(word).first != 0; }

namespace {

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

// Returns whether it is unlocked.
bool unlock(pthread_mutex_t* mutex) {
  auto& words = mutex->__data;
  if (--words.__count != 0) return false;
  words.__owner = 0;
  words.__lock = 0;
  if (current() != nullptr) scheduler->wake(key_of_word(mutex), 1);
  return true;
}

int wait_until(pthread_cond_t* condition, pthread_mutex_t* mutex, Time until) {
  unlock(mutex);  // no other thread runs before this one waits
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

}  // namespace

}  // namespace simulation

using namespace simulation;

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) { return lock_until(mutex, kNever); }
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  return lock_until(mutex, deadline(clock, until));
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  if (current() != nullptr) scheduler->yield();
  return try_lock(mutex) ? 0 : EBUSY;
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (unlock(mutex) && current() != nullptr) scheduler->yield();
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
  if (lacks_memory()) return MAP_FAILED;
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
}

// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/transport/fabric/counted_calls.hpp"

#include <atomic>
#include <ctime>
#include <dlfcn.h>
#include <pthread.h>
#include <utility>

namespace farside::testing {
namespace {

thread_local constinit CountedCalls counted;
thread_local constinit const void* not_counted = nullptr;

// The library's function. Without a lock of its own, since a lock would come here.
template <class Function>
Function* next(std::atomic<Function*>& known, const char* name) {
  Function* function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace

CountedCalls take_counted_calls(const void* except) {
  if (except != nullptr) not_counted = except;
  return std::exchange(counted, {});
}

}  // namespace farside::testing

extern "C" {

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  static constinit std::atomic<int (*)(clockid_t, timespec*)> known = nullptr;
  ++farside::testing::counted.clocks;
  return farside::testing::next(known, "clock_gettime")(clock, out);
}

#ifndef __SANITIZE_THREAD__
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static constinit std::atomic<int (*)(pthread_mutex_t*)> known = nullptr;
  if (mutex != farside::testing::not_counted) ++farside::testing::counted.locks;
  return farside::testing::next(known, "pthread_mutex_lock")(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static constinit std::atomic<int (*)(pthread_mutex_t*)> known = nullptr;
  if (mutex != farside::testing::not_counted) ++farside::testing::counted.locks;
  return farside::testing::next(known, "pthread_mutex_trylock")(mutex);
}
#endif

}  // extern "C"

// SPDX-License-Identifier: BSD-3-Clause
// Threads, their barriers, and what belongs to each (system.hpp).
#include <map>
#include <pthread.h>
#include <signal.h>
#include <utility>
#include <vector>

#include "tests/simulation/system.hpp"

namespace simulation {

namespace {

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

}  // namespace

}  // namespace simulation

using namespace simulation;

extern "C" {

int __cxa_thread_atexit_impl(void (*)(void*), void*, void*);

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
}

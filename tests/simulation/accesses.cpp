// SPDX-License-Identifier: BSD-3-Clause
// The functions that a compiler calls with -fsanitize=thread, in place of the sanitizer's own: farside's accesses to
// memory as scheduling points. The ranks' copies are compiled with it, this executable is not.
#include <cstddef>
#include <cstdint>

#include "tests/simulation/scheduler.hpp"

using simulation::scheduler;

namespace {
void point() { scheduler->at_atomic(); }
void access() { scheduler->at_access(); }
bool swapped(bool success, const volatile void* word) {
  if (success) scheduler->at_swap(word);
  return success;
}
}  // namespace

// All orders of memory are that of one kernel thread. A weak compare-and-swap fails at times for no reason.
#define ATOMICS_OF(bits)                                                                                               \
  using Word##bits = std::uint##bits##_t;                                                                              \
  Word##bits __tsan_atomic##bits##_load(const volatile Word##bits* word, int) { return point(), *word; }               \
  void __tsan_atomic##bits##_store(volatile Word##bits* word, Word##bits value, int) {                                 \
    point();                                                                                                           \
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);                                                                   \
  }                                                                                                                    \
  Word##bits __tsan_atomic##bits##_exchange(volatile Word##bits* word, Word##bits value, int) {                        \
    return point(), __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);                                                \
  }                                                                                                                    \
  Word##bits __tsan_atomic##bits##_fetch_add(volatile Word##bits* word, Word##bits value, int) {                       \
    return point(), __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                                    \
  Word##bits __tsan_atomic##bits##_fetch_sub(volatile Word##bits* word, Word##bits value, int) {                       \
    return point(), __atomic_fetch_sub(word, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                                    \
  Word##bits __tsan_atomic##bits##_fetch_and(volatile Word##bits* word, Word##bits value, int) {                       \
    return point(), __atomic_fetch_and(word, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                                    \
  Word##bits __tsan_atomic##bits##_fetch_or(volatile Word##bits* word, Word##bits value, int) {                        \
    return point(), __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                                    \
  Word##bits __tsan_atomic##bits##_fetch_xor(volatile Word##bits* word, Word##bits value, int) {                       \
    return point(), __atomic_fetch_xor(word, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                                    \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile Word##bits* word, Word##bits* seen, Word##bits value,    \
                                                     int, int) {                                                       \
    point();                                                                                                           \
    return swapped(__atomic_compare_exchange_n(word, seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST), word);   \
  }                                                                                                                    \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile Word##bits* word, Word##bits* seen, Word##bits value, int, \
                                                   int) {                                                              \
    point();                                                                                                           \
    if (scheduler->random().one_in(64)) return *seen = *word, false;                                                   \
    return swapped(__atomic_compare_exchange_n(word, seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST), word);   \
  }

#define PLAIN_ACCESS(bytes)                               \
  void __tsan_read##bytes(void*) { access(); }            \
  void __tsan_write##bytes(void*) { access(); }           \
  void __tsan_unaligned_read##bytes(void*) { access(); }  \
  void __tsan_unaligned_write##bytes(void*) { access(); } \
  void __tsan_volatile_read##bytes(void*) { point(); }    \
  void __tsan_volatile_write##bytes(void*) { point(); }

extern "C" {
ATOMICS_OF(8)
ATOMICS_OF(16)
ATOMICS_OF(32)
ATOMICS_OF(64)
PLAIN_ACCESS(1)
PLAIN_ACCESS(2)
PLAIN_ACCESS(4)
PLAIN_ACCESS(8)
PLAIN_ACCESS(16)
void __tsan_read_range(void*, std::size_t) { access(); }
void __tsan_write_range(void*, std::size_t) { access(); }
void __tsan_vptr_update(void*, void*) { access(); }
void __tsan_atomic_thread_fence(int) { point(); }
void __tsan_atomic_signal_fence(int) {}
void __tsan_init() {}

// __builtin_ia32_rdtsc in the copies (counter.hpp).
unsigned long long simulation_counter() {
  scheduler->pass(10);
  return static_cast<unsigned long long>(scheduler->now()) + 1'000'000;
}
}

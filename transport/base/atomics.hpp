// SPDX-License-Identifier: BSD-3-Clause
// Small atomics that cost as much as the plain types, and the order of a thread's plain stores to peers' memory.
#pragma once

#include <atomic>
#include <cstdint>

namespace farside {

// An atomic that is used as a plain value, and costs as much.
template <class T, std::memory_order kStore, std::memory_order kLoad>
class PlainAtomic {
 public:
  constexpr PlainAtomic(T value = T()) : value_(value) {}  // NOLINT(google-explicit-constructor)
  PlainAtomic(const PlainAtomic& other) : value_(other) {}
  PlainAtomic& operator=(const PlainAtomic& other) { return *this = static_cast<T>(other); }
  PlainAtomic& operator=(T value) {
    value_.store(value, kStore);
    return *this;
  }
  operator T() const { return value_.load(kLoad); }  // NOLINT(google-explicit-constructor)
  PlainAtomic& operator++() { return *this = static_cast<T>(*this) + 1; }
  PlainAtomic& operator--() { return *this = static_cast<T>(*this) - 1; }

 private:
  std::atomic<T> value_;
};
// A value that any thread may read and change; one at a time by ++ and --, as a mutex or an owner sees to. It orders no
// other accesses.
using RelaxedFlag = PlainAtomic<bool, std::memory_order_relaxed, std::memory_order_relaxed>;
using RelaxedCount = PlainAtomic<std::uint32_t, std::memory_order_relaxed, std::memory_order_relaxed>;
// A value that one thread at a time changes, and that any thread may read meanwhile. A read that returns a value sees
// all that the writer had written before that value (release and acquire, which on x86-64 are plain stores and loads).
template <class T>
using Published = PlainAtomic<T, std::memory_order_release, std::memory_order_acquire>;

// The plain stores of a thread to memory of the peers of its process. A core may execute later loads before such stores
// leave its store buffer. After a flush of a put, a load must not precede the put, so the flush drains the stores.
//
// Each thread has its own object (state.hpp). A flush that completes another thread's put follows it in
// the program (MPI 4.0 section 11.6), so the flushing thread has seen a store or an atomic that followed the put. On
// x86 stores leave a core in program order, so the put has left its core, too; elsewhere drain() always executes a
// fence, which is cumulative.
//
// Thread safety: one thread per object. Cost: a load or a store, and a fence if something was stored.
class Stores {
 public:
  // To be called after plain stores, unless an atomic read-modify-write of the thread followed them.
  void made() { in_flight_ = true; }
  // Orders all earlier stores before all later loads. A full fence takes as long as a put, so on x86 there is no fence
  // if the thread has stored nothing since its last one.
  void drain() {
#if defined(__x86_64__)
    if (!in_flight_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return;
    }
    in_flight_ = false;
#endif
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  // The same after a sequentially consistent read-modify-write of this thread, which is a full fence on x86.
  void drained_by_atomic() {
#if defined(__x86_64__)
    in_flight_ = false;
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

 private:
  bool in_flight_ = false;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// How a measure takes its samples, and the window that it uses.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "tools/bench/program/program.hpp"
#include "tools/common/collectives.hpp"

namespace farside::bench {

inline constexpr int kTarget = 1;

// Whether the words are `first`, `first` + 1, ...
template <class Word>
bool counts_from(const Word* words, int count, Word first) {
  return std::all_of(words, words + count, [&first](Word word) { return word == first++; });
}

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Operations are timed in batches that are long enough for the clock (calibrated to about half a millisecond). Many
// short batches give a median that is robust against the scheduler's noise.
struct Budget {
  double batch_seconds = 0.0005;
  double sample_seconds = 0.2;    // all samples together
  std::size_t least_samples = 5;  // even if that takes longer ...
  double longest_seconds = 2.0;   // ... but not longer than this
};

// Returns the seconds per operation of each batch, at least one value. `batch(n)` does n operations and returns their
// time in seconds. If the very first operation is longer than a batch should be, it is the first sample: a stalled
// operation on a computing target is the result, not a warm-up.
template <class Batch>
std::vector<double> take_samples(const Budget& budget, Batch&& batch) {
  std::vector<double> samples;
  const Clock::time_point start = Clock::now();
  long count = 1;
  for (;;) {
    const double taken = batch(count);
    if (taken >= budget.batch_seconds || count >= 1L << 24 || seconds_since(start) > budget.sample_seconds) {
      samples.push_back(taken / static_cast<double>(count));
      break;
    }
    const double factor = taken > 0 ? 1.2 * budget.batch_seconds / taken : 8.0;
    count = std::max(count + 1, static_cast<long>(static_cast<double>(count) * std::min(factor, 8.0)));
  }
  for (;;) {
    const double elapsed = seconds_since(start);
    const bool enough = elapsed >= budget.sample_seconds && samples.size() >= budget.least_samples;
    if (enough || elapsed >= budget.longest_seconds) return samples;
    samples.push_back(batch(count) / static_cast<double>(count));
  }
}

// Does an operation `count` times. Returns the seconds that this takes. With a pause in front of each it is `count`
// times their median, since some wait for a core.
template <class Operation>
double time_of(long count, Operation&& operation, std::chrono::milliseconds pause = {}) {
  const long together = pause.count() > 0 ? 1 : count;
  std::vector<double> seconds;
  for (long done = 0; done < count; done += together) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    const Clock::time_point start = Clock::now();
    for (long i = 0; i < together; ++i) operation();
    seconds.push_back(seconds_since(start));
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle * static_cast<double>(count / together);
}
// Behind it, a rank that waits for this one sleeps.
constexpr std::chrono::milliseconds kLate{5};

// The same with batches of `operation()`, in about `sample_seconds`. The first three (connections, page faults) are not
// counted.
template <class Operation>
std::vector<double> sample(double sample_seconds, Operation&& operation, std::chrono::milliseconds pause = {}) {
  time_of(3, operation);
  return take_samples({.sample_seconds = sample_seconds}, [&](long count) { return time_of(count, operation, pause); });
}

// The same with batches in which all ranks take part, as often as the origin announces before each. Ranks that are done
// sleep until the announcement: those that are not may need their cores, which not every runtime yields. Collective.
template <class Batch>
std::vector<double> sample_together(const Pair& pair, double sample_seconds, Batch&& batch) {
  const auto announced = [&pair](long count) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(&count, 1, MPI_LONG, 0, pair.comm, &request);
    tools::sleeping_wait(request, std::chrono::microseconds(100));
    return count;
  };
  std::vector<double> samples;
  if (pair.origin)
    samples = take_samples({.batch_seconds = 0.01, .sample_seconds = sample_seconds},
                           [&](long count) { return batch(announced(count)); });
  while (const long count = announced(0)) batch(count);
  return samples;
}

// Repeats `step` for `seconds`, and returns the seconds that it took. The clock is read so rarely that this does not
// count.
template <class Step>
double repeat_for(double seconds, Step&& step) {
  double elapsed = 0;
  for (long steps = 1; elapsed < seconds;) {
    const double taken = time_of(steps, step);
    elapsed += taken;
    if (taken < 20e-6) steps *= 2;
  }
  return elapsed;
}

// A target outside of MPI sleeps until the deadline,
inline void sleep_until(Clock::time_point deadline) {
  while (Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
// or computes on this process's own memory, without system calls or MPI.
inline void compute_until(Clock::time_point deadline) {
  std::array<volatile double, 512> numbers{};
  do {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = numbers[i] * 0.999 + static_cast<double>(i);
  } while (Clock::now() < deadline);
}

// Reports the route of the window, and its provider.
inline void print_route_of(MPI_Win window) {
  const auto value = [window](const char* key) { return tools::window_info(window, key); };
  print_opened(value("farside_route"), value("farside_provider"), value("farside_device"));
}

class Window {  // a window on at least `bytes` of zeroed memory at each rank
 public:
  Window(const Pair& pair, WindowKind kind, std::size_t bytes) {
    // In a window of 8 bytes per rank made by MPI_Win_allocate, native MPICH 4.0.2 lets operations on rank 1 reach
    // the memory of rank 0. The minimum size avoids this error.
    bytes = std::max(bytes, std::size_t{4096});
    if (kind == WindowKind::kAllocate) {
      MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, pair.comm, &memory_, &handle_);
    } else {
      private_memory_.resize(bytes);
      memory_ = private_memory_.data();
      MPI_Win_create(memory_, static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, pair.comm, &handle_);
    }
    if (pair.origin) print_route_of(handle_);
    const int rank = tools::Ranks(pair.comm).mine;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, handle_);
    std::fill_n(static_cast<char*>(memory_), bytes, char{0});
    MPI_Win_unlock(rank, handle_);
    // Without the barrier, a peer could already hold a lock on this rank while it waits for this rank elsewhere.
    MPI_Barrier(pair.comm);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() { MPI_Win_free(&handle_); }
  MPI_Win handle() const { return handle_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  std::vector<char> private_memory_;
  void* memory_ = nullptr;
  MPI_Win handle_ = MPI_WIN_NULL;
};

}  // namespace farside::bench

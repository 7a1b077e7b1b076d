// SPDX-License-Identifier: BSD-3-Clause
// Samples one measure. Operations are timed in batches that are long enough for the clock (calibrated to about half a
// millisecond). Many short batches give a median that is robust against the scheduler's noise.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

namespace farside::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

// Does an operation `count` times. Returns the seconds that this takes.
template <class Operation>
double time_of(long count, Operation&& operation) {
  const Clock::time_point start = Clock::now();
  for (long i = 0; i < count; ++i) operation();
  return seconds_since(start);
}

// The same with batches of `operation()`, in about `sample_seconds`. The first three (connections, page faults) are not
// counted.
template <class Operation>
std::vector<double> sample(double sample_seconds, Operation&& operation) {
  time_of(3, operation);
  return take_samples({.sample_seconds = sample_seconds}, [&](long count) { return time_of(count, operation); });
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

// The following two are what a target outside of MPI does until the deadline. The first sleeps.
inline void sleep_until(Clock::time_point deadline) {
  while (Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Computes on this process's own memory, without system calls or MPI.
inline void compute_until(Clock::time_point deadline) {
  std::array<volatile double, 512> numbers{};
  do {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = numbers[i] * 0.999 + static_cast<double>(i);
  } while (Clock::now() < deadline);
}

}  // namespace farside::bench

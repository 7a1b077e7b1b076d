// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <thread>

#include "tools/bench/operations.hpp"
#include "tools/bench/other_measures.hpp"
#include "tools/bench/sampler.hpp"
#include "tools/bench/window.hpp"

namespace farside::bench {
namespace {

constexpr int kRounds = 8;
constexpr int kStride = 128;  // bytes between the words, so that each has its own cache lines

struct Worker {
  std::int64_t done = 0;
  double rate = 0;  // operations per second in the round
  bool right = true;
};

void work(bool fetch, int thread, MPI_Win win, double seconds, Worker& worker) {
  const MPI_Aint place = thread * kStride;
  const std::int64_t before = worker.done;
  const double elapsed = repeat_for(seconds, [&] {
    const std::int64_t one = fetch ? 1 : worker.done + 1;
    std::int64_t old = worker.done;
    if (fetch) {
      MPI_Fetch_and_op(&one, &old, MPI_INT64_T, kTarget, place, MPI_SUM, win);
    } else {
      MPI_Put(&one, 1, MPI_INT64_T, kTarget, place, 1, MPI_INT64_T, win);
    }
    MPI_Win_flush(kTarget, win);
    if (old != worker.done) worker.right = false;
    ++worker.done;
  });
  worker.rate = static_cast<double>(worker.done - before) / elapsed;
}

}  // namespace

Outcome measure_threads(const MeasureInfo& info, const Pair& pair, const Options& options) {
  Outcome outcome;
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_MULTIPLE) {
    outcome.wrong = "the runtime does not provide MPI_THREAD_MULTIPLE";
    return outcome;
  }
  const int count = static_cast<int>(info.x);
  const bool fetch = info.group == "threads_fetch";
  const Window window(pair, options.window, static_cast<std::size_t>(count * kStride));
  std::vector<Worker> workers(static_cast<std::size_t>(count));
  if (pair.origin) {
    MPI_Win_lock(MPI_LOCK_SHARED, kTarget, 0, window.handle());
    for (int round = 0; round < kRounds; ++round) {
      std::barrier start(count);
      std::vector<std::thread> threads;
      for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
          start.arrive_and_wait();
          work(fetch, i, window.handle(), options.sample_seconds / kRounds, workers[static_cast<std::size_t>(i)]);
        });
      }
      for (std::thread& thread : threads) thread.join();
      double rate = 0;
      for (const Worker& worker : workers) rate += worker.rate;
      outcome.values.push_back(rate);
    }
    MPI_Win_unlock(kTarget, window.handle());
  }
  MPI_Barrier(pair.comm);
  std::vector<std::int64_t> expected;
  for (const Worker& worker : workers) expected.push_back(worker.done);
  MPI_Bcast(expected.data(), count, MPI_INT64_T, 0, pair.comm);
  bool right = true;
  if (!pair.origin) {
    MPI_Win_lock(MPI_LOCK_SHARED, kTarget, 0, window.handle());
    for (int i = 0; i < count; ++i) {
      if (window.as<std::int64_t>()[i * kStride / 8] != expected[static_cast<std::size_t>(i)]) right = false;
    }
    MPI_Win_unlock(kTarget, window.handle());
  }
  if (!of_rank(kTarget, right, pair.comm))
    outcome.wrong = "a thread's word at the target is not what the thread made of it";
  if (!std::ranges::all_of(workers, &Worker::right)) outcome.wrong = "a thread fetched a wrong value";
  return outcome;
}

}  // namespace farside::bench

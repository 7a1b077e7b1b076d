// SPDX-License-Identifier: BSD-3-Clause
// Operations of several threads of the origin at once. Each thread has a word of its own at the target, on cache lines
// of its own: in one window (threads_X), or in a window of the thread's own (threads_own_X).
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "tools/bench/operations.hpp"
#include "tools/bench/other_measures.hpp"
#include "tools/bench/sampler.hpp"
#include "tools/bench/window.hpp"

namespace farside::bench {
namespace {

constexpr int kRounds = 8;
constexpr int kStride = 128;  // bytes between the words, so that each has its own cache lines

struct Place {
  MPI_Win win;
  MPI_Aint at;
};
// Each executes and completes one operation on a word that holds `before`, and returns whether its result is right.
bool put(const Place& place, std::int64_t before) {
  const std::int64_t value = before + 1;
  MPI_Put(&value, 1, MPI_INT64_T, kTarget, place.at, 1, MPI_INT64_T, place.win);
  MPI_Win_flush(kTarget, place.win);
  return true;
}
bool get(const Place& place, std::int64_t) {
  std::int64_t value = -1;
  MPI_Get(&value, 1, MPI_INT64_T, kTarget, place.at, 1, MPI_INT64_T, place.win);
  MPI_Win_flush(kTarget, place.win);
  return value == 0;
}
bool fetch(const Place& place, std::int64_t before) {
  const std::int64_t one = 1;
  std::int64_t old = -1;
  MPI_Fetch_and_op(&one, &old, MPI_INT64_T, kTarget, place.at, MPI_SUM, place.win);
  MPI_Win_flush(kTarget, place.win);
  return old == before;
}
bool accumulate(const Place& place, std::int64_t) {
  const std::int64_t one = 1;
  MPI_Accumulate(&one, 1, MPI_INT64_T, kTarget, place.at, 1, MPI_INT64_T, MPI_SUM, place.win);
  MPI_Win_flush(kTarget, place.win);
  return true;
}
bool lock_put_unlock(const Place& place, std::int64_t before) {
  const std::int64_t value = before + 1;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, place.win);
  MPI_Put(&value, 1, MPI_INT64_T, kTarget, place.at, 1, MPI_INT64_T, place.win);
  MPI_Win_unlock(kTarget, place.win);
  return true;
}
// An atomic in memory of the process, without MPI: how far the machine lets threads scale.
bool bare(const Place& place, std::int64_t before) {
  struct alignas(kStride) Line {
    std::atomic<std::int64_t> word{0};
  };
  static std::array<Line, 64> lines;
  lines[static_cast<std::size_t>(place.at / kStride)].word.store(before);
  return true;
}

struct Kind {
  std::string_view group;
  bool (*once)(const Place&, std::int64_t before);
  bool own_windows = false;
  bool locks = false;    // by itself
  bool changes = true;   // the word counts the operations
};
constexpr std::array kKinds{Kind{"threads_put", put},
                            Kind{"threads_get", get, false, false, false},
                            Kind{"threads_fetch", fetch},
                            Kind{"threads_accumulate", accumulate},
                            Kind{"threads_own_put", put, true},
                            Kind{"threads_own_fetch", fetch, true},
                            Kind{"threads_own_lock", lock_put_unlock, true, true},
                            Kind{"threads_bare", bare, false, false, false}};

struct Worker {
  std::int64_t done = 0;
  double rate = 0;  // operations per second in the round
  bool right = true;
};

void work(const Kind& kind, const Place& place, double seconds, Worker& worker) {
  const std::int64_t before = worker.done;
  const double elapsed = repeat_for(seconds, [&] {
    if (!kind.once(place, worker.done)) worker.right = false;
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
  const Kind& kind = *std::ranges::find(kKinds, info.group, &Kind::group);
  std::vector<std::unique_ptr<Window>> windows;
  for (int i = 0; i < (kind.own_windows ? count : 1); ++i)
    windows.push_back(std::make_unique<Window>(pair, options.window, static_cast<std::size_t>(count * kStride)));
  const auto window_of = [&](int thread) -> Window& { return *windows[kind.own_windows ? std::size_t(thread) : 0]; };
  const auto in_all = [&](auto&& call) {
    for (const auto& window : windows) call(window->handle());
  };
  std::vector<Worker> workers(static_cast<std::size_t>(count));
  if (pair.origin) {
    if (!kind.locks) in_all([](MPI_Win win) { MPI_Win_lock(MPI_LOCK_SHARED, kTarget, 0, win); });
    for (int round = 0; round < kRounds; ++round) {
      std::barrier start(count);
      std::vector<std::thread> threads;
      for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
          start.arrive_and_wait();
          work(kind, {window_of(i).handle(), i * kStride}, options.sample_seconds / kRounds,
               workers[static_cast<std::size_t>(i)]);
        });
      }
      for (std::thread& thread : threads) thread.join();
      double rate = 0;
      for (const Worker& worker : workers) rate += worker.rate;
      outcome.values.push_back(rate);
    }
    if (!kind.locks) in_all([](MPI_Win win) { MPI_Win_unlock(kTarget, win); });
  }
  MPI_Barrier(pair.comm);
  std::vector<std::int64_t> expected;
  for (const Worker& worker : workers) expected.push_back(kind.changes ? worker.done : 0);
  MPI_Bcast(expected.data(), count, MPI_INT64_T, 0, pair.comm);
  bool right = true;
  if (!pair.origin) {
    in_all([](MPI_Win win) { MPI_Win_lock(MPI_LOCK_SHARED, kTarget, 0, win); });
    for (int i = 0; i < count; ++i) {
      if (window_of(i).as<std::int64_t>()[i * kStride / 8] != expected[static_cast<std::size_t>(i)]) right = false;
    }
    in_all([](MPI_Win win) { MPI_Win_unlock(kTarget, win); });
  }
  if (!of_rank(kTarget, right, pair.comm))
    outcome.wrong = "a thread's word at the target is not what the thread made of it";
  if (!std::ranges::all_of(workers, &Worker::right)) outcome.wrong = "a thread fetched a wrong value";
  return outcome;
}

}  // namespace farside::bench

// SPDX-License-Identifier: BSD-3-Clause
// Operations of several threads of the origin at once. Each thread has its own word, on its own cache lines: at
// one target in one window (threads_X), at one target in a window of the thread's own (threads_own_X), or at a target
// of the thread's own in one window (threads_targets_X).
#include <atomic>
#include <barrier>
#include <cstdint>
#include <memory>
#include <string_view>

#include "tools/bench/program/measuring.hpp"

namespace farside::bench {
namespace {

constexpr int kRounds = 8;
constexpr int kStride = 128;  // bytes between the words, so that each has its own cache lines

struct Place {  // of a thread's word
  MPI_Win win;
  int target;
  MPI_Aint at;
};
enum class Call { kPut, kGet, kFetch, kAccumulate, kLockPutUnlock, kBare };  // as the names in kind_of()

// Executes and completes one operation on a word that holds `before`. Returns whether its result is right.
bool once(Call call, const Place& place, std::int64_t before) {
  // An atomic in memory of the process, without MPI, shows how far the machine lets threads scale.
  struct alignas(kStride) Line {
    std::atomic<std::int64_t> word{0};
  };
  static std::array<Line, 64> lines;
  const auto& [win, target, at] = place;
  const std::int64_t one = 1, after = before + 1;
  std::int64_t value = -1;
  switch (call) {
    case Call::kPut: MPI_Put(&after, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, win); break;
    case Call::kGet: MPI_Get(&value, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, win); break;
    case Call::kFetch: MPI_Fetch_and_op(&one, &value, MPI_INT64_T, target, at, MPI_SUM, win); break;
    case Call::kAccumulate: MPI_Accumulate(&one, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, MPI_SUM, win); break;
    case Call::kBare: lines[static_cast<std::size_t>(at / kStride)].word.store(before); return true;
    case Call::kLockPutUnlock:
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win);
      MPI_Put(&after, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, win);
      MPI_Win_unlock(target, win);
      return true;
  }
  MPI_Win_flush(target, win);
  return call == Call::kGet ? value == 0 : call != Call::kFetch || value == before;
}

enum class Own { kWord, kWindow, kTarget };  // what each thread has to itself, beside its word

struct Kind {
  Call call;
  Own own;
  bool locks() const { return call == Call::kLockPutUnlock; }                 // by itself
  bool changes() const { return call != Call::kGet && call != Call::kBare; }  // the word counts the operations
};

// "threads_CALL", "threads_own_CALL" or "threads_targets_CALL", perhaps with "_sleep" behind it.
Kind kind_of(std::string_view group) {
  constexpr std::array<std::string_view, 6> kCalls = {"put", "get", "fetch", "accumulate", "lock", "bare"};
  const std::string_view words = group.substr(std::string_view("threads_").size());
  const Own own = words.starts_with("own_") ? Own::kWindow : words.starts_with("targets_") ? Own::kTarget : Own::kWord;
  const std::string_view call = words.substr(own == Own::kWord ? 0 : words.find('_') + 1);
  const auto found = std::ranges::find(kCalls, call.substr(0, call.find('_')));
  return {static_cast<Call>(found - kCalls.begin()), own};
}

// The windows of a measure, and the place of each thread's word. Construction and destruction are collective.
class Places {
 public:
  Places(const Kind& kind, int threads, const Pair& pair, WindowKind window) : kind_(kind), threads_(threads) {
    for (int i = 0; i < (kind.own == Own::kWindow ? threads : 1); ++i)
      windows_.push_back(std::make_unique<Window>(pair, window, static_cast<std::size_t>(threads * kStride)));
  }
  Place of(int thread) const {
    return {window_of(thread).handle(), kind_.own == Own::kTarget ? kTarget + thread : kTarget, thread * kStride};
  }
  void lock_all() const {
    for (const auto& window : windows_) MPI_Win_lock_all(0, window->handle());
  }
  void unlock_all() const {
    for (const auto& window : windows_) MPI_Win_unlock_all(window->handle());
  }
  // Returns whether the words that lie at `rank`, which calls this, have the expected values.
  bool right(int rank, const std::vector<std::int64_t>& expected) const {
    bool right = true;
    lock_all();
    for (int i = 0; i < threads_; ++i) {
      const std::int64_t word = window_of(i).as<std::int64_t>()[i * kStride / sizeof(std::int64_t)];
      if (of(i).target == rank && word != expected[static_cast<std::size_t>(i)]) right = false;
    }
    unlock_all();
    return right;
  }

 private:
  Window& window_of(int thread) const {
    return *windows_[kind_.own == Own::kWindow ? static_cast<std::size_t>(thread) : 0];
  }
  const Kind& kind_;
  int threads_;
  std::vector<std::unique_ptr<Window>> windows_;
};

struct alignas(kStride) Worker {  // on its own cache lines: its thread writes `done` at each operation
  std::int64_t done = 0;
  double rate = 0;  // operations per second in the round
  bool right = true;
};

void work(const Kind& kind, const Place& place, double seconds, Worker& worker) {
  const std::int64_t before = worker.done;
  const double elapsed = repeat_for(seconds, [&] {
    if (!once(kind.call, place, worker.done)) worker.right = false;
    ++worker.done;
  });
  worker.rate = static_cast<double>(worker.done - before) / elapsed;
}

// Runs all threads together for `seconds`. Returns the number of operations per second.
double round_of(const Kind& kind, const Places& places, double seconds, std::vector<Worker>& workers) {
  std::barrier start(static_cast<std::ptrdiff_t>(workers.size()));
  std::vector<std::thread> threads;
  for (int i = 0; i < static_cast<int>(workers.size()); ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(kind, places.of(i), seconds, workers[static_cast<std::size_t>(i)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  double rate = 0;
  for (const Worker& worker : workers) rate += worker.rate;
  return rate;
}

// The targets wait in MPI_Barrier, or sleep outside MPI, as info.target selects. The figure is the number of operations
// per second of all threads. If MPI was not initialized with MPI_THREAD_MULTIPLE, the outcome is an error.
Outcome measure_threads(const MeasureInfo& info, const Pair& pair, const Options& options) {
  Outcome outcome;
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_MULTIPLE) {
    outcome.wrong = "the runtime does not provide MPI_THREAD_MULTIPLE";
    return outcome;
  }
  const Kind kind = kind_of(info.group);
  const bool sleeps = info.target == TargetState::kSleeps;
  const int count = static_cast<int>(info.x);
  const Places places(kind, count, pair, options.window);
  std::vector<Worker> workers(static_cast<std::size_t>(count));
  if (pair.origin) {
    if (!kind.locks()) places.lock_all();
    round_of(kind, places, 0, workers);  // connections, page faults
  }
  MPI_Barrier(pair.comm);
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(sleeps ? options.sleep_seconds : 0));
  if (pair.origin) {
    // The targets have certainly left the barrier then.
    if (sleeps) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (int round = 0; round < kRounds && (round == 0 || !sleeps || Clock::now() < deadline); ++round)
      outcome.values.push_back(round_of(kind, places, options.sample_seconds / kRounds, workers));
    if (!kind.locks()) places.unlock_all();
  } else {
    sleep_until(deadline);
  }
  MPI_Barrier(pair.comm);
  std::vector<std::int64_t> expected;
  for (const Worker& worker : workers) expected.push_back(kind.changes() ? worker.done : 0);
  MPI_Bcast(expected.data(), count, MPI_INT64_T, 0, pair.comm);
  if (!tools::at_all(places.right(tools::Ranks(pair.comm).mine, expected), pair.comm))
    outcome.wrong = "a thread's word at the target is not what the thread made of it";
  if (!std::ranges::all_of(workers, &Worker::right)) outcome.wrong = "a thread fetched a wrong value";
  return outcome;
}

const Registered kMeasures("threads", measure_threads);

}  // namespace
}  // namespace farside::bench

// SPDX-License-Identifier: BSD-3-Clause
// The measures between two ranks.
#include <cstdint>
#include <numeric>
#include <sys/resource.h>
#include <type_traits>

#include "tools/bench/program/measuring.hpp"

namespace farside::bench {
namespace {

// The measured operations, each on the window of rank 1:
//   bytes               the size of the window
//   prepare(memory)     initialises the target's memory
//   issue(win, i)       issues the i-th operation, from 1, without completion
//   returned(i)         after completion: whether the fetched data are right
//   arrived(memory, n)  at the target, after n completed operations: whether the memory is right

constexpr std::int64_t kPattern = 0x0123456789abcdef;

struct Operation {  // what most of them have in common
  static constexpr std::size_t bytes = 8;
  static void prepare(void*) {}
  static bool returned(std::int64_t) { return true; }
  static bool arrived(const void*, std::int64_t) { return true; }
};

struct Put : Operation {
  std::int64_t value = 0;
  void issue(MPI_Win win, std::int64_t i) {
    value = i;
    MPI_Put(&value, 1, MPI_INT64_T, kTarget, 0, 1, MPI_INT64_T, win);
  }
  static bool arrived(const void* memory, std::int64_t n) { return *static_cast<const std::int64_t*>(memory) == n; }
};

struct Get : Operation {
  std::int64_t value = 0;
  static void prepare(void* memory) { *static_cast<std::int64_t*>(memory) = kPattern; }
  void issue(MPI_Win win, std::int64_t) {
    value = 0;
    MPI_Get(&value, 1, MPI_INT64_T, kTarget, 0, 1, MPI_INT64_T, win);
  }
  bool returned(std::int64_t) const { return value == kPattern; }
};

struct Counting : Operation {  // the i-th fetches i - 1
  std::int64_t old = -1;
  bool returned(std::int64_t i) const { return old == i - 1; }
  static bool arrived(const void* memory, std::int64_t n) { return Put::arrived(memory, n); }
};

struct FetchAndAdd : Counting {
  std::int64_t one = 1;
  void issue(MPI_Win win, std::int64_t) { MPI_Fetch_and_op(&one, &old, MPI_INT64_T, kTarget, 0, MPI_SUM, win); }
};

struct CompareAndSwap : Counting {
  std::int64_t expected = 0;
  std::int64_t desired = 0;
  void issue(MPI_Win win, std::int64_t i) {
    expected = i - 1;
    desired = i;
    MPI_Compare_and_swap(&desired, &expected, &old, MPI_INT64_T, kTarget, 0, win);
  }
};

template <int count>
struct Accumulate : Operation {
  static constexpr std::size_t bytes = count * sizeof(double);
  std::vector<double> ones = std::vector<double>(count, 1);
  void issue(MPI_Win win, std::int64_t) {
    MPI_Accumulate(ones.data(), count, MPI_DOUBLE, kTarget, 0, count, MPI_DOUBLE, MPI_SUM, win);
  }
  static bool arrived(const void* memory, std::int64_t n) {
    const auto* sums = static_cast<const double*>(memory);
    return std::all_of(sums, sums + count, [n](double sum) { return sum == static_cast<double>(n); });
  }
};

struct ManyPuts : Operation {
  static constexpr int kPuts = 64;
  static constexpr std::size_t bytes = kPuts * 8;
  std::array<std::int64_t, kPuts> values{};
  void issue(MPI_Win win, std::int64_t i) {
    for (int k = 0; k < kPuts; ++k) {
      values[static_cast<std::size_t>(k)] = i + k;
      MPI_Put(&values[static_cast<std::size_t>(k)], 1, MPI_INT64_T, kTarget, 8 * k, 1, MPI_INT64_T, win);
    }
  }
  static bool arrived(const void* memory, std::int64_t n) {
    return counts_from(static_cast<const std::int64_t*>(memory), kPuts, n);
  }
};

struct Large : Operation {  // two words or more
  explicit Large(std::size_t size)
      : bytes(size), words(static_cast<int>(size / 8)), values(size / 8, kPattern), middle(size / 16) {}
  std::size_t bytes;
  int words;
  std::vector<std::int64_t> values;
  std::size_t middle;
};

struct LargePut : Large {
  using Large::Large;
  void issue(MPI_Win win, std::int64_t i) {
    values.front() = values.back() = i;
    MPI_Put(values.data(), words, MPI_INT64_T, kTarget, 0, words, MPI_INT64_T, win);
  }
  bool arrived(const void* memory, std::int64_t n) const {
    const auto* all = static_cast<const std::int64_t*>(memory);
    return all[0] == n && all[words - 1] == n &&
           std::all_of(all + 1, all + words - 1, [](std::int64_t word) { return word == kPattern; });
  }
};

struct LargeGet : Large {
  using Large::Large;
  void prepare(void* memory) const {
    auto* all = static_cast<std::int64_t*>(memory);
    std::iota(all, all + words, kPattern);
  }
  void issue(MPI_Win win, std::int64_t) {
    values.front() = values[middle] = values.back() = 0;
    MPI_Get(values.data(), words, MPI_INT64_T, kTarget, 0, words, MPI_INT64_T, win);
  }
  bool returned(std::int64_t) const {
    return values.front() == kPattern && values[middle] == kPattern + words / 2 &&
           values.back() == kPattern + words - 1;
  }
};

// 1,024 words with stride 2 in the target's memory, contiguous at the origin.
class StridedPut : public Operation {
 public:
  static constexpr int kWords = 1024;
  static constexpr std::size_t bytes = 2 * kWords * sizeof(std::int64_t);
  StridedPut() {
    MPI_Type_vector(kWords, 1, 2, MPI_INT64_T, &type_);
    MPI_Type_commit(&type_);
  }
  StridedPut(const StridedPut&) = delete;
  StridedPut& operator=(const StridedPut&) = delete;
  ~StridedPut() { MPI_Type_free(&type_); }
  void issue(MPI_Win win, std::int64_t) { MPI_Put(values_.data(), kWords, MPI_INT64_T, kTarget, 0, 1, type_, win); }
  // Whether every second word, from the first one on, is 1, and the words between are 0.
  static bool arrived(const void* memory, std::int64_t) {
    const auto* all = static_cast<const std::int64_t*>(memory);
    for (int k = 0; k < 2 * kWords; ++k)
      if (all[k] != 1 - k % 2) return false;
    return true;
  }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  std::vector<std::int64_t> values_ = std::vector<std::int64_t>(kWords, 1);
};

// Returns the number of involuntary context switches of this process.
long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

template <class Operation>
Operation make(const MeasureInfo& info) {
  if constexpr (std::is_constructible_v<Operation, std::size_t>)
    return Operation(bytes_of(info));
  else
    return Operation();
}

// A measure as both ranks hold it: the window, the operation, and the result.
template <class Operation>
class Measurement {
 public:
  Measurement(const MeasureInfo& info, const Pair& pair, const Options& options)
      : info_(info), pair_(pair), operation_(make<Operation>(info)), window_(pair, options.window, operation_.bytes) {
    if (!pair.origin) {
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, win());
      operation_.prepare(window_.template as<void>());
      MPI_Win_unlock(kTarget, win());
    }
    MPI_Barrier(pair.comm);
  }
  MPI_Win win() const { return window_.handle(); }
  void begin() { preempted_before_ = preemptions(); }

  // Issues `count` operations; around(issue) makes the calls around each. Returns the seconds that they take.
  template <class Around>
  double batch(long count, Around&& around) {
    return time_of(count, [&] {
      around([&] { operation_.issue(win(), ++done_); });
      if (!operation_.returned(done_) && first_wrong_ == 0) first_wrong_ = done_;
    });
  }
  void take(std::vector<double> samples) { outcome_.values = in_unit(info_, operation_.bytes, std::move(samples)); }

  // The target checks its memory. Collective.
  Outcome end() {
    const long mine = preemptions() - preempted_before_;
    long both = 0;
    MPI_Reduce(&mine, &both, 1, MPI_LONG, MPI_SUM, 0, pair_.comm);
    if (done_ > 0) outcome_.preempted = static_cast<double>(both) / static_cast<double>(done_);
    done_ = of_rank(0, done_, pair_.comm);
    bool right = true;
    if (!pair_.origin) {
      MPI_Win_lock(MPI_LOCK_SHARED, kTarget, 0, win());
      right = operation_.arrived(window_.template as<void>(), done_);
      MPI_Win_unlock(kTarget, win());
    }
    right = of_rank(kTarget, right, pair_.comm);
    if (first_wrong_ != 0)
      outcome_.wrong = "operation " + std::to_string(first_wrong_) + " returned a wrong value to the origin";
    else if (!right)
      outcome_.wrong = "wrong data at the target after " + std::to_string(done_) + " operations";
    return outcome_;
  }

 private:
  const MeasureInfo& info_;
  const Pair& pair_;
  Operation operation_;
  Window window_;
  Outcome outcome_;
  std::int64_t done_ = 0;
  std::int64_t first_wrong_ = 0;
  long preempted_before_ = 0;
};

struct FlushEach {  // inside one shared lock for the whole measure
  static void open(MPI_Win win) { MPI_Win_lock(MPI_LOCK_SHARED, kTarget, 0, win); }
  static void before(MPI_Win) {}
  static void after(MPI_Win win) { MPI_Win_flush(kTarget, win); }
  static void close(MPI_Win win) { MPI_Win_unlock(kTarget, win); }
};

template <int type>
struct LockAround {  // one lock around each operation
  static void open(MPI_Win) {}
  static void before(MPI_Win win) { MPI_Win_lock(type, kTarget, 0, win); }
  static void after(MPI_Win win) { MPI_Win_unlock(kTarget, win); }
  static void close(MPI_Win) {}
};

using LockEach = LockAround<MPI_LOCK_EXCLUSIVE>;
using ShareEach = LockAround<MPI_LOCK_SHARED>;

// Measures passive-target synchronization: only the origin makes calls.
template <class Operation, class Synchronization>
Outcome passive(const MeasureInfo& info, const Pair& pair, const Options& options) {
  Measurement<Operation> measurement(info, pair, options);
  const MPI_Win win = measurement.win();
  const auto batch = [&](long count) {
    return measurement.batch(count, [win](auto&& issue) {
      Synchronization::before(win);
      issue();
      Synchronization::after(win);
    });
  };
  // The first operations open connections and touch pages, and are not measured. The target helps meanwhile.
  if (pair.origin) {
    Synchronization::open(win);
    batch(3);
  }
  MPI_Barrier(pair.comm);
  measurement.begin();
  Budget budget{.sample_seconds = options.sample_seconds};
  if (info.target != TargetState::kInBarrier) {
    double away = info.target == TargetState::kComputes ? options.compute_seconds : options.sleep_seconds;
    if (info.group == "progress") away = info.x;
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(away));
    if (!pair.origin) info.target == TargetState::kComputes ? compute_until(deadline) : sleep_until(deadline);
    // The target has certainly left the barrier then.
    if (pair.origin) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    // All samples must lie in the time for which the target is away. If one operation lasts that long, it is the
    // result.
    budget.sample_seconds = std::min(budget.sample_seconds, 0.7 * away - 0.01);
    budget.longest_seconds = 0.8 * away - 0.01;
  }
  if (pair.origin) {
    measurement.take(take_samples(budget, batch));
    Synchronization::close(win);
  }
  MPI_Barrier(pair.comm);
  return measurement.end();
}

struct Fence {
  static void open(MPI_Win win) { MPI_Win_fence(0, win); }
  template <class Issue>
  static void origin(MPI_Win win, MPI_Group, Issue&& issue) {
    issue();
    MPI_Win_fence(0, win);
  }
  static void target(MPI_Win win, MPI_Group) { MPI_Win_fence(0, win); }
  static void close(MPI_Win win) { MPI_Win_fence(MPI_MODE_NOSUCCEED, win); }
};

struct PostStart {
  static void open(MPI_Win) {}
  template <class Issue>
  static void origin(MPI_Win win, MPI_Group target, Issue&& issue) {
    MPI_Win_start(target, 0, win);
    issue();
    MPI_Win_complete(win);
  }
  static void target(MPI_Win win, MPI_Group origin) {
    MPI_Win_post(origin, 0, win);
    MPI_Win_wait(win);
  }
  static void close(MPI_Win) {}
};

// Measures active-target synchronization: both ranks take part, as often as the origin announces before each batch.
template <class Operation, class Synchronization>
Outcome together(const MeasureInfo& info, const Pair& pair, const Options& options) {
  Measurement<Operation> measurement(info, pair, options);
  const MPI_Win win = measurement.win();
  MPI_Group everyone = MPI_GROUP_NULL;
  MPI_Group peer = MPI_GROUP_NULL;
  const int peer_rank = pair.origin ? kTarget : 0;
  MPI_Comm_group(pair.comm, &everyone);
  MPI_Group_incl(everyone, 1, &peer_rank, &peer);
  const auto batch = [&](long count) {
    if (!pair.origin) return time_of(count, [&] { Synchronization::target(win, peer); });
    return measurement.batch(count, [&](auto&& issue) { Synchronization::origin(win, peer, issue); });
  };
  Synchronization::open(win);
  measurement.begin();
  batch(3);
  measurement.take(sample_together(pair, options.sample_seconds, batch));
  Synchronization::close(win);
  MPI_Group_free(&peer);
  MPI_Group_free(&everyone);
  MPI_Barrier(pair.comm);
  return measurement.end();
}

// ---- making windows ----

// The time from the creation of a window of two ranks until it is freed: 4096 bytes per rank, or dynamic, as info.name
// selects.
Outcome measure_window_creation(const MeasureInfo& info, const Pair& pair, const Options& options) {
  std::vector<char> memory(4096);
  const auto size = static_cast<MPI_Aint>(memory.size());
  const auto make_and_free = [&](bool first) {
    MPI_Win win = MPI_WIN_NULL;
    void* base = nullptr;
    if (info.name == "window_allocate")
      MPI_Win_allocate(size, 1, MPI_INFO_NULL, pair.comm, &base, &win);
    else if (info.name == "window_create")
      MPI_Win_create(memory.data(), size, 1, MPI_INFO_NULL, pair.comm, &win);
    else
      MPI_Win_create_dynamic(MPI_INFO_NULL, pair.comm, &win);
    if (first && pair.origin) print_route_of(win);
    MPI_Win_free(&win);
  };
  make_and_free(true);  // sets up what a runtime or library needs once
  Outcome outcome;
  outcome.values = in_unit(info, 0, sample_together(pair, options.sample_seconds, [&](long count) {
                             return time_of(count, [&] { make_and_free(false); });
                           }));
  return outcome;
}

// The time from the creation of the process's first window of two ranks until a put in it is complete at the target:
// what a runtime or library sets up once, connections too. One sample. It must be the first measure of the process.
Outcome measure_first_window(const MeasureInfo& info, const Pair& pair, const Options& options) {
  MPI_Barrier(pair.comm);
  const Clock::time_point start = Clock::now();
  const Window window(pair, options.window, 8);
  if (pair.origin) {
    const std::int64_t value = 1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window.handle());
    MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, window.handle());
    MPI_Win_unlock(1, window.handle());
  }
  Outcome outcome;
  outcome.values = in_unit(info, 0, {seconds_since(start)});
  MPI_Barrier(pair.comm);
  return outcome;
}

const Registered kMeasures[] = {
    {"put", passive<Put, FlushEach>},
    {"get", passive<Get, FlushEach>},
    {"put_size", passive<LargePut, FlushEach>},
    {"get_size", passive<LargeGet, FlushEach>},
    {"fetch_and_op", passive<FetchAndAdd, FlushEach>},
    {"compare_and_swap", passive<CompareAndSwap, FlushEach>},
    {"accumulate", passive<Accumulate<1>, FlushEach>},
    {"accumulate_1024", passive<Accumulate<1024>, FlushEach>},
    {"puts_64", passive<ManyPuts, FlushEach>},
    {"vector_put", passive<StridedPut, FlushEach>},
    {"lock_put_unlock", passive<Put, LockEach>},
    {"shared_lock_put_unlock", passive<Put, ShareEach>},
    {"progress", passive<Put, LockEach>},
    {"fence_put", together<Put, Fence>},
    {"pscw_put", together<Put, PostStart>},
    {"first_window", measure_first_window},
    {"windows", measure_window_creation},
};

}  // namespace
}  // namespace farside::bench

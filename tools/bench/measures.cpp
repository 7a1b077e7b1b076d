// SPDX-License-Identifier: BSD-3-Clause
// An operation (Put, Get, ...) knows its data and how to see that it is right; a synchronization (flush_each,
// lock_each, ...) knows the calls around it; passive() and together() know what the two ranks do meanwhile.
#include "tools/bench/measures.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <sys/resource.h>
#include <thread>

#include "tools/bench/bare_fabric.hpp"
#include "tools/bench/bare_memory.hpp"
#include "tools/bench/sampler.hpp"

namespace farside::bench {
namespace {

constexpr int kTarget = 1;
constexpr std::int64_t kPattern = 0x0123456789abcdef;

class Window {  // at least `bytes` of zeroed memory in each of the two ranks, and the window on it
 public:
  Window(const Pair& pair, WindowKind kind, std::size_t bytes) {
    // MPICH 4.0.2, natively: in a window of 8 bytes per rank, made by MPI_Win_allocate, operations on rank 1
    // reach the memory of rank 0. That is not what is measured here.
    bytes = std::max(bytes, std::size_t{4096});
    if (kind == WindowKind::kAllocate) {
      MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, pair.comm, &memory_, &handle_);
    } else {
      private_memory_.resize(bytes);
      memory_ = private_memory_.data();
      MPI_Win_create(memory_, static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, pair.comm, &handle_);
    }
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, pair.origin ? 0 : kTarget, 0, handle_);
    std::fill_n(static_cast<char*>(memory_), bytes, char{0});
    MPI_Win_unlock(pair.origin ? 0 : kTarget, handle_);
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

// ---- operations
// ------------------------------------------------------------------------------------------------- kBytes of
// window; prepare() sets the target's memory up; issue() is the i-th operation (from 1) without completion;
// returned() is called when it has completed: is what came back right?; arrived() is asked at the target when
// n operations have completed: is the memory right?

struct Put {
  static constexpr std::size_t kBytes = 8;
  std::int64_t value = 0;
  static void prepare(void*) {}
  void issue(MPI_Win win, std::int64_t i) {
    value = i;
    MPI_Put(&value, 1, MPI_INT64_T, kTarget, 0, 1, MPI_INT64_T, win);
  }
  static bool returned(std::int64_t) { return true; }
  static bool arrived(const void* memory, std::int64_t n) {
    return *static_cast<const std::int64_t*>(memory) == n;
  }
};

struct Get {
  static constexpr std::size_t kBytes = 8;
  std::int64_t value = 0;
  static void prepare(void* memory) { *static_cast<std::int64_t*>(memory) = kPattern; }
  void issue(MPI_Win win, std::int64_t) {
    value = 0;
    MPI_Get(&value, 1, MPI_INT64_T, kTarget, 0, 1, MPI_INT64_T, win);
  }
  bool returned(std::int64_t) const { return value == kPattern; }
  static bool arrived(const void*, std::int64_t) { return true; }
};

struct FetchAndAdd {
  static constexpr std::size_t kBytes = 8;
  std::int64_t one = 1;
  std::int64_t old = -1;
  static void prepare(void*) {}
  void issue(MPI_Win win, std::int64_t) {
    MPI_Fetch_and_op(&one, &old, MPI_INT64_T, kTarget, 0, MPI_SUM, win);
  }
  bool returned(std::int64_t i) const { return old == i - 1; }
  static bool arrived(const void* memory, std::int64_t n) {
    return *static_cast<const std::int64_t*>(memory) == n;
  }
};

struct CompareAndSwap {
  static constexpr std::size_t kBytes = 8;
  std::int64_t expected = 0;
  std::int64_t desired = 0;
  std::int64_t old = -1;
  static void prepare(void*) {}
  void issue(MPI_Win win, std::int64_t i) {
    expected = i - 1;
    desired = i;
    MPI_Compare_and_swap(&desired, &expected, &old, MPI_INT64_T, kTarget, 0, win);
  }
  bool returned(std::int64_t i) const { return old == i - 1; }
  static bool arrived(const void* memory, std::int64_t n) {
    return *static_cast<const std::int64_t*>(memory) == n;
  }
};

template <int count>
struct AccumulateDoubles {
  static constexpr std::size_t kBytes = count * sizeof(double);
  std::vector<double> ones = std::vector<double>(count, 1.0);
  static void prepare(void*) {}
  void issue(MPI_Win win, std::int64_t) {
    MPI_Accumulate(ones.data(), count, MPI_DOUBLE, kTarget, 0, count, MPI_DOUBLE, MPI_SUM, win);
  }
  static bool returned(std::int64_t) { return true; }
  static bool arrived(const void* memory, std::int64_t n) {
    const auto* sums = static_cast<const double*>(memory);
    return std::all_of(sums, sums + count, [n](double sum) { return sum == static_cast<double>(n); });
  }
};

struct ManyPuts {
  static constexpr int kPuts = 64;
  static constexpr std::size_t kBytes = kPuts * 8;
  std::array<std::int64_t, kPuts> values{};
  static void prepare(void*) {}
  void issue(MPI_Win win, std::int64_t i) {
    for (int k = 0; k < kPuts; ++k) {
      values[static_cast<std::size_t>(k)] = i + k;
      MPI_Put(&values[static_cast<std::size_t>(k)], 1, MPI_INT64_T, kTarget, 8 * k, 1, MPI_INT64_T, win);
    }
  }
  static bool returned(std::int64_t) { return true; }
  static bool arrived(const void* memory, std::int64_t n) {
    const auto* values = static_cast<const std::int64_t*>(memory);
    for (int k = 0; k < kPuts; ++k) {
      if (values[k] != n + k) return false;
    }
    return true;
  }
};

struct LargePut {
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  static constexpr int kWords = kBytes / 8;
  std::vector<std::int64_t> values = std::vector<std::int64_t>(kWords, kPattern);
  static void prepare(void*) {}
  void issue(MPI_Win win, std::int64_t i) {
    values.front() = values.back() = i;
    MPI_Put(values.data(), kWords, MPI_INT64_T, kTarget, 0, kWords, MPI_INT64_T, win);
  }
  static bool returned(std::int64_t) { return true; }
  static bool arrived(const void* memory, std::int64_t n) {
    const auto* words = static_cast<const std::int64_t*>(memory);
    return words[0] == n && words[kWords - 1] == n &&
           std::all_of(words + 1, words + kWords - 1, [](std::int64_t word) { return word == kPattern; });
  }
};

struct LargeGet {
  static constexpr std::size_t kBytes = LargePut::kBytes;
  static constexpr int kWords = LargePut::kWords;
  std::vector<std::int64_t> values = std::vector<std::int64_t>(kWords, 0);
  static void prepare(void* memory) {
    auto* words = static_cast<std::int64_t*>(memory);
    std::iota(words, words + kWords, kPattern);
  }
  void issue(MPI_Win win, std::int64_t) {
    values.front() = values[kWords / 2] = values.back() = 0;
    MPI_Get(values.data(), kWords, MPI_INT64_T, kTarget, 0, kWords, MPI_INT64_T, win);
  }
  bool returned(std::int64_t) const {
    return values.front() == kPattern && values[kWords / 2] == kPattern + kWords / 2 &&
           values.back() == kPattern + kWords - 1;
  }
  static bool arrived(const void*, std::int64_t) { return true; }
};

// ---- what the target does while the origin measures
// -----------------------------------------------------------------

void sleep_until(Clock::time_point deadline) {
  while (Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Arithmetic on memory of its own, until the deadline; no system call, no MPI.
void compute_until(Clock::time_point deadline) {
  std::array<volatile double, 512> numbers{};
  do {
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = numbers[i] * 0.999 + static_cast<double>(i);
  } while (Clock::now() < deadline);
}

// ---- the shape of a measure
// -----------------------------------------------------------------------------------------

// How often the scheduler took the core from this process although it had more to do.
long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

// Fills the rest of the outcome; `preempted_before` is from the start of the samples. The target looks at its
// memory after `done` operations. Collective.
template <class Operation>
void check_arrival(const Pair& pair, const Window& window, std::int64_t done, std::int64_t first_wrong,
                   long preempted_before, Outcome& outcome) {
  const long mine = preemptions() - preempted_before;
  long both = 0;
  MPI_Reduce(&mine, &both, 1, MPI_LONG, MPI_SUM, 0, pair.comm);
  if (done > 0) outcome.preempted = static_cast<double>(both) / static_cast<double>(done);
  MPI_Bcast(&done, 1, MPI_INT64_T, 0, pair.comm);
  int right = 1;
  if (!pair.origin) {
    MPI_Win_lock(MPI_LOCK_SHARED, kTarget, 0, window.handle());
    right = Operation::arrived(window.as<void>(), done) ? 1 : 0;
    MPI_Win_unlock(kTarget, window.handle());
  }
  MPI_Bcast(&right, 1, MPI_INT, kTarget, pair.comm);
  if (first_wrong != 0) {
    outcome.wrong = "operation " + std::to_string(first_wrong) + " returned a wrong value to the origin";
  } else if (right == 0) {
    outcome.wrong = "wrong data at the target after " + std::to_string(done) + " operations";
  }
}

template <class Operation>
void prepare(const Pair& pair, const Window& window) {
  if (!pair.origin) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, window.handle());
    Operation::prepare(window.as<void>());
    MPI_Win_unlock(kTarget, window.handle());
  }
  MPI_Barrier(pair.comm);
}

std::vector<double> in_unit(const MeasureInfo& info, std::size_t bytes, std::vector<double> seconds) {
  for (double& value : seconds) {
    value = info.unit == Unit::kMicroseconds ? value * 1e6 : static_cast<double>(bytes) * 1e-6 / value;
  }
  return seconds;
}

struct FlushEach {  // inside one shared lock for the whole measure
  static void open(MPI_Win win) { MPI_Win_lock(MPI_LOCK_SHARED, kTarget, 0, win); }
  static void before(MPI_Win) {}
  static void after(MPI_Win win) { MPI_Win_flush(kTarget, win); }
  static void close(MPI_Win win) { MPI_Win_unlock(kTarget, win); }
};

struct LockEach {  // an exclusive lock around each operation
  static void open(MPI_Win) {}
  static void before(MPI_Win win) { MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, win); }
  static void after(MPI_Win win) { MPI_Win_unlock(kTarget, win); }
  static void close(MPI_Win) {}
};

// Passive target: the origin works alone.
template <class Operation, class Synchronization>
Outcome passive(const MeasureInfo& info, const Pair& pair, const Options& options) {
  const Window window(pair, options.window, Operation::kBytes);
  prepare<Operation>(pair, window);
  Outcome outcome;
  std::int64_t done = 0;
  std::int64_t first_wrong = 0;
  Operation operation;
  const MPI_Win win = window.handle();
  const auto batch = [&](long count) {
    const Clock::time_point start = Clock::now();
    for (long i = 0; i < count; ++i) {
      Synchronization::before(win);
      operation.issue(win, ++done);
      Synchronization::after(win);
      if (!operation.returned(done) && first_wrong == 0) first_wrong = done;
    }
    return seconds_since(start);
  };
  // The first operations open connections and touch pages; that is not what is measured. The target helps
  // meanwhile.
  if (pair.origin) {
    Synchronization::open(win);
    batch(3);
  }
  MPI_Barrier(pair.comm);
  const long preempted_before = preemptions();
  if (info.target != TargetState::kInBarrier) {
    const double away =
        info.target == TargetState::kComputes ? options.compute_seconds : options.sleep_seconds;
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(away));
    if (!pair.origin) {
      info.target == TargetState::kComputes ? compute_until(deadline) : sleep_until(deadline);
    } else {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(10));  // until the target has left the barrier for sure
      // All samples must fall into the time the target is away; if one operation lasts that long, it is the
      // result.
      Budget budget;
      budget.sample_seconds = std::min(options.sample_seconds, 0.7 * away - 0.01);
      budget.patience_seconds = 0.8 * away - 0.01;
      outcome.values = in_unit(info, Operation::kBytes, take_samples(budget, batch));
    }
  } else if (pair.origin) {
    Budget budget;
    budget.sample_seconds = options.sample_seconds;
    outcome.values = in_unit(info, Operation::kBytes, take_samples(budget, batch));
  }
  if (pair.origin) Synchronization::close(win);
  MPI_Barrier(pair.comm);
  check_arrival<Operation>(pair, window, done, first_wrong, preempted_before, outcome);
  return outcome;
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

// Active target: both ranks take part, as often as the origin says before each batch.
template <class Operation, class Synchronization>
Outcome together(const MeasureInfo& info, const Pair& pair, const Options& options) {
  const Window window(pair, options.window, Operation::kBytes);
  prepare<Operation>(pair, window);
  Outcome outcome;
  std::int64_t done = 0;
  std::int64_t first_wrong = 0;
  Operation operation;
  const MPI_Win win = window.handle();
  MPI_Group everyone = MPI_GROUP_NULL;
  MPI_Group peer = MPI_GROUP_NULL;
  const int peer_rank = pair.origin ? kTarget : 0;
  MPI_Comm_group(pair.comm, &everyone);
  MPI_Group_incl(everyone, 1, &peer_rank, &peer);
  Synchronization::open(win);
  const long preempted_before = preemptions();
  if (pair.origin) {
    const auto batch = [&](long count) {
      MPI_Bcast(&count, 1, MPI_LONG, 0, pair.comm);
      const Clock::time_point start = Clock::now();
      for (long i = 0; i < count; ++i) {
        Synchronization::origin(win, peer, [&] { operation.issue(win, ++done); });
        if (!operation.returned(done) && first_wrong == 0) first_wrong = done;
      }
      return seconds_since(start);
    };
    batch(3);
    Budget budget;
    budget.sample_seconds = options.sample_seconds;
    outcome.values = in_unit(info, Operation::kBytes, take_samples(budget, batch));
    long end = 0;
    MPI_Bcast(&end, 1, MPI_LONG, 0, pair.comm);
  } else {
    for (;;) {
      long count = 0;
      MPI_Bcast(&count, 1, MPI_LONG, 0, pair.comm);
      if (count == 0) break;
      for (long i = 0; i < count; ++i) Synchronization::target(win, peer);
    }
  }
  Synchronization::close(win);
  MPI_Group_free(&peer);
  MPI_Group_free(&everyone);
  MPI_Barrier(pair.comm);
  check_arrival<Operation>(pair, window, done, first_wrong, preempted_before, outcome);
  return outcome;
}

template <BareOperation operation>
Outcome bare(const MeasureInfo&, const Pair& pair, const Options& options) {
  return measure_bare(operation, pair, options);
}

template <BareMemory what>
Outcome bare(const MeasureInfo&, const Pair& pair, const Options& options) {
  return measure_bare(what, pair, options);
}

struct Entry {
  std::string_view name;
  Outcome (*run)(const MeasureInfo&, const Pair&, const Options&);
};

constexpr auto kEntries = std::to_array<Entry>({
    {"put_flush", passive<Put, FlushEach>},
    {"get_flush", passive<Get, FlushEach>},
    {"fetch_and_op", passive<FetchAndAdd, FlushEach>},
    {"compare_and_swap", passive<CompareAndSwap, FlushEach>},
    {"accumulate", passive<AccumulateDoubles<1>, FlushEach>},
    {"accumulate_1024", passive<AccumulateDoubles<1024>, FlushEach>},
    {"puts_64", passive<ManyPuts, FlushEach>},
    {"put_4mib", passive<LargePut, FlushEach>},
    {"get_4mib", passive<LargeGet, FlushEach>},
    {"lock_put_unlock", passive<Put, LockEach>},
    {"lock_put_unlock_sleep", passive<Put, LockEach>},
    {"lock_put_unlock_compute", passive<Put, LockEach>},
    {"fetch_and_op_compute", passive<FetchAndAdd, FlushEach>},
    {"fence_put", together<Put, Fence>},
    {"pscw_put", together<Put, PostStart>},
    {"bare_lock", bare<BareMemory::kLock>},
    {"bare_exchange", bare<BareMemory::kExchange>},
    {"bare_write", bare<BareOperation::kWrite>},
    {"bare_fetch_add", bare<BareOperation::kFetchAdd>},
});

constexpr bool same_lists() {
  if (kEntries.size() != kCatalogue.size()) return false;
  for (std::size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].name != kCatalogue[i].name) return false;
  }
  return true;
}
static_assert(same_lists(), "kEntries and kCatalogue must have the same names in the same order");

}  // namespace

Outcome run_measure(const MeasureInfo& info, const Pair& pair, const Options& options) {
  return kEntries[static_cast<std::size_t>(&info - kCatalogue.data())].run(info, pair, options);
}

}  // namespace farside::bench

// SPDX-License-Identifier: BSD-3-Clause
// An operation (operations.hpp) has its data and their checks. A synchronization (FlushEach, LockEach, ...) has the
// calls around the operation. passive() and together() have the work of both ranks.
#include "tools/bench/measures.hpp"

#include <cstdint>
#include <sys/resource.h>
#include <thread>

#include "tools/bench/away.hpp"
#include "tools/bench/bare_fabric.hpp"
#include "tools/bench/bare_memory.hpp"
#include "tools/bench/crowd.hpp"
#include "tools/bench/idle.hpp"
#include "tools/bench/operations.hpp"
#include "tools/bench/sampler.hpp"
#include "tools/bench/threads.hpp"
#include "tools/bench/window.hpp"
#include "tools/bench/window_creation.hpp"

namespace farside::bench {
namespace {

// Returns the number of involuntary context switches of this process.
long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

// Fills the rest of the outcome; `preempted_before` is the number at the start of the samples. The target checks its
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
  // The first operations open connections and touch pages, and are not measured. The target helps meanwhile.
  if (pair.origin) {
    Synchronization::open(win);
    batch(3);
  }
  MPI_Barrier(pair.comm);
  const long preempted_before = preemptions();
  if (info.target != TargetState::kInBarrier) {
    double away = info.target == TargetState::kComputes ? options.compute_seconds : options.sleep_seconds;
    if (info.group == "progress") away = info.x;
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(away));
    if (!pair.origin) {
      info.target == TargetState::kComputes ? compute_until(deadline) : sleep_until(deadline);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the target has certainly left the barrier then
      // All samples must lie in the time for which the target is away. If one operation lasts that long, it is the
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

// Measures active-target synchronization: both ranks take part, as often as the origin announces before each batch.
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

// The functions of the remaining measures.
template <class Operation, class Synchronization>
Outcome created(const MeasureInfo& info, const Pair& pair, const Options& options) {
  Options changed = options;
  changed.window = WindowKind::kCreate;
  return passive<Operation, Synchronization>(info, pair, changed);
}

template <BareFabric what, std::size_t bytes = 8>
Outcome bare(const MeasureInfo& info, const Pair& pair, const Options& options) {
  return measure_bare_fabric(what, bytes, info, pair, options);
}

template <BareMemory what, std::size_t bytes = 8>
Outcome bare(const MeasureInfo& info, const Pair& pair, const Options& options) {
  return measure_bare_memory(what, bytes, info, pair, options);
}

struct Entry {
  std::string_view name;
  Outcome (*run)(const MeasureInfo&, const Pair&, const Options&);
};

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

constexpr auto kEntries = std::to_array<Entry>({
    {"put_flush", passive<Put, FlushEach>},
    {"get_flush", passive<Get, FlushEach>},
    {"fetch_and_op", passive<FetchAndAdd, FlushEach>},
    {"compare_and_swap", passive<CompareAndSwap, FlushEach>},
    {"accumulate", passive<Accumulate<double, 1>, FlushEach>},
    {"accumulate_1024", passive<Accumulate<double, 1024>, FlushEach>},
    {"puts_64", passive<ManyPuts, FlushEach>},
    {"put_4mib", passive<LargePut<4 * kMiB>, FlushEach>},
    {"get_4mib", passive<LargeGet<4 * kMiB>, FlushEach>},
    {"lock_put_unlock", passive<Put, LockEach>},
    {"shared_lock_put_unlock", passive<Put, ShareEach>},
    {"lock_put_unlock_sleep", passive<Put, LockEach>},
    {"lock_put_unlock_compute", passive<Put, LockEach>},
    {"fetch_and_op_compute", passive<FetchAndAdd, FlushEach>},
    {"fence_put", together<Put, Fence>},
    {"pscw_put", together<Put, PostStart>},
    {"bare_lock", bare<BareMemory::kLock>},
    {"bare_exchange", bare<BareMemory::kExchange>},
    {"bare_write", bare<BareFabric::kWrite>},
    {"bare_fetch_add", bare<BareFabric::kFetchAdd>},
    {"bare_fetch_add_sleep", bare<BareFabric::kFetchAdd>},
    {"bare_fetch_add_compute", bare<BareFabric::kFetchAdd>},

    {"put_64", passive<LargePut<64>, FlushEach>},
    {"put_512", passive<LargePut<512>, FlushEach>},
    {"put_4kib", passive<LargePut<4 * kKiB>, FlushEach>},
    {"put_32kib", passive<LargePut<32 * kKiB>, FlushEach>},
    {"put_256kib", passive<LargePut<256 * kKiB>, FlushEach>},
    {"put_1mib", passive<LargePut<kMiB>, FlushEach>},
    {"get_64", passive<LargeGet<64>, FlushEach>},
    {"get_512", passive<LargeGet<512>, FlushEach>},
    {"get_4kib", passive<LargeGet<4 * kKiB>, FlushEach>},
    {"get_32kib", passive<LargeGet<32 * kKiB>, FlushEach>},
    {"get_256kib", passive<LargeGet<256 * kKiB>, FlushEach>},
    {"get_1mib", passive<LargeGet<kMiB>, FlushEach>},
    {"bare_write_64", bare<BareFabric::kWrite, 64>},
    {"bare_write_512", bare<BareFabric::kWrite, 512>},
    {"bare_write_4kib", bare<BareFabric::kWrite, 4 * kKiB>},
    {"bare_write_32kib", bare<BareFabric::kWrite, 32 * kKiB>},
    {"bare_write_256kib", bare<BareFabric::kWrite, 256 * kKiB>},
    {"bare_write_1mib", bare<BareFabric::kWrite, kMiB>},
    {"bare_write_4mib", bare<BareFabric::kWrite, 4 * kMiB>},
    {"bare_read", bare<BareFabric::kRead>},
    {"bare_read_64", bare<BareFabric::kRead, 64>},
    {"bare_read_512", bare<BareFabric::kRead, 512>},
    {"bare_read_4kib", bare<BareFabric::kRead, 4 * kKiB>},
    {"bare_read_32kib", bare<BareFabric::kRead, 32 * kKiB>},
    {"bare_read_256kib", bare<BareFabric::kRead, 256 * kKiB>},
    {"bare_read_1mib", bare<BareFabric::kRead, kMiB>},
    {"bare_read_4mib", bare<BareFabric::kRead, 4 * kMiB>},
    {"bare_compare_swap", bare<BareFabric::kCompareSwap>},
    {"bare_writes_64", bare<BareFabric::kWrites64, 64 * 8>},

    {"accumulate_int32", passive<Accumulate<std::int32_t, 1>, FlushEach>},
    {"accumulate_int32_1024", passive<Accumulate<std::int32_t, 1024>, FlushEach>},
    {"accumulate_int64", passive<Accumulate<std::int64_t, 1>, FlushEach>},
    {"accumulate_int64_1024", passive<Accumulate<std::int64_t, 1024>, FlushEach>},
    {"accumulate_float", passive<Accumulate<float, 1>, FlushEach>},
    {"accumulate_float_1024", passive<Accumulate<float, 1024>, FlushEach>},
    {"vector_put", passive<StridedPut, FlushEach>},
    {"vector_get", passive<StridedGet, FlushEach>},
    {"vector_accumulate", passive<StridedAccumulate, FlushEach>},
    {"vector_get_accumulate", passive<StridedGetAccumulate, FlushEach>},

    {"put_sleep", passive<Put, FlushEach>},
    {"get_sleep", passive<Get, FlushEach>},
    {"fetch_and_op_sleep", passive<FetchAndAdd, FlushEach>},
    {"compare_and_swap_sleep", passive<CompareAndSwap, FlushEach>},
    {"accumulate_sleep", passive<Accumulate<double, 1>, FlushEach>},
    {"accumulate_1024_sleep", passive<Accumulate<double, 1024>, FlushEach>},
    {"puts_64_sleep", passive<ManyPuts, FlushEach>},
    {"vector_put_sleep", passive<StridedPut, FlushEach>},
    {"vector_get_sleep", passive<StridedGet, FlushEach>},
    {"vector_accumulate_sleep", passive<StridedAccumulate, FlushEach>},
    {"vector_get_accumulate_sleep", passive<StridedGetAccumulate, FlushEach>},
    {"put_compute", passive<Put, FlushEach>},
    {"get_compute", passive<Get, FlushEach>},
    {"compare_and_swap_compute", passive<CompareAndSwap, FlushEach>},
    {"accumulate_compute", passive<Accumulate<double, 1>, FlushEach>},
    {"accumulate_1024_compute", passive<Accumulate<double, 1024>, FlushEach>},
    {"puts_64_compute", passive<ManyPuts, FlushEach>},
    {"vector_put_compute", passive<StridedPut, FlushEach>},
    {"vector_get_compute", passive<StridedGet, FlushEach>},
    {"vector_accumulate_compute", passive<StridedAccumulate, FlushEach>},
    {"vector_get_accumulate_compute", passive<StridedGetAccumulate, FlushEach>},
    {"bare_write_sleep", bare<BareFabric::kWrite>},
    {"bare_read_sleep", bare<BareFabric::kRead>},
    {"bare_compare_swap_sleep", bare<BareFabric::kCompareSwap>},
    {"bare_writes_64_sleep", bare<BareFabric::kWrites64, 64 * 8>},
    {"bare_write_compute", bare<BareFabric::kWrite>},
    {"bare_read_compute", bare<BareFabric::kRead>},
    {"bare_compare_swap_compute", bare<BareFabric::kCompareSwap>},
    {"bare_writes_64_compute", bare<BareFabric::kWrites64, 64 * 8>},
    {"progress_50ms", passive<Put, LockEach>},
    {"progress_100ms", passive<Put, LockEach>},
    {"progress_200ms", passive<Put, LockEach>},
    {"progress_500ms", passive<Put, LockEach>},
    {"progress_1s", passive<Put, LockEach>},

    {"contention_1", measure_contention},
    {"contention_2", measure_contention},
    {"contention_4", measure_contention},
    {"contention_8", measure_contention},
    {"contention_16", measure_contention},
    {"contention_32", measure_contention},
    {"contention_64", measure_contention},
    {"rate_1", measure_rate},
    {"rate_2", measure_rate},
    {"rate_4", measure_rate},
    {"rate_8", measure_rate},
    {"rate_16", measure_rate},
    {"rate_32", measure_rate},
    {"rate_64", measure_rate},

    {"window_allocate", measure_window_creation},
    {"window_create", measure_window_creation},
    {"window_dynamic", measure_window_creation},

    {"threads_put_1", measure_threads},
    {"threads_put_2", measure_threads},
    {"threads_put_3", measure_threads},
    {"threads_put_4", measure_threads},
    {"threads_fetch_1", measure_threads},
    {"threads_fetch_2", measure_threads},
    {"threads_fetch_3", measure_threads},
    {"threads_fetch_4", measure_threads},

    {"idle_cpu", measure_idle},
    {"idle_wakeups", measure_idle},

    {"created_put", created<Put, FlushEach>},
    {"created_get", created<Get, FlushEach>},
    {"created_put_4mib", created<LargePut<4 * kMiB>, FlushEach>},
    {"created_get_4mib", created<LargeGet<4 * kMiB>, FlushEach>},
    {"bare_echo", bare<BareMemory::kEcho>},
    {"bare_vm_write", bare<BareMemory::kVmWrite>},
    {"bare_vm_write_4mib", bare<BareMemory::kVmWrite, 4 * kMiB>},
    {"bare_vm_read", bare<BareMemory::kVmRead>},
    {"bare_vm_read_4mib", bare<BareMemory::kVmRead, 4 * kMiB>},
    {"bare_copy_8", bare<BareMemory::kCopy, 8>},
    {"bare_copy_64", bare<BareMemory::kCopy, 64>},
    {"bare_copy_512", bare<BareMemory::kCopy, 512>},
    {"bare_copy_4kib", bare<BareMemory::kCopy, 4 * kKiB>},
    {"bare_copy_32kib", bare<BareMemory::kCopy, 32 * kKiB>},
    {"bare_copy_256kib", bare<BareMemory::kCopy, 256 * kKiB>},
    {"bare_copy_1mib", bare<BareMemory::kCopy, kMiB>},
    {"bare_copy_4mib", bare<BareMemory::kCopy, 4 * kMiB>},
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

// SPDX-License-Identifier: BSD-3-Clause
// The list of the benchmark's measures. The program's --list and its order of work come from it, and the driver's
// rows, units and plots. This header uses no MPI, because `farside bench` reads it too. To add a measure, add a line
// here and the function of the same name to the table in measures.cpp; the compiler checks the two against each
// other.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace farside::bench {

enum class Unit {
  kMicroseconds,  // per operation, less is better
  kMegabytes,     // 10^6 bytes per second, more is better
  kPerSecond,     // operations per second, more is better
  kCount,         // events in a second, less is better
};

enum class TargetState {  // what the target does while the origin measures
  kInBarrier,             // waits in MPI_Barrier, in which the runtime can progress
  kTakesPart,             // the measure is a call of both
  kSleeps,                // nanosleep in a loop, never enters MPI
  kComputes,              // arithmetic on its own memory, never enters MPI
  // Measures of bare libfabric without MPI (bench/bare_fabric.hpp), over the provider of the fabric variant. The main
  // thread polls; or it sleeps or computes while a sleeping thread serves.
  kServes,
  kServesAsleep,
  kServesBusy,
  kSpins,  // bare shared memory without MPI (bench/bare_memory.hpp), beside the node variant
};

enum class Selection {
  kDemo,
  kDefault,
  kNamed
};  // the demo is part of the default selection; kNamed measures run by name only

struct MeasureInfo {
  std::string_view name;
  std::string_view title;
  Unit unit = Unit::kMicroseconds;
  TargetState target = TargetState::kInBarrier;
  Selection selection = Selection::kNamed;
  std::string_view group = "basic";  // names several measures, which are one line of a plot
  // The value that the group varies: bytes, ranks, threads, or seconds that the target computes. 0: none.
  double x = 0;
  std::string_view bare = "";  // the same over bare libfabric
  int ranks = 2;               // number of ranks that take part
  bool threads = false;        // needs MPI_THREAD_MULTIPLE
};

namespace detail {

constexpr MeasureInfo sized(std::string_view group, std::string_view name, std::string_view title, double bytes,
                            std::string_view bare = "") {
  MeasureInfo info{name, title};
  info.group = group;
  info.x = bytes;
  info.bare = bare;
  if (group.starts_with("bare_")) info.target = TargetState::kServes;
  return info;
}

constexpr MeasureInfo crowd(std::string_view group, std::string_view name, std::string_view title, Unit unit,
                            int ranks) {
  MeasureInfo info{name, title, unit, TargetState::kTakesPart};
  info.group = group;
  info.x = ranks;
  info.ranks = std::max(ranks, 2);
  return info;
}

constexpr MeasureInfo threaded(std::string_view group, std::string_view name, std::string_view title, int threads) {
  MeasureInfo info{name, title, Unit::kPerSecond};
  info.group = group;
  info.x = threads;
  info.threads = true;
  return info;
}

}  // namespace detail

inline constexpr double kKibi = 1024;
inline constexpr double kMebi = 1024 * 1024;

inline constexpr auto kCatalogue = [] {
  using enum Unit;
  using enum TargetState;
  using enum Selection;
  using detail::crowd;
  using detail::sized;
  using detail::threaded;
  return std::to_array<MeasureInfo>({
      {"put_flush", "put 8 B + flush", kMicroseconds, kInBarrier, kDemo, "put_size", 8, "bare_write"},
      {"get_flush", "get 8 B + flush", kMicroseconds, kInBarrier, kDemo, "get_size", 8, "bare_read"},
      {"fetch_and_op", "fetch_and_op int64 + flush", kMicroseconds, kInBarrier, kDemo, "basic", 0, "bare_fetch_add"},
      {"compare_and_swap", "compare_and_swap int64 + flush", kMicroseconds, kInBarrier, kDemo, "basic", 0,
       "bare_compare_swap"},
      {"accumulate", "accumulate 1 double + flush", kMicroseconds, kInBarrier, kDefault, "accumulate"},
      {"accumulate_1024", "accumulate 1024 doubles + flush", kMicroseconds, kInBarrier, kDefault, "accumulate"},
      {"puts_64", "64 puts of 8 B, one flush", kMicroseconds, kInBarrier, kDefault, "basic", 0, "bare_writes_64"},
      {"put_4mib", "put 4 MiB + flush", kMegabytes, kInBarrier, kDefault, "put_size", 4 * kMebi, "bare_write_4mib"},
      {"get_4mib", "get 4 MiB + flush", kMegabytes, kInBarrier, kDefault, "get_size", 4 * kMebi, "bare_read_4mib"},
      {"lock_put_unlock", "lock-put-unlock", kMicroseconds, kInBarrier, kDemo},
      {"shared_lock_put_unlock", "shared lock-put-unlock", kMicroseconds, kInBarrier, kNamed},
      {"lock_put_unlock_sleep", "lock-put-unlock, target sleeps", kMicroseconds, kSleeps, kDefault, "busy"},
      {"lock_put_unlock_compute", "lock-put-unlock, target computes", kMicroseconds, kComputes, kDemo, "busy"},
      {"fetch_and_op_compute", "fetch_and_op + flush, target computes", kMicroseconds, kComputes, kDefault, "busy", 0,
       "bare_fetch_add_compute"},
      {"fence_put", "fence with a put", kMicroseconds, kTakesPart, kDefault},
      {"pscw_put", "post-start-put-complete-wait", kMicroseconds, kTakesPart, kDefault},
      {"bare_lock", "bare memory: two fetch-adds and a store", kMicroseconds, kSpins, kDefault},
      {"bare_exchange", "bare memory: a word there, a word back", kMicroseconds, kSpins, kDefault},
      {"bare_write", "bare libfabric: write 8 B", kMicroseconds, kServes, kDefault, "bare_write_size", 8},
      {"bare_fetch_add", "bare libfabric: fetch-add int64", kMicroseconds, kServes, kDemo},
      {"bare_fetch_add_sleep", "bare libfabric: fetch-add int64, target sleeps", kMicroseconds, kServesAsleep, kDefault,
       "busy"},
      {"bare_fetch_add_compute", "bare libfabric: fetch-add int64, target computes", kMicroseconds, kServesBusy, kDemo,
       "busy"},

      sized("put_size", "put_64", "put 64 B + flush", 64, "bare_write_64"),
      sized("put_size", "put_512", "put 512 B + flush", 512, "bare_write_512"),
      sized("put_size", "put_4kib", "put 4 KiB + flush", 4 * kKibi, "bare_write_4kib"),
      sized("put_size", "put_32kib", "put 32 KiB + flush", 32 * kKibi, "bare_write_32kib"),
      sized("put_size", "put_256kib", "put 256 KiB + flush", 256 * kKibi, "bare_write_256kib"),
      sized("put_size", "put_1mib", "put 1 MiB + flush", kMebi, "bare_write_1mib"),
      sized("get_size", "get_64", "get 64 B + flush", 64, "bare_read_64"),
      sized("get_size", "get_512", "get 512 B + flush", 512, "bare_read_512"),
      sized("get_size", "get_4kib", "get 4 KiB + flush", 4 * kKibi, "bare_read_4kib"),
      sized("get_size", "get_32kib", "get 32 KiB + flush", 32 * kKibi, "bare_read_32kib"),
      sized("get_size", "get_256kib", "get 256 KiB + flush", 256 * kKibi, "bare_read_256kib"),
      sized("get_size", "get_1mib", "get 1 MiB + flush", kMebi, "bare_read_1mib"),
      sized("bare_write_size", "bare_write_64", "bare libfabric: write 64 B", 64),
      sized("bare_write_size", "bare_write_512", "bare libfabric: write 512 B", 512),
      sized("bare_write_size", "bare_write_4kib", "bare libfabric: write 4 KiB", 4 * kKibi),
      sized("bare_write_size", "bare_write_32kib", "bare libfabric: write 32 KiB", 32 * kKibi),
      sized("bare_write_size", "bare_write_256kib", "bare libfabric: write 256 KiB", 256 * kKibi),
      sized("bare_write_size", "bare_write_1mib", "bare libfabric: write 1 MiB", kMebi),
      {"bare_write_4mib", "bare libfabric: write 4 MiB", kMegabytes, kServes, kNamed, "bare_write_size", 4 * kMebi},
      sized("bare_read_size", "bare_read", "bare libfabric: read 8 B", 8),
      sized("bare_read_size", "bare_read_64", "bare libfabric: read 64 B", 64),
      sized("bare_read_size", "bare_read_512", "bare libfabric: read 512 B", 512),
      sized("bare_read_size", "bare_read_4kib", "bare libfabric: read 4 KiB", 4 * kKibi),
      sized("bare_read_size", "bare_read_32kib", "bare libfabric: read 32 KiB", 32 * kKibi),
      sized("bare_read_size", "bare_read_256kib", "bare libfabric: read 256 KiB", 256 * kKibi),
      sized("bare_read_size", "bare_read_1mib", "bare libfabric: read 1 MiB", kMebi),
      {"bare_read_4mib", "bare libfabric: read 4 MiB", kMegabytes, kServes, kNamed, "bare_read_size", 4 * kMebi},
      {"bare_compare_swap", "bare libfabric: compare-and-swap int64", kMicroseconds, kServes},
      {"bare_writes_64", "bare libfabric: 64 writes of 8 B", kMicroseconds, kServes},

      {"accumulate_int32", "accumulate 1 int32 + flush", kMicroseconds, kInBarrier, kNamed, "accumulate"},
      {"accumulate_int32_1024", "accumulate 1024 int32 + flush", kMicroseconds, kInBarrier, kNamed, "accumulate"},
      {"accumulate_int64", "accumulate 1 int64 + flush", kMicroseconds, kInBarrier, kNamed, "accumulate"},
      {"accumulate_int64_1024", "accumulate 1024 int64 + flush", kMicroseconds, kInBarrier, kNamed, "accumulate"},
      {"accumulate_float", "accumulate 1 float + flush", kMicroseconds, kInBarrier, kNamed, "accumulate"},
      {"accumulate_float_1024", "accumulate 1024 floats + flush", kMicroseconds, kInBarrier, kNamed, "accumulate"},
      {"vector_put", "put 1024 x 8 B, strided there + flush", kMicroseconds, kInBarrier, kNamed, "derived"},
      {"vector_get", "get 1024 x 8 B, strided there + flush", kMicroseconds, kInBarrier, kNamed, "derived"},
      {"vector_accumulate", "accumulate 1024 doubles, strided + flush", kMicroseconds, kInBarrier, kNamed, "derived"},
      {"vector_get_accumulate", "get_accumulate 1024 doubles, strided + flush", kMicroseconds, kInBarrier, kNamed,
       "derived"},

      {"put_sleep", "put 8 B + flush, target sleeps", kMicroseconds, kSleeps, kNamed, "busy", 0, "bare_write_sleep"},
      {"get_sleep", "get 8 B + flush, target sleeps", kMicroseconds, kSleeps, kNamed, "busy", 0, "bare_read_sleep"},
      {"fetch_and_op_sleep", "fetch_and_op + flush, target sleeps", kMicroseconds, kSleeps, kNamed, "busy", 0,
       "bare_fetch_add_sleep"},
      {"compare_and_swap_sleep", "compare_and_swap + flush, target sleeps", kMicroseconds, kSleeps, kNamed, "busy", 0,
       "bare_compare_swap_sleep"},
      {"accumulate_sleep", "accumulate 1 double + flush, target sleeps", kMicroseconds, kSleeps, kNamed, "busy"},
      {"accumulate_1024_sleep", "accumulate 1024 doubles + flush, target sleeps", kMicroseconds, kSleeps, kNamed,
       "busy"},
      {"puts_64_sleep", "64 puts of 8 B, one flush, target sleeps", kMicroseconds, kSleeps, kNamed, "busy", 0,
       "bare_writes_64_sleep"},
      {"vector_put_sleep", "put 1024 x 8 B, strided there + flush, target sleeps", kMicroseconds, kSleeps, kNamed,
       "busy"},
      {"vector_get_sleep", "get 1024 x 8 B, strided there + flush, target sleeps", kMicroseconds, kSleeps, kNamed,
       "busy"},
      {"vector_accumulate_sleep", "accumulate 1024 doubles, strided + flush, target sleeps", kMicroseconds, kSleeps,
       kNamed, "busy"},
      {"vector_get_accumulate_sleep", "get_accumulate 1024 doubles, strided + flush, target sleeps", kMicroseconds,
       kSleeps, kNamed, "busy"},
      {"put_compute", "put 8 B + flush, target computes", kMicroseconds, kComputes, kNamed, "busy", 0,
       "bare_write_compute"},
      {"get_compute", "get 8 B + flush, target computes", kMicroseconds, kComputes, kNamed, "busy", 0,
       "bare_read_compute"},
      {"compare_and_swap_compute", "compare_and_swap + flush, target computes", kMicroseconds, kComputes, kNamed,
       "busy", 0, "bare_compare_swap_compute"},
      {"accumulate_compute", "accumulate 1 double + flush, target computes", kMicroseconds, kComputes, kNamed, "busy"},
      {"accumulate_1024_compute", "accumulate 1024 doubles + flush, target computes", kMicroseconds, kComputes, kNamed,
       "busy"},
      {"puts_64_compute", "64 puts of 8 B, one flush, target computes", kMicroseconds, kComputes, kNamed, "busy", 0,
       "bare_writes_64_compute"},
      {"vector_put_compute", "put 1024 x 8 B, strided there + flush, target computes", kMicroseconds, kComputes, kNamed,
       "busy"},
      {"vector_get_compute", "get 1024 x 8 B, strided there + flush, target computes", kMicroseconds, kComputes, kNamed,
       "busy"},
      {"vector_accumulate_compute", "accumulate 1024 doubles, strided + flush, target computes", kMicroseconds,
       kComputes, kNamed, "busy"},
      {"vector_get_accumulate_compute", "get_accumulate 1024 doubles, strided + flush, target computes", kMicroseconds,
       kComputes, kNamed, "busy"},
      {"bare_write_sleep", "bare libfabric: write 8 B, target sleeps", kMicroseconds, kServesAsleep, kNamed, "busy"},
      {"bare_read_sleep", "bare libfabric: read 8 B, target sleeps", kMicroseconds, kServesAsleep, kNamed, "busy"},
      {"bare_compare_swap_sleep", "bare libfabric: compare-and-swap int64, target sleeps", kMicroseconds, kServesAsleep,
       kNamed, "busy"},
      {"bare_writes_64_sleep", "bare libfabric: 64 writes of 8 B, target sleeps", kMicroseconds, kServesAsleep, kNamed,
       "busy"},
      {"bare_write_compute", "bare libfabric: write 8 B, target computes", kMicroseconds, kServesBusy, kNamed, "busy"},
      {"bare_read_compute", "bare libfabric: read 8 B, target computes", kMicroseconds, kServesBusy, kNamed, "busy"},
      {"bare_compare_swap_compute", "bare libfabric: compare-and-swap int64, target computes", kMicroseconds,
       kServesBusy, kNamed, "busy"},
      {"bare_writes_64_compute", "bare libfabric: 64 writes of 8 B, target computes", kMicroseconds, kServesBusy,
       kNamed, "busy"},
      {"progress_50ms", "lock-put-unlock, target computes 50 ms", kMicroseconds, kComputes, kNamed, "progress", 0.05},
      {"progress_100ms", "lock-put-unlock, target computes 100 ms", kMicroseconds, kComputes, kNamed, "progress", 0.1},
      {"progress_200ms", "lock-put-unlock, target computes 200 ms", kMicroseconds, kComputes, kNamed, "progress", 0.2},
      {"progress_500ms", "lock-put-unlock, target computes 500 ms", kMicroseconds, kComputes, kNamed, "progress", 0.5},
      {"progress_1s", "lock-put-unlock, target computes 1 s", kMicroseconds, kComputes, kNamed, "progress", 1},

      crowd("contention", "contention_1", "lock-put-unlock, 1 rank, one target", kMicroseconds, 1),
      crowd("contention", "contention_2", "lock-put-unlock, 2 ranks, one target", kMicroseconds, 2),
      crowd("contention", "contention_4", "lock-put-unlock, 4 ranks, one target", kMicroseconds, 4),
      crowd("contention", "contention_8", "lock-put-unlock, 8 ranks, one target", kMicroseconds, 8),
      crowd("contention", "contention_16", "lock-put-unlock, 16 ranks, one target", kMicroseconds, 16),
      crowd("contention", "contention_32", "lock-put-unlock, 32 ranks, one target", kMicroseconds, 32),
      crowd("contention", "contention_64", "lock-put-unlock, 64 ranks, one target", kMicroseconds, 64),
      crowd("rate", "rate_1", "message rate, 1 rank", kPerSecond, 1),
      crowd("rate", "rate_2", "message rate, 2 ranks", kPerSecond, 2),
      crowd("rate", "rate_4", "message rate, 4 ranks", kPerSecond, 4),
      crowd("rate", "rate_8", "message rate, 8 ranks", kPerSecond, 8),
      crowd("rate", "rate_16", "message rate, 16 ranks", kPerSecond, 16),
      crowd("rate", "rate_32", "message rate, 32 ranks", kPerSecond, 32),
      crowd("rate", "rate_64", "message rate, 64 ranks", kPerSecond, 64),

      {"window_allocate", "MPI_Win_allocate and MPI_Win_free", kMicroseconds, kTakesPart, kNamed, "windows"},
      {"window_create", "MPI_Win_create and MPI_Win_free", kMicroseconds, kTakesPart, kNamed, "windows"},
      {"window_dynamic", "MPI_Win_create_dynamic and MPI_Win_free", kMicroseconds, kTakesPart, kNamed, "windows"},

      threaded("threads_put", "threads_put_1", "put + flush, 1 thread", 1),
      threaded("threads_put", "threads_put_2", "put + flush, 2 threads", 2),
      threaded("threads_put", "threads_put_3", "put + flush, 3 threads", 3),
      threaded("threads_put", "threads_put_4", "put + flush, 4 threads", 4),
      threaded("threads_fetch", "threads_fetch_1", "fetch_and_op + flush, 1 thread", 1),
      threaded("threads_fetch", "threads_fetch_2", "fetch_and_op + flush, 2 threads", 2),
      threaded("threads_fetch", "threads_fetch_3", "fetch_and_op + flush, 3 threads", 3),
      threaded("threads_fetch", "threads_fetch_4", "fetch_and_op + flush, 4 threads", 4),

      {"idle_cpu", "other threads' CPU time in a second", kMicroseconds, kTakesPart, kNamed, "idle"},
      {"idle_wakeups", "other threads' wake-ups in a second", kCount, kTakesPart, kNamed, "idle"},

      {"created_put", "created window: put 8 B + flush", kMicroseconds, kInBarrier, kNamed, "created"},
      {"created_get", "created window: get 8 B + flush", kMicroseconds, kInBarrier, kNamed, "created"},
      {"created_put_4mib", "created window: put 4 MiB + flush", kMegabytes, kInBarrier, kNamed, "created"},
      {"created_get_4mib", "created window: get 4 MiB + flush", kMegabytes, kInBarrier, kNamed, "created"},
      {"bare_echo", "bare memory: a word there, back by a thread that sleeps", kMicroseconds, kSpins, kNamed,
       "created"},
      {"bare_vm_write", "bare process_vm_writev: 8 B", kMicroseconds, kSpins, kNamed, "created"},
      {"bare_vm_write_4mib", "bare process_vm_writev: 4 MiB", kMegabytes, kSpins, kNamed, "created"},
      {"bare_vm_read", "bare process_vm_readv: 8 B", kMicroseconds, kSpins, kNamed, "created"},
      {"bare_vm_read_4mib", "bare process_vm_readv: 4 MiB", kMegabytes, kSpins, kNamed, "created"},
      {"bare_copy_8", "bare memory: memcpy of 8 B to the peer", kMicroseconds, kSpins, kNamed, "bare_copy_size", 8},
      {"bare_copy_64", "bare memory: memcpy of 64 B to the peer", kMicroseconds, kSpins, kNamed, "bare_copy_size", 64},
      {"bare_copy_512", "bare memory: memcpy of 512 B to the peer", kMicroseconds, kSpins, kNamed, "bare_copy_size",
       512},
      {"bare_copy_4kib", "bare memory: memcpy of 4 KiB to the peer", kMicroseconds, kSpins, kNamed, "bare_copy_size",
       4 * kKibi},
      {"bare_copy_32kib", "bare memory: memcpy of 32 KiB to the peer", kMicroseconds, kSpins, kNamed, "bare_copy_size",
       32 * kKibi},
      {"bare_copy_256kib", "bare memory: memcpy of 256 KiB to the peer", kMicroseconds, kSpins, kNamed,
       "bare_copy_size", 256 * kKibi},
      {"bare_copy_1mib", "bare memory: memcpy of 1 MiB to the peer", kMicroseconds, kSpins, kNamed, "bare_copy_size",
       kMebi},
      {"bare_copy_4mib", "bare memory: memcpy of 4 MiB to the peer", kMegabytes, kSpins, kNamed, "bare_copy_size",
       4 * kMebi},
  });
}();

constexpr bool is_bare_fabric(const MeasureInfo& info) {
  using enum TargetState;
  return info.target == kServes || info.target == kServesAsleep || info.target == kServesBusy;
}

// Whether the measure shows a physical limit: it uses neither MPI nor farside.
constexpr bool is_bare(const MeasureInfo& info) { return is_bare_fabric(info) || info.target == TargetState::kSpins; }

constexpr bool more_is_better(Unit unit) { return unit == Unit::kMegabytes || unit == Unit::kPerSecond; }

constexpr const MeasureInfo* find_measure(std::string_view name) {
  for (const MeasureInfo& info : kCatalogue) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

// Whether `word` selects the measure: by its name, its group, or "all".
constexpr bool stands_for(std::string_view word, const MeasureInfo& info) {
  return word == info.name || word == info.group || word == "all";
}

constexpr bool known_word(std::string_view word) {
  return std::any_of(kCatalogue.begin(), kCatalogue.end(),
                     [word](const MeasureInfo& info) { return stands_for(word, info); });
}

constexpr std::string_view unit_name(Unit unit) {
  switch (unit) {
    case Unit::kMicroseconds: return "us";
    case Unit::kMegabytes: return "MB/s";
    case Unit::kPerSecond: return "1/s";
    case Unit::kCount: return "count";
  }
  return "";
}

}  // namespace farside::bench

// SPDX-License-Identifier: BSD-3-Clause
// The measures of the benchmark: one list from which come the program's --list, its order of work, and the
// rows and units of the driver's tables. No MPI here: `farside bench` reads the same list. To add a measure,
// add a line here and the function of the same name to the table in measures.cpp (the compiler insists).
#pragma once

#include <array>
#include <string_view>

namespace farside::bench {

enum class Unit {
  kMicroseconds,  // per operation, less is better
  kMegabytes,     // 10^6 bytes per second, more is better
};

enum class TargetState {  // what the target does while the origin measures
  kInBarrier,             // waits in MPI_Barrier, so the runtime can progress
  kTakesPart,             // the measure is a call of both
  kSleeps,                // nanosleep in a loop, never enters MPI
  kComputes,              // arithmetic on its own memory, never enters MPI
  kServes,                // no MPI at all: bare libfabric (bench/bare_fabric.hpp), over the fabric variant's provider
  kSpins,                 // no MPI at all: bare shared memory (bench/bare_memory.hpp), beside the node variant
};

struct MeasureInfo {
  std::string_view name;
  std::string_view title;
  Unit unit;
  TargetState target;
  bool demo;  // part of the short selection
};

inline constexpr auto kCatalogue = std::to_array<MeasureInfo>({
    {"put_flush", "put 8 B + flush", Unit::kMicroseconds, TargetState::kInBarrier, true},
    {"get_flush", "get 8 B + flush", Unit::kMicroseconds, TargetState::kInBarrier, true},
    {"fetch_and_op", "fetch_and_op int64 + flush", Unit::kMicroseconds, TargetState::kInBarrier, true},
    {"compare_and_swap", "compare_and_swap int64 + flush", Unit::kMicroseconds, TargetState::kInBarrier,
     true},
    {"accumulate", "accumulate 1 double + flush", Unit::kMicroseconds, TargetState::kInBarrier, false},
    {"accumulate_1024", "accumulate 1024 doubles + flush", Unit::kMicroseconds, TargetState::kInBarrier,
     false},
    {"puts_64", "64 puts of 8 B, one flush", Unit::kMicroseconds, TargetState::kInBarrier, false},
    {"put_4mib", "put 4 MiB + flush", Unit::kMegabytes, TargetState::kInBarrier, false},
    {"get_4mib", "get 4 MiB + flush", Unit::kMegabytes, TargetState::kInBarrier, false},
    {"lock_put_unlock", "lock-put-unlock", Unit::kMicroseconds, TargetState::kInBarrier, true},
    {"lock_put_unlock_sleep", "lock-put-unlock, target sleeps", Unit::kMicroseconds, TargetState::kSleeps,
     false},
    {"lock_put_unlock_compute", "lock-put-unlock, target computes", Unit::kMicroseconds,
     TargetState::kComputes, true},
    {"fetch_and_op_compute", "fetch_and_op + flush, target computes", Unit::kMicroseconds,
     TargetState::kComputes, false},
    {"fence_put", "fence with a put", Unit::kMicroseconds, TargetState::kTakesPart, false},
    {"pscw_put", "post-start-put-complete-wait", Unit::kMicroseconds, TargetState::kTakesPart, false},
    {"bare_lock", "bare memory: two fetch-adds and a store", Unit::kMicroseconds, TargetState::kSpins, false},
    {"bare_exchange", "bare memory: a word there, a word back", Unit::kMicroseconds, TargetState::kSpins, false},
    {"bare_write", "bare libfabric: write 8 B", Unit::kMicroseconds, TargetState::kServes, false},
    {"bare_fetch_add", "bare libfabric: fetch-add int64", Unit::kMicroseconds, TargetState::kServes, true},
});

// The physical limits: measures that use neither MPI nor farside.
constexpr bool is_bare(const MeasureInfo& info) {
  return info.target == TargetState::kServes || info.target == TargetState::kSpins;
}

constexpr const MeasureInfo* find_measure(std::string_view name) {
  for (const MeasureInfo& info : kCatalogue) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

constexpr std::string_view unit_name(Unit unit) { return unit == Unit::kMicroseconds ? "us" : "MB/s"; }

}  // namespace farside::bench

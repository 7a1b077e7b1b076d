// SPDX-License-Identifier: BSD-3-Clause
// The list of the benchmark's measures. It determines the program's --list and order of work, and the driver's rows,
// units and plots. It uses no MPI, because `farside bench` reads it too. To add a measure, add it in catalogue.cpp, and
// its function in a file of program/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace farside::bench {

enum class Unit {
  kMicroseconds,  // per operation, less is better
  kMegabytes,     // 10^6 bytes per second, more is better
  kPerSecond,     // operations per second, more is better
  kRatio,         // at most 1, more is better
};

enum class TargetState {  // what the target does while the origin measures
  kInBarrier,             // waits in MPI_Barrier, in which the runtime can progress
  kTakesPart,             // the measure is a call of both
  kSleeps,                // nanosleep in a loop, never enters MPI
  kComputes,              // arithmetic on its own memory, never enters MPI
  // Measures of bare libfabric (program/bare_fabric.cpp), beside the fabric variant and over its provider: the main
  // thread polls; or it sleeps or computes while a sleeping thread serves.
  kServes,
  kServesAsleep,
  kServesBusy,
  kSpins,  // bare shared memory (program/bare_memory.cpp), beside the node variant
};

inline constexpr int kAllRanks = 0;

// The demo is part of the default selection; kNamed measures run by name only.
enum class Selection { kDemo, kDefault, kNamed };

struct MeasureInfo {
  std::string name;
  std::string title;
  Unit unit = Unit::kMicroseconds;
  TargetState target = TargetState::kInBarrier;
  Selection selection = Selection::kNamed;
  std::string group = "basic";  // names several measures, which are one line of a plot
  // The value that the group varies: bytes, ranks, threads, or seconds that the target computes. 0: none.
  double x = 0;
  std::string bare = "";  // the same over bare libfabric
  int ranks = 2;          // number of ranks that take part, or kAllRanks of the job
  bool threads = false;   // needs MPI_THREAD_MULTIPLE
};

// Returns all measures: first the measure of the process's first window, then the default measures, then the others by
// group. Bare measures come after the others.
const std::vector<MeasureInfo>& catalogue();

inline bool is_bare_fabric(const MeasureInfo& info) {
  using enum TargetState;
  return info.target == kServes || info.target == kServesAsleep || info.target == kServesBusy;
}

// Whether the measure shows a physical limit: it uses neither MPI nor farside.
inline bool is_bare(const MeasureInfo& info) { return is_bare_fabric(info) || info.target == TargetState::kSpins; }

constexpr bool more_is_better(Unit unit) { return unit != Unit::kMicroseconds; }

// Returns null if there is none.
const MeasureInfo* find_measure(std::string_view name);

// Whether one of the words selects the measure: its name, its group, or "all".
bool named(const std::vector<std::string>& words, const MeasureInfo& info);

// Whether the word selects any measure.
bool known_word(const std::string& word);

std::string_view unit_name(Unit unit);

}  // namespace farside::bench

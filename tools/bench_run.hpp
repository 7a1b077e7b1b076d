// SPDX-License-Identifier: BSD-3-Clause
// Runs the benchmark program under a launcher, natively or with farside. A measure that crashes, hangs or gives wrong
// data costs that measure only: the remaining measures are measured in a further run.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/catalogue.hpp"
#include "tools/bench_driver/settings.hpp"
#include "tools/json.hpp"
#include "tools/runtime.hpp"

namespace farside::tools {

enum class Verdict {
  kMeasured,
  kWrong,    // the program found wrong data
  kCrashed,  // a rank died of a signal
  kFailed,   // a rank ended with an error, or never got as far
  kHung,     // no line of output for too long
};
std::string_view verdict_name(Verdict verdict);  // "measured", "wrong", "crashed", ...

struct Figure {  // in the measure's unit
  double median = 0;
  double min = 0;
  double p90 = 0;
  long samples = 0;
  double preempted = 0;  // how often the scheduler took a core from a rank, per operation
};

// Whether the figure is a scheduler's time slice instead of the time of an operation: another program took a core,
// and two spinning ranks had to share the other one. (An implementation that sleeps or polls for this long yields its
// core voluntarily, and is not counted as preempted.)
bool is_time_slice(const bench::MeasureInfo& info, const Figure& figure);

struct MeasureResult {
  Verdict verdict = Verdict::kMeasured;
  Figure figure;
  std::string reason;  // for the user; empty if measured
};

struct BenchRequest {
  const BenchSettings& settings;
  Runtime runtime;
  const Variant* variant = nullptr;
  int nodes = 1;  // 0: not known before the run
  std::vector<const bench::MeasureInfo*> measures;
  std::function<void(const bench::MeasureInfo&)> on_begin;
  std::function<void(const bench::MeasureInfo&, const MeasureResult&)> on_result;
  std::function<void()> on_tick;
};

// What farside took between the nodes, at rank 0; empty within a node.
struct Taken {
  std::string provider, device;
  std::string passed_over;  // what it said of a better provider
};

struct BenchOutcome {
  std::map<std::string_view, MeasureResult> results;  // by name; every measure of the request unless interrupted
  std::vector<std::string> warnings;           // doubts about the run: farside was not used, ...
  std::string library;                         // the runtime's own name and version; empty if no run got so far
  Json hosts;                                  // host_facts() of each node; null if no run got so far
  Taken taken;
  int nodes = 0;
  bool interrupted = false;
};

BenchOutcome run_benchmark(const BenchRequest& request);

}  // namespace farside::tools

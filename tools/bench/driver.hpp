// SPDX-License-Identifier: BSD-3-Clause
// The driver of `farside bench`: its options, the runs, and their figures.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/catalogue.hpp"
#include "tools/common/runtime.hpp"
#include "tools/common/text.hpp"

namespace farside::tools {

// The variants that are compared: the runtime by itself, in each of its implementations of windows, and farside on
// each of its routes. A new variant is a line in kVariants.
struct Variant {
  enum class Kind {
    kNative,     // no farside
    kNode,       // farside with its defaults
    kUnchecked,  // farside with FARSIDE_CHECK=off
    kFabric,     // farside forced over libfabric
  };
  std::string_view key;
  std::string_view title;        // "{}" in it stands for the libfabric provider
  std::string_view explanation;  // for the help
  Kind kind = Kind::kNative;
  std::string_view component = "";  // component of Open MPI's framework osc; empty: its default

  bool native() const { return kind == Kind::kNative; }
  std::string full_title(const std::string& provider) const;
  // The variables that choose the component: OMPI_MCA_*.
  Variables component_variables() const;
};

// Returns the variants with these keys, in the order in which they are measured and shown.
std::vector<const Variant*> variants_named(const std::vector<std::string>& keys);

// Returns the variables that ranks need for a variant, with those of the user's that not every launcher takes to other
// nodes. `one_node`: all ranks are on this machine.
Variables variables_of(const Variant& variant, const Runtime& runtime, const std::string& provider, bool one_node);

// The options that `farside bench` and `farside conform` have in common.
struct CommonSettings {
  std::vector<std::string> runtimes;                              // empty: all
  std::vector<std::string> variants{"native", "node", "fabric"};  // of Open MPI's, those that it has
  std::string library_folder = default_library_folder();
  std::string provider = "tcp";
  std::string json_file, html_file;  // empty: none
  Launch launch;
};
void add_common_options(CLI::App& command, CommonSettings& settings);

// The options of `farside bench`.
struct BenchSettings : CommonSettings {
  bool demo = false;
  bool cluster = false;  // measure between nodes: other defaults, and the ranks in turn on the nodes
  bool osu = false;      // print put and get by size, as OSU's benchmarks do
  // Names, groups, "all"; empty: the default ones, with html_file also those of the plots.
  std::vector<std::string> measures;
  std::vector<std::string> skip;
  std::string window = "allocate";
  double compute_seconds = 2;
  double timeout_seconds = 60;
  int rounds = 3;
};

// Runs the benchmark program under a launcher, natively or with farside. A measure that crashes, hangs or gives wrong
// data costs that measure only: the remaining measures are measured in a further run.
enum class Verdict {
  kMeasured,
  kWrong,    // the program found wrong data
  kCrashed,  // a rank died of a signal
  kFailed,   // a rank ended with an error, or never got as far
  kHung,     // no line of output for too long
};
std::string_view verdict_name(Verdict verdict);  // "measured", "wrong", "crashed", ...

struct Figure {  // in the measure's unit
  double median = 0, mean = 0;
  double p90 = 0, p99 = 0;  // as good as these are 90 and 99 % of the samples
  long samples = 0;
  double preempted = 0;  // how often the scheduler took a core from a rank, per operation
};

struct MeasureResult {
  Verdict verdict = Verdict::kMeasured;
  Figure figure;
  std::string reason;  // for the user; empty if measured
};

// The provider that farside took between the nodes, at rank 0; empty within a node.
struct Taken {
  std::string provider, device;
  std::string passed_over;  // what it said of a better provider
};

// All runs of one measure in one variant, and figures from them.

// Stands before a figure that is doubtful, and before what is computed from such a figure.
inline constexpr std::string_view kNoiseMark = "~";

struct Series {
  std::vector<Figure> figures;  // without `slices`
  std::vector<Figure> slices;   // a scheduler's time slices; they count only if there are no others
  MeasureResult bad;            // the first failure; the measure is not tried again then

  bool broken() const { return bad.verdict != Verdict::kMeasured; }
  bool measured() const { return !broken() && (!figures.empty() || !slices.empty()); }
  const std::vector<Figure>& counted() const { return figures.empty() ? slices : figures; }
  double median(double Figure::*figure = &Figure::median) const;  // of the runs' figures
  // Whether the figure is unreliable, which all tables show by kNoiseMark: only time slices, or run medians that differ
  // by more than a factor of two.
  bool doubtful() const;
};

struct RuntimeReport {
  Runtime runtime;
  std::vector<const Variant*> variants;                                   // in the order of measuring
  std::string library;                                                    // the runtime's own name and version
  std::map<std::string_view, std::map<std::string_view, Series>> series;  // by variant and measure
  std::vector<std::string> warnings;
  std::map<std::string_view, Taken> taken;  // by variant
  Json hosts;                               // host_facts() of each node; null before a run has begun

  // Returns an empty series if there is none.
  const Series& find(std::string_view variant, std::string_view measure) const;
};

// Returns kNoiseMark if one of the series is doubtful, else nothing.
std::string_view noise_mark(const Series& one, const Series& other);

// Returns the median of the values (the mean of the two middle ones); 0 if there are none.
double median_of(std::vector<double> values);

// Returns the measures that the settings choose, in the catalogue's order, without those that need more ranks than
// there are.
std::vector<const bench::MeasureInfo*> chosen_measures(const BenchSettings& settings);

// Makes all runs: of each runtime its variants in alternation, for the requested number of rounds. Fills the rest of
// the reports. Returns false if interrupted.
bool measure(const BenchSettings& settings, const std::vector<const bench::MeasureInfo*>& measures,
             std::vector<RuntimeReport>& reports);

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// Explains the statistics of a run: where the time went, and what would help. Each piece of advice is a rule with
// named thresholds, and says how much it concerns.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/common/rank_files.hpp"

namespace farside::tools::explain {

struct Waits {
  std::uint64_t count = 0;
  double seconds = 0;
  double longest = 0;
};
struct Operations {
  std::uint64_t count = 0, bytes = 0;
  void add(const Operations& more) {
    count += more.count;
    bytes += more.bytes;
  }
};

// The sums of the windows of one kind ("create cma") over all ranks.
struct WindowKind {
  std::uint64_t windows = 0;                                         // each rank counts its own
  std::map<std::string, std::uint64_t> epochs;                       // by kind of epoch
  std::map<std::string, Waits> waits;                                // by call
  std::map<std::string, std::map<std::string, Operations>> routes;   // route, operation
  std::map<std::string, std::map<std::string, std::uint64_t>> slow;  // accumulates: "lock" or "handler", why
  std::uint64_t flushes = 0, flushes_all = 0;
  Waits slow_operations;        // operations that are not loads or stores
  std::set<std::string> names;  // that the program has given to windows; not all if there are many

  Operations total(const std::string& route = {}) const;  // of all routes if empty
  std::uint64_t epochs_of(const std::string& kind) const;
  Waits waits_in(const std::string& call) const;
  double seconds() const;  // the measured time
};

// The operations of a rank at one target.
struct Target {
  Operations operations;
  double wait_seconds = 0;  // in locks, unlocks and flushes of this target alone
  double slow_operation_seconds = 0;
};
// Operations of one kind and about one size.
struct Sized {
  Operations operations;
  std::uint64_t slow = 0;  // those that are not loads or stores, and their time
  double slow_seconds = 0;
};
// The calls of one kind from one place.
struct SiteCalls {
  std::uint64_t calls = 0;
  Waits waits;
};

// One process.
struct Process {
  std::string host;
  double seconds = 0;
  std::map<std::string, WindowKind> kinds;
  std::map<int, Target> targets;  // by rank; -1: others
};

struct Run {
  std::vector<RankFile> files;        // one per process
  std::vector<std::string> left_out;  // the reasons of files that cannot be read
  std::map<std::string, int> hosts;   // the number of processes on each
  double longest_seconds = 0;         // of one process
  double seconds = 0;                 // sum over the ranks, from the first window to the end
  std::uint64_t runtime_windows = 0;
  std::map<std::string, WindowKind> kinds;
  std::vector<Process> processes;                                 // as `files`
  std::map<std::string, std::map<std::uint64_t, Sized>> sizes;    // by operation and largest size
  std::map<std::string, std::map<std::string, SiteCalls>> sites;  // by place and call
  Placement placement;
};

// Reads all files of the prefix. Throws std::runtime_error that names the file and its error, or says that the files
// are of several launches.
Run read(const std::string& prefix);
// Adds the text of one file to the run.
void add(Run& run, const std::string& file, const std::string& text);

struct Advice {
  std::string rule;  // its name, for tests and --json
  std::string kind;  // of window
  std::string text;
  double weight;  // sort key: seconds, measured or estimated
  bool doubt = false;
};
// Returns the advice, the largest weight first. Before it come doubts about all figures: files that are left out, ranks
// that are missing, or that share cores.
std::vector<Advice> advise(const Run& run);

std::string in_words(const Run& run);

// Returns a table of the figures by rank, size, pair or site. Sites need a run with FARSIDE_SITES=on.
std::string figures_by(const Run& run, const std::string& by);

}  // namespace farside::tools::explain

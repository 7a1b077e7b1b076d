// SPDX-License-Identifier: BSD-3-Clause
// Reads the files of FARSIDE_TRACE=PREFIX: PREFIX.RANK.trace, one per process. Every field is checked before use,
// since a file may be truncated, from another machine, or forged.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/rank_files.hpp"
#include "transport/base/trace.hpp"

namespace farside::tools::trace {

// A record with its times in nanoseconds of the CLOCK_MONOTONIC of its process (TraceRecord has ticks).
struct RankTrace {
  RankFile file;
  TraceHeader header;
  std::vector<TraceRecord> records;
  std::string host;
  // Texts, without signs that change a terminal. By the numbers of windows, sites and reports of this process.
  std::map<std::uint32_t, std::string> window_names, sites, reports;
  std::string cpus;  // that the process may use: "0-3,8"
};

// Reads one file. Throws std::runtime_error that names the file and its error.
RankTrace parse(const std::string& file, std::string_view bytes);

// Reads all files of the prefix, ordered by rank, and adds the reasons of those that are left out. Throws if there is
// none, or if they are of several launches.
std::vector<RankTrace> read_all(const std::string& prefix, std::vector<std::string>& left_out);

// The traces of all ranks on one clock, and what follows from them together: which rank waited for which.
using Nanoseconds = std::int64_t;  // since the first event of any rank

inline const char* name(EpochKind kind) { return kEpochNames[static_cast<std::size_t>(kind)]; }
inline const char* name(Counted what) { return kCountedNames[static_cast<std::size_t>(what)]; }
inline const char* name(RouteKind route) { return info(route).name; }
inline const char* name(TraceFlavor flavor) { return kFlavorNames[static_cast<std::size_t>(flavor)]; }
inline double microseconds(Nanoseconds time) { return static_cast<double>(time) * 1e-3; }

struct Process {
  int rank;           // in MPI_COMM_WORLD
  std::string label;  // "rank 3", with the process id if several processes have that rank (MPI_Comm_spawn)
  std::string name;   // the same, with the host if there are several hosts: "rank 3 on node7"
  std::string host;
  Nanoseconds uncertain;  // possible error of its clock; -1: unknown against the first process's clock
  std::uint64_t lost_epochs, lost_operations, lost_served;
};

struct Window {
  int number;        // the number that the first process of the window gave it
  std::string name;  // of MPI_Win_set_name; mostly empty
  TraceFlavor flavor;
  int ranks;
  std::map<int, int> processes;  // process by rank in the window

  std::string title() const;  // "window 3", "window 3 'grid'"
};

// Operations, and their bytes, by route and kind.
struct Amount {
  std::uint64_t count = 0, bytes = 0;
  void add(std::uint64_t more, std::uint64_t more_bytes) {
    count += more;
    bytes += more_bytes;
  }
};
using Amounts = std::map<std::pair<RouteKind, Counted>, Amount>;

struct Epoch {
  int process;
  int window;  // index; -1: not recorded
  EpochKind kind;
  int target;  // rank in the window; -1: none
  Nanoseconds begin, granted, closing, end;
  Amounts operations;
  int site = -1;  // index in Timeline::sites of the call that opened it; -1: not recorded
};

// A flush, an operation, or a request that was served.
struct Span {
  TraceKind kind;
  int process;
  int window;
  int target;
  Counted what;
  RouteKind route;
  Nanoseconds begin, end;
  std::uint64_t bytes;
  int site = -1;
};

struct EpochTotal {
  std::uint64_t count = 0;
  double seconds = 0;
  double waited = 0;
};

struct Timeline {
  std::vector<Process> processes;
  std::vector<Window> windows;
  std::vector<Epoch> epochs;               // by begin
  std::vector<Span> spans;                 // by begin
  std::map<EpochKind, EpochTotal> totals;  // of all epochs, including overwritten ones
  Nanoseconds length = 0;
  std::vector<std::string> warnings;  // sentences: ranks without a file, cores that ranks share, reports
  std::vector<std::string> hosts;     // in the order of their first process
  std::vector<std::string> sites;     // where calls are in the program; each once

  const Process& process(int index) const { return processes[static_cast<std::size_t>(index)]; }
  const Window& window(int index) const { return windows[static_cast<std::size_t>(index)]; }
  // Returns the process of a target, or -1.
  int process_of(int window, int target) const;
};

Timeline merge(const std::vector<RankTrace>& traces);

// A wait for a lock, and its holders meanwhile, in the order of acquisition.
struct LockWait {
  struct Holder {
    std::size_t epoch;
    Nanoseconds meanwhile;  // time for which it held during the wait
  };
  std::size_t epoch;
  Nanoseconds waited;
  std::vector<Holder> holders;
};

// Returns the waits for locks, the longest first.
std::vector<LockWait> lock_waits(const Timeline& timeline);

// For each fence that all ranks of its window recorded: the rank for which the others waited.
struct FenceWait {
  std::size_t last;      // the epoch of the last rank to arrive
  Nanoseconds together;  // sum of the waits of all others
};
std::vector<FenceWait> fence_waits(const Timeline& timeline);

// A process for which others waited: for locks that it held, or for its arrival at fences.
struct AwaitedProcess {
  int process;
  Nanoseconds by_locks = 0, by_fences = 0;  // the times of all that waited
  std::size_t waits = 0, fences = 0;        // their numbers
};
// Returns those for which others waited, the one with the longest waits first.
std::vector<AwaitedProcess> awaited_processes(const Timeline& timeline);

// The forms in which `farside trace` shows a trace.

// Returns a summary for a terminal.
std::string summary(const Timeline& timeline);

// "rank 3 waited 4.1 ms for the exclusive lock of rank 0, held by rank 1 (2.0 ms), rank 2 (2.1 ms)", with the places in
// the program where they are recorded.
std::string in_words(const Timeline& timeline, const LockWait& wait);

// "rank 2: others waited 210 ms for locks that it held (3 waits), 12 ms for it at fences (5)"
std::string in_words(const Timeline& timeline, const AwaitedProcess& awaited);

// "1.23 ms"
std::string duration(Nanoseconds time);

// Writes Chrome's trace event format ("JSON object format") for chrome://tracing and ui.perfetto.dev: a process per
// rank, a thread per lane, arrows from the holder of a lock to the waiter.
void write_chrome(std::ostream& out, const Timeline& timeline);

// Writes one self-contained HTML file: page.html with the data in it. With more bars than this the shortest are left
// out, and the page says so.
inline constexpr std::size_t kMostBars = 200000;
void write_page(std::ostream& out, const Timeline& timeline, std::size_t most_bars = kMostBars);

}  // namespace farside::tools::trace

// SPDX-License-Identifier: BSD-3-Clause
// The traces of all ranks on one clock, and what can be told from them together: who waited for whom.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/trace/read.hpp"

namespace farside::tools::trace {

using Nanoseconds = std::int64_t;  // since the first event of any rank

struct Process {
  int rank;          // in MPI_COMM_WORLD
  std::string name;  // "rank 3", or with the process id where several have that rank (MPI_Comm_spawn)
  std::string host;
  Nanoseconds uncertain;  // how far its clock may be off; -1: it is not known against the first one's
  std::uint64_t lost_epochs, lost_operations, lost_served;
};

struct Window {
  int number;  // as the first process that has it counts
  TraceFlavor flavor;
  int ranks;
  std::map<int, int> processes;  // by rank in the window
};

struct Counts {
  Counted what;
  RouteKind route;
  int target;  // rank in the window; -1: several
  std::uint64_t count, bytes;
};

struct Epoch {
  int process;
  int window;  // index; -1: not among those recorded
  EpochKind kind;
  int target;  // rank in the window; -1: none
  Nanoseconds begin, granted, closing, end;
  std::vector<Counts> counts;

  Nanoseconds waited() const { return granted - begin + (end - closing); }
};

// Something that lasted: a flush, an operation, a request served.
struct Span {
  TraceKind kind;
  int process;
  int window;
  int target;
  Counted what;
  RouteKind route;
  Nanoseconds begin, end;
  std::uint64_t bytes;
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
  std::map<EpochKind, EpochTotal> totals;  // of all epochs, also of those that were overwritten
  Nanoseconds length = 0;

  // Which process is a target, or -1.
  int process_of(int window, int target) const;
};

Timeline merge(const std::vector<RankTrace>& traces);

// That somebody waited for a lock, and who held it meanwhile, in the order in which they got it.
struct LockWait {
  struct Holder {
    std::size_t epoch;
    Nanoseconds meanwhile;  // how long, of the wait
  };
  std::size_t epoch;
  Nanoseconds waited;
  std::vector<Holder> holders;
};

// The longest first.
std::vector<LockWait> lock_waits(const Timeline& timeline);

// Of each fence that all ranks of its window have recorded: whom the others waited for.
struct FenceWait {
  std::size_t last;      // the epoch of who came last
  Nanoseconds together;  // waited by all others
};
std::vector<FenceWait> fence_waits(const Timeline& timeline);

}  // namespace farside::tools::trace

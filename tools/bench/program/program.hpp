// SPDX-License-Identifier: BSD-3-Clause
// The measures: plain MPI-3 one-sided programs, most of them between two ranks. Each also checks that the data
// arrived.
#pragma once

#include <string>
#include <vector>

#include <mpi.h>

#include "tools/bench/program/output.hpp"

namespace farside::bench {

struct Pair {  // the measuring ranks: two, or MeasureInfo::ranks
  MPI_Comm comm;
  bool origin;  // rank 0 of comm; of two, rank 1 is the target
};

struct Outcome {
  std::vector<double> values;  // in the measure's unit; at the origin only
  double preempted = 0;        // involuntary context switches of both ranks, per operation
  std::string wrong;           // the error found in the data; empty if none; at the origin only
};

// Collective: returns what `root` has; T is a plain type.
template <class T>
T of_rank(int root, T value, MPI_Comm comm) {
  MPI_Bcast(&value, sizeof value, MPI_BYTE, root, comm);
  return value;
}
// Collective over a pair of two: returns what the other rank has; T is a plain type.
template <class T>
T of_peer(const T& mine, const Pair& pair) {
  T theirs;
  const int peer = pair.origin ? 1 : 0;
  MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, peer, 0, &theirs, sizeof theirs, MPI_BYTE, peer, 0, pair.comm,
               MPI_STATUS_IGNORE);
  return theirs;
}

// Converts seconds per operation, of `bytes` each, to the unit of a measure of latency or bandwidth.
inline std::vector<double> in_unit(const MeasureInfo& info, std::size_t bytes, std::vector<double> seconds) {
  for (double& value : seconds)
    value = info.unit == Unit::kMegabytes ? static_cast<double>(bytes) * 1e-6 / value : value * 1e6;
  return seconds;
}

// Runs one measure. Collective over the pair. An MPI error ends the program through the runtime's default handler, as
// in a user's program.
Outcome run_measure(const MeasureInfo& info, const Pair& pair, const Options& options);

// Measures of another shape than those of measures.cpp, and measures without MPI to compare MPI calls with. Each is
// collective over the ranks of `pair`.

// All ranks work at the same time, for `sample_seconds` in several rounds; each round is a sample (crowd.cpp).
// contention: each rank locks the window of rank 0 exclusively, puts, and unlocks; if info.x is 1, only rank 1 does.
// The figure is the mean time over the ranks other than rank 0.
Outcome measure_contention(const MeasureInfo& info, const Pair& crowd, const Options& options);
// rate: each rank puts 8 bytes to the next rank, 64 times per flush; if info.x is 1, only rank 0 does. The figure is
// the number of puts per second of all ranks.
Outcome measure_rate(const MeasureInfo& info, const Pair& crowd, const Options& options);
// fetch_rate: all ranks but rank 0 add to one word of rank 0 by fetch_and_op, 64 times per flush. The figure is the
// number of operations per second of all ranks.
Outcome measure_fetch_rate(const MeasureInfo& info, const Pair& crowd, const Options& options);

// contended: all ranks of the job lock at the same time, in one period of 2.5 times `sample_seconds`. A
// round is: lock exclusively, get a counter, flush, put it incremented, unlock; or what the row of info.name has
// instead. The figure is the time per round and rank, or by the end of info.name
//   _fair: the rounds of the slowest rank, divided by those of the fastest
//   _wait: the longest time from a lock until its first access is complete, since runtimes may lock only then
// The first measure of a row runs, and the others show the same rounds.
Outcome measure_contended(const MeasureInfo& info, const Pair& crowd, const Options& options);

// Several threads of the origin work at the same time, each on its own word: put and flush, get and flush,
// fetch_and_op and flush, accumulate and flush, or lock, put and unlock. As info.group selects, they share window
// and target, or each has its own window or its own target. The targets wait in MPI_Barrier, or sleep outside MPI,
// as info.target selects. The figure is the number of operations per second of all threads. If MPI was not
// initialized with MPI_THREAD_MULTIPLE, the outcome is an error.
Outcome measure_threads(const MeasureInfo& info, const Pair& pair, const Options& options);

// Bare round trips over libfabric, to compare with MPI calls over the same provider (bare_fabric.cpp). An operation is
// over when the target has executed it; the origin issues it and polls. At a target whose main thread sleeps or
// computes, another thread sleeps in poll(2) on the completion queue and executes arrivals. At a target that waits in
// MPI in the corresponding measure, the main thread polls.
enum class BareFabric {
  kWrite,        // one write of `bytes`
  kRead,         // one read of `bytes`
  kFetchAdd,     // of 8 bytes
  kCompareSwap,  // of 8 bytes
  kWrites64,     // 64 writes of 8 bytes, all under way at once; `bytes` is 64 * 8
  kMessage,      // a message of `bytes`, and an answer of 8 bytes
};

// `bytes`: a multiple of 8.
Outcome measure_bare_fabric(BareFabric what, std::size_t bytes, const MeasureInfo& info, const Pair& pair,
                            const Options& options);

// The cost of the node's memory itself, to compare with MPI calls on the mapped route (bare_memory.cpp). An uncontended
// lock-put-unlock that other ranks could contend for needs at least these atomics. A post-start-complete-wait needs
// at least these two notifications, one after the other.
enum class BareMemory {
  kLock,      // a fetch-add, a store and a fetch-add on the peer's memory, without contention
  kExchange,  // a fetch-add on a word that the peer polls, and its answer
  kCopy,      // memcpy(3) of `bytes` to memory that both map
};

// Both ranks must be on one node.
Outcome measure_bare_memory(BareMemory what, std::size_t bytes, const MeasureInfo& info, const Pair& pair,
                            const Options& options);

}  // namespace farside::bench

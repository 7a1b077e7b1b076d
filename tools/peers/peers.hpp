// SPDX-License-Identifier: BSD-3-Clause
// What farside-peers-RUNTIME does on the ranks: the trial of the providers, and the checks of `farside doctor`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "tools/common/text.hpp"
#include "tools/doctor/rank.hpp"
#include "tools/peers/matrix.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {

// A small window that each rank of a group uses in every way that matters: puts and gets under exclusive and shared
// locks, accumulates and fetch_and_op under lock_all, a contended lock, a fence. The data are checked.
// How this rank takes part: each rank is the target of one origin, or of none.
struct WindowRole {
  std::string call;    // MPI_Win_allocate or MPI_Win_create
  std::string among;   // node, all
  std::string wanted;  // mapped, cma, fabric
  MPI_Comm comm = MPI_COMM_NULL;
  int target = MPI_PROC_NULL;  // the rank that this one accesses
  bool has_origin = false;     // whether some rank accesses this one
};

// Collective over role.comm. Returns an entry of windows[] (examination.hpp) without its rank. Errors are its
// `trouble`: the first call that has failed, with what farside says of it, or wrong data.
Json check_window(const WindowRole& role, Watchdog& watchdog);

// The error of an MPI call, in words.
std::string mpi_error(const char* call, int code);

// Measurements between nodes: the time of puts to the next node, and the offset of the clocks. Both functions are
// collective over a communicator with one rank of each node, in the order of the nodes.

// Returns this node's entry of links[] (examination.hpp): medians of a put of 8 bytes and of 1 MiB, each with a flush,
// to the next node, whose rank waits in MPI_Barrier. No node is origin and target at the same time. Cost: three rounds
// of 0.15 s.
Json measure_link(MPI_Comm nodes, Watchdog& watchdog);

// Returns this node's entry of clocks[]. Cost: 32 round trips with node 0, one node after the other.
Json measure_clock(MPI_Comm nodes);

// The part of `farside doctor` that runs on every rank: farside-peers-RUNTIME doctor. It is a plain MPI program, into
// which the command preloads farside. Rank 0 prints what it finds, part by part, as lines of JSON (take_line()), so
// that the command has them if the ranks die or hang.
//
// The steps: the facts of each rank, and, unless these already forbid it, the trial of the providers between the hosts,
// windows inside each node and between them, puts to the next node, clocks. Until the ranks are known to load the same
// farside, none makes a window.
//
// `words`: --time-limit SECONDS, of each step. Returns the exit code: 0, or 2 for wrong words. A step that takes too
// long ends the process with 1.
int examine(const std::vector<std::string_view>& words);

// Tries a provider of libfabric between all hosts, as the first window of a job does (space/provider_agreement.hpp):
// each host opens farside's endpoint, and runs the trial of an adapter (ProviderTrial) with each other host.
//
// Collective over `comm`, which has one rank of each host. Cost: for n hosts n - 1 rounds, in which each host tries
// one other. A peer that does not answer delays a round by Timing::kTrial.
// Returns the providers to try on each host, the best first: those of farside's preference, or FARSIDE_PROVIDER.
std::vector<std::string> providers_to_try(const Settings& settings);

// Tries each provider, and returns the matrix of the hosts, at all ranks.
Json try_hosts(const Settings& settings, MPI_Comm comm);

}  // namespace farside::tools

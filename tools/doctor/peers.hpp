// SPDX-License-Identifier: BSD-3-Clause
// The parts of farside-peers-RUNTIME, which `farside doctor` starts on the ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "tools/common/text.hpp"
#include "tools/doctor/rank.hpp"
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

// Returns this node's entry of links[] (examination.hpp): medians of a put of 8 bytes and of 1 MiB, each with a flush,
// to the next node, whose rank waits in MPI_Barrier. No node is origin and target at the same time. Collective over a
// communicator with one rank of each node, in the order of the nodes. Cost: three rounds of 0.15 s.
Json measure_link(MPI_Comm nodes, Watchdog& watchdog);

// Tries a provider of libfabric between all hosts, as the first window of a job does (space/provider_agreement.hpp):
// each host opens farside's endpoint, and runs the trial of an adapter (ProviderTrial) with each other host.
//
// Collective over `comm`, which has one rank of each host. Cost: for n hosts n - 1 rounds, in which each host tries
// one other. A peer that does not answer delays a round by Timing::kTrial.
// Returns the providers to try on each host, the best first: those of farside's preference, or FARSIDE_PROVIDER.
std::vector<std::string> providers_to_try(const Settings& settings);

// Tries each provider. Returns `between` (examination.hpp), at all ranks.
Json try_hosts(const Settings& settings, MPI_Comm comm);

}  // namespace farside::tools

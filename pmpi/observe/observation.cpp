// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/observation.hpp"

#include <algorithm>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <sys/stat.h>
#include <vector>

#include "pmpi/call_sites.hpp"
#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/ticks.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

const std::int64_t loaded = time_of_day();

// Asks the runtime for rank and number of processes, once.
void query_launch() {
  if (!writes_files() || this_job().ranks != 0) return;
  const RuntimeResources& resources = *library().resources;
  Job job;
  job.rank = resources.process_rank();
  job.ranks = resources.process_count();
  job.spawned = resources.was_spawned();
  job.started = loaded;
  Observed& observed = *library().observed;
  const std::scoped_lock held(observed.mutex);
  job.agreed = observed.job.agreed;
  observed.job = job;
}

std::optional<ClockOffset> ask_clock(MPI_Comm communicator, int peer) {
  return compare_clock([&](std::uint64_t mine, std::uint64_t& theirs) {
    return runtime().Sendrecv(&mine, 1, MPI_UINT64_T, peer, 0, &theirs, 1, MPI_UINT64_T, peer, 0, communicator,
                              MPI_STATUS_IGNORE) == MPI_SUCCESS;
  });
}

bool answer_clock_of(MPI_Comm communicator, int peer) {
  const auto receive = [&](std::uint64_t& theirs) {
    return runtime().Recv(&theirs, 1, MPI_UINT64_T, peer, 0, communicator, MPI_STATUS_IGNORE) == MPI_SUCCESS;
  };
  const auto send = [&](std::uint64_t mine) {
    return runtime().Send(&mine, 1, MPI_UINT64_T, peer, 0, communicator) == MPI_SUCCESS;
  };
  return answer_clock(receive, send);
}

// Returns false if the runtime fails; some clocks are then unknown.
bool compare_on(MPI_Comm own) {
  int rank = 0, ranks = 1;
  if (runtime().Comm_rank(own, &rank) != MPI_SUCCESS || runtime().Comm_size(own, &ranks) != MPI_SUCCESS) return false;
  const std::uint64_t mine = clock_id();
  std::vector<std::uint64_t> clocks(static_cast<std::size_t>(ranks));
  if (runtime().Allgather(&mine, 1, MPI_UINT64_T, clocks.data(), 1, MPI_UINT64_T, own) != MPI_SUCCESS) return false;
  for (auto clock = clocks.begin() + 1; clock != clocks.end(); ++clock) {
    if (std::find(clocks.begin(), clock, *clock) != clock) continue;
    const int peer = static_cast<int>(clock - clocks.begin());
    if (rank == 0 && !answer_clock_of(own, peer)) return false;
    if (rank != peer) continue;
    const std::optional<ClockOffset> offset = ask_clock(own, 0);
    if (!offset) return false;
    const std::scoped_lock held(library().observed->mutex);
    library().observed->clocks.push_back({.kind = TraceKind::kClock,
                                          .begin = static_cast<std::uint64_t>(offset->ahead),
                                          .granted = clocks[0],
                                          .end = offset->uncertain});
  }
  return true;
}

}  // namespace

bool writes_files() {
  const Result<const Settings*> settings = Process::instance().settings();
  return settings && (!settings.value()->stats.empty() || !settings.value()->trace.empty());
}

void begin_observation() {
  library().sites->begin();
  if (!writes_files()) return;
  query_launch();
  {
    Observed& observed = *library().observed;
    const std::scoped_lock held(observed.mutex);
    if (!observed.begun) observed.begun = ClockPair::read();
  }
  begin_files_on_signal();
}

void end_observation() {
  for (void (*step)() : {end_files_on_signal, query_launch, write_statistics, write_trace}) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      Log::write_parts({"farside: error: out of memory at the end of MPI; a file may be missing\n"});
    }
  }
}

void note_agreement(MPI_Comm communicator, std::uint64_t bits) {
  if (!writes_files() || !library().resources->has_all_processes(communicator)) return;
  Observed& observed = *library().observed;
  const std::scoped_lock held(observed.mutex);
  observed.job.agreed = observed.job.agreed == 0 ? bits : std::min(observed.job.agreed, bits);
}

Job this_job() {
  const std::scoped_lock held(library().observed->mutex);
  Job job = library().observed->job;
  job.written = time_of_day();
  return job;
}

std::uint64_t clock_id() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  struct stat time_namespace {};
  if (stat("/proc/self/ns/time", &time_namespace) == 0) text += std::to_string(time_namespace.st_ino);
  return fnv1a(text);
}

// A trace is useful without the offsets, so a failure is a warning and no error of the window.
void compare_clocks(MPI_Comm communicator) {
  MPI_Comm own = MPI_COMM_NULL;
  const bool made = runtime().Comm_dup(communicator, &own) == MPI_SUCCESS;
  if (!made || !compare_on(own)) {
    log(LogLevel::kWarn,
        "the runtime failed while clocks were compared: in the trace the times of some nodes may not agree");
  }
  if (made) (void)runtime().Comm_free(&own);  // a failure only loses memory
  library().observed->clocks_compared = made;
}

}  // namespace farside::pmpi

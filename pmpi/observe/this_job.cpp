// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/this_job.hpp"

#include <algorithm>
#include <fstream>
#include <mutex>
#include <string_view>

#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

std::mutex job_mutex;
Job job_so_far;  // without the time of writing

bool writes_files() {
  const Result<const Settings*> settings = Process::instance().settings();
  return settings && (!settings.value()->stats.empty() || !settings.value()->trace.empty());
}

}  // namespace

void query_launch() {
  if (!writes_files()) return;
  if (this_job().ranks != 0) return;
  const RuntimeResources& resources = RuntimeResources::instance();
  const int ranks = resources.process_count();
  const int rank = resources.process_rank();
  const std::uint64_t launcher = launch_id(rank, ranks);
  const std::scoped_lock held(job_mutex);
  job_so_far.rank = rank;
  job_so_far.ranks = ranks;
  job_so_far.spawned = resources.was_spawned();
  job_so_far.launcher = launcher;
  job_so_far.started = process_start();
}

void note_agreement(MPI_Comm communicator, std::uint64_t bits) {
  if (!writes_files() || !RuntimeResources::instance().has_all_processes(communicator)) return;
  const std::scoped_lock held(job_mutex);
  job_so_far.agreed = job_so_far.agreed == 0 ? bits : std::min(job_so_far.agreed, bits);
}

// That of the main thread: farside's own threads may have others.
std::string own_cpus() {
  constexpr std::string_view kField = "Cpus_allowed_list:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kField)) continue;
    const std::size_t list = line.find_first_not_of(" \t", kField.size());
    return list == std::string::npos ? std::string() : line.substr(list);
  }
  return {};
}

Job this_job() {
  const std::scoped_lock held(job_mutex);
  Job job = job_so_far;
  job.written = time_of_day();
  return job;
}

}  // namespace farside::pmpi

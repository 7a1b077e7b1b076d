// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/this_job.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string_view>
#include <unistd.h>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

const std::int64_t loaded = time_of_day();

bool writes_files() {
  const Result<const Settings*> settings = Process::instance().settings();
  return settings && (!settings.value()->stats.empty() || !settings.value()->trace.empty());
}

}  // namespace

void query_launch() {
  if (!writes_files()) return;
  if (this_job().ranks != 0) return;
  const RuntimeResources& resources = *library().resources;
  const int ranks = resources.process_count();
  const int rank = resources.process_rank();
  Observed& observed = *library().observed;
  const std::scoped_lock held(observed.mutex);
  observed.job.rank = rank;
  observed.job.ranks = ranks;
  observed.job.spawned = resources.was_spawned();
  observed.job.started = loaded;
}

void note_agreement(MPI_Comm communicator, std::uint64_t bits) {
  if (!writes_files() || !library().resources->has_all_processes(communicator)) return;
  Observed& observed = *library().observed;
  const std::scoped_lock held(observed.mutex);
  observed.job.agreed = observed.job.agreed == 0 ? bits : std::min(observed.job.agreed, bits);
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
  const std::scoped_lock held(library().observed->mutex);
  Job job = library().observed->job;
  job.written = time_of_day();
  return job;
}

bool write_rank_file(const char* setting, const std::string& prefix, std::string_view suffix,
                     std::span<const char> bytes) {
  const Job job = this_job();
  const std::string apart = job.spawned ? fmt::format(".spawned-{}", getpid()) : "";
  const std::string path = fmt::format("{}{}.{}.{}", prefix, apart, job.rank, suffix);
  // Two threads may write at once: at a signal, and in MPI_Finalize.
  const std::string part = fmt::format("{}.{}.part", path, gettid());
  // A link of another user, or the rest of an earlier process, is not written to.
  (void)unlink(part.c_str());
  std::FILE* const file = std::fopen(part.c_str(), "wxe");
  bool written = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written && std::rename(part.c_str(), path.c_str()) == 0) return true;
  const int reason = errno;
  if (file != nullptr) (void)unlink(part.c_str());
  log(LogLevel::kWarn, "{}: {} could not be written ({})", setting, path, std::strerror(reason));
  return false;
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/observation.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "pmpi/call_sites.hpp"
#include "pmpi/library/library.hpp"
#include "pmpi/observe/window_statistics.hpp"
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
  Job job{.rank = resources.process_rank(),
          .ranks = resources.process_count(),
          .spawned = resources.was_spawned(),
          .started = loaded};
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

// The files of FARSIDE_STATS and FARSIDE_TRACE.

namespace {

// The CPUs that the process may use, as the kernel writes them: "0-3,8"; empty if unknown. They are those of the main
// thread: farside's own threads may have others.
std::string own_cpus() {
  constexpr std::string_view kField = "Cpus_allowed_list:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kField)) continue;
    return line.substr(std::min(line.find_first_not_of(" \t", kField.size()), line.size()));
  }
  return {};
}

// Writes PREFIX.RANK.SUFFIX, of a spawned process PREFIX.spawned-PID.RANK.SUFFIX. The file appears whole or not at all,
// because it is renamed when it is complete. A failure is a warning that names `setting`.
void write_rank_file(const Job& job, const char* setting, const std::string& prefix, std::string_view suffix,
                     std::span<const char> bytes) {
  const std::string apart = job.spawned ? fmt::format(".spawned-{}", getpid()) : "";
  const std::string path = fmt::format("{}{}.{}.{}", prefix, apart, job.rank, suffix);
  // Two threads may write at once: at a signal, and in MPI_Finalize.
  const std::string part = fmt::format("{}.{}.part", path, gettid());
  // A link of another user, or the rest of an earlier process, is not written to.
  (void)unlink(part.c_str());
  std::FILE* const file = std::fopen(part.c_str(), "wxe");
  bool written = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written && std::rename(part.c_str(), path.c_str()) == 0) return;
  log(LogLevel::kWarn, "{}: {} could not be written ({})", setting, path, std::strerror(errno));
  if (file != nullptr) (void)unlink(part.c_str());
}

using Sum = StatisticsSums::Sum;

struct Ticked {
  double per_tick;  // seconds
  double operator()(Ticks ticks) const { return static_cast<double>(ticks) * per_tick; }
};

nlohmann::json in_json(const OperationCounts::Cell& done) { return {{"count", done.count}, {"bytes", done.bytes}}; }

// Leaves out zeros.
nlohmann::json in_json(const StatisticsSums& sums, const Ticked& seconds) {
  nlohmann::json json = {{"windows", sums.windows}};
  for (std::size_t i = 0; i < sums.epochs.size(); ++i) {
    if (sums.epochs[i].count != 0) json["epochs"][kEpochNames[i]] = sums.epochs[i].count;
  }
  for (std::size_t i = 0; i < sums.waits.size(); ++i) {
    const Sum& waits = sums.waits[i];
    if (waits.count == 0) continue;
    json["waits"][kWaitNames[i]] = {
        {"count", waits.count}, {"seconds", seconds(waits.waited)}, {"longest_seconds", seconds(waits.longest)}};
  }
  for (std::size_t route = 0; route < sums.operations.size(); ++route) {
    for (std::size_t what = 0; what < StatisticsSums::kKinds; ++what) {
      const Sum& done = sums.operations[route][what];
      if (done.count != 0) json["routes"][kRoutes[route].name][kCountedNames[what]] = in_json({done.count, done.bytes});
    }
  }
  constexpr const char* kBy[] = {"lock", "handler"};
  for (std::size_t by = 0; by < sums.slow.size(); ++by) {
    for (std::size_t why = 0; why < sums.slow[by].size(); ++why) {
      if (sums.slow[by][why] != 0) json["slow_accumulates"][kBy[by]][kSlowNames[why]] = sums.slow[by][why];
    }
  }
  if (sums.flushes != 0) json["flushes"] = sums.flushes;
  if (sums.flushes_all != 0) json["flushes_all"] = sums.flushes_all;
  if (const Sum& slow = sums.slow_operations; slow.count != 0)
    json["slow_operations"] = {{"count", slow.count}, {"seconds", seconds(slow.time)}};
  if (!sums.names.empty()) json["names"] = sums.names;
  return json;
}

// By rank among all processes.
nlohmann::json in_json(const std::map<int, Sum>& targets, const Ticked& seconds) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [rank, target] : targets) {
    json[std::to_string(rank)] = {{"count", target.count},
                                  {"bytes", target.bytes},
                                  {"wait_seconds", seconds(target.waited)},
                                  {"slow_operation_seconds", seconds(target.time)}};
  }
  return json;
}

// By operation and the largest size of a class.
nlohmann::json sizes_in_json(const StatisticsSums& sums, const Ticked& seconds) {
  nlohmann::json json = nlohmann::json::object();
  for (std::size_t what = 0; what < StatisticsSums::kKinds; ++what) {
    for (std::size_t size = 0; size < OperationCounts::kSizes; ++size) {
      if (sums.sizes[what][size].count == 0) continue;
      const std::uint64_t most = size == 0 ? 0 : std::uint64_t{1} << (size - 1);
      nlohmann::json& one = json[kCountedNames[what]][std::to_string(most)] = in_json(sums.sizes[what][size]);
      if (const Sum& slow = sums.slow_sizes[what][size]; slow.count != 0) {
        one["slow_count"] = slow.count;
        one["slow_seconds"] = seconds(slow.time);
      }
    }
  }
  return json;
}

nlohmann::json in_json(const std::vector<CallSites::Site>& sites, const Ticked& seconds) {
  nlohmann::json json = nlohmann::json::array();
  for (const CallSites::Site& site : sites) {
    nlohmann::json calls = nlohmann::json::object();
    for (const auto& [kind, sums] : site.calls) {
      calls[kWaitNames[static_cast<std::size_t>(kind)]] = {{"calls", sums.calls},
                                                           {"count", sums.waits},
                                                           {"seconds", seconds(sums.total)},
                                                           {"longest_seconds", seconds(sums.longest)}};
    }
    json.push_back({{"site", site.text}, {"calls", std::move(calls)}});
  }
  return json;
}

// Numbers of 64 bits are text, since not every reader of JSON keeps them.
nlohmann::json in_json(const Job& job) {
  nlohmann::json json = {{"started", static_cast<double>(job.started) * 1e-9},
                         {"written", static_cast<double>(job.written) * 1e-9}};
  if (job.agreed != 0) json["agreed"] = fmt::format("{:016x}", job.agreed);
  if (job.spawned) json["spawned"] = true;
  return json;
}

// The operations of the windows, and of the process.
nlohmann::json routes_in_json(const StatisticsSums& sums) {
  nlohmann::json json = nlohmann::json::object();
  for (std::size_t route = 0; route < kRouteKinds; ++route) {
    for (std::size_t what = 0; what < kCountedNames.size(); ++what) {
      const Statistics::Counter& counter =
          Process::instance().statistics().counter(static_cast<RouteKind>(route), static_cast<Counted>(what));
      OperationCounts::Cell done{counter.count.load(std::memory_order_relaxed),
                                 counter.bytes.load(std::memory_order_relaxed)};
      if (what < StatisticsSums::kKinds)
        done.add({sums.operations[route][what].count, sums.operations[route][what].bytes});
      if (done.count != 0) json[kRoutes[route].name][kCountedNames[what]] = in_json(done);
    }
  }
  return json;
}

void add_totals(std::vector<TraceRecord>& records) {
  StatisticsSums all;
  for (const auto& [kind, sums] : library().statistics->sums()) all.add(sums);
  for (std::size_t kind = 0; kind < all.epochs.size(); ++kind) {
    const StatisticsSums::Sum& epochs = all.epochs[kind];
    if (epochs.count == 0) continue;
    records.push_back({.kind = TraceKind::kTotal,
                       .detail = static_cast<std::uint8_t>(kind),
                       .begin = epochs.time,
                       .end = epochs.waited,
                       .count = epochs.count});
  }
}

// Adds a text in as many records as it needs.
void add_text(TraceText::Of of, std::uint32_t number, std::string_view text, std::vector<TraceRecord>& records) {
  for (text = text.substr(0, TraceText::kMost); !text.empty();) {
    TraceText part;
    part.of = of;
    part.number = number;
    part.bytes = static_cast<std::uint16_t>(text.copy(part.text.data(), part.text.size()));
    text.remove_prefix(part.bytes);
    records.push_back(std::bit_cast<TraceRecord>(part));
  }
}

void add_windows_and_texts(std::vector<TraceRecord>& records) {
  for (const WindowStatistics::Traced& window : library().statistics->traced()) {
    records.push_back(window.record);
    add_text(TraceText::Of::kWindow, window.record.window, window.name, records);
  }
  std::uint32_t number = 0;
  for (const CallSites::Site& site : library().sites->all())
    add_text(TraceText::Of::kSite, ++number, site.text, records);
  add_text(TraceText::Of::kCpus, 0, own_cpus(), records);
}

void add_reports(std::vector<TraceRecord>& records) {
  for (std::uint32_t number = 0; const auto& [when, line] : library().observed->reports) {
    records.push_back({.kind = TraceKind::kReport, .begin = when, .end = when, .count = number});
    add_text(TraceText::Of::kReport, number++, line, records);
  }
}

}  // namespace

void report(LogLevel level, const std::string& line) {
  constexpr std::size_t kMost = 100;
  log(level, "{}", line);
  if (Trace::active() == nullptr) return;
  {
    const std::scoped_lock held(library().observed->mutex);
    auto& reports = library().observed->reports;
    if (reports.size() == kMost) return;
    reports.emplace_back(ticks(), line);
  }
  write_trace();
}

void write_statistics() {
  const Result<const Settings*> settings = Process::instance().settings();
  if (!settings || settings.value()->stats.empty()) return;
  const Job job = this_job();
  Observed& observed = *library().observed;
  std::unique_lock held(observed.mutex);
  const std::optional<ClockPair> begun = observed.begun;
  held.unlock();
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const ClockPair now = ClockPair::read();
  // Without a window there is no begin, and no tick was counted.
  const Ticked seconds{begun ? ns_per_tick(*begun, now) * 1e-9 : 0};
  nlohmann::json json = {{"rank", job.rank},
                         {"ranks", job.ranks},
                         {"host", host.data()},
                         {"job", in_json(job)},
                         {"cpus", own_cpus()},
                         {"windows",
                          {{"farside", observed.farside_windows.load(std::memory_order_relaxed)},
                           {"runtime", observed.runtime_windows.load(std::memory_order_relaxed)}}},
                         {"window_kinds", nlohmann::json::object()}};
  if (begun) json["seconds"] = static_cast<double>(now.ns - begun->ns) * 1e-9;
  StatisticsSums all;
  for (const auto& [kind, sums] : library().statistics->sums()) {
    json["window_kinds"][kind] = in_json(sums, seconds);
    all.add(sums);
  }
  json["routes"] = routes_in_json(all);
  if (!all.targets.empty()) json["targets"] = in_json(all.targets, seconds);
  if (nlohmann::json sizes = sizes_in_json(all, seconds); !sizes.empty()) json["sizes"] = std::move(sizes);
  if (const std::vector<CallSites::Site> sites = library().sites->all(); !sites.empty())
    json["sites"] = in_json(sites, seconds);
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  write_rank_file(job, "FARSIDE_STATS", settings.value()->stats, "json", text);
}

void write_trace() {
  const Result<const Settings*> settings = Process::instance().settings();
  Trace* trace = Trace::active();
  if (!settings || trace == nullptr) return;
  std::vector<TraceRecord> records;
  const auto append = [&records](const std::vector<TraceRecord>& more) {
    records.insert(records.end(), more.begin(), more.end());
  };
  add_windows_and_texts(records);
  {
    const std::scoped_lock held(library().observed->mutex);
    append(library().observed->clocks);
    add_reports(records);
  }
  add_totals(records);
  append(trace->epochs().take());
  append(trace->operations().take());
  append(trace->served().take());

  TraceHeader header;
  header.header_bytes = sizeof(TraceHeader);
  header.record_bytes = sizeof(TraceRecord);
  header.pid = getpid();
  header.records = records.size();
  header.lost_epochs = trace->epochs().lost();
  header.lost_operations = trace->operations().lost();
  header.lost_served = trace->served().lost();
  header.clock = clock_id();
  const Job job = this_job();
  header.rank = job.rank;
  header.ranks = job.ranks;
  header.spawned = job.spawned ? 1 : 0;
  header.agreed = job.agreed;
  header.process_started = job.started;
  header.written = job.written;
  header.first = trace->first();
  header.last = ClockPair::read();
  gethostname(header.host.data(), header.host.size() - 1);

  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(TraceRecord));
  write_rank_file(job, "FARSIDE_TRACE", settings.value()->trace, "trace", bytes);
}

}  // namespace farside::pmpi

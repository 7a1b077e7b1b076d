// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/statistics_file.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include <mpi.h>
#include <nlohmann/json.hpp>

#include "pmpi/library/library.hpp"
#include "pmpi/observe/call_sites.hpp"
#include "pmpi/observe/this_job.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

struct Ticked {
  double per_tick;  // seconds
  double operator()(Ticks ticks) const { return static_cast<double>(ticks) * per_tick; }
};

// Leaves out zeros.
nlohmann::json in_json(const StatisticsSums& sums, const Ticked& seconds) {
  nlohmann::json json = {{"windows", sums.windows}};
  for (std::size_t i = 0; i < sums.epochs.size(); ++i) {
    if (sums.epochs[i].count != 0) json["epochs"][kEpochNames[i]] = sums.epochs[i].count;
  }
  for (std::size_t i = 0; i < sums.waits.size(); ++i) {
    const StatisticsSums::Waits& waits = sums.waits[i];
    if (waits.count == 0) continue;
    json["waits"][kWaitNames[i]] = {
        {"count", waits.count}, {"seconds", seconds(waits.total)}, {"longest_seconds", seconds(waits.longest)}};
  }
  for (std::size_t route = 0; route < sums.operations.size(); ++route) {
    for (std::size_t what = 0; what < StatisticsSums::kKinds; ++what) {
      const StatisticsSums::Operations& done = sums.operations[route][what];
      if (done.count != 0)
        json["routes"][kRoutes[route].name][kCountedNames[what]] = {{"count", done.count}, {"bytes", done.bytes}};
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
  if (sums.slow_operation_calls != 0) {
    json["slow_operations"] = {{"count", sums.slow_operation_calls}, {"seconds", seconds(sums.slow_operations)}};
  }
  for (const std::string& name : sums.names) json["names"].push_back(name);
  return json;
}

// By rank among all processes.
nlohmann::json in_json(const std::map<int, StatisticsSums::Target>& targets, const Ticked& seconds) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [rank, target] : targets) {
    json[std::to_string(rank)] = {{"count", target.operations.count},
                                  {"bytes", target.operations.bytes},
                                  {"wait_seconds", seconds(target.waited)},
                                  {"slow_operation_seconds", seconds(target.slow_operations)}};
  }
  return json;
}

// By operation and the largest size of a class.
nlohmann::json sizes_in_json(const StatisticsSums& sums, const Ticked& seconds) {
  nlohmann::json json = nlohmann::json::object();
  for (std::size_t what = 0; what < StatisticsSums::kKinds; ++what) {
    for (std::size_t size = 0; size < OperationCounts::kSizes; ++size) {
      const OperationCounts::Cell& cell = sums.sizes[what][size];
      if (cell.count == 0) continue;
      const std::uint64_t most = size == 0 ? 0 : std::uint64_t{1} << (size - 1);
      nlohmann::json& one = json[kCountedNames[what]][std::to_string(most)];
      one = {{"count", cell.count}, {"bytes", cell.bytes}};
      if (const StatisticsSums::Sized& slow = sums.sized[what][size]; slow.count != 0) {
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

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

void begin_statistics() {
  const Result<const Settings*> settings = Process::instance().settings();
  if (!settings || settings.value()->stats.empty()) return;
  Observed& observed = *library().observed;
  const std::scoped_lock held(observed.mutex);
  if (!observed.begun) observed.begun = ClockPair::read();
}

void write_statistics() {
  const Result<const Settings*> settings = Process::instance().settings();
  if (!settings || settings.value()->stats.empty()) return;
  nlohmann::json json;
  const Job job = this_job();
  Observed& observed = *library().observed;
  std::unique_lock held(observed.mutex);
  const std::optional<ClockPair> begun = observed.begun;
  held.unlock();
  json["rank"] = job.rank;
  json["ranks"] = job.ranks;
  json["host"] = host_name();
  json["job"] = in_json(job);
  json["cpus"] = own_cpus();
  json["windows"] = {{"farside", observed.farside_windows.load(std::memory_order_relaxed)},
                     {"runtime", observed.runtime_windows.load(std::memory_order_relaxed)}};
  // Those of the windows and, below, those of the process.
  std::array<std::array<StatisticsSums::Operations, kCountedNames.size()>, kRouteKinds> operations{};
  const std::map<std::string, StatisticsSums> by_kind = library().statistics->sums();
  const ClockPair now = ClockPair::read();
  // Without a window there is no begin, and no tick was counted.
  const Ticked seconds{begun ? ns_per_tick(*begun, now) * 1e-9 : 0};
  if (begun) json["seconds"] = static_cast<double>(now.ns - begun->ns) * 1e-9;
  json["window_kinds"] = nlohmann::json::object();
  for (const auto& [kind, sums] : by_kind) {
    json["window_kinds"][kind] = in_json(sums, seconds);
    for (std::size_t route = 0; route < kRouteKinds; ++route) {
      for (std::size_t what = 0; what < StatisticsSums::kKinds; ++what) {
        const StatisticsSums::Operations& done = sums.operations[route][what];
        operations[route][what].count += done.count;
        operations[route][what].bytes += done.bytes;
      }
    }
  }
  StatisticsSums all;
  for (const auto& [kind, sums] : by_kind) all.add(sums);
  if (!all.targets.empty()) json["targets"] = in_json(all.targets, seconds);
  if (nlohmann::json sizes = sizes_in_json(all, seconds); !sizes.empty()) json["sizes"] = std::move(sizes);
  if (const std::vector<CallSites::Site> sites = library().sites->all(); !sites.empty())
    json["sites"] = in_json(sites, seconds);
  json["routes"] = nlohmann::json::object();
  for (std::size_t route = 0; route < kRouteKinds; ++route) {
    for (std::size_t what = 0; what < kCountedNames.size(); ++what) {
      const Statistics::Counter& counter =
          Process::instance().statistics().counter(static_cast<RouteKind>(route), static_cast<Counted>(what));
      StatisticsSums::Operations& done = operations[route][what];
      done.count += counter.count.load(std::memory_order_relaxed);
      done.bytes += counter.bytes.load(std::memory_order_relaxed);
      if (done.count == 0) continue;
      json["routes"][kRoutes[route].name][kCountedNames[what]] = {{"count", done.count}, {"bytes", done.bytes}};
    }
  }
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  (void)write_rank_file("FARSIDE_STATS", settings.value()->stats, "json", text);
}

}  // namespace farside::pmpi

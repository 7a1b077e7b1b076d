// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/statistics_file.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include <mpi.h>
#include <nlohmann/json.hpp>

#include "pmpi/observe/rank_file.hpp"
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
        json["routes"][kRouteNames[route]][kCountedNames[what]] = {{"count", done.count}, {"bytes", done.bytes}};
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
  return json;
}

// The time of the first window's creation; empty before it. Several threads may create the first windows.
std::optional<ClockPair> begun;
std::once_flag begins;

std::atomic<unsigned long> farside_windows{0};
std::atomic<unsigned long> runtime_windows{0};

}  // namespace

void count_farside_window() { farside_windows.fetch_add(1, std::memory_order_relaxed); }
void count_runtime_window() { runtime_windows.fetch_add(1, std::memory_order_relaxed); }

void begin_statistics() {
  const Result<const Settings*> settings = Process::instance().settings();
  if (settings && !settings.value()->stats.empty()) std::call_once(begins, [] { begun = ClockPair::read(); });
}

void write_statistics() {
  const Result<const Settings*> settings = Process::instance().settings();
  if (!settings || settings.value()->stats.empty()) return;
  nlohmann::json json;
  json["rank"] = own_rank();
  json["windows"] = {{"farside", farside_windows.load(std::memory_order_relaxed)},
                     {"runtime", runtime_windows.load(std::memory_order_relaxed)}};
  // Those of the windows and, below, those of the process.
  std::array<std::array<StatisticsSums::Operations, kCountedNames.size()>, kRouteNames.size()> operations{};
  const std::map<std::string, StatisticsSums> by_kind = AllWindowStatistics::instance().sums();
  const ClockPair now = ClockPair::read();
  // Without a window there is no begin, and no tick was counted.
  const Ticked seconds{begun ? ns_per_tick(*begun, now) * 1e-9 : 0};
  if (begun) json["seconds"] = static_cast<double>(now.ns - begun->ns) * 1e-9;
  json["window_kinds"] = nlohmann::json::object();
  for (const auto& [kind, sums] : by_kind) {
    json["window_kinds"][kind] = in_json(sums, seconds);
    for (std::size_t route = 0; route < kRouteNames.size(); ++route) {
      for (std::size_t what = 0; what < StatisticsSums::kKinds; ++what) {
        const StatisticsSums::Operations& done = sums.operations[route][what];
        operations[route][what].count += done.count;
        operations[route][what].bytes += done.bytes;
      }
    }
  }
  json["routes"] = nlohmann::json::object();
  for (std::size_t route = 0; route < kRouteNames.size(); ++route) {
    for (std::size_t what = 0; what < kCountedNames.size(); ++what) {
      const Statistics::Counter& counter =
          Process::instance().statistics().counter(static_cast<RouteKind>(route), static_cast<Counted>(what));
      StatisticsSums::Operations& done = operations[route][what];
      done.count += counter.count.load(std::memory_order_relaxed);
      done.bytes += counter.bytes.load(std::memory_order_relaxed);
      if (done.count == 0) continue;
      json["routes"][kRouteNames[route]][kCountedNames[what]] = {{"count", done.count}, {"bytes", done.bytes}};
    }
  }
  (void)write_rank_file("FARSIDE_STATS", settings.value()->stats, "json", json.dump(2) + '\n');
}

}  // namespace farside::pmpi

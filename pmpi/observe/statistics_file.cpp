// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <unistd.h>

#include <mpi.h>
#include <nlohmann/json.hpp>

#include "pmpi/library/library.hpp"
#include "pmpi/observe/call_sites.hpp"
#include "pmpi/observe/observation.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

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

// The operations of the windows, and of the process.
nlohmann::json routes_in_json(const StatisticsSums& sums) {
  nlohmann::json json = nlohmann::json::object();
  for (std::size_t route = 0; route < kRouteKinds; ++route) {
    for (std::size_t what = 0; what < kCountedNames.size(); ++what) {
      const Statistics::Counter& counter =
          Process::instance().statistics().counter(static_cast<RouteKind>(route), static_cast<Counted>(what));
      OperationCounts::Cell done{counter.count.load(std::memory_order_relaxed),
                                 counter.bytes.load(std::memory_order_relaxed)};
      if (what < StatisticsSums::kKinds) {
        done.count += sums.operations[route][what].count;
        done.bytes += sums.operations[route][what].bytes;
      }
      if (done.count != 0) json[kRoutes[route].name][kCountedNames[what]] = in_json(done);
    }
  }
  return json;
}

}  // namespace

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
  write_rank_file("FARSIDE_STATS", settings.value()->stats, "json", text);
}

}  // namespace farside::pmpi

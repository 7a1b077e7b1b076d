// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/statistics_file.hpp"

#include <fstream>
#include <string>
#include <unistd.h>

#include <mpi.h>
#include <nlohmann/json.hpp>

#include "pmpi/creation.hpp"
#include "pmpi/first_window.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {

void write_statistics() {
  const Result<const Settings*> settings = Process::instance().settings();
  if (!settings || settings.value()->stats.empty()) return;
  const int rank = process_rank();

  nlohmann::json json;
  const WindowCounts windows = window_counts();
  json["rank"] = rank;
  json["windows"] = {{"farside", windows.farside}, {"runtime", windows.runtime}};
  json["routes"] = nlohmann::json::object();
  const Statistics& statistics = Process::instance().statistics();
  for (std::size_t route = 0; route < kRouteNames.size(); ++route) {
    for (std::size_t what = 0; what < kCountedNames.size(); ++what) {
      const Statistics::Counter& counter = statistics.counter(static_cast<RouteKind>(route), static_cast<Counted>(what));
      const std::uint64_t count = counter.count.load(std::memory_order_relaxed);
      if (count == 0) continue;
      json["routes"][kRouteNames[route]][kCountedNames[what]] = {
          {"count", count}, {"bytes", counter.bytes.load(std::memory_order_relaxed)}};
    }
  }
  const std::string apart = was_spawned() ? fmt::format(".spawned-{}", getpid()) : "";
  const std::string path = fmt::format("{}{}.{}.json", settings.value()->stats, apart, rank);
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  file.close();
  if (!file) log(LogLevel::kWarn, "FARSIDE_STATS: {} could not be written", path);
}

}  // namespace farside::pmpi

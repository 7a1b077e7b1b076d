// SPDX-License-Identifier: BSD-3-Clause
#include "tools/placement.hpp"

#include <fmt/format.h>

#include "tools/text.hpp"
#include "transport/fabric/nearest_device.hpp"

namespace farside::tools {

void Placement::add(const std::string& host, std::string_view cpus) {
  Host& there = hosts_[host];
  ++there.processes;
  const std::set<int> own = read_cpu_list(cpus).value_or(std::set<int>());
  there.known = there.known && !own.empty();
  there.cpus.insert(own.begin(), own.end());
}

std::vector<std::string> Placement::oversubscribed() const {
  std::vector<std::string> lines;
  for (const auto& [name, host] : hosts_) {
    if (!host.known || host.processes <= host.cpus.size()) continue;
    lines.push_back(
        fmt::format("{} ranks share {} on {}: a rank that waits there mostly waits until another rank gets a "
                    "core. Give each rank a core, or take fewer ranks, before these waits are blamed on the program.",
                    host.processes, counted(host.cpus.size(), "core"), name));
  }
  return lines;
}

}  // namespace farside::tools

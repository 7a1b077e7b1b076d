// SPDX-License-Identifier: BSD-3-Clause
#include "tools/placement.hpp"

#include <charconv>

#include <fmt/format.h>

#include "tools/text.hpp"

namespace farside::tools {

std::set<int> cpus_in(std::string_view list) {
  constexpr int kMost = 65536;
  int room = kMost;  // no list of a kernel is longer
  std::set<int> cpus;
  for (const std::string& part : split(list, ",")) {
    const char* const end = part.data() + part.size();
    int first = 0, last = 0;
    auto parsed = std::from_chars(part.data(), end, first);
    last = first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc() || parsed.ptr != end || first < 0 || last < first || last - first >= room) return {};
    room -= last - first + 1;
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

void Placement::add(const std::string& host, std::string_view cpus) {
  Host& there = hosts_[host];
  ++there.processes;
  const std::set<int> own = cpus_in(cpus);
  there.known = there.known && !own.empty();
  there.cpus.insert(own.begin(), own.end());
}

std::vector<std::string> Placement::oversubscribed() const {
  std::vector<std::string> lines;
  for (const auto& [name, host] : hosts_) {
    if (!host.known || host.processes <= host.cpus.size()) continue;
    lines.push_back(
        fmt::format("{} ranks share {} core{} on {}: a rank that waits there mostly waits until another rank gets a "
                    "core. Give each "
                    "rank a core, or take fewer ranks, before these waits are blamed on the program.",
                    host.processes, host.cpus.size(), host.cpus.size() == 1 ? "" : "s", name));
  }
  return lines;
}

}  // namespace farside::tools

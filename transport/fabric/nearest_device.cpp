// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/nearest_device.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>

#include <fmt/format.h>

namespace farside {

std::optional<std::vector<int>> read_cpu_list(std::string_view text) {
  std::vector<int> result;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const auto number = [&](int& into) {
      const auto [behind, error] = std::from_chars(at, end, into);
      at = behind;
      return error == std::errc() && into >= 0 && into < CPU_SETSIZE;
    };
    const auto follows = [&](char sign) { return at != end && *at == sign && ++at != nullptr; };
    int first = 0;
    if (!number(first)) return {};
    int last = first;
    if (follows('-') && !number(last)) return {};
    for (int cpu = first; cpu <= last; ++cpu) result.push_back(cpu);
    if (at != end && !follows(',')) return {};
  }
  return result;
}

Nearness nearness_of(const std::string& address, const cpu_set_t& own, const std::filesystem::path& sys) {
  std::string text;
  if (address.empty() || !std::getline(std::ifstream(sys / "bus/pci/devices" / address / "local_cpulist"), text)) {
    return Nearness::kUnknown;
  }
  const auto local = read_cpu_list(text);
  if (!local || local->empty()) return Nearness::kUnknown;
  const auto shared =
      std::ranges::count_if(*local, [&](int cpu) { return CPU_ISSET(static_cast<std::size_t>(cpu), &own); });
  return shared == 0 ? Nearness::kFar : shared == CPU_COUNT(&own) ? Nearness::kNear : Nearness::kPartly;
}

std::string pci_address(const fi_info& info) {
  if (info.nic == nullptr || info.nic->bus_attr == nullptr || info.nic->bus_attr->bus_type != FI_BUS_PCI) return {};
  const fi_pci_attr& at = info.nic->bus_attr->attr.pci;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain_id, at.bus_id, at.device_id, at.function_id);
}

Nearness nearness_of(const fi_info& info, const std::filesystem::path& sys) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof own, &own) != 0) return Nearness::kUnknown;
  return nearness_of(pci_address(info), own, sys);
}

bool is_nearer(const fi_info& info, const fi_info& other, const std::filesystem::path& sys) {
  const auto network = [](const fi_info& of) {
    const char* const name = of.fabric_attr != nullptr ? of.fabric_attr->name : nullptr;
    return std::string_view(name != nullptr ? name : "");
  };
  const Nearness first = nearness_of(other, sys);
  return first != Nearness::kUnknown && nearness_of(info, sys) > first && network(info) == network(other);
}

}  // namespace farside

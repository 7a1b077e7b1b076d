// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/nearest_device.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/fabric/adapters.hpp"

namespace farside {

std::optional<std::set<int>> read_cpu_list(std::string_view text) {
  constexpr int kMostProcessors = 8192;  // of any configuration of Linux
  std::set<int> result;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const auto number = [&](int& into) {
      const auto [behind, error] = std::from_chars(at, end, into);
      at = behind;
      return error == std::errc() && into >= 0 && into < kMostProcessors;
    };
    const auto follows = [&](char sign) { return at != end && *at == sign && ++at != nullptr; };
    int first = 0;
    if (!number(first)) return {};
    int last = first;
    if (follows('-') && (!number(last) || last < first)) return {};
    for (int cpu = first; cpu <= last; ++cpu) result.insert(cpu);
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

DeviceTraits device_traits(const fi_info& info, bool links, const std::filesystem::path& sys) {
  DeviceTraits traits;
  if (info.fabric_attr != nullptr && info.fabric_attr->name != nullptr) traits.fabric = info.fabric_attr->name;
  traits.nearness = nearness_of(info, sys);
  traits.beside_others = !links;
  if (links) {
    AdapterLink link = adapter_link(info.domain_attr->name, interface_networks(), sys);
    traits.networks = std::move(link.networks);
    traits.rate = link.rate;
    traits.beside_others = link.answers_alone;
  }
  return traits;
}

std::size_t choose_device(std::span<const DeviceTraits> all, std::size_t process) {
  const DeviceTraits& first = *std::ranges::max_element(all, {}, &DeviceTraits::rate);
  const auto is_like_first = [&](const DeviceTraits& each) {
    if (&each == &first) return true;
    return each.rate == first.rate && each.fabric == first.fabric && each.networks == first.networks &&
           each.beside_others && first.beside_others;
  };
  Nearness nearest = first.nearness;
  if (nearest != Nearness::kUnknown) {
    for (const DeviceTraits& each : all) {
      if (is_like_first(each)) nearest = std::max(nearest, each.nearness);
    }
  }
  std::vector<std::size_t> equal;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_like_first(all[i]) && all[i].nearness == nearest) equal.push_back(i);
  }
  return equal[spread_over(equal.size(), process)];
}

std::optional<std::size_t> choose_second_device(const DeviceTraits& first, std::span<const DeviceTraits> others,
                                                std::size_t process) {
  const auto may_be = [&](const DeviceTraits& each) {
    const bool shares_network = std::ranges::any_of(
        each.networks, [&](const std::string& network) { return first.networks.contains(network); });
    return each.rate == first.rate && !each.networks.empty() &&
           (!shares_network || (each.beside_others && first.beside_others));
  };
  const auto found = std::ranges::find_if(others, may_be);
  if (found == others.end()) return std::nullopt;
  const auto is_like_found = [&](const DeviceTraits& each) {
    if (&each == &*found) return true;
    return may_be(each) && each.fabric == found->fabric && each.networks == found->networks && each.beside_others &&
           found->beside_others;
  };
  std::vector<std::size_t> equal;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (is_like_found(others[i]) && others[i].nearness >= first.nearness) equal.push_back(i);
  }
  if (equal.empty()) return std::nullopt;
  return equal[spread_over(equal.size(), process)];
}

std::uint32_t network_number(const DeviceTraits& traits) {
  std::uint64_t number = std::hash<std::string>()(traits.fabric);
  for (const std::string& network : traits.networks) number = mixed(number ^ std::hash<std::string>()(network));
  return static_cast<std::uint32_t>(number) | 1U;
}

// The sum of the digits of the number, written to the base `devices`.
std::size_t spread_over(std::size_t devices, std::size_t process) {
  if (devices < 2) return 0;
  std::size_t sum = 0;
  for (; process > 0; process /= devices) sum += process % devices;
  return sum % devices;
}

std::size_t process_of_node() {
  for (const char* const name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID", "PALS_LOCAL_RANKID"}) {
    const char* const text = secure_getenv(name);
    std::size_t number = 0;
    if (text == nullptr) continue;
    const auto [behind, error] = std::from_chars(text, text + std::strlen(text), number);
    if (error == std::errc() && *behind == '\0') return number;
  }
  return 0;
}

}  // namespace farside

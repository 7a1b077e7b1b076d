// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/devices.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "transport/base/files.hpp"
#include "transport/base/integers.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside {

namespace {

namespace fs = std::filesystem;

fs::path path_of(const std::string& name, const fs::path& sys) { return sys / "class/infiniband" / name; }

// The interfaces of the port, as the entries of its table of GIDs name them. InfiniBand ports name none there; their
// interfaces are those of the adapter's bus device.
std::set<std::string> interfaces_of(const fs::path& adapter, const fs::path& port) {
  std::set<std::string> names;
  for (const std::string& index : names_in(port / "gid_attrs/ndevs")) {
    if (std::string name = first_line(port / "gid_attrs/ndevs" / index); !name.empty()) names.insert(std::move(name));
  }
  if (names.empty()) std::ranges::copy(names_in(adapter / "device/net"), std::inserter(names, names.end()));
  return names;
}

// Link-local addresses of IPv6 do not count: each active interface has one, and it is of no use beyond its own link.
bool is_usable(const sockaddr& address) {
  if (address.sa_family == AF_INET) return true;
  return address.sa_family == AF_INET6 &&
         !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// The network of an address, by its mask: 10.1.0.0/24.
std::string network_of(const sockaddr& address, const sockaddr* mask) {
  SocketAddress network = *socket_address(&address, sizeof(sockaddr_in6));
  const auto bits = mask != nullptr ? socket_address(mask, sizeof(sockaddr_in6)) : std::nullopt;
  int length = 0;
  for (std::size_t i = 0; i < (address.sa_family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr)); ++i) {
    const std::uint8_t kept = bits ? bits->host[i] : 0xff;
    network.host[i] &= kept;
    length += std::popcount(kept);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.sa_family, network.host.data(), text.data(), text.size());
  return fmt::format("{}/{}", text.data(), length);
}

}  // namespace

std::vector<std::string> adapter_names(const fs::path& sys) { return names_in(sys / "class/infiniband"); }

InterfaceNetworks interface_networks() {
  InterfaceNetworks networks;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return networks;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, &freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr != nullptr && is_usable(*each->ifa_addr))
      networks[each->ifa_name].insert(network_of(*each->ifa_addr, each->ifa_netmask));
  }
  return networks;
}

DeviceTraits adapter_traits(const std::string& name, const InterfaceNetworks& interfaces, const fs::path& sys,
                            const fs::path& ipv4) {
  DeviceTraits link;
  const fs::path adapter = path_of(name, sys);
  if (std::error_code failed; !fs::exists(adapter, failed)) {
    const std::vector<std::string> others = adapter_names(sys);
    link.unusable = fmt::format("no adapter {} on this host, which has {}", name,
                                others.empty() ? "none" : fmt::format("{}", fmt::join(others, ", ")));
    return link;
  }
  const auto is_set = [&](const std::string& of, const char* what) {
    return std::strtol(first_line(ipv4 / of / what).c_str(), nullptr, 10) > 0;
  };
  bool usable = false, all_alone = true;
  std::vector<std::string> troubles;
  for (const std::string& number : names_in(adapter / "ports")) {
    const fs::path port = adapter / "ports" / number;
    const std::string state = first_line(port / "state");  // "4: ACTIVE"
    if (!state.starts_with("4:")) {
      const std::size_t word = std::min(state.find(' ') + 1, state.size());
      troubles.push_back(
          fmt::format("port {} is {}", number, state.empty() ? "in an unknown state" : state.substr(word)));
      continue;
    }
    link.rate = std::max(link.rate, std::strtod(first_line(port / "rate").c_str(), nullptr));  // "100 Gb/sec (4X EDR)"
    const std::string kind = first_line(port / "link_layer");
    const std::set<std::string> own = interfaces_of(adapter, port);
    bool has_address = own.empty();
    for (const std::string& interface : own) {
      const auto found = interfaces.find(interface);
      if (found == interfaces.end()) continue;
      has_address = true;
      for (const std::string& network : found->second) link.networks.insert(fmt::format("{} {}", kind, network));
      bool alone = false;
      for (const char* const what : {"arp_ignore", "arp_filter"})
        alone = alone || is_set("all", what) || is_set(interface, what);
      all_alone = all_alone && alone;
    }
    usable = usable || has_address;
    if (!has_address) troubles.push_back(fmt::format("no IP address on {} (port {})", fmt::join(own, " or "), number));
  }
  link.beside_others = all_alone && !link.networks.empty();
  if (!usable)
    link.unusable = fmt::format("adapter {}: {}", name,
                                troubles.empty() ? "no port" : fmt::format("{}", fmt::join(troubles, ", ")));
  return link;
}

bool is_emulated(const fi_info& info) {
  // RXE_VENDOR_ID and SIW_VENDOR_ID of Linux (drivers/infiniband/sw).
  constexpr std::string_view kVendors[] = {"0xffffff", "0x626d74"};
  if (info.nic == nullptr || info.nic->device_attr == nullptr || info.nic->device_attr->vendor_id == nullptr)
    return false;
  return std::ranges::find(kVendors, std::string_view(info.nic->device_attr->vendor_id)) != std::end(kVendors);
}

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
  if (address.empty()) return Nearness::kUnknown;
  const auto local = read_cpu_list(first_line(sys / "bus/pci/devices" / address / "local_cpulist"));
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

DeviceTraits device_traits(const fi_info& info, bool links, const std::filesystem::path& sys) {
  DeviceTraits traits;
  traits.beside_others = true;
  if (links) traits = adapter_traits(info.domain_attr->name, interface_networks(), sys);
  if (info.fabric_attr != nullptr && info.fabric_attr->name != nullptr) traits.fabric = info.fabric_attr->name;
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof own, &own) == 0) traits.nearness = nearness_of(pci_address(info), own, sys);
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
  std::vector<std::size_t> equal;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!is_like_first(all[i])) continue;
    if (nearest != Nearness::kUnknown && all[i].nearness > nearest) {
      nearest = all[i].nearness;
      equal.clear();
    }
    if (all[i].nearness == nearest) equal.push_back(i);
  }
  return equal[spread_over(equal.size(), process)];
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
    if (text != nullptr && parse_number(text, number)) return number;
  }
  return 0;
}

}  // namespace farside

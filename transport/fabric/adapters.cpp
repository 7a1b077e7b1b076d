// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/adapters.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <bit>
#include <cstdlib>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <span>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "transport/base/files.hpp"

namespace farside {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kActive = "4:";  // a port's state is "4: ACTIVE"

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
  std::array<unsigned char, sizeof(in6_addr)> bytes{}, bits{};
  const auto copy = [&](const sockaddr& from, std::span<unsigned char> into) {
    const auto* const host =
        from.sa_family == AF_INET
            ? reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in&>(from).sin_addr)
            : reinterpret_cast<const sockaddr_in6&>(from).sin6_addr.s6_addr;
    std::copy_n(host, into.size(), into.begin());
  };
  const std::size_t size = address.sa_family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr);
  copy(address, std::span(bytes).first(size));
  bits.fill(0xff);
  if (mask != nullptr && mask->sa_family == address.sa_family) copy(*mask, std::span(bits).first(size));
  int length = 0;
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] &= bits[i];
    length += std::popcount(bits[i]);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.sa_family, bytes.data(), text.data(), text.size());
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

std::set<std::string> interfaces_with_address() {
  std::set<std::string> names;
  for (const auto& [name, networks] : interface_networks()) names.insert(name);
  return names;
}

AdapterLink adapter_link(const std::string& name, const InterfaceNetworks& interfaces, const fs::path& sys,
                         const fs::path& ipv4) {
  AdapterLink link;
  bool all_alone = true;
  const auto is_set = [&](const std::string& of, const char* what) {
    return std::strtol(first_line(ipv4 / of / what).c_str(), nullptr, 10) > 0;
  };
  const fs::path adapter = path_of(name, sys);
  for (const std::string& number : names_in(adapter / "ports")) {
    const fs::path port = adapter / "ports" / number;
    if (!first_line(port / "state").starts_with(kActive)) continue;
    link.rate = std::max(link.rate, std::strtod(first_line(port / "rate").c_str(), nullptr));  // "100 Gb/sec (4X EDR)"
    const std::string kind = first_line(port / "link_layer");
    for (const std::string& interface : interfaces_of(adapter, port)) {
      const auto found = interfaces.find(interface);
      if (found == interfaces.end()) continue;
      for (const std::string& network : found->second) link.networks.insert(fmt::format("{} {}", kind, network));
      bool alone = false;
      for (const char* const what : {"arp_ignore", "arp_filter"})
        alone = alone || is_set("all", what) || is_set(interface, what);
      all_alone = all_alone && alone;
    }
  }
  link.answers_alone = all_alone && !link.networks.empty();
  return link;
}

std::optional<std::string> why_adapter_unusable(const std::string& name, const std::set<std::string>& with_address,
                                                const fs::path& sys) {
  const fs::path adapter = path_of(name, sys);
  std::error_code failed;
  if (!fs::exists(adapter, failed)) {
    const std::vector<std::string> others = adapter_names(sys);
    return fmt::format("no adapter {} on this host, which has {}", name,
                       others.empty() ? "none" : fmt::format("{}", fmt::join(others, ", ")));
  }
  std::string inactive, without_address;
  for (const std::string& number : names_in(adapter / "ports")) {
    const fs::path port = adapter / "ports" / number;
    const std::string state = first_line(port / "state");
    if (!state.starts_with(kActive)) {
      inactive += fmt::format(
          "{}port {} is {}", inactive.empty() ? "" : ", ", number,
          state.empty() ? "in an unknown state" : state.substr(std::min(state.find(' ') + 1, state.size())));
      continue;
    }
    const std::set<std::string> interfaces = interfaces_of(adapter, port);
    const bool has_address =
        std::ranges::any_of(interfaces, [&](const std::string& each) { return with_address.contains(each); });
    if (has_address || interfaces.empty()) return std::nullopt;
    without_address += fmt::format("{}no IP address on {} (port {})", without_address.empty() ? "" : ", ",
                                   fmt::join(interfaces, " or "), number);
  }
  if (without_address.empty()) return fmt::format("adapter {}: {}", name, inactive.empty() ? "no port" : inactive);
  return fmt::format("adapter {}: {}", name, without_address);
}

bool is_emulated(const fi_info& info) {
  // RXE_VENDOR_ID and SIW_VENDOR_ID of Linux (drivers/infiniband/sw).
  constexpr std::string_view kVendors[] = {"0xffffff", "0x626d74"};
  if (info.nic == nullptr || info.nic->device_attr == nullptr || info.nic->device_attr->vendor_id == nullptr)
    return false;
  return std::ranges::find(kVendors, std::string_view(info.nic->device_attr->vendor_id)) != std::end(kVendors);
}

}  // namespace farside

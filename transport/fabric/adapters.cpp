// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/adapters.hpp"

#include <algorithm>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>
#include <system_error>

#include <fmt/format.h>

#include "transport/base/sysfs.hpp"

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

}  // namespace

std::vector<std::string> adapter_names(const fs::path& sys) { return names_in(sys / "class/infiniband"); }

std::set<std::string> interfaces_with_address() {
  std::set<std::string> names;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return names;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, &freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr != nullptr && is_usable(*each->ifa_addr)) names.insert(each->ifa_name);
  }
  return names;
}

std::optional<std::string> adapter_trouble(const std::string& name, const std::set<std::string>& with_address,
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
    const std::string state = first_line(port / "state");  // "4: ACTIVE"
    if (!state.starts_with("4:")) {
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

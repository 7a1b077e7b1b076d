// SPDX-License-Identifier: BSD-3-Clause
// The RDMA adapters that Linux knows (sysfs, Documentation/ABI/stable/sysfs-class-infiniband), and what keeps them from
// carrying connections. libfabric leaves out such adapters without a reason; these functions find it for the user.
//
// Thread safety: any thread. Cost: some ten files of sysfs per adapter.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <rdma/fabric.h>

namespace farside {

// Returns the names of the adapters, emulated ones included, in ascending order.
std::vector<std::string> adapter_names(const std::filesystem::path& sys = "/sys");

// The names of the network interfaces that have an IP address other than a link-local one, each with the IP networks of
// these addresses, such as 10.1.0.0/24 (getifaddrs(3)).
using InterfaceNetworks = std::map<std::string, std::set<std::string>>;
InterfaceNetworks interface_networks();
// Their names only.
std::set<std::string> interfaces_with_address();

// What the active ports of an adapter are connected to.
struct AdapterLink {
  double rate = 0;                 // of the fastest one, in Gb/s
  std::set<std::string> networks;  // kinds of link, with the IP networks: "Ethernet 10.1.0.0/24"
  // Whether only the interface itself answers the question who has its address (arp_ignore or arp_filter, ip-sysctl of
  // Linux). Otherwise any interface on the same network may, and connections then reach that one's adapter in vain.
  bool answers_alone = false;
};
AdapterLink adapter_link(const std::string& name, const InterfaceNetworks& interfaces = interface_networks(),
                         const std::filesystem::path& sys = "/sys",
                         const std::filesystem::path& ipv4 = "/proc/sys/net/ipv4/conf");

// Returns why the adapter cannot carry connections: it is not there, no port is active, or no interface of an active
// port has an IP address, which the connection manager needs (rdma_cm(7)). Returns nothing if none of this is so.
std::optional<std::string> why_adapter_unusable(const std::string& name,
                                                const std::set<std::string>& with_address = interfaces_with_address(),
                                                const std::filesystem::path& sys = "/sys");

// Returns whether the adapter is emulated by the kernel (rdma_rxe or siw), by the vendor that its driver names.
bool is_emulated(const fi_info& info);

}  // namespace farside

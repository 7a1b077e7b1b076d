// SPDX-License-Identifier: BSD-3-Clause
// The network devices of this machine: RDMA adapters, what keeps them from carrying connections, and the choice among
// several devices: of those on the network of the fastest one, the nearest; if several are equally near, the processes
// of a node are spread over them.
//
// Thread safety: any thread. Cost: some ten files of sysfs per adapter (Documentation/ABI/stable/
// sysfs-class-infiniband).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <sched.h>
#include <set>
#include <span>
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

// Returns whether the adapter is emulated by the kernel (rdma_rxe or siw), by the vendor that its driver names.
bool is_emulated(const fi_info& info);

// How many of the processors of this process (sched_getaffinity(2)) are local to a device, as sysfs names them. In
// ascending order. Unknown: Linux does not say (no bus, or no NUMA).
enum class Nearness { kUnknown, kFar, kPartly, kNear };

// Reads processor numbers from a list as Linux writes it in sysfs and /proc ("0-3,8"); none if the text is not one.
std::optional<std::set<int>> read_cpu_list(std::string_view text);

// `own`: processors; `address`: of a PCI device, "0000:3b:00.0".
Nearness nearness_of(const std::string& address, const cpu_set_t& own, const std::filesystem::path& sys = "/sys");

// The PCI address of the device, as above; empty if libfabric does not say.
std::string pci_address(const fi_info& info);

// The facts of a device on which the choice depends.
struct DeviceTraits {
  std::string fabric;              // libfabric's name of its network
  std::set<std::string> networks;  // of an adapter, kinds of link, with the IP networks: "Ethernet 10.1.0.0/24"
  double rate = 0;                 // of an adapter's fastest port, in Gb/s
  // Whether it can be used while other processes use others on its network. An adapter can, if only the interface
  // itself answers the question who has its address (arp_ignore or arp_filter, ip-sysctl of Linux). Otherwise any
  // interface on the same network may, and connections then reach that one's adapter in vain.
  bool beside_others = false;
  Nearness nearness = Nearness::kUnknown;
  // Why an adapter cannot carry connections: it is not there, no port is active, or no interface of an active port has
  // an IP address, which the connection manager needs (rdma_cm(7)). Empty if none of this is so. libfabric leaves out
  // such adapters without a reason.
  std::string unusable = {};
};
// Returns rate, networks, beside_others and unusable of an adapter.
DeviceTraits adapter_traits(const std::string& name, const InterfaceNetworks& interfaces = interface_networks(),
                            const std::filesystem::path& sys = "/sys",
                            const std::filesystem::path& ipv4 = "/proc/sys/net/ipv4/conf");
// `links`: whether the device is an adapter, of which sysfs knows networks and rate.
DeviceTraits device_traits(const fi_info& info, bool links, const std::filesystem::path& sys = "/sys");

// Returns the index of the device that process number `process` of a node takes. `all`: not empty, in libfabric's
// order, the same in all processes of the node. A device is taken instead of the first of the fastest ones only if it
// is as fast, is not known to be farther away, and is on the same network, since other ranks may take that one. Both
// must then allow for the other.
std::size_t choose_device(std::span<const DeviceTraits> all, std::size_t process);

// Returns a number below `devices` for process number `process` of a node, such that `devices` consecutive processes
// take each once, and every 2nd (4th, ...) process of a node does so too: launchers bind consecutive processes to one
// socket or to different ones.
std::size_t spread_over(std::size_t devices, std::size_t process);

// The number of this process among those of its node, which the launcher has put into the environment (Open MPI,
// Hydra, Slurm, Flux, PALS); 0 if it has not.
std::size_t process_of_node();

}  // namespace farside

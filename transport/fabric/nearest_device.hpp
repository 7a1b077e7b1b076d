// SPDX-License-Identifier: BSD-3-Clause
// How near a network device is to this process: compares the processors that sysfs names as local to the device with
// those that this process may run on (sched_getaffinity(2)).
#pragma once

#include <sched.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rdma/fabric.h>

namespace farside {

// In ascending order. Unknown: Linux does not say (no bus, or no NUMA).
enum class Nearness { kUnknown, kFar, kPartly, kNear };

// Reads processor numbers from a cpulist of sysfs ("0-3,8"); none if the text is not one.
std::optional<std::vector<int>> read_cpu_list(std::string_view text);

// Near: all processors of `own` are local to the device; partly: some are. `address`: of a PCI device,
// "0000:3b:00.0".
Nearness nearness_of(const std::string& address, const cpu_set_t& own, const std::filesystem::path& sys = "/sys");

// The PCI address of the device, as above; empty if libfabric does not say.
std::string pci_address(const fi_info& info);

// Nearness to the processors that this process may run on at the time of the call.
Nearness nearness_of(const fi_info& info, const std::filesystem::path& sys = "/sys");

// Returns whether `info` is preferred to `other`, which libfabric lists first: it must be known to be nearer, and on
// the same network, since ranks on other sockets may choose `other`.
bool is_nearer(const fi_info& info, const fi_info& other, const std::filesystem::path& sys = "/sys");

}  // namespace farside

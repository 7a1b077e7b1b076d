// SPDX-License-Identifier: BSD-3-Clause
// How near a network device is to this process, by what Linux says of the device on the bus and of the processors that
// this process may run on.
#pragma once

#include <sched.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rdma/fabric.h>

namespace farside {

// The nearer, the greater. Unknown: Linux knows nothing of the device (no bus, or no NUMA).
enum class Nearness { kUnknown, kFar, kPartly, kNear };

// Processor numbers as in a cpulist of sysfs ("0-3,8"); none if it is not one.
std::optional<std::vector<int>> read_cpu_list(std::string_view text);

// Near: all processors of `own` are the device's own; partly: some are. `address`: of a PCI device, "0000:3b:00.0".
Nearness nearness_of(const std::string& address, const cpu_set_t& own, const std::filesystem::path& sys = "/sys");

// Where the device is on the bus, as above; empty if libfabric does not say.
std::string pci_address(const fi_info& info);

// Of this process, at the time of the call.
Nearness nearness_of(const fi_info& info, const std::filesystem::path& sys = "/sys");

// Whether `info` should be taken rather than `other`, which libfabric names first: it is known to be nearer, and of the
// same network, as ranks on other sockets may choose otherwise.
bool is_nearer(const fi_info& info, const fi_info& other, const std::filesystem::path& sys = "/sys");

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The description of a host in a result: its kernel, its libfabric, and its RDMA adapters with their firmware. The
// benchmark programs gather it from the ranks' hosts. Uses neither MPI nor farside's libraries.
//
//   host, kernel, libfabric
//   locked_memory   bytes that this process may lock; null: unlimited
//   adapters[]      adapter (mlx5_0), type, board, firmware, driver, ports[]; empty texts: the driver does not say it
//     ports[]       port, state (4: ACTIVE), rate (100 Gb/sec (4X EDR)), link_layer (InfiniBand, Ethernet)
//
// Thread safety: any thread. Cost: some ten files of sysfs per adapter. Source: Documentation/ABI/stable/
// sysfs-class-infiniband of Linux.
#pragma once

#include <filesystem>
#include <string>

#include "tools/common/text.hpp"

namespace farside::tools {

Json host_facts(const std::filesystem::path& sys = "/sys");

// One line: "mlx5_0 (MT_0000000223, firmware 20.31.1014, port 1 ACTIVE, 100 Gb/sec (4X EDR), InfiniBand)".
std::string adapter_text(const Json& adapter);

// The names of this machine in results and reports. Thread safety: any thread.

// "Debian GNU/Linux 12 (bookworm)", by os-release(5); "unknown system" without that file.
std::string system_name();
// The model name in /proc/cpuinfo; "unknown processor" if there is none.
std::string processor_name();

}  // namespace farside::tools

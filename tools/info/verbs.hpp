// SPDX-License-Identifier: BSD-3-Clause
// Why InfiniBand verbs are available or not: the devices, and the first obstacle.
#pragma once

#include <string>
#include <vector>

namespace farside::tools {

struct VerbsReport {
  std::vector<std::string> devices;  // mlx5_0, rxe0
  bool available = false;            // libfabric offers the verbs provider here
  std::string why;                   // if not: the first obstacle
  std::string advice;
};

// What libfabric reports.
struct LibfabricVerbs {
  bool offered = false;  // fi_getinfo(3) offers it
  bool built_in = true;  // this libfabric was built with it
  std::string filter;    // FI_PROVIDER; empty: unset
};

// `sys` and `dev` are /sys and /dev.
VerbsReport find_verbs(const LibfabricVerbs& libfabric, const std::string& sys = "/sys",
                       const std::string& dev = "/dev");

}  // namespace farside::tools

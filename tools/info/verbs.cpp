// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/info/info.hpp"
#include "transport/base/sysfs.hpp"
#include "transport/fabric/adapters.hpp"

namespace farside::tools {
namespace {

namespace fs = std::filesystem;

// Returns the cause if the file cannot be opened, else an empty text.
std::string barred(const fs::path& device) {
  if (access(device.c_str(), R_OK | W_OK) == 0) return {};
  return std::strerror(errno);
}

}  // namespace

VerbsReport find_verbs(const LibfabricVerbs& libfabric, const std::string& sys, const std::string& dev) {
  VerbsReport report;
  const fs::path classes = fs::path(sys) / "class";
  const fs::path nodes = fs::path(dev) / "infiniband";
  report.devices = adapter_names(sys);
  const auto because = [&](std::string why, std::string advice) {
    report.why = std::move(why);
    report.advice = std::move(advice);
    return report;
  };
  if (libfabric.offered) {
    report.available = true;
    return report;
  }
  const std::string without = libfabric.built_in ? "" : "; and this libfabric is built without its verbs provider";
  if (report.devices.empty()) {
    return because(fmt::format("no RDMA device: {} {}{}", (classes / "infiniband").string(),
                               fs::exists(classes / "infiniband") ? "is empty" : "does not exist", without),
                   "where there is an adapter, load its driver (mlx5_ib, irdma, bnxt_re, ...); without one, Soft-RoCE "
                   "makes one of a network interface: rdma link add rxe0 type rxe netdev eth0");
  }
  std::vector<std::string> files;
  for (const std::string& name : names_in(classes / "infiniband_verbs")) {
    if (name.starts_with("uverbs")) files.push_back(name);
  }
  if (files.empty()) {
    return because(fmt::format("{} is there, but the kernel offers no verbs for it", fmt::join(report.devices, ", ")),
                   "modprobe ib_uverbs");
  }
  files.emplace_back("rdma_cm");  // the provider connects through this device
  for (const std::string& name : files) {
    const std::string file = (nodes / name).string();
    const std::string cause = barred(file);
    if (cause.empty()) continue;
    if (!fs::exists(file)) {
      return because(fmt::format("{}: {}", file, cause),
                     name == "rdma_cm" ? "modprobe rdma_ucm; in a container: --device=/dev/infiniband"
                                       : "in a container: --device=/dev/infiniband");
    }
    return because(
        fmt::format("no permission for {}: {}", file, cause),
        "it must be readable and writable for the user (often: be a member of the group rdma; udev rules set it)");
  }
  if (!libfabric.built_in) {
    return because("this libfabric is built without its verbs provider",
                   "build it with --enable-verbs, or install another");
  }
  if (!libfabric.filter.empty()) {
    return because(fmt::format("FI_PROVIDER='{}' may leave it out", libfabric.filter), "unset FI_PROVIDER");
  }
  std::vector<std::string> troubles;
  for (const std::string& device : report.devices) {
    if (auto trouble = why_adapter_unusable(device, interfaces_with_address(), sys)) troubles.push_back(*trouble);
  }
  if (troubles.size() == report.devices.size()) {
    return because(fmt::format("{}", fmt::join(troubles, "; ")),
                   "look at the cable, the switch and (InfiniBand) the subnet manager (ibv_devinfo shows the ports); "
                   "give the interface an IP address (ip addr)");
  }
  return because(fmt::format("libfabric's verbs provider takes none of {}", fmt::join(report.devices, ", ")),
                 "FI_LOG_LEVEL=info fi_info -p verbs says what it tried");
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/child.hpp"
#include "tools/info/info.hpp"
#include "transport/base/files.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/settings.hpp"
#include "transport/fabric/connecting.hpp"
#include "transport/fabric/devices.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/node/segment.hpp"
#include "transport/process.hpp"

namespace farside::tools {
namespace {

// A limit of setrlimit(2), which is enough if there is none.
Limit from_system(int resource, const char* name, const char* meaning, const char* advice = "") {
  Limit result;
  result.name = name;
  result.meaning = meaning;
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return result;
  if (limit.rlim_cur != RLIM_INFINITY) result.value = limit.rlim_cur;
  if (limit.rlim_max != RLIM_INFINITY) result.most = limit.rlim_max;
  result.enough = result.value == kNoLimit;
  if (!result.enough) result.advice = advice;
  return result;
}

Limit locked_memory() {
  Limit limit = from_system(RLIMIT_MEMLOCK, "locked memory",
                            "RDMA adapters (verbs) lock the memory of windows; mapped, cma and TCP lock nothing");
  if (!limit.enough) {
    limit.advice = fmt::format(
        "{} is all that windows over an RDMA adapter could have{}: ulimit -l unlimited where the ranks start{}; for "
        "good: '* - memlock unlimited' in /etc/security/limits.conf, under Slurm LimitMEMLOCK=infinity in the unit of "
        "slurmd",
        limit_text(limit.value, true), limit.value < (std::uint64_t{64} << 20) ? ", too little for most" : "",
        limit.most == kNoLimit ? ""
                               : fmt::format(" (this user may raise it to {} only)", limit_text(limit.most, true)));
  }
  return limit;
}

Limit shared_memory() {
  const AvailableMemory available = available_shared_memory();
  Limit limit;
  limit.name = "shared memory";
  limit.value = limit.most = available.bytes;
  limit.meaning =
      fmt::format("windows of MPI_Win_allocate, of all ranks on the node together, as {} has it left", available.limit);
  limit.enough = available.bytes >= (std::uint64_t{256} << 20);
  if (!limit.enough) limit.advice = "end what uses the memory, or give the job more (cgroup: memory.max)";
  return limit;
}

Limit file_size() {
  Limit limit =
      from_system(RLIMIT_FSIZE, "file size", "the memory of a window of MPI_Win_allocate, of a whole node, is a file");
  if (!limit.enough) limit.advice = fmt::format("ulimit -f {}", limit.most == kNoLimit ? "unlimited" : "higher");
  return limit;
}

Limit address_space() {
  return from_system(RLIMIT_AS, "address space", "each rank maps the memory of all ranks on its node",
                     "ulimit -v unlimited");
}

Limit descriptors() {
  Limit limit = from_system(RLIMIT_NOFILE, "descriptors",
                            "one for each connection over TCP, and a few; farside raises the limit as far as it may");
  limit.bytes = false;
  const std::size_t connections = connections_within(limit.most, 0);
  limit.enough = connections >= Settings{}.connections;
  if (!limit.enough) {
    limit.advice = fmt::format(
        "enough for some {} connections at a time, to more ranks in turn: more by 'nofile' in "
        "/etc/security/limits.conf",
        connections);
  }
  return limit;
}

Limit dev_shm() {
  Limit limit;
  limit.name = "/dev/shm";
  limit.meaning = "nothing for farside; Open MPI and MPICH keep their own queues there";
  struct statvfs info {};
  statvfs("/dev/shm", &info);  // without it, all are 0
  limit.value = std::uint64_t{info.f_bavail} * info.f_frsize;
  limit.most = std::uint64_t{info.f_blocks} * info.f_frsize;
  limit.enough = limit.value > (std::uint64_t{64} << 20);
  if (!limit.enough) {
    limit.advice =
        "the runtimes may fail to start or die of SIGBUS: make it larger (docker run --shm-size=1g; mount -o "
        "remount,size=50% /dev/shm)";
  }
  return limit;
}

}  // namespace

std::vector<Limit> find_limits() {
  return {locked_memory(), shared_memory(), file_size(), address_space(), descriptors(), dev_shm()};
}

Json limit_facts() {
  Json all = Json::array();
  for (const Limit& limit : find_limits()) {
    const auto number = [](std::uint64_t value) { return value == kNoLimit ? Json(nullptr) : Json(value); };
    all.push_back({{"limit", limit.name},
                   {"value", number(limit.value)},
                   {"most", number(limit.most)},
                   {"unit", limit.bytes ? "bytes" : "descriptors"},
                   {"enough", limit.enough},
                   {"meaning", limit.meaning},
                   {"advice", limit.advice}});
  }
  return all;
}

std::string limit_text(std::uint64_t value, bool bytes) {
  if (value == kNoLimit) return "unlimited";
  if (!bytes || value < 1024) return fmt::format("{}", value);
  static constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  double scaled = static_cast<double>(value) / 1024;
  std::size_t unit = 0;
  for (; scaled >= 1024 && unit + 1 < kUnits.size(); ++unit) scaled /= 1024;
  return scaled < 100 && scaled != static_cast<double>(static_cast<int>(scaled))
             ? fmt::format("{:.1f} {}", scaled, kUnits[unit])
             : fmt::format("{:.0f} {}", scaled, kUnits[unit]);
}

// ---- routes ----

namespace {

constexpr std::size_t kBytes = 1 << 16;

// Runs a trial in a child of this process. Returns the error of the trial or of the child; empty: none.
std::string error_in_child(const std::function<std::string()>& trial) {
  const Attempt tried = attempt(trial);
  return tried.answered ? tried.answer : tried.end;
}

}  // namespace

RouteReport try_mapped() {
  RouteReport report;
  report.how = info(RouteKind::kMapped).how;
  Result<Segment> segment = make_segment(kBytes);
  if (!segment) {
    report.why = segment.error().text;
    report.advice = "raise the limit named, or leave the node more memory";
    return report;
  }
  auto* word = reinterpret_cast<std::uint64_t*>(segment.value().mapping.base());
  const std::uint64_t nonce = random_bits();
  *word = nonce;
  const int fd = segment.value().fd.get();
  report.why = error_in_child([parent = getpid(), fd, nonce] {
    // The child maps the segment as a peer does, and does not use the inherited mapping.
    const Result<Mapping> mapping = map_peer_segment(parent, fd, kBytes);
    if (!mapping) return mapping.error().text;
    auto* theirs = reinterpret_cast<std::uint64_t*>(mapping.value().base());
    if (*theirs != nonce) return std::string("the memory mapped is another process's");
    *theirs = ~nonce;
    return std::string();
  });
  if (report.why.empty() && *word != ~nonce) report.why = "what one process wrote the other did not see";
  report.possible = report.why.empty();
  if (!report.possible)
    report.advice =
        "ranks must share a pid namespace and may open each other's /proc/PID/fd: start them in one container";
  return report;
}

RouteReport try_cma() {
  static constexpr std::uint64_t kOld = 0x6661727369646531, kNew = 0x6661727369646532;
  volatile std::uint64_t word = kOld;
  const auto address = reinterpret_cast<std::uint64_t>(&word);
  Process::instance().peer_permission().need();
  // The child is no ancestor of this process, and so has no more permission than another rank.
  std::string error = error_in_child([parent = getpid(), address] {
    std::uint64_t seen = 0;
    if (Status status = read_process_memory(parent, address, &seen, sizeof seen); !status) return status.error().text;
    if (seen != kOld) return std::string("what was read is not what is there");
    if (Status status = write_process_memory(parent, address, &kNew, sizeof kNew); !status) return status.error().text;
    return std::string();
  });
  if (error.empty() && word != kNew) error = "what was written is not there";
  return error.empty() ? RouteReport{true, info(RouteKind::kCma).how, {}, {}} : explain_cma(error, find_cma_limits());
}

Json route_facts(const Settings& settings, const RouteReport* fabric) {
  Json facts = Json::array();
  for (std::size_t i = 0; i < kRouteKinds; ++i) {
    const auto kind = static_cast<RouteKind>(i);
    const RouteInfo& route = kRoutes[i];
    if (!route.allowed_by_name || (!route.immediate && fabric == nullptr)) continue;
    const RouteReport report = !route.immediate ? *fabric : kind == RouteKind::kCma ? try_cma() : try_mapped();
    const bool allowed = settings.allows(kind) && (kind != RouteKind::kCma || settings.allows(RouteKind::kMapped));
    facts.push_back({{"route", route.name},
                     {"possible", report.possible},
                     {"allowed", allowed},
                     {"how", report.how},
                     {"why", report.why},
                     {"advice", report.advice}});
  }
  return facts;
}

CmaLimits find_cma_limits(const std::string& proc) {
  CmaLimits limits;
  std::ifstream yama(proc + "/sys/kernel/yama/ptrace_scope");
  if (int scope = 0; yama >> scope) limits.ptrace_scope = scope;
  std::ifstream status(proc + "/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Seccomp:")) limits.seccomp = std::atoi(line.c_str() + 8);
  limits.dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
  return limits;
}

RouteReport explain_cma(const std::string& error, const CmaLimits& limits) {
  RouteReport report;
  report.how = info(RouteKind::kCma).how;
  report.why = error;
  const auto cause = [&](const std::string& why, const std::string& advice) {
    report.why += "; " + why;
    report.advice = advice;
  };
  const bool missing = error.find(std::strerror(ENOSYS)) != std::string::npos;
  if (limits.ptrace_scope.value_or(0) >= 2) {
    cause(
        fmt::format("kernel.yama.ptrace_scope is {}, which forbids it to all but administrators", *limits.ptrace_scope),
        *limits.ptrace_scope >= 3
            ? "it cannot be lowered before the next boot: set kernel.yama.ptrace_scope = 1 in /etc/sysctl.d"
            : "sysctl -w kernel.yama.ptrace_scope=1 (farside allows its peers what 1 asks for)");
  } else if (limits.seccomp == 2) {
    cause("a seccomp filter is on this process, as containers have it",
          "allow process_vm_readv and process_vm_writev: docker run --cap-add=SYS_PTRACE, or --security-opt "
          "seccomp=PROFILE with both");
  } else if (missing) {
    cause("the kernel is built without CONFIG_CROSS_MEMORY_ATTACH", "use a kernel with it");
  } else if (!limits.dumpable) {
    cause("this process is not dumpable (prctl, a set-user-id program, or one that may not be read)",
          "make the program readable (chmod a+r), without set-user-id and file capabilities");
  } else {
    cause(
        "a security module or a user namespace forbids it",
        "start all ranks as one user, in one user namespace, and look at the rules of SELinux or AppArmor for ptrace");
  }
  return report;
}

// ---- verbs ----

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
  for (const std::string& name : names_in(classes / "infiniband_verbs"))
    if (name.starts_with("uverbs")) files.push_back(name);
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
  if (!libfabric.filter.empty())
    return because(fmt::format("FI_PROVIDER='{}' may leave it out", libfabric.filter), "unset FI_PROVIDER");
  std::vector<std::string> troubles;
  for (const std::string& device : report.devices)
    if (auto trouble = adapter_traits(device, interface_networks(), sys).unusable; !trouble.empty())
      troubles.push_back(std::move(trouble));
  if (troubles.size() == report.devices.size()) {
    return because(fmt::format("{}", fmt::join(troubles, "; ")),
                   "look at the cable, the switch and (InfiniBand) the subnet manager (ibv_devinfo shows the ports); "
                   "give the interface an IP address (ip addr)");
  }
  return because(fmt::format("libfabric's verbs provider takes none of {}", fmt::join(report.devices, ", ")),
                 "FI_LOG_LEVEL=info fi_info -p verbs says what it tried");
}

}  // namespace farside::tools

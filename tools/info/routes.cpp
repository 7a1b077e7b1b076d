// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sys/prctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/child.hpp"
#include "tools/info/info.hpp"
#include "transport/base/random.hpp"
#include "transport/node/open_to_peers.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/node/segment.hpp"

namespace farside::tools {
namespace {

constexpr const char* kMapped = "shared memory: a memfd that the on-node peers map (no file in /dev/shm)";
constexpr const char* kCma = "process_vm_readv and process_vm_writev, for memory that the program allocated by itself";
constexpr std::size_t kBytes = 1 << 16;

// Runs a trial in a child of this process. Returns the error of the trial or of the child; empty: none.
std::string error_in_child(const std::function<std::string()>& trial) {
  const Attempt tried = attempt(trial);
  return tried.answered ? tried.answer : tried.end;
}

}  // namespace

RouteReport try_mapped() {
  RouteReport report;
  report.how = kMapped;
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
  PeerPermission::instance().need();
  // The child is no ancestor of this process, and so has no more permission than another rank.
  std::string error = error_in_child([parent = getpid(), address] {
    std::uint64_t seen = 0;
    if (Status status = read_process_memory(parent, address, &seen, sizeof seen); !status) return status.error().text;
    if (seen != kOld) return std::string("what was read is not what is there");
    if (Status status = write_process_memory(parent, address, &kNew, sizeof kNew); !status) return status.error().text;
    return std::string();
  });
  if (error.empty() && word != kNew) error = "what was written is not there";
  return error.empty() ? RouteReport{true, kCma, {}, {}} : explain_cma(error, find_cma_limits());
}

Json route_facts(const char* route, bool allowed, const RouteReport& report) {
  return {{"route", route},    {"possible", report.possible}, {"allowed", allowed},
          {"how", report.how}, {"why", report.why},           {"advice", report.advice}};
}

CmaLimits find_cma_limits(const std::string& proc) {
  CmaLimits limits;
  std::ifstream yama(proc + "/sys/kernel/yama/ptrace_scope");
  if (int scope = 0; yama >> scope) limits.ptrace_scope = scope;
  std::ifstream status(proc + "/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Seccomp:")) limits.seccomp = std::atoi(line.c_str() + 8);
  }
  limits.dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
  return limits;
}

RouteReport explain_cma(const std::string& error, const CmaLimits& limits) {
  RouteReport report;
  report.how = kCma;
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

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <fmt/format.h>

#include "tools/info/info.hpp"
#include "transport/base/settings.hpp"
#include "transport/fabric/descriptor_limit.hpp"
#include "transport/node/segment.hpp"

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
  if (statvfs("/dev/shm", &info) != 0) {
    limit.value = limit.most = 0;
  } else {
    limit.value = std::uint64_t{info.f_bavail} * info.f_frsize;
    limit.most = std::uint64_t{info.f_blocks} * info.f_frsize;
  }
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

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// The parts of `farside info`: what this machine has and allows, what farside uses of it, and why. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/common/text.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {

// ---- the limits of this process that matter to windows ----
inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

struct Limit {
  std::string name;                // locked memory
  std::uint64_t value = kNoLimit;  // bytes, or a number
  std::uint64_t most = kNoLimit;   // the value to which this user may raise it
  bool bytes = true;
  bool enough = true;
  std::string meaning;  // what farside uses of it
  std::string advice;   // what to change; empty if enough
};
std::vector<Limit> find_limits();
// The same as the JSON of `farside info` has them.
Json limit_facts();

// 8 MiB, 20000, unlimited
std::string limit_text(std::uint64_t value, bool bytes);
// The same of the value of a limit in JSON.
inline std::string limit_text(const Json& limit) {
  const Json& value = limit.at("value");
  return limit_text(value.is_null() ? kNoLimit : value.get<std::uint64_t>(), limit.at("unit") == "bytes");
}

// ---- the routes to an on-node peer's memory, as found by trials between two processes ----
struct RouteReport {
  bool possible = false;
  std::string how;     // the mechanism
  std::string why;     // if not possible: the cause
  std::string advice;  // if not possible: what to change
};
RouteReport try_mapped();
RouteReport try_cma();
// The routes of FARSIDE_ROUTES as the JSON of `farside info` has them. `fabric`: the report of the routes between
// nodes, which are left out if it is null.
Json route_facts(const Settings& settings, const RouteReport* fabric);

// The settings that may forbid process_vm_readv and process_vm_writev.
struct CmaLimits {
  std::optional<int> ptrace_scope;  // kernel.yama.ptrace_scope; nothing: no Yama
  int seccomp = 0;                  // of this process, as /proc/self/status has it: 0 none, 1 strict, 2 a filter
  bool dumpable = true;             // prctl(2), PR_GET_DUMPABLE
};
CmaLimits find_cma_limits(const std::string& proc = "/proc");

// Returns cause and advice for the error text of an attempt.
RouteReport explain_cma(const std::string& error, const CmaLimits& limits);

// ---- whether InfiniBand verbs are available, and the first obstacle ----
struct VerbsReport {
  std::vector<std::string> devices;  // mlx5_0, rxe0
  bool available = false;            // libfabric offers the verbs provider here
  std::string why;                   // if not: the first obstacle
  std::string advice;
};

// Facts that libfabric reports.
struct LibfabricVerbs {
  bool offered = false;  // fi_getinfo(3) offers it
  bool built_in = true;  // this libfabric was built with it
  std::string filter;    // FI_PROVIDER; empty: unset
};

// `sys` and `dev` are /sys and /dev.
VerbsReport find_verbs(const LibfabricVerbs& libfabric, const std::string& sys = "/sys",
                       const std::string& dev = "/dev");

// ---- the report ----

// How farside judges one libfabric provider with these settings, and why: an element of "providers". The answers come
// from the choice itself and from an endpoint that is opened for the purpose.
Json probe_provider(const std::string& name, const Settings& settings);

// Collects it all as JSON; tools/docs/commands.md describes the fields. Takes a second or two, since each
// provider is tried in its own process.
Json gather_info(const std::string& library_folder);

// Formats the same as text.
std::string info_text(const Json& info);

}  // namespace farside::tools

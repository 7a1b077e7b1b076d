// SPDX-License-Identifier: BSD-3-Clause
// The FARSIDE_* environment variables. One table (settings.cpp) has the name, default, allowed values, help and parser
// of each. Parsing, error messages, `farside --help` and farside(7) use this table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/base/result.hpp"

namespace farside {

// The extent of checking of MPI's rules. kWarn: as kOn, but broken rules are reported only where the call can be
// carried out.
enum class Check : int { kOff, kWarn, kOn, kStrict };

struct Settings {
  // FARSIDE_ROUTES: the allowed routes to a peer's memory. (cma needs mapped as well.)
  RouteSet routes = kAllRoutes;
  bool allows(RouteKind kind) const { return (routes & bit(kind)) != 0; }
  // FARSIDE_PROVIDER: a libfabric provider, as in fi_info; empty: farside chooses.
  std::string provider;
  // FARSIDE_DEVICE: one of the provider's devices (libfabric: domains); empty: farside chooses.
  std::string device;
  // FARSIDE_NIC_ATOMICS: whether control words may be changed by atomics of network adapters.
  bool nic_atomics = true;
  // FARSIDE_HUGE_PAGES: whether large segments ask for transparent huge pages.
  bool huge_pages = false;
  // FARSIDE_OVERCOMMIT: whether windows may be larger than the free memory.
  bool overcommit = false;
  // FARSIDE_CONNECTIONS: the limit, where the share of what the node has is not smaller; 0: no limit.
  std::uint32_t connections = 1024;
  // FARSIDE_PEER_TIMEOUT, in seconds; 0: none.
  std::uint32_t peer_timeout = 60;
  // FARSIDE_HANG: seconds after which a wait is reported (base/waiter.hpp); 0: never.
  std::uint32_t hang = 60;
  // FARSIDE_CHECK
  Check check = Check::kOn;
  // FARSIDE_LOG
  LogLevel log = LogLevel::kWarn;
  // FARSIDE_STATS: each rank writes PREFIX.RANK.json at MPI_Finalize, SIGTERM and SIGUSR1; empty: no statistics.
  std::string stats;
  // FARSIDE_TRACE: each rank writes PREFIX.RANK.trace then; empty: no trace.
  std::string trace;
  // FARSIDE_SITES: whether statistics and traces say where in the program calls are made.
  bool sites = false;
};

struct Setting {
  const char* name;           // FARSIDE_ROUTES
  const char* default_value;  // as in the environment
  const char* allowed;        // the allowed values, in words
  const char* help;
  bool (*parse)(std::string_view value, Settings& settings);  // false: not allowed
};

std::span<const Setting> settings_table();

// Returns the environment variables that begin with FARSIDE_ and are neither settings nor variables of scripts.
std::vector<std::string> unknown_settings();

// Warns about unknown_settings(), because a misspelt setting must not be ignored silently: one line for each.
void warn_of_unknown_settings();

// Reads the environment. Errors: kBadSetting, with the variable, its value and the allowed values.
Result<Settings> read_settings();

}  // namespace farside

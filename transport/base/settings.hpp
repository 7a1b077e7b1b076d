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

// From which NUMA nodes pages come (node/segment.hpp), and the words for it, in this order.
enum class Numa : int { kFirstTouch, kBind, kInterleave };
inline constexpr std::string_view kNumaWords[] = {"first_touch", "bind", "interleave"};

// By the variables' names; the table has their help.
struct Settings {
  RouteSet routes = kAllRoutes;  // cma needs mapped as well
  bool allows(RouteKind kind) const { return (routes & bit(kind)) != 0; }
  std::string provider;  // as in fi_info; empty: farside chooses
  std::string device;    // one of the provider's (libfabric: domains); empty: farside chooses
  bool nic_atomics = true;
  bool huge_pages = false;           // large segments ask for transparent ones
  Numa numa = Numa::kFirstTouch;     // of windows without the info key
  bool overcommit = false;           // windows may be larger than the free memory
  std::uint32_t connections = 1024;  // where the share of what the node has is not smaller; 0: no limit
  std::uint32_t peer_timeout = 60;   // seconds; 0: none
  std::uint32_t hang = 60;           // seconds after which a wait is reported (base/waiter.hpp); 0: never
  Check check = Check::kOn;
  LogLevel log = LogLevel::kWarn;
  std::string stats;  // the prefix of files; empty: no statistics
  std::string trace;  // the same
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

// SPDX-License-Identifier: BSD-3-Clause
// The FARSIDE_* environment variables: one table (settings.cpp) gives name, default, allowed values, help and
// parser; parsing, error messages and the tables of README.md and `farside` come from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/log.hpp"
#include "transport/base/result.hpp"

namespace farside {

// How much of MPI's rules is checked.
enum class Check : int { kOff, kOn, kStrict };

struct Settings {
  // FARSIDE_ROUTES: which ways to a peer's memory may be used.
  bool mapped = true;  // shared memory, inside a node
  bool cma = true;     // process_vm_readv/writev on private memory, inside a node (needs mapped as well)
  bool fabric = true;  // libfabric
  // FARSIDE_PROVIDER: libfabric provider, as in fi_info; empty: farside chooses.
  std::string provider;
  // FARSIDE_DEVICE: one of the provider's devices (libfabric: domains); empty: libfabric's first.
  std::string device;
  // FARSIDE_PROGRESS: whether a thread carries out what others ask of this process, or nobody does.
  bool progress_thread = true;
  // FARSIDE_NIC_ATOMICS: whether locks may be atomics of network adapters.
  bool nic_atomics = true;
  // FARSIDE_CONNECTIONS; 0: no limit.
  std::uint32_t connections = 1024;
  // FARSIDE_PEER_TIMEOUT, in seconds; 0: none.
  std::uint32_t peer_timeout = 60;
  // FARSIDE_CHECK
  Check check = Check::kOn;
  // FARSIDE_LOG
  LogLevel log = LogLevel::kWarn;
  // FARSIDE_STATS: each rank writes PREFIX.RANK.json at MPI_Finalize; empty: nothing is counted.
  std::string stats;
  // FARSIDE_TRACE: each rank writes PREFIX.RANK.trace at MPI_Finalize; empty: nothing is recorded.
  std::string trace;
};

struct Setting {
  const char* name;           // FARSIDE_ROUTES
  const char* default_value;  // as it would be written in the environment
  const char* allowed;        // for people
  const char* help;
  bool (*parse)(std::string_view value, Settings& settings);  // false: not allowed
};

std::span<const Setting> settings_table();

// The variables of the environment that begin with FARSIDE_ and are not settings.
std::vector<std::string> unknown_settings();

// Reads the environment. The error names the variable, its value and what is allowed. Variables that begin with
// FARSIDE_ and are not settings are warned about (a misspelt setting must not be ignored in silence).
Result<Settings> read_settings();

}  // namespace farside

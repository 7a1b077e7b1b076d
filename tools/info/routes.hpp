// SPDX-License-Identifier: BSD-3-Clause
// The routes to an on-node peer's memory that this machine allows, as found by trials between two processes.
#pragma once

#include <optional>
#include <string>

namespace farside::tools {

struct RouteReport {
  bool possible = false;
  std::string how;     // the mechanism
  std::string why;     // if not possible: the cause
  std::string advice;  // if not possible: what to change
};

RouteReport try_mapped();
RouteReport try_cma();

// The settings that may forbid process_vm_readv and process_vm_writev.
struct Surroundings {
  std::optional<int> ptrace_scope;  // kernel.yama.ptrace_scope; nothing: no Yama
  int seccomp = 0;                  // of this process, as /proc/self/status has it: 0 none, 1 strict, 2 a filter
  bool dumpable = true;             // prctl(2), PR_GET_DUMPABLE
};
Surroundings find_surroundings(const std::string& proc = "/proc");

// Returns cause and advice for the error text of an attempt.
RouteReport explain_cma(const std::string& error, const Surroundings& around);

}  // namespace farside::tools

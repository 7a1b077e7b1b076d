// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=warn: reports broken rules whose calls are carried out all the same. Each rule is reported once per
// place in the program (observe/call_sites.hpp), and at most kMost of them per process.
//
// Thread safety: any. Cost: a walk up the stack for each call that breaks a rule, some microseconds; 200 bytes per
// report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "pmpi/fault.hpp"

namespace farside::pmpi {

class BrokenRules {
 public:
  static BrokenRules& instance();
  // To be called in the call that breaks the rule. `window`: its name. `text`: the rule and the remedy.
  void report(const CallSite& call, const std::string& window, const std::string& text);

 private:
  static constexpr std::size_t kMost = 100;

  std::mutex mutex_;
  std::set<std::pair<std::uint16_t, std::string>> reported_;  // site and text
  bool full_ = false;                                         // and this has been said
};

}  // namespace farside::pmpi

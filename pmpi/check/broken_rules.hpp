// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=warn: reports broken rules whose calls are carried out all the same, once per place in the program
// (call_sites.hpp), and at most kMost times per process.
//
// Thread safety: any. Cost: a walk up the stack for each call that breaks a rule, some microseconds, until kMost
// reports were made; 200 bytes per report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "pmpi/call_sites.hpp"
#include "pmpi/library/library.hpp"
#include "transport/base/log.hpp"
#include "transport/base/waiter.hpp"

namespace farside::pmpi {

class BrokenRules {
 public:
  // The call in which this thread is (LongWait::innermost) breaks a rule. `window`: its name. `text`: the rule and the
  // remedy.
  void report(const std::string& window, const std::string& text) {
    const std::scoped_lock held(mutex_);
    const LongWait::Reason* const call = LongWait::innermost();
    if (call == nullptr || reported_.size() == kMost) return;
    const std::uint16_t site = library().sites->find_here();
    if (!reported_.emplace(site, text).second) return;
    const std::string target = call->target() >= 0 ? fmt::format(", target {}", call->target()) : "";
    log(LogLevel::kWarn, "{} on window '{}'{}: {}; carried out all the same; called from {}", call->call(), window,
        target, text, library().sites->text(site));
    if (reported_.size() == kMost)
      log(LogLevel::kWarn, "this is the {}th broken rule; further ones are not reported", kMost);
  }

 private:
  static constexpr std::size_t kMost = 100;

  std::mutex mutex_;
  std::set<std::pair<std::uint16_t, std::string>> reported_;  // site and text
};

}  // namespace farside::pmpi

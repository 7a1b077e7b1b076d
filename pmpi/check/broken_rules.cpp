// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/check/broken_rules.hpp"

#include "pmpi/observe/call_sites.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {

BrokenRules& BrokenRules::instance() {
  static auto* const rules = new BrokenRules();
  return *rules;
}

void BrokenRules::report(const CallSite& call, const std::string& window, const std::string& text) {
  const std::uint16_t site = CallSites::instance().find_here();
  bool last = false;
  {
    const std::scoped_lock held(mutex_);
    if (full_ || !reported_.emplace(site, text).second) return;
    last = full_ = reported_.size() == kMost;
  }
  const std::string where = call.target >= 0 ? fmt::format(", target {}", call.target) : "";
  log(LogLevel::kWarn, "{} on window '{}'{}: {}; carried out all the same, called from {}", call.name, window, where,
      text, CallSites::instance().text(site));
  if (last) log(LogLevel::kWarn, "this is the {}th broken rule; further ones are not reported", kMost);
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/check/broken_rules.hpp"

#include <algorithm>
#include <iterator>

#include "pmpi/library/library.hpp"
#include "pmpi/observe/call_sites.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {

void BrokenRules::note(const std::string& window, const std::string& text) {
  if (full_.load(std::memory_order_relaxed)) return;
  const std::scoped_lock held(mutex_);
  notes_.push_back({std::this_thread::get_id(), window, text});
  library().noted_rules.store(notes_.size(), std::memory_order_relaxed);
}

void BrokenRules::report(const CallSite& call) {
  std::vector<Note> own;
  {
    const std::scoped_lock held(mutex_);
    const auto is_other = [](const Note& note) { return note.thread != std::this_thread::get_id(); };
    const auto first = std::stable_partition(notes_.begin(), notes_.end(), is_other);
    own.assign(std::make_move_iterator(first), std::make_move_iterator(notes_.end()));
    notes_.erase(first, notes_.end());
    library().noted_rules.store(notes_.size(), std::memory_order_relaxed);
  }
  if (own.empty()) return;
  const std::uint16_t site = library().sites->find_here();
  const std::string target = call.target >= 0 ? fmt::format(", target {}", call.target) : "";
  for (const Note& note : own) {
    bool last = false;
    {
      const std::scoped_lock held(mutex_);
      if (full_.load(std::memory_order_relaxed) || !reported_.emplace(site, note.text).second) continue;
      last = reported_.size() == kMost;
      if (last) full_.store(true, std::memory_order_relaxed);
    }
    log(LogLevel::kWarn, "{} on window '{}'{}: {}; carried out all the same, called from {}", call.name, note.window,
        target, note.text, library().sites->text(site));
    if (last) log(LogLevel::kWarn, "this is the {}th broken rule; further ones are not reported", kMost);
  }
}

}  // namespace farside::pmpi

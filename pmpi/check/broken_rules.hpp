// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=warn: reports broken rules whose calls are carried out all the same. A rule is noted under the mutex of
// the window, and reported at the end of the call: once per place in the program (observe/call_sites.hpp), and at most
// kMost times per process.
//
// Thread safety: any. Cost: a walk up the stack for each call that breaks a rule, some microseconds, until kMost
// reports were made; 200 bytes per report.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pmpi/fault.hpp"
#include "pmpi/library/library.hpp"

namespace farside::pmpi {

class BrokenRules {
 public:
  // The call of this thread breaks a rule. `window`: its name. `text`: the rule and the remedy.
  void note(const std::string& window, const std::string& text);
  // Whether some thread has notes that are not reported yet.
  static bool any() { return library().noted_rules.load(std::memory_order_relaxed) != 0; }
  // To be called in the call that has broken rules, without a mutex: reports what this thread has noted.
  void report(const CallSite& call);

 private:
  static constexpr std::size_t kMost = 100;
  struct Note {
    std::thread::id thread;
    std::string window;
    std::string text;
  };

  std::atomic<bool> full_{false};  // kMost were reported, and this has been said
  std::mutex mutex_;               // guards the members below
  std::vector<Note> notes_;
  std::set<std::pair<std::uint16_t, std::string>> reported_;  // site and text
};

}  // namespace farside::pmpi

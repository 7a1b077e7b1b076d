// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_SITES=on, the places in the program of the calls that statistics and traces record. A site is the return
// address in the first function on the stack that is neither farside's nor the runtime's, nor a sanitizer's.
//
// If the program unloads a library and loads another one at the same addresses, farside does not distinguish their
// sites.
//
// Thread safety: any thread. Cost: without the setting one load; with it a walk up the stack, some microseconds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/ticks.hpp"

namespace farside::pmpi {

// The calls that wait.
enum class WaitKind : std::uint8_t { kLock, kFence, kStart, kWait, kComplete, kUnlock, kFlush, kOperation, kNotify };
inline constexpr std::array<const char*, 9> kWaitNames = {"lock",   "fence", "start",     "wait",  "complete",
                                                          "unlock", "flush", "operation", "notify"};

class CallSites {
 public:
  struct Sums {
    std::uint64_t calls = 0;
    std::uint64_t waits = 0;  // calls that waited
    Ticks total = 0;          // their time
    Ticks longest = 0;
  };
  struct Site {
    // "function (halo.c:42)" if the program has debug information and elfutils' libdw is installed; else
    // "function+0x12 (FILE+0x1234)": FILE and the address in it, as addr2line(1) takes them.
    std::string text;
    std::map<WaitKind, Sums> calls;
  };

  // Counts a call of the program that is being carried out now, and has waited. Returns the number of its site, from 1
  // on; 0 if it is not recorded.
  std::uint16_t here(WaitKind kind, Ticks waited) {
    if (!enabled_) [[likely]]
      return 0;
    return count_here(kind, waited);
  }
  // Returns the number of the site of the call that is being carried out now, as here(), whatever the setting. Some
  // microseconds.
  std::uint16_t find_here();
  // The same for an instruction; 0 also for one of farside or the runtime.
  std::uint16_t find(std::uint64_t instruction);
  // The site with this number; "an unknown place" for 0.
  std::string text(std::uint16_t number) const;
  // The site of the call that is being carried out now, to end a report: "; called from main (halo.c:42)". Reading
  // debug information takes some milliseconds, once per site.
  std::string called_from() { return "; called from " + text(find_here()); }
  // Begins to record if the setting says so. To be called before the first window.
  void begin();
  // Returns the sites; number N is at N - 1.
  std::vector<Site> all() const;

 private:
  std::uint16_t count_here(WaitKind kind, Ticks waited);
  // Returns the number of the site of an address; 0: the address is farside's or the runtime's.
  std::uint16_t number_of(void* address);

  RelaxedFlag enabled_{false};
  mutable std::mutex mutex_;                          // guards the members below
  std::unordered_map<void*, std::uint16_t> numbers_;  // of all addresses that were seen
  std::vector<Site> sites_;
};

}  // namespace farside::pmpi

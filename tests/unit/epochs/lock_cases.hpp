// SPDX-License-Identifier: BSD-3-Clause
// Checks that the explorer's tests of the lock and the global lock share: a case must hold, or a broken case must be
// caught.
#pragma once

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/lock_program.hpp"

namespace farside::explore {

// The words that broken cases change.
using epochs::DrainWord;
using epochs::HandOff;
using epochs::RingSlot;
using epochs::WakeValue;

inline void must_hold(const LockCase& each, const Options& options = {}) {
  const Report report = explore_locks(each, options);
  for (const std::string& script : each.scripts) UNSCOPED_INFO(script);
  INFO(report.text());
  CHECK(report.failure.empty());
  CHECK(report.complete);
  CHECK(report.ends > 0);
}

// All mixes of three ranks with two locks each.
inline void mixes_must_hold(const Options& options, bool wraps = false, const std::string& one = "S0",
                            const std::string& other = "X0") {
  each_mix_of_three(
      [&](const std::vector<std::string>& scripts) {
        must_hold({scripts, {}, wraps}, options);
      },
      one, other);
}

// The failure under the sabotage, or "" if the explorer finds none. fault() has the shortest trace, some_fault() the
// first one found, which is faster.
inline std::string fault(const LockCase& each, const Sabotage& sabotage, bool shortest = true) {
  return explore_locks(each, {.shorten = shortest, .sabotage = sabotage}).failure;
}
inline std::string some_fault(const LockCase& each, const Sabotage& sabotage) { return fault(each, sabotage, false); }

inline bool is_wake_word(std::uint32_t word) { return LockProgram::own_word(word); }
inline bool wakes(const Request& r) { return r.kind == Kind::kWrite && is_wake_word(r.word); }

inline const std::string kDeadlock = "deadlock: nothing can happen any more, and not all are done";
inline const std::string kEndless = "endless: the last state of this trace can go on for ever, but never to the end";
inline const std::string kTogether = "two actors hold the lock that exclude each other";
inline const std::string kOvertaken = "an actor overtook one that came before it";
inline const std::string kDrainLeft = "in the end something is left in a drain word";
inline const std::string kSlotLeft = "in the end something is left in a slot";
inline const std::string kLockLeft = "in the end someone is left in a lock word";

}  // namespace farside::explore

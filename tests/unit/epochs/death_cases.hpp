// SPDX-License-Identifier: BSD-3-Clause
// Cases of the lock table in which rank 2, or more of them, die at any moment.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/lock_table_program.hpp"

namespace farside::explore {

using GivesUp = TableMistakes::GivesUp;
template <class Table = RightTable>
using DeathsSeen = typename LockTableProgram<Table>::Seen;

// `scripts`: of rank 2 first. Rank 0 is the home of the global lock, if there is one. Three ranks have no data, for
// fewer states.
inline LockTableCase death_case(std::vector<std::string> scripts, bool global = false, std::uint32_t near = 0,
                                std::vector<int> ranks = {2, 3, 1}) {
  LockTableCase each{.scripts = std::move(scripts), .ranks = std::move(ranks), .job = 4, .near = near};
  if (global) each.home = 0;
  each.ranks.resize(each.scripts.size());
  each.mistakes.no_data = each.scripts.size() > 2;
  return each;
}

template <class Table = RightTable>
Report explore_death(LockTableCase each, GivesUp gives_up, Options options = {}, DeathsSeen<Table>* seen = nullptr) {
  each.mistakes.gives_up = gives_up;
  if (!each.dead && options.may_die == 0) options.may_die = 4;
  options.still = options.still || gives_up == GivesUp::kWhatSeemsLost;
  return explore_lock_table<Table>(each, options, seen);
}

// `lost`: the memory of the dead ranks is lost; otherwise the others still reach it. `may_die`: bits. Where waiters
// probe, beyond a small ring, there is always something else that happens (kWhatSeemsLost).
inline DeathsSeen<> deaths_must_hold(const LockTableCase& each, bool lost = false,
                                     std::vector<GivesUp> all = {GivesUp::kWhatIsLost, GivesUp::kWhatSeemsLost,
                                                                 GivesUp::kAnything},
                                     std::uint64_t may_die = 4) {
  DeathsSeen<> seen;
  for (const GivesUp gives_up : all) {
    const Report report = explore_death(each, gives_up, {.may_die = may_die, .dead_are_lost = lost}, &seen);
    for (const std::string& script : each.scripts) UNSCOPED_INFO(script);
    INFO("gives up " << static_cast<int>(gives_up) << ", lost " << lost << ": " << report.text());
    CHECK(report.failure.empty());
    CHECK(report.complete);
    CHECK(report.ends > 0);
  }
  return seen;
}

}  // namespace farside::explore

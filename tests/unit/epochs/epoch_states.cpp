// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/epochs/epoch_states.hpp"

#include <sstream>

#include <catch2/catch.hpp>

namespace farside::epochs::testing {

EpochState make(const std::string& access, const std::string& exposure) {
  EpochState state(kRanks);
  const bool by_fence = access == "open" || access == "active";
  if (by_fence || exposure == "fence") REQUIRE(!state.fence(kNoAssert));
  if (is_posted(exposure)) REQUIRE(!state.begin_post(kGroup));
  if (is_posted(exposure) && exposure != "posting") state.opened(Call::kPost);
  if (exposure == "waiting") REQUIRE(!state.begin_wait());
  if (exposure == "none" && by_fence) {  // the end of a post ends the exposure of the fence
    REQUIRE(!state.post(kGroup));
    state.exposure_ended();
  }
  if (access == "active") REQUIRE(!state.operation(kMember));
  if (access == "starting") REQUIRE(!state.begin_start(kGroup));
  if (access == "started") REQUIRE(!state.start(kGroup));
  if (access == "locked") {
    REQUIRE(!state.lock(1, LockType::kShared));
    REQUIRE(!state.lock(kMember, LockType::kExclusive));
  }
  if (locks_all(access)) REQUIRE(!state.begin_lock_all());
  if (access == "all") state.opened(Call::kLockAll);
  if (access == "none" && exposure == "fence") {
    REQUIRE(!state.lock_all());
    REQUIRE(!state.unlock_all());
  }
  REQUIRE(name(state.access()) == access);
  REQUIRE(name(state.exposure().state) == exposure);
  return state;
}

std::string seen(const EpochState& state) {
  std::ostringstream out;
  const auto text = [](const char* s) { return s == nullptr ? "-" : s; };
  out << name(state.access()) << ' ' << name(state.exposure().state) << ' ' << state.locks_held() << ' '
      << text(state.closed_by()) << ' ' << text(state.exposure().closed_by) << " started";
  for (int rank : state.started_group()) out << ' ' << rank;
  out << " posted";
  for (int rank : state.exposure().group) out << ' ' << rank;
  for (int rank = -1; rank <= state.ranks(); ++rank) {
    EpochState copy = state;
    out << ' ' << !copy.request_operation(rank) << !copy.operation(rank) << !copy.flush(rank);
    out << state.locked(rank);
  }
  return out.str();
}

}  // namespace farside::epochs::testing

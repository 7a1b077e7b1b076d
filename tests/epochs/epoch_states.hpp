// SPDX-License-Identifier: BSD-3-Clause
// States of a window, made by legal calls, and all that can be seen of them: what the tests of EpochState share.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "epochs/rules/epoch_state.hpp"

namespace farside::epochs::testing {

constexpr int kRanks = 70;   // more than one word of bits
constexpr int kMember = 65;  // locked, or in the start group, where such a state is made
constexpr int kOther = 3;
inline const std::vector<int> kGroup = {1, kMember};
constexpr FenceAssert kNoAssert{};
constexpr FenceAssert kNoPrecede{.no_precede = true};
constexpr FenceAssert kNoSucceed{.no_succeed = true};

// States in short: access none, open (fence open), active, starting, started, locked, locking all, all; exposure none,
// fence, posting, posted, waiting.
inline const std::vector<std::string> kAccessNames = {"none",    "open",   "active",      "starting",
                                                      "started", "locked", "locking all", "all"};
inline const std::vector<std::string> kExposureNames = {"none", "fence", "posting", "posted", "waiting"};
// Of a window that is posted in some way, and of one that all are locked in or waited for.
inline bool is_posted(const std::string& exposure) { return exposure.starts_with("post") || exposure == "waiting"; }
inline bool locks_all(const std::string& access) { return access.ends_with("all"); }

inline std::string name(Access state) { return kAccessNames[static_cast<std::size_t>(state)]; }
inline std::string name(Exposure state) { return kExposureNames[static_cast<std::size_t>(state)]; }

// A window in the given states, by legal calls only.
EpochState make(const std::string& access, const std::string& exposure);

// A held lock in a message: - for none, s, x.
char type_held(std::optional<LockType> type);

// All that can be seen of a state: its accessors, and which targets it permits.
std::string seen(const EpochState& state);

}  // namespace farside::epochs::testing

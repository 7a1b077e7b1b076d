// SPDX-License-Identifier: BSD-3-Clause
// What the tests of EpochState share: windows in given states, made by legal calls, and all that is observable of
// them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "epochs/rules/epoch_state.hpp"

namespace farside::epochs::testing {

constexpr int kRanks = 70;   // more than one word of bits
constexpr int kMember = 65;  // locked, or in the start group, in states that have members
constexpr int kOther = 3;
inline const std::vector<int> kGroup = {1, kMember};
constexpr FenceAssert kNoAssert{};
constexpr FenceAssert kNoPrecede{.no_precede = true};
constexpr FenceAssert kNoSucceed{.no_succeed = true};

// The states in short, in the order of the enumerators; "open" is kFenceOpen, "all" is kLockedAll.
inline const std::vector<std::string> kAccessNames = {"none",    "open",   "active",      "starting",
                                                      "started", "locked", "locking all", "all"};
inline const std::vector<std::string> kExposureNames = {"none", "fence", "posting", "posted", "waiting"};
// Whether the exposure is posted, being posted or awaited; whether the access side locks all, or waits for that.
inline bool is_posted(const std::string& exposure) { return exposure.starts_with("post") || exposure == "waiting"; }
inline bool locks_all(const std::string& access) { return access.ends_with("all"); }

inline std::string name(Access state) { return kAccessNames[static_cast<std::size_t>(state)]; }
inline std::string name(Exposure state) { return kExposureNames[static_cast<std::size_t>(state)]; }

// A window in the given states, made by legal calls only.
EpochState make(const std::string& access, const std::string& exposure);

// All that is observable of a state: its accessors, and the targets that it permits.
std::string seen(const EpochState& state);

}  // namespace farside::epochs::testing

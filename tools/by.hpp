// SPDX-License-Identifier: BSD-3-Clause
// How `farside explain` and `farside trace` divide their figures: the option --by.
#pragma once

#include <map>
#include <string>

namespace farside::tools {

enum class By { kRank, kSize, kPair, kSite };
inline const std::map<std::string, By> kByNames = {
    {"rank", By::kRank}, {"size", By::kSize}, {"pair", By::kPair}, {"site", By::kSite}};

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// Reads what farside's FARSIDE_STATS=PREFIX leaves: PREFIX.RANK.json, one per rank.
#pragma once

#include <map>
#include <string>

namespace farside::tools {

struct Statistics {  // sums over the ranks
  int files = 0;
  long farside_windows = 0;
  long runtime_windows = 0;
  std::map<std::string, long> operations;  // by route
  std::string unreadable;                  // what could not be read and why; empty if nothing
};

Statistics read_statistics(const std::string& prefix);

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// The limits of this process that matter to windows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace farside::tools {

inline constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

struct Limit {
  std::string name;                // locked memory
  std::uint64_t value = kNoLimit;  // bytes, or a number
  std::uint64_t most = kNoLimit;   // the value to which this user may raise it
  bool bytes = true;
  bool enough = true;
  std::string meaning;  // what farside uses of it
  std::string advice;   // what to change; empty if enough
};

std::vector<Limit> find_limits();

// 8 MiB, 20000, unlimited
std::string limit_text(std::uint64_t value, bool bytes);

}  // namespace farside::tools

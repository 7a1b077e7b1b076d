// SPDX-License-Identifier: BSD-3-Clause
#include "tools/environment.hpp"

#include <string_view>
#include <unistd.h>

extern char** environ;

namespace farside::tools {

Environment Environment::current() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) {
      result.values_.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return result;
}

std::optional<std::string> Environment::get(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> Environment::lines() const {
  std::vector<std::string> result;
  for (const auto& [name, value] : values_) {
    std::string line = name;
    line.append("=").append(value);
    result.push_back(std::move(line));
  }
  return result;
}

}  // namespace farside::tools

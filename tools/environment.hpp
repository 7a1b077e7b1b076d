// SPDX-License-Identifier: BSD-3-Clause
// The environment of a child process: a copy of this process's environment that can be changed by itself.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace farside::tools {

class Environment {
 public:
  static Environment current();
  std::optional<std::string> get(const std::string& name) const;
  void set(const std::string& name, std::string value) { values_[name] = std::move(value); }
  void set_if_unset(const std::string& name, std::string value) { values_.emplace(name, std::move(value)); }
  void unset(const std::string& name) { values_.erase(name); }
  std::vector<std::string> lines() const;  // NAME=VALUE

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace farside::tools

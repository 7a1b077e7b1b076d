// SPDX-License-Identifier: BSD-3-Clause
// Takes out of a text what its reader has no need to learn: names of hosts and users, addresses, and folders that are
// not the system's.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tools/json.hpp"

namespace farside::tools {

class Privacy {
 public:
  // `names`: what stands for a name, for instance of a host.
  explicit Privacy(std::map<std::string, std::string> names) : names_(std::move(names)) {}

  // Names of this machine and user, and of the hosts of an examination, which are numbered in the order of the nodes.
  static Privacy of(const Json& examination);

  // A text that is a name becomes what stands for it. In other texts names of three letters or more do, where they are
  // words; IP addresses become ADDRESS; of paths outside the system's folders the last part stays: .../libmpi.so.
  std::string text(std::string_view original) const;
  // All texts of an object, but not its keys.
  Json json(Json original) const;

 private:
  std::map<std::string, std::string> names_;
};

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// Where the ranks of a launch ran, and whether they had a core each.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace farside::tools {

class Placement {
 public:
  // Adds a process. `cpus`: the CPUs that it may use, as Linux lists them, "0-3,8"; empty: unknown.
  void add(const std::string& host, std::string_view cpus);
  // Returns a sentence for each host with more processes than CPUs that they may use together.
  std::vector<std::string> oversubscribed() const;

 private:
  struct Host {
    std::size_t processes = 0;
    std::set<int> cpus;
    bool known = true;
  };
  std::map<std::string, Host> hosts_;
};

}  // namespace farside::tools

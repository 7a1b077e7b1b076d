// SPDX-License-Identifier: BSD-3-Clause
// The text of `farside doctor --report`, to be pasted into a bug report: versions, the environment, the examination,
// and `farside info` of the machine where the command runs.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tools/common/child.hpp"
#include "tools/common/text.hpp"

namespace farside::tools {

// Removes private parts from a text: names of hosts and users, addresses, and folders that are not the system's.
class Anonymizer {
 public:
  // `names`: the replacement of each name, for instance of a host.
  explicit Anonymizer(std::map<std::string, std::string> names) : names_(std::move(names)) {}

  // Names of this machine and user, and of the hosts of an examination, which are numbered in the order of the nodes.
  static Anonymizer of(const Json& examination);

  // Replaces a text that is a name by the replacement of the name. In other texts replaces names of three letters or
  // more that are whole words, and replaces IP addresses by ADDRESS. Shortens paths outside of the system's folders to
  // their last part: .../libmpi.so.
  std::string text(std::string_view original) const;
  // Replaces in all texts of an object, but not in its keys.
  Json json(Json original) const;

 private:
  std::map<std::string, std::string> names_;
};

// `info`: of gather_info(). The variables FARSIDE_* and FI_* of `environment` are shown. Nothing is shown that
// `anonymizer` takes out; null: all is shown.
std::string report_text(const Json& examination, const Json& info, const Environment& environment,
                        const Anonymizer* anonymizer);

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// Everything that `farside info` says, as JSON. tools/README.md describes the fields.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace farside::tools {

// Takes a second or two: each provider is tried in a process of its own.
nlohmann::ordered_json gather_info(const std::string& library_folder);

// The same for people.
std::string info_text(const nlohmann::ordered_json& info);

}  // namespace farside::tools

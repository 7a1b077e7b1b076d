// SPDX-License-Identifier: BSD-3-Clause
// Collects the content of `farside info` as JSON. tools/README.md describes the fields.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace farside::tools {

// Takes one or two seconds, since each provider is tried in a process of its own.
nlohmann::ordered_json gather_info(const std::string& library_folder);

// Formats the same as text.
std::string info_text(const nlohmann::ordered_json& info);

}  // namespace farside::tools

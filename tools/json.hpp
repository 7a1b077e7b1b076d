// SPDX-License-Identifier: BSD-3-Clause
// JSON as the commands write it: the members of an object keep their order.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace farside::tools {

using Json = nlohmann::ordered_json;

// Returns the JSON as text; with indent >= 0 each member has its own line. Bytes that are not UTF-8, as paths and
// variables may have, become U+FFFD; dump() by itself throws an exception.
inline std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// JSON as the commands read and write it: the members of an object keep their order.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "transport/base/log.hpp"

namespace farside::tools {

using Json = nlohmann::ordered_json;

// Returns the JSON as text; with indent >= 0 each member has its own line. Bytes that are not UTF-8, as paths and
// variables may have, become U+FFFD; dump() by itself throws an exception.
inline std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Parses JSON that may be damaged or forged. Throws a std::exception if it is no JSON or too deep for functions that
// recurse (dump, copies), or if a name has control characters. In values these are replaced.
template <class J = Json>
J parse_json(std::string_view text) {
  constexpr int kMostLevels = 64;
  return J::parse(text, [](int level, typename J::parse_event_t event, J& value) {
    if (level > kMostLevels) throw std::runtime_error("values are nested too deeply");
    if (!value.is_string()) return true;
    const std::string clean = printable(value.template get_ref<const std::string&>());
    if (clean == value) return true;
    if (event == J::parse_event_t::key) throw std::runtime_error(clean + ": a name with control characters");
    value = clean;
    return true;
  });
}

// The same for a line of a program that may print others, too. What is no such JSON is_discarded().
template <class J = Json>
J parse_json_line(std::string_view line) {
  try {
    return parse_json<J>(line);
  } catch (const std::exception&) {
    return J(J::value_t::discarded);
  }
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/spawned_variables.hpp"

#include <cstdlib>

#include "pmpi/runtime/node_ranks.hpp"
#include "transport/base/settings.hpp"

namespace farside::pmpi {
namespace {

// Returns whether one of the lines of a list sets the variable.
bool sets(std::string_view list, std::string_view name) {
  while (true) {
    const std::size_t end = list.find('\n');
    const std::string_view line = list.substr(0, end);
    if (line.starts_with(name) && line.substr(name.size()).starts_with('=')) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> variables_for_spawned() {
  std::vector<std::pair<std::string, std::string>> result;
  const auto add_if_set = [&](const char* name) {
    const char* const value = secure_getenv(name);
    // (A value of several lines does not fit into the list.)
    if (value != nullptr && std::string_view(value).find('\n') == std::string_view::npos) {
      result.emplace_back(name, value);
    }
  };
  const char* const preloaded = secure_getenv("LD_PRELOAD");
  const std::string library = NodeView::of_this_process().library;
  if (preloaded != nullptr && !library.empty() && std::string_view(preloaded).find(library) != std::string_view::npos) {
    add_if_set("LD_PRELOAD");
  }
  for (const Setting& setting : settings_table()) add_if_set(setting.name);
  return result;
}

VariableList add_variables(std::string_view given, std::string_view other,
                           const std::vector<std::pair<std::string, std::string>>& variables, std::size_t limit) {
  VariableList result{std::string(given), {}};
  for (const auto& [name, value] : variables) {
    if (sets(given, name) || sets(other, name)) continue;
    const std::string separator = result.text.empty() ? "" : "\n";
    const std::string entry = separator + name + "=" + value;
    if (result.text.size() + entry.size() > limit) {
      result.left_out.push_back(name);
    } else {
      result.text += entry;
    }
  }
  return result;
}

}  // namespace farside::pmpi

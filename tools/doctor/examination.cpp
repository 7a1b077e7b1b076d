// SPDX-License-Identifier: BSD-3-Clause
#include "tools/doctor/examination.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace farside::tools {

bool take_line(Json& examination, std::string_view line) {
  // Some launchers print the number of the rank before each line.
  const std::size_t begin = line.find('{');
  if (begin == std::string_view::npos) return false;
  const Json part = parse_json_line(line.substr(begin));
  if (!part.is_object()) return false;
  examination.update(part);
  return true;
}

const Json& part_of(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? kNone : *found;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_string() ? std::string() : found->get<std::string>();
}

const Json* route_of(const Json& rank, std::string_view route) {
  for (const Json& one : part_of(rank, "routes"))
    if (one.at("route") == route) return &one;
  return nullptr;
}

bool allows_fabric(const Json& rank) {
  const std::string routes = text_of(part_of(rank, "settings"), "FARSIDE_ROUTES");
  return routes.empty() || routes.find("fabric") != std::string::npos;
}

const Json* host_of(const Json& examination, const std::string& name) {
  for (const Json& host : part_of(part_of(examination, "between"), "hosts"))
    if (host.at("host") == name) return &host;
  return nullptr;
}

std::string rank_list(const std::vector<int>& ascending) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    if (end - i > 2) {
      parts.push_back(fmt::format("{}-{}", ascending[i], ascending[end - 1]));
    } else {
      for (std::size_t one = i; one < end; ++one) parts.push_back(fmt::format("{}", ascending[one]));
    }
    i = end;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string node_name(const Json& examination, int node) {
  std::string name;
  bool shared = false;
  for (const Json& rank : part_of(examination, "ranks"))
    if (rank.at("node") == node) name = rank.at("host");
  for (const Json& rank : part_of(examination, "ranks")) shared |= rank.at("host") == name && rank.at("node") != node;
  return shared ? fmt::format("{} (node {})", name, node) : name;
}

std::string places(const Json& examination, const std::vector<int>& ascending_ranks) {
  constexpr std::size_t kMostNodes = 4;
  const Json& ranks = part_of(examination, "ranks");
  if (ascending_ranks.size() == ranks.size() && ranks.size() > 1) return "all ranks";
  std::vector<int> nodes;
  for (const int rank : ascending_ranks) {
    const int node = ranks[static_cast<std::size_t>(rank)].at("node");
    if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < nodes.size() && i < kMostNodes; ++i) {
    std::vector<int> here;
    std::ranges::copy_if(ascending_ranks, std::back_inserter(here),
                         [&](int rank) { return ranks[static_cast<std::size_t>(rank)].at("node") == nodes[i]; });
    parts.push_back(fmt::format("{} ({} {})", node_name(examination, nodes[i]), here.size() == 1 ? "rank" : "ranks",
                                rank_list(here)));
  }
  const std::string text = fmt::format("{}", fmt::join(parts, ", "));
  return nodes.size() > kMostNodes ? fmt::format("{} and {} more hosts", text, nodes.size() - kMostNodes) : text;
}

int node_count(const Json& examination) {
  int nodes = 0;
  for (const Json& rank : part_of(examination, "ranks")) nodes = std::max(nodes, rank.at("node").get<int>() + 1);
  return nodes;
}

}  // namespace farside::tools

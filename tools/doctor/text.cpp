// SPDX-License-Identifier: BSD-3-Clause
// The text of `farside doctor`: a line per cause, then a table of the nodes and one of their routes.
#include "tools/text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/doctor/examination.hpp"
#include "tools/info/info.hpp"

namespace farside::tools {
namespace {

// One node: its ranks, and the windows that these have made.
struct Node {
  int number = 0;
  std::vector<const Json*> ranks, windows;

  std::vector<int> rank_numbers() const {
    std::vector<int> all;
    for (const Json* rank : ranks) all.push_back(rank->at("rank"));
    return all;
  }
  // The different texts of the node's ranks; usually one.
  template <class TextFor>
  std::string of_ranks(TextFor&& text_for) const {
    std::vector<std::string> all;
    for (const Json* rank : ranks) {
      const std::string text = text_for(*rank);
      if (std::ranges::find(all, text) == all.end()) all.push_back(text);
    }
    return fmt::format("{}", fmt::join(all, ", "));
  }
};

std::vector<Node> nodes_of(const Json& examination) {
  std::vector<Node> nodes(static_cast<std::size_t>(node_count(examination)));
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].number = static_cast<int>(i);
  const Json& ranks = part_of(examination, "ranks");
  const auto node_of = [&](const Json& rank) -> Node& { return nodes[rank.at("node").get<std::size_t>()]; };
  for (const Json& rank : ranks) node_of(rank).ranks.push_back(&rank);
  for (const Json& window : part_of(examination, "windows")) {
    const auto rank = window.at("rank").get<std::size_t>();
    if (rank < ranks.size()) node_of(ranks[rank]).windows.push_back(&window);
  }
  return nodes;
}

std::string or_dash(std::string text) { return text.empty() ? "-" : text; }

std::string locked_memory(const Json& rank) {
  for (const Json& limit : part_of(rank, "limits")) {
    if (limit.at("limit") != "locked memory") continue;
    return limit_text(limit.at("value").is_null() ? kNoLimit : limit.at("value").get<std::uint64_t>(), true);
  }
  return "-";
}

std::string clock(const Json& rank) {
  const auto found = rank.find("clock");
  if (found == rank.end()) return "-";
  return or_dash(found->at("source")) + (found->at("counter").get<bool>() ? "" : ", no counter");
}

std::string libfabric(const Json& examination, const Node& node) {
  const Json* host = host_of(examination, node.ranks.front()->at("host"));
  return host == nullptr ? "-" : host->at("libfabric").get<std::string>();
}

std::string node_table(const Json& examination, const std::vector<Node>& nodes) {
  Table table({"node", "ranks", "farside", "MPI", "libfabric", "locked memory", "CMA", "clock"});
  for (const Node& node : nodes) {
    const auto cma = [](const Json& rank) {
      const Json* route = route_of(rank, "cma");
      return std::string(route == nullptr ? "-" : route->at("possible").get<bool>() ? "allowed" : "FORBIDDEN");
    };
    const auto version = [](const Json& rank) {
      const std::string text = rank.at("farside");
      return text.empty() ? std::string("MISSING") : text.substr(0, text.find(' '));
    };
    table.add(node_name(examination, node.number), rank_list(node.rank_numbers()), node.of_ranks(version),
              node.of_ranks([](const Json& rank) { return or_dash(text_of(rank, "mpi")); }),
              libfabric(examination, node), node.of_ranks(locked_memory), node.of_ranks(cma), node.of_ranks(clock));
  }
  return table.text();
}

// The state of a route: by windows, else by the trial between two processes of the node.
std::string route_cell(const Node& node, std::string_view name) {
  bool used = false;
  for (const Json* window : node.windows) {
    const std::string routes = window->at("routes");
    if (window->at("wanted") == name && window->at("trouble") != "") return "FAILED";
    used |= (',' + routes + ',').find(fmt::format(",{},", name)) != std::string::npos;
  }
  if (used) return "used";
  const Json* fact = route_of(*node.ranks.front(), name);
  if (fact == nullptr) return name == "fabric" && !allows_fabric(*node.ranks.front()) ? "off" : "-";
  if (!fact->at("allowed").get<bool>()) return "off";
  return fact->at("possible").get<bool>() ? "possible" : "IMPOSSIBLE";
}

// The provider and device that windows took, or, without one, what the trial has chosen.
std::string provider_cell(const Json& examination, const Node& node) {
  for (const Json* window : node.windows)
    if (window->at("provider") != "")
      return fmt::format("{} ({})", window->at("provider").get<std::string>(), window->at("device").get<std::string>());
  const Json* host = host_of(examination, node.ranks.front()->at("host"));
  if (host == nullptr) return "-";
  const std::string chosen = examination.at("between").at("all").at("provider");
  if (chosen.empty()) return "NOTHING";
  for (const Json& provider : host->at("providers"))
    if (provider.at("provider") == chosen) return fmt::format("{} ({})", chosen, text_of(provider, "device"));
  return chosen;
}

std::string clock_offset(const Json& examination, int node) {
  for (const Json& clock : part_of(examination, "clocks")) {
    if (clock.at("node") != node) continue;
    if (node == 0) return "reference";
    const double ahead = clock.at("ahead_ns").get<double>() / 1000;
    const std::string sign = ahead < 0 ? "-" : "+";
    return fmt::format("{}{} +-{}", sign, with_unit(std::abs(ahead), bench::Unit::kMicroseconds),
                       with_unit(clock.at("uncertain_ns").get<double>() / 1000, bench::Unit::kMicroseconds));
  }
  return "-";
}

std::string route_table(const Json& examination, const std::vector<Node>& nodes) {
  Table table({"node", "mapped", "cma", "fabric", "provider", "next node", "put 8 B", "put 1 MiB", "clock offset"});
  for (const Node& node : nodes) {
    std::string next = "-", latency = "-", rate = "-";
    for (const Json& link : part_of(examination, "links")) {
      if (link.at("from") != node.number) continue;
      next = node_name(examination, link.at("to"));
      latency = rate = "FAILED";
      if (link.at("trouble") != "") continue;
      latency = with_unit(link.at("latency_us"), bench::Unit::kMicroseconds);
      rate = with_unit(link.at("megabytes_per_second"), bench::Unit::kMegabytes);
    }
    table.add(node_name(examination, node.number), route_cell(node, "mapped"), route_cell(node, "cma"),
              route_cell(node, "fabric"), provider_cell(examination, node), next, latency, rate,
              clock_offset(examination, node.number));
  }
  return table.text();
}

std::string summary(const Json& examination) {
  const Json& ranks = part_of(examination, "ranks");
  if (ranks.empty()) return fmt::format("farside {}: no rank has answered", text_of(examination, "farside"));
  const int nodes = node_count(examination);
  std::string library = ranks[0].at("farside");
  if (library.empty()) library = "not loaded";
  return fmt::format("{} on {}, farside {}, {}", counted(ranks.size(), "rank"), counted(nodes, "host"), library,
                     text_of(ranks[0], "mpi"));
}

}  // namespace

std::string examination_text(const Json& examination) {
  std::string text;
  const Json& causes = part_of(examination, "causes");
  for (const Json& cause : causes) {
    text += fmt::format("{}: {}; {}\n", cause.at("severity").get<std::string>(), cause.at("what").get<std::string>(),
                        cause.at("advice").get<std::string>());
  }
  text += causes.empty() ? fmt::format("nothing wrong: {}\n", summary(examination))
                         : fmt::format("\n{}\n", summary(examination));
  const std::vector<Node> nodes = nodes_of(examination);
  if (nodes.empty()) return text;
  return text + fmt::format("\n{}\n{}", node_table(examination, nodes), route_table(examination, nodes));
}

}  // namespace farside::tools

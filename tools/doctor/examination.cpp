// SPDX-License-Identifier: BSD-3-Clause
#include "tools/doctor/examination.hpp"

#include <algorithm>
#include <iterator>
#include <pwd.h>
#include <regex>
#include <sys/utsname.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/host.hpp"
#include "tools/info/info.hpp"
#include "transport/base/address.hpp"

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

// The element of a member whose entry `key` is this; null if there is none.
static const Json* element(const Json& object, const char* member, const char* key, std::string_view value) {
  for (const Json& one : part_of(object, member))
    if (one.at(key) == value) return &one;
  return nullptr;
}

const Json* route_of(const Json& rank, std::string_view route) { return element(rank, "routes", "route", route); }

const Json* limit_of(const Json& rank, std::string_view limit) { return element(rank, "limits", "limit", limit); }

bool allows_fabric(const Json& rank) {
  const std::string routes = text_of(part_of(rank, "settings"), "FARSIDE_ROUTES");
  return routes.empty() || routes.find("fabric") != std::string::npos;
}

const Json* host_of(const Json& examination, const std::string& name) {
  return element(part_of(examination, "between"), "hosts", "host", name);
}

std::string rank_list(const std::vector<int>& ascending) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    if (end - i > 2)
      parts.push_back(fmt::format("{}-{}", ascending[i], ascending[end - 1]));
    else
      for (std::size_t one = i; one < end; ++one) parts.push_back(fmt::format("{}", ascending[one]));
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
    add_once<int>(nodes, ranks[static_cast<std::size_t>(rank)].at("node"));
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

// The text of `farside doctor`: a line per cause, then a table of the nodes and one of their routes.

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
    for (const Json* rank : ranks) add_once<std::string>(all, text_for(*rank));
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
  const Json* limit = limit_of(rank, "locked memory");
  return limit == nullptr ? "-" : limit_text(*limit);
}

std::string libfabric(const Json& examination, const Node& node) {
  const Json* host = host_of(examination, node.ranks.front()->at("host"));
  return host == nullptr ? "-" : host->at("libfabric").get<std::string>();
}

std::string node_table(const Json& examination, const std::vector<Node>& nodes) {
  Table table({"node", "ranks", "farside", "MPI", "libfabric", "locked memory", "CMA"});
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
              libfabric(examination, node), node.of_ranks(locked_memory), node.of_ranks(cma));
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

std::string route_table(const Json& examination, const std::vector<Node>& nodes) {
  std::vector<std::string> header{"node"};
  for (const RouteInfo& route : kRoutes)
    if (route.allowed_by_name) header.emplace_back(route.name);
  header.insert(header.end(), {"provider", "next node", "put 8 B", "put 1 MiB"});
  Table table(std::move(header));
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
    std::vector<std::string> row{node_name(examination, node.number)};
    for (const RouteInfo& route : kRoutes)
      if (route.allowed_by_name) row.push_back(route_cell(node, route.name));
    row.insert(row.end(), {provider_cell(examination, node), next, latency, rate});
    table.add(std::move(row));
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

// ---- the bug report ----

namespace {

// Paths outside the folders that every system has; the first group is what stands before, the second the last part.
const std::regex kPath(R"((^|[^\w/.+@%~-])/(?!usr/|lib|bin/|sbin/|etc/|opt/|proc/|sys/|dev/|run/|boot/)[\w/.+@%~=-]*)"
                       R"((/[\w+@%~=-]+(\.[\w+@%~=-]+)*))");
// Addresses of version 4, behind which a port may stand, and of version 6.
const std::regex kAddress(R"((^|[^\w.:-])(\d{1,3}(\.\d{1,3}){3}|([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|)"
                          R"([0-9a-fA-F:]*[0-9a-fA-F]::[0-9a-fA-F:.]*)(?![\w-]))");

}  // namespace

Anonymizer Anonymizer::of(const Json& examination) {
  std::map<std::string, std::string> names;
  const auto add_host = [&](const std::string& host, int number) {
    const std::string pseudonym = fmt::format("host-{}", number);
    names.try_emplace(host, pseudonym);
    names.try_emplace(host.substr(0, host.find('.')), pseudonym);
  };
  int hosts = 0;
  for (const Json& rank : part_of(examination, "ranks")) {
    const std::string host = rank.at("host");
    if (!names.contains(host)) add_host(host, ++hosts);
  }
  utsname system{};
  uname(&system);
  if (!names.contains(system.nodename)) add_host(system.nodename, ++hosts);
  if (const passwd* user = getpwuid(geteuid()); user != nullptr && user->pw_uid != 0)
    names.try_emplace(user->pw_name, "USER");
  names.erase("localhost");
  names.erase("");
  return Anonymizer(std::move(names));
}

std::string Anonymizer::text(std::string_view original) const {
  if (const auto name = names_.find(std::string(original)); name != names_.end()) return name->second;
  std::string text = std::regex_replace(std::string(original), kPath, "$1...$2");
  text = std::regex_replace(text, kAddress, "$1ADDRESS");
  for (auto name = names_.rbegin(); name != names_.rend(); ++name) {  // a host with its domain first
    constexpr std::size_t kShortestWord = 3;
    if (name->first.size() < kShortestWord) continue;
    const std::string quoted = std::regex_replace(name->first, std::regex(R"([^\w-])"), R"(\$&)");
    text = std::regex_replace(text, std::regex("(^|[^\\w-])" + quoted + "(?![\\w-])"), "$1" + name->second);
  }
  return text;
}

Json Anonymizer::json(Json original) const {
  if (original.is_string()) return text(original.get<std::string>());
  if (original.is_structured())
    for (Json& member : original) member = json(std::move(member));
  return original;
}

std::string report_text(const Json& examination, const Json& info, const Environment& environment,
                        const Anonymizer* anonymizer) {
  const auto shown = [&](const std::string& text) { return anonymizer == nullptr ? text : anonymizer->text(text); };
  const auto shown_json = [&](const Json& json) { return anonymizer == nullptr ? json : anonymizer->json(json); };
  std::string text = fmt::format("```\nversions\n  farside {}, {}, Linux {}\n", text_of(info, "farside"), system_name(),
                                 text_of(part_of(info, "machine"), "kernel"));
  for (const Json& runtime : part_of(info, "runtimes"))
    if (!text_of(runtime, "version").empty()) text += fmt::format("  {}\n", text_of(runtime, "version"));
  text += fmt::format("  libfabric {}\n", text_of(part_of(info, "libfabric"), "version"));

  text += "\nenvironment\n";
  bool any = false;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("FARSIDE_") && !name.starts_with("FI_")) continue;
    text += fmt::format("  {}={}\n", name, shown(value));
    any = true;
  }
  if (!any) text += "  no variable FARSIDE_* or FI_*\n";

  // The causes are found again, with the names in them replaced.
  Json all = shown_json(examination);
  all["causes"] = causes_of(all);
  text += fmt::format("\nfarside doctor\n\n{}\nfarside info\n\n{}```\n", examination_text(all),
                      info_text(shown_json(info)));
  return text;
}

// ---- the trial between hosts ----

namespace {

// Why these hosts, two or all, cannot use the provider with each other; empty if they can.
std::vector<std::string> troubles(const ProviderTrials& trials, const std::vector<std::string>& names,
                                  const std::vector<std::size_t>& hosts) {
  std::vector<std::string> all;
  for (const std::size_t host : hosts)
    if (const std::string& text = trials.offers[host].trouble; !text.empty())
      all.push_back(fmt::format("{}: {}: {}", trials.provider, names[host], text));
  if (!all.empty()) return all;
  for (const std::size_t from : hosts) {
    for (const std::size_t to : hosts)
      if (const std::string& text = trials.trouble[from][to]; from != to && !text.empty())
        all.push_back(fmt::format("{}: from {} to {}: {}", trials.provider, names[from], names[to], text));
  }
  return all;
}

// The best provider that works between these hosts; `device`: that of the first of them.
Json choice(const std::vector<ProviderTrials>& trials, const std::vector<std::string>& names,
            const std::vector<std::size_t>& hosts) {
  Json chosen{{"provider", ""}, {"device", ""}, {"why_not", Json::array()}};
  for (const ProviderTrials& one : trials) {
    const std::vector<std::string> why_not = troubles(one, names, hosts);
    if (why_not.empty()) {
      chosen["provider"] = one.provider;
      chosen["device"] = one.offers[hosts.front()].device;
      break;
    }
    for (const std::string& text : why_not) chosen["why_not"].push_back(text);
  }
  return chosen;
}

}  // namespace

Json matrix_of(std::vector<Json> hosts, const std::vector<ProviderTrials>& trials) {
  std::vector<std::string> names;
  std::vector<std::size_t> every;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    names.push_back(hosts[i].at("host"));
    every.push_back(i);
    hosts[i]["providers"] = Json::array();
    for (const ProviderTrials& one : trials) {
      hosts[i]["providers"].push_back(
          {{"provider", one.provider}, {"device", one.offers[i].device}, {"trouble", one.offers[i].trouble}});
    }
  }
  Json matrix{{"hosts", hosts}, {"pairs", Json::array()}};
  for (const std::size_t from : every) {
    for (const std::size_t to : every) {
      if (from == to) continue;
      Json pair{{"from", names[from]}, {"to", names[to]}};
      pair.update(choice(trials, names, {from, to}));
      matrix["pairs"].push_back(std::move(pair));
    }
  }
  matrix["all"] = choice(trials, names, every);
  matrix["all"].erase("device");
  return matrix;
}

}  // namespace farside::tools

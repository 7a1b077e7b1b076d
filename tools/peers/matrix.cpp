// SPDX-License-Identifier: BSD-3-Clause
#include "tools/peers/matrix.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/host.hpp"

namespace farside::tools {
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
  Json matrix{{"farside_peers", 1}, {"farside", FARSIDE_VERSION}, {"hosts", hosts}, {"pairs", Json::array()}};
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

std::string matrix_text(const Json& matrix) {
  std::string text;
  std::set<std::string> versions;
  std::vector<std::string> header{"from / to"};
  for (const Json& host : matrix.at("hosts")) {
    const std::string name = host.at("host");
    header.push_back(name);
    versions.insert(host.at("libfabric"));
    text += fmt::format("{}: Linux {}, libfabric {}\n", name, host.at("kernel").get<std::string>(),
                        host.at("libfabric").get<std::string>());
    for (const Json& adapter : host.at("adapters")) {
      text += fmt::format("  {}\n", adapter_text(adapter));
      if (adapter.at("trouble") != "") text += fmt::format("    ! {}\n", adapter.at("trouble").get<std::string>());
    }
  }
  Table table(header);
  for (const Json& host : matrix.at("hosts")) {
    std::vector<std::string> row{host.at("host")};
    for (const Json& to : matrix.at("hosts")) {
      const auto pair = std::ranges::find_if(matrix.at("pairs"), [&](const Json& one) {
        return one.at("from") == host.at("host") && one.at("to") == to.at("host");
      });
      if (pair == matrix.at("pairs").end()) {
        row.emplace_back("-");
      } else if (pair->at("provider") == "") {
        row.emplace_back("NOTHING");
      } else {
        row.push_back(
            fmt::format("{} ({})", pair->at("provider").get<std::string>(), pair->at("device").get<std::string>()));
      }
    }
    table.add(std::move(row));
  }
  text += fmt::format("\n{}", table.text());
  const std::string chosen = matrix.at("all").at("provider");
  text += fmt::format("\nA job on all these hosts takes {}.\n", chosen.empty() ? "NOTHING" : chosen);
  for (const Json& why : matrix.at("all").at("why_not")) text += fmt::format("  not {}\n", why.get<std::string>());
  if (versions.size() > 1)
    text += fmt::format("  ! the hosts have different versions of libfabric: {}\n", fmt::join(versions, ", "));
  return text;
}

}  // namespace farside::tools

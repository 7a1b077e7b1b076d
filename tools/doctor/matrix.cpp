// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>

#include "tools/doctor/examination.hpp"

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

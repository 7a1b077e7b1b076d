// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/report.hpp"

#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace farside::bench {
namespace {

void say(const nlohmann::ordered_json& line) {
  // A message of the runtime may not be UTF-8: invalid bytes are replaced, since the default would throw.
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

}  // namespace

void say_hello(const std::string& library, int ranks, const std::vector<std::string>& hosts, const Options& options) {
  nlohmann::ordered_json facts = nlohmann::ordered_json::array();
  for (const std::string& host : hosts) facts.push_back(nlohmann::ordered_json::parse(host, nullptr, false));
  say({{"hello", "farside-bench"},
       {"library", library},
       {"ranks", ranks},
       {"nodes", hosts.size()},
       {"hosts", std::move(facts)},
       {"window", options.window == WindowKind::kAllocate ? "allocate" : "create"},
       {"compute_seconds", options.compute_seconds}});
}

void say_begin(std::string_view measure) { say({{"begin", measure}}); }

void say_opened(std::string_view route, std::string_view provider, std::string_view device) {
  say({{"opened", route}, {"provider", provider}, {"device", device}});
}

void say_result(const MeasureInfo& measure, std::vector<double> values, double preempted) {
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  say({{"measure", measure.name},
       {"unit", unit_name(measure.unit)},
       {"median", at(0.5)},
       {"min", values.front()},
       {"p90", at(0.9)},
       {"samples", values.size()},
       {"preempted", preempted}});
}

void say_wrong(std::string_view measure, std::string_view what) { say({{"measure", measure}, {"error", what}}); }

void say_end() { say({{"end", true}}); }

}  // namespace farside::bench

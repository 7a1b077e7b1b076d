// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/report.hpp"

#include <algorithm>
#include <cstdio>

#include "tools/json.hpp"

namespace farside::bench {
namespace {

void print(const tools::Json& line) {
  std::printf("%s\n", tools::json_text(line).c_str());
  std::fflush(stdout);
}

}  // namespace

void print_hello(const std::string& library, int ranks, const std::vector<std::string>& hosts, const Options& options) {
  tools::Json facts = tools::Json::array();
  for (const std::string& host : hosts) facts.push_back(tools::Json::parse(host, nullptr, false));
  print({{"hello", "farside-bench"},
         {"library", library},
         {"ranks", ranks},
         {"nodes", hosts.size()},
         {"hosts", std::move(facts)},
         {"window", options.window == WindowKind::kAllocate ? "allocate" : "create"},
         {"compute_seconds", options.compute_seconds}});
}

void print_begin(std::string_view measure) { print({{"begin", measure}}); }

void print_opened(std::string_view route, std::string_view provider, std::string_view device) {
  print({{"opened", route}, {"provider", provider}, {"device", device}});
}

void print_result(const MeasureInfo& measure, std::vector<double> values, double preempted) {
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  print({{"measure", measure.name},
         {"unit", unit_name(measure.unit)},
         {"median", at(0.5)},
         {"min", values.front()},
         {"p90", at(0.9)},
         {"samples", values.size()},
         {"preempted", preempted}});
}

void print_error(std::string_view measure, std::string_view what) { print({{"measure", measure}, {"error", what}}); }

void print_end() { print({{"end", true}}); }

}  // namespace farside::bench

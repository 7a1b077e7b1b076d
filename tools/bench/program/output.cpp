// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/program/output.hpp"

#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "tools/common/text.hpp"

namespace farside::bench {

std::optional<Options> read_options(int argc, char** argv, bool speaks, int& exit_code) {
  Options options;
  CLI::App app(
      "Measures MPI one-sided communication between rank 0 (origin) and rank 1 (target); further ranks\n"
      "sleep. One JSON object per line on stdout. Start it under mpirun with two ranks or more.",
      "farside-bench");
  const CLI::Validator known(
      [](std::string& word) { return known_word(word) ? std::string() : word + " is no measure"; }, "NAME");
  std::vector<std::string> chosen;
  app.add_option("--measures", chosen, "only these measures or groups (a,b,c), or all")->delimiter(',')->check(known);
  app.option_defaults()->always_capture_default();
  std::string window = "allocate";
  app.add_option("--window", window, "allocate: MPI_Win_allocate; create: MPI_Win_create on malloc memory")
      ->check(CLI::IsMember({"allocate", "create"}));
  app.add_option("--provider", options.provider, "libfabric provider of the bare measures");
  app.add_option("--compute-seconds", options.compute_seconds, "seconds that a computing target spends outside MPI")
      ->check(CLI::Range(0.05, 3600.0));
  app.add_option("--sleep-seconds", options.sleep_seconds, "seconds that a sleeping target spends outside MPI")
      ->check(CLI::Range(0.05, 3600.0));
  app.add_option("--sample-seconds", options.sample_seconds, "seconds of samples per measure")
      ->check(CLI::Range(0.001, 60.0));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = speaks ? app.exit(error) : 0;
    return std::nullopt;
  }
  options.window = window == "create" ? WindowKind::kCreate : WindowKind::kAllocate;
  for (const MeasureInfo& info : catalogue())
    if (chosen.empty() ? info.selection != Selection::kNamed : named(chosen, info)) options.measures.push_back(&info);
  return options;
}

// ---- report ----

namespace {

void print(const tools::Json& line) {
  std::printf("%s\n", tools::json_text(line).c_str());
  std::fflush(stdout);
}

}  // namespace

void print_hello(const std::string& library, const std::vector<std::string>& hosts) {
  tools::Json facts = tools::Json::array();
  for (const std::string& host : hosts) facts.push_back(tools::Json::parse(host, nullptr, false));
  print({{"hello", "farside-bench"}, {"library", library}, {"nodes", hosts.size()}, {"hosts", std::move(facts)}});
}

void print_begin(std::string_view measure) { print({{"begin", measure}}); }

void print_opened(std::string_view route, std::string_view provider, std::string_view device) {
  print({{"opened", route}, {"provider", provider}, {"device", device}});
}

void print_result(const MeasureInfo& measure, std::vector<double> values, double preempted) {
  std::ranges::sort(values);
  const bool more = more_is_better(measure.unit);
  double sum = 0;
  for (const double value : values) sum += more ? 1 / value : value;  // of times: the samples have equal counts
  const auto number = static_cast<double>(values.size());
  // So many samples are as good.
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>((more ? 1 - share : share) * (number - 1) + 0.5)];
  };
  print({{"measure", measure.name},
         {"unit", unit_name(measure.unit)},
         {"median", at(0.5)},
         {"mean", more ? number / sum : sum / number},
         {"p90", at(0.9)},
         {"p99", at(0.99)},
         {"samples", values.size()},
         {"preempted", preempted}});
}

void print_error(std::string_view measure, std::string_view what) { print({{"measure", measure}, {"error", what}}); }

void print_end() { print({{"end", true}}); }

}  // namespace farside::bench

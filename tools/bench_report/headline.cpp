// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_report/headline.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/text.hpp"

namespace farside::tools {
namespace {

constexpr std::size_t kMostTitles = 3;

bool was_measured(const Json& measure) {
  return std::ranges::any_of(measure.at("variants"), [](const Json& figure) { return figure.contains("median"); });
}

// The titles of the measures with a figure: those of MPI, or of what uses neither MPI nor farside.
std::vector<std::string> titles_of(const Json& result, bool bare) {
  std::vector<std::string> titles;
  for (const Json& runtime : result.at("runtimes")) {
    for (const Json& measure : runtime.at("measures")) {
      const std::string title = measure.at("title");
      if (measure.at("measure").get<std::string>().starts_with("bare_") != bare || !was_measured(measure)) continue;
      if (std::ranges::find(titles, title) == titles.end()) titles.push_back(title);
    }
  }
  return titles;
}

std::string listed(const std::vector<std::string>& titles, std::string_view what) {
  if (titles.size() <= kMostTitles) return fmt::format("{}", fmt::join(titles, ", "));
  return counted(titles.size(), what);
}

std::string place(const Json& result) {
  std::vector<std::string> names;
  for (const Json& host : result.value("hosts", Json::array())) names.push_back(host.at("host").get<std::string>());
  if (names.empty()) names.push_back(result.at("machine").at("host").get<std::string>());
  if (names.size() == 1) return "on one node (" + names[0] + ")";
  if (names.size() > kMostTitles) return fmt::format("on {} nodes", names.size());
  return fmt::format("on {} nodes ({})", names.size(), fmt::join(names, ", "));
}

// "Open MPI v4.1.4: native, farside, farside over tcp"
std::string variants_of(const Json& result, const Json& runtime) {
  std::vector<std::string> titles;
  for (const Json& variant : result.at("variants")) {
    const std::string key = variant.at("variant");
    if (std::ranges::any_of(runtime.at("measures"), [&](const Json& measure) {
          return measure.at("variants").contains(key) && measure.at("variants").at(key).contains("median");
        })) {
      titles.push_back(variant.at("title").get<std::string>());
    }
  }
  const std::string version = runtime.at("version");
  return fmt::format("{}: {}", version.empty() ? runtime.at("runtime").get<std::string>() : version,
                     fmt::join(titles, ", "));
}

}  // namespace

std::string headline(const Json& result) {
  const std::vector<std::string> operations = titles_of(result, false), limits = titles_of(result, true);
  if (operations.empty() && limits.empty()) return "Nothing was measured.";
  const Json& settings = result.at("settings");
  std::vector<std::string> runtimes;
  for (const Json& runtime : result.at("runtimes")) runtimes.push_back(variants_of(result, runtime));
  const int rounds = settings.value("rounds", 0), ranks = settings.value("ranks", 0);
  std::string what = operations.empty() ? "" : listed(operations, "measure") + " of MPI's one-sided communication";
  if (!limits.empty()) {
    what += fmt::format("{}{} without MPI, as limits", what.empty() ? "" : "; beside them ",
                        listed(limits, what.empty() ? "measure" : "other"));
  }
  return fmt::format(
      "Measured: {}. {}{}, windows made by MPI_Win_{}. {} (a figure is the median{}). {}.", what,
      ranks > 0 ? counted(ranks, "rank") + " " : "Ranks ", place(result), settings.at("window").get<std::string>(),
      rounds > 1 ? fmt::format("{} runs of each variant, in alternation", rounds) : "One run of each variant",
      rounds > 1 ? " of the medians of the runs" : " of the run", fmt::join(runtimes, "; "));
}

}  // namespace farside::tools

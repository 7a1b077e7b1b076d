// SPDX-License-Identifier: BSD-3-Clause
// Two results side by side.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "tools/bench/report.hpp"

namespace farside::tools {
namespace {

constexpr double kUnknownNoise = 2;

bool is_doubtful(const Json& figure) { return figure.value("doubtful", false); }

// Returns the spread of the runs of one figure, as a factor.
double spread(const Json& figure) {
  std::vector<double> medians;
  for (const Json& run : figure.at("runs"))
    if (!run.at("left_out").get<bool>()) medians.push_back(run.at("median"));
  if (medians.size() < 2) return kUnknownNoise;
  const auto [least, most] = std::ranges::minmax(medians);
  return least > 0 ? most / least : kUnknownNoise;
}

using Key = std::tuple<std::string, std::string, std::string>;  // runtime, measure, variant

struct Place {
  const Json* measure;
  const Json* figure;
  bool native;
};

std::map<Key, Place> places_of(const Json& result) {
  std::map<std::string, bool> native;
  for (const Json& variant : result.at("variants")) native[variant.at("variant")] = variant.at("native");
  std::map<Key, Place> places;
  for (const Json& runtime : result.at("runtimes")) {
    for (const Json& measure : runtime.at("measures")) {
      const std::string name = measure.at("measure");
      for (const auto& [variant, figure] : measure.at("variants").items()) {
        places[{runtime.at("runtime"), name, variant}] = {&measure, &figure,
                                                          native[variant] || name.starts_with("bare_")};
      }
    }
  }
  return places;
}

// Classifies the change by a factor of at least 1 in both directions: 1.25 is +25 % or the reverse.
Comparison compare_figures(const Json& measure, const Json& a, const Json& b, double threshold) {
  Comparison result;
  result.a = median_in(a);
  result.b = median_in(b);
  result.doubtful_a = is_doubtful(a);
  result.doubtful_b = is_doubtful(b);
  if (!result.a || !result.b) {
    if (result.a) result.change = Change::kLost;
    if (result.b) result.change = Change::kRegained;
    return result;
  }
  const bool more = measure.at("better") == "more";
  const double before = more ? *result.b : *result.a;
  const double after = more ? *result.a : *result.b;
  result.noise = std::max(spread(a) * spread(b), 1 + threshold);
  if (!(before > 0) || !(after > 0)) {
    // A count or time of 0 has no ratio. A change from or to 0 counts only if the other value is at least 100.
    result.factor = before == after ? 1 : 0;
    if (before == 0 && after >= 100) result.change = Change::kRegression;
    if (after == 0 && before >= 100) result.change = Change::kImprovement;
    return result;
  }
  result.factor = after / before;
  if (result.factor > result.noise) result.change = Change::kRegression;
  if (result.factor < 1 / result.noise) result.change = Change::kImprovement;
  return result;
}

}  // namespace

std::string_view change_name(Change change) {
  constexpr std::array<std::string_view, 7> kNames = {
      "", "REGRESSION", "improvement", "LOST", "measured again", "only in A", "only in B"};
  return kNames[static_cast<std::size_t>(change)];
}

std::vector<Comparison> compare(const Json& a, const Json& b, double threshold) {
  const auto in_a = places_of(a);
  const auto in_b = places_of(b);
  std::vector<Comparison> result;
  const auto add = [&](const Key& key, const Place& place, Comparison one) {
    std::tie(one.runtime, one.measure, one.variant) = key;
    one.title = place.measure->at("title");
    one.unit = unit_of(*place.measure);
    one.native = place.native;
    result.push_back(std::move(one));
  };
  // The order is that of B's measures, which is the catalogue's.
  for (const Json& runtime : b.at("runtimes")) {
    for (const Json& measure : runtime.at("measures")) {
      for (const auto& [variant, figure] : measure.at("variants").items()) {
        const Key key{runtime.at("runtime"), measure.at("measure"), variant};
        const auto before = in_a.find(key);
        add(key, in_b.at(key),
            before != in_a.end()
                ? compare_figures(measure, *before->second.figure, figure, threshold)
                : Comparison{.b = median_in(figure), .doubtful_b = is_doubtful(figure), .change = Change::kOnlyB});
      }
    }
  }
  for (const auto& [key, place] : in_a) {
    if (in_b.contains(key)) continue;
    add(key, place,
        {.a = median_in(*place.figure), .doubtful_a = is_doubtful(*place.figure), .change = Change::kOnlyA});
  }
  return result;
}

std::vector<std::string> differences(const Json& a, const Json& b) {
  std::vector<std::string> lines;
  const auto note = [&](const std::string& what, const Json& x, const Json& y) {
    const auto text = [](const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
    if (x != y) lines.push_back(fmt::format("{}: {} / {}", what, text(x), text(y)));
  };
  for (const char* key : {"host", "processor", "threads", "system", "kernel"})
    note(key, a.at("machine").value(key, Json()), b.at("machine").value(key, Json()));
  for (const char* key : {"farside", "libfabric"}) note(key, a.value(key, Json()), b.value(key, Json()));
  for (const auto& [key, value] : a.at("settings").items())
    if (key != "rounds") note(key, value, b.at("settings").value(key, Json()));
  for (const Json& x : a.at("runtimes")) {
    for (const Json& y : b.at("runtimes"))
      if (x.at("runtime") == y.at("runtime")) note(x.at("runtime"), x.at("version"), y.at("version"));
  }
  return lines;
}

std::string comparison_text(const std::vector<Comparison>& comparisons, bool all) {
  Table table({"measure", "runtime", "variant", "A", "B", "time B/A", "noise", ""});
  bool any = false;
  for (const Comparison& one : comparisons) {
    if (!all && (one.change == Change::kNone || one.only_in_one())) continue;
    any = true;
    const auto shown = [&](const std::optional<double>& value, bool doubtful) {
      return value ? fmt::format("{}{}", doubtful ? kNoiseMark : "", with_unit(*value, one.unit)) : "-";
    };
    const bool both = one.a && one.b && one.factor > 0;
    const std::string_view mark = one.doubtful_a || one.doubtful_b ? kNoiseMark : "";
    table.add(one.title, one.runtime, one.variant, shown(one.a, one.doubtful_a), shown(one.b, one.doubtful_b),
              both ? fmt::format("{}{:.3g}", mark, one.factor) : "-", both ? fmt::format("{:.3g}", one.noise) : "-",
              change_name(one.change));
  }
  return any ? table.text() : std::string();
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <catch2/catch.hpp>

#include "tools/bench_driver/session.hpp"
#include "tools/bench_report/compare.hpp"
#include "tools/bench_report/result.hpp"
#include "tools/text.hpp"

using namespace farside;
using namespace farside::tools;

namespace {

// A result of one runtime and one measure, its runs in the variant "node" as given.
Json result_of(const std::vector<double>& runs, const std::string& better = "less") {
  Json figure{{"verdict", "measured"}, {"median", median_of(runs)}, {"doubtful", false}, {"runs", Json::array()}};
  for (const double run : runs) figure["runs"].push_back({{"median", run}, {"left_out", false}});
  Json measure{{"measure", "put_flush"},
               {"title", "put"},
               {"unit", better == "less" ? "us" : "1/s"},
               {"better", better},
               {"group", "put_size"},
               {"x", 8.0},
               {"bare", ""}};
  measure["variants"] = {{"node", figure}};
  Json result{{"farside_bench", 2}, {"date", "now"}};
  result["machine"] = {{"host", "h"}, {"processor", "p"}, {"kernel", "k"}};
  result["settings"] = {{"window", "allocate"}};
  result["variants"] = Json::array({Json{{"variant", "node"}, {"title", "farside"}, {"native", false}}});
  Json runtime{{"runtime", "openmpi"}, {"version", "1"}, {"warnings", Json::array()}};
  runtime["measures"] = Json::array({measure});
  result["runtimes"] = Json::array({runtime});
  return result;
}

Change change(const std::vector<double>& a, const std::vector<double>& b, const std::string& better = "less") {
  return compare(result_of(a, better), result_of(b, better), 0.1).at(0).change;
}

}  // namespace

TEST_CASE("a change counts beyond the noise of both results, and in the right direction") {
  CHECK(change({1, 1, 1}, {1.2, 1.2, 1.2}) == Change::kRegression);
  CHECK(change({1.2, 1.2, 1.2}, {1, 1, 1}) == Change::kImprovement);
  CHECK(change({1, 1, 1}, {1.2, 1.2, 1.2}, "more") == Change::kImprovement);
  CHECK(change({1.2, 1.2, 1.2}, {1, 1, 1}, "more") == Change::kRegression);
  CHECK(change({1, 1, 1}, {1.09, 1.09, 1.09}) == Change::kNone);          // below the threshold
  CHECK(change({1, 1.1, 1.2}, {1.2, 1.3, 1.4}) == Change::kNone);         // 1.18, noise 1.2 x 1.17
  CHECK(change({1, 1.1, 1.2}, {1.7, 1.75, 1.8}) == Change::kRegression);  // 1.59, noise 1.27
}

TEST_CASE("of a single run the noise is not known") {
  CHECK(change({1}, {1.9}) == Change::kNone);
  CHECK(change({1, 1}, {1.9}) == Change::kNone);
  CHECK(change({1, 1}, {2.1}) == Change::kRegression);
  CHECK(change({1}, {2.1}) == Change::kNone);
  CHECK(change({1}, {4.1}) == Change::kRegression);
}

TEST_CASE("counts of zero are compared without a ratio") {
  CHECK(change({0, 0}, {0, 0}) == Change::kNone);
  CHECK(change({0, 0}, {20, 20}) == Change::kNone);
  CHECK(change({0, 0}, {5000, 5000}) == Change::kRegression);
  CHECK(change({5000, 5000}, {0, 0}) == Change::kImprovement);
}

TEST_CASE("what is measured in one result only is said, and is no regression") {
  Json other = result_of({1, 1});
  other["runtimes"][0]["measures"][0]["measure"] = "get_flush";
  const auto found = compare(result_of({1, 1}), other, 0.1);
  REQUIRE(found.size() == 2);
  CHECK(found[0].change == Change::kOnlyB);
  CHECK(found[1].change == Change::kOnlyA);
}

TEST_CASE("figures have three digits and the unit that suits them") {
  CHECK(with_unit(46.8e6, bench::Unit::kPerSecond) == "46.8 M/s");
  CHECK(with_unit(0.0381, bench::Unit::kMicroseconds) == "0.0381 us");
  CHECK(with_unit(12400, bench::Unit::kMicroseconds) == "12.4 ms");
}

TEST_CASE("a ratio has no more digits than it means, and an end") {
  constexpr auto us = bench::Unit::kMicroseconds;
  CHECK(ratio(1, 0.4, us) == "2.50x");
  CHECK(ratio(1, 0.4, bench::Unit::kPerSecond) == "0.40x");
  CHECK(ratio(480, 1, us) == "480x");
  CHECK(ratio(1, 47.6, us) == "0.0210x");
  CHECK(ratio(1, 1.9e-8, us) == ">1000x");
  CHECK(ratio(0.01, 11, us) == "<0.001x");
  CHECK(ratio(0, 1, us) == "-");
}

TEST_CASE("nothing of a result becomes markup") {
  Json result = result_of({1, 1});
  result["command"] = "<b>&\"";
  result["runtimes"][0]["warnings"].push_back("</script><script>");
  const std::string html = html_report(result);
  CHECK(html.find("<b>") == std::string::npos);
  CHECK(html.find("</script><script>") == std::string::npos);
  CHECK(html.find(R"(\u003cb>&\")") != std::string::npos);
  CHECK(html.find("http") == std::string::npos);  // it needs no network
}

TEST_CASE("a command line is taken apart as a shell does") {
  using Words = std::vector<std::string>;
  CHECK(shell_words("srun -n {n}") == Words{"srun", "-n", "{n}"});
  CHECK(shell_words("  'a b' \"c 'd'\" e\\ f ''") == Words{"a b", "c 'd'", "e f", ""});
  CHECK(shell_words("").empty());
  const Words words{"plain", "with space", "it's", "", "a\\b\"c"};
  CHECK(shell_words(shell_line(words)) == words);
}

TEST_CASE("measures are chosen by name, by group, and never without the ranks that they need") {
  BenchSettings settings;
  const auto names = [&] {
    std::vector<std::string> result;
    for (const auto* info : chosen_measures(settings)) result.emplace_back(info->name);
    return result;
  };
  CHECK(names().size() == 21);  // what no --measures gives takes as long as ever
  settings.html_file = "report.html";
  const auto reported = names();
  for (const char* name : {"put_64", "bare_read_4mib", "progress_1s", "contention_2", "rate_2"})
    CHECK(std::find(reported.begin(), reported.end(), name) != reported.end());
  settings.demo = true;
  CHECK(names().size() == 8);
  settings = {};
  settings.measures = {"contention", "get_flush"};
  CHECK(names() == std::vector<std::string>{"get_flush", "contention_1", "contention_2"});
  settings.ranks = 5;
  settings.skip = {"contention_1"};
  CHECK(names() == std::vector<std::string>{"get_flush", "contention_2", "contention_4"});
}

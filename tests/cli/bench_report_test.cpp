// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <catch2/catch.hpp>

#include "tools/bench/driver.hpp"
#include "tools/bench/report.hpp"
#include "tools/common/text.hpp"

namespace farside::bench_report_test {

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

namespace {

// The table of a runtime with these runs of each variant in each of the measures; all runs have the same value but of
// the variants in `noisy`.
std::string table_of(const std::vector<std::string>& variants, const std::vector<std::string>& measures,
                     const std::vector<std::string>& noisy) {
  BenchSettings settings;
  settings.variants = variants;
  RuntimeReport report;
  report.runtime.name = "openmpi";
  report.variants = variants_named(variants);
  report.hosts = Json::array();
  std::vector<const bench::MeasureInfo*> infos;
  for (const std::string& name : measures) {
    infos.push_back(bench::find_measure(name));
    REQUIRE(infos.back() != nullptr);
    for (const Variant* variant : report.variants) {
      Series& series = report.series[variant->key][infos.back()->name];
      const bool noise = std::ranges::find(noisy, variant->key) != noisy.end();
      for (const double median : {2.0, 2.0, noise ? 9.0 : 2.0}) {
        Figure figure;
        figure.median = figure.mean = median;
        series.figures.push_back(figure);
      }
    }
  }
  return table_text(settings, infos, report);
}

// The cells of the line that begins with this text.
std::vector<std::string> line_of(const std::string& table, const std::string& begin) {
  for (const std::string& line : split(table, "\n")) {
    if (!line.starts_with(begin)) continue;
    std::vector<std::string> cells;
    for (const std::string& cell : split(line, "|")) {
      const std::size_t first = cell.find_first_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') + 1 - first));
    }
    return cells;
  }
  return {};
}

}  // namespace

TEST_CASE("a figure of runs that differ has a mark, and so has what is computed from it") {
  using Catch::Matchers::Contains;
  const std::string title = bench::find_measure("put_flush")->title;
  const std::vector<std::string> some{"native", "node"};
  CHECK(line_of(table_of(some, {"put_flush"}, {}), title) ==
        std::vector<std::string>({title, "2.00 us", "2.00 us", "1.00x"}));
  CHECK(line_of(table_of(some, {"put_flush"}, {"native"}), title) ==
        std::vector<std::string>({title, "~2.00 us", "2.00 us", "~1.00x"}));
  CHECK(line_of(table_of(some, {"put_flush"}, {"node"}), title) ==
        std::vector<std::string>({title, "2.00 us", "~2.00 us", "~1.00x"}));
  CHECK_THAT(table_of(some, {"put_flush"}, {"node"}), Contains("  ~ noise: "));
  CHECK_THAT(table_of(some, {"put_flush"}, {}), !Contains("~"));
}

TEST_CASE("in OSU's layout sizes ascend, and bandwidths are latencies") {
  using Catch::Matchers::Contains;
  RuntimeReport report;
  report.library = "Open MPI v4";
  report.variants = variants_named({"native"});
  const std::vector<const bench::MeasureInfo*> infos{bench::find_measure("put_4mib"), bench::find_measure("put_flush")};
  const auto add = [&](const char* measure, double mean, double median, double p90, double p99) {
    report.series["native"][measure].figures.push_back({median, mean, p90, p99, 1, 0});
  };
  add("put_flush", 2, 1, 3, 4);
  add("put_flush", 4, 3, 5, 6);
  add("put_4mib", 4096, 8192, 2048, 1024);
  const std::string row = "{:<10}{:>20.4f}{:>20.4f}{:>20.4f}{:>20.4f}\n";
  CHECK_THAT(osu_text({}, infos, report),
             Contains("# farside bench: put + flush, Open MPI v4, native\n# Size            Latency (us)  ") &&
                 Contains(fmt::format(fmt::runtime(row + row), 8, 3., 2., 4., 5., 4194304, 1024., 512., 2048., 4096.)));
}

TEST_CASE("a limit whose runs differ has a mark, and the table says what it means") {
  using Catch::Matchers::Contains;
  const std::string title = bench::find_measure("put_flush")->title;
  const std::string bare = bench::find_measure("put_flush")->bare;
  const std::string table = table_of({"fabric"}, {"put_flush", bare}, {"fabric"});
  CHECK(line_of(table, title).back() == "~2.00 us");
  CHECK_THAT(table, Contains("  ~ noise: "));
}

TEST_CASE("a comparison marks the figures whose runs differ") {
  using Catch::Matchers::Contains;
  Json a = result_of({1, 1, 4}), b = result_of({1, 1, 1});
  a["runtimes"][0]["measures"][0]["variants"]["node"]["doubtful"] = true;
  CHECK_THAT(comparison_text(compare(a, b, 0.1), true), Contains("| ~1.00 us | 1.00 us |") && Contains("|       ~1 |"));
  CHECK_THAT(comparison_text(compare(b, a, 0.1), true), Contains("| 1.00 us | ~1.00 us |"));
  CHECK_THAT(comparison_text(compare(b, b, 0.1), true), !Contains("~"));
}

TEST_CASE("a headline says what was measured, of what, where and how often") {
  Json result = result_of({1, 1, 1});
  result["settings"]["rounds"] = 3;
  result["settings"]["ranks"] = 2;
  CHECK(headline(result) ==
        "Measured: put of MPI's one-sided communication. 2 ranks on one node (h), windows made by MPI_Win_allocate. "
        "3 runs of each variant, in alternation (a figure is the median of the medians of the runs). 1: farside.");
  Json bare = result["runtimes"][0]["measures"][0];
  bare["measure"] = "bare_write_8";
  bare["title"] = "bare write";
  result["runtimes"][0]["measures"].push_back(bare);
  result["hosts"] = Json::array({{{"host", "a"}}, {{"host", "b"}}});
  result["settings"]["rounds"] = 1;
  CHECK(headline(result) ==
        "Measured: put of MPI's one-sided communication; beside them bare write without MPI, as limits. 2 ranks on 2 "
        "nodes (a, b), windows made by MPI_Win_allocate. One run of each variant (a figure is the median of the run). "
        "1: farside.");
  result["runtimes"][0]["measures"] = Json::array();
  CHECK(headline(result) == "Nothing was measured.");
}

TEST_CASE("lines are broken at spaces") {
  CHECK(wrapped("one two three", 7) == "one two\nthree");
  CHECK(wrapped("one two three", 3) == "one\ntwo\nthree");
  CHECK(wrapped("one", 100) == "one");
  CHECK(wrapped("one two\nthree four", 10) == "one two\nthree four");
}

TEST_CASE("the rest of a line begins below its last column, and rows of tables stay whole") {
  CHECK(wrapped("  -n  one two three", 14) == "  -n  one two\n      three");
  CHECK(wrapped("      ! one two", 12) == "      ! one\n        two");
  CHECK(wrapped("  one two\n  three", 8) == "  one\n    two\n  three");
  CHECK(wrapped("one | two\n----+----\none two", 6) == "one | two\n----+----\none\ntwo");
  CHECK(wrapped("one | two", 6) == "one |\ntwo");
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
  CHECK(with_unit(0.5, bench::Unit::kRatio) == "0.500");
}

TEST_CASE("a ratio has no more digits than it means, and an end") {
  constexpr auto us = bench::Unit::kMicroseconds;
  CHECK(ratio(1, 0.4, us) == "2.50x");
  CHECK(ratio(1, 0.4, bench::Unit::kPerSecond) == "0.40x");
  CHECK(ratio(0.5, 1, bench::Unit::kRatio) == "2.00x");
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
  settings.launch.ranks = 5;
  settings.skip = {"contention_1"};
  CHECK(names() == std::vector<std::string>{"get_flush", "contention_2", "contention_4"});
  settings.measures = {"contended"};  // of any number of ranks
  CHECK(names().size() == 18);
}

}  // namespace farside::bench_report_test

// SPDX-License-Identifier: BSD-3-Clause
// `farside explain` on statistics that this test makes: each rule speaks where it should, and not else.
#include "tools/explain/explain.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace farside::explain_test {

using namespace farside::tools::explain;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

json operations(std::uint64_t count, std::uint64_t bytes = 0) { return {{"count", count}, {"bytes", bytes}}; }
json waits(std::uint64_t count, double seconds, double longest = 0.1) {
  return {{"count", count}, {"seconds", seconds}, {"longest_seconds", longest}};
}

// The file of a rank of two, of 10 seconds, with windows of one kind.
json file_of(int rank, const std::string& kind, json sums, int runtime_windows = 0) {
  if (!sums.contains("windows")) sums["windows"] = 1;
  return {{"rank", rank},
          {"ranks", 2},
          {"host", "node"},
          {"job", {{"started", 1e9}, {"written", 1e9 + 20}, {"agreed", "00000000000000ff"}}},
          {"seconds", 10.0},
          {"windows", {{"farside", 1}, {"runtime", runtime_windows}}},
          {"window_kinds", {{kind, sums}}}};
}

// One rank of one.
Run run_of(const std::string& kind, const json& sums, int runtime_windows = 0) {
  json file = file_of(0, kind, sums, runtime_windows);
  file["ranks"] = 1;
  Run run;
  add(run, "s.0.json", file.dump());
  return run;
}

std::string rules(const Run& run) {
  std::string names;
  for (const Advice& each : advise(run)) names += (names.empty() ? "" : " ") + each.rule;
  return names;
}

}  // namespace

TEST_CASE("a window on private memory that could be allocated") {
  const auto sums = [](std::uint64_t count) { return json{{"routes", {{"cma", {{"put", operations(count)}}}}}}; };
  CHECK(rules(run_of("create cma", sums(1000))) == "private_memory");
  CHECK_THAT(advise(run_of("create cma", sums(1000)))[0].text,
             Contains("1000 of its 1000 operations (100%)") && Contains("MPI_Win_allocate"));
  CHECK(rules(run_of("create cma", sums(50))).empty());
  CHECK(rules(run_of("create mapped", {{"routes", {{"mapped", {{"put", operations(1000)}}}}}})).empty());
  CHECK_THAT(advise(run_of("create_dynamic cma", sums(1000)))[0].text, Contains("dynamic window always goes this way"));
}

TEST_CASE("a flush after every put") {
  const auto sums = [](std::uint64_t flushes) {
    return json{{"routes", {{"mapped", {{"put", operations(1000)}}}}}, {"flushes", flushes}};
  };
  CHECK(rules(run_of("allocate mapped", sums(1000))) == "flush_after_every");
  CHECK(rules(run_of("allocate mapped", sums(700))).empty());
  json fabric = {
      {"routes", {{"fabric", {{"put", operations(1000)}}}}}, {"flushes", 900}, {"waits", {{"flush", waits(900, 2.5)}}}};
  CHECK_THAT(advise(run_of("allocate fabric", fabric))[0].text, Contains("2.50 s of waiting"));
}

TEST_CASE("lock and unlock where one lock_all would do") {
  const auto sums = [](std::uint64_t shared, std::uint64_t exclusive, std::uint64_t count) {
    return json{{"routes", {{"mapped", {{"put", operations(count)}}}}},
                {"epochs", {{"lock_shared", shared}, {"lock_exclusive", exclusive}}}};
  };
  CHECK(rules(run_of("allocate mapped", sums(1000, 0, 1000))) == "lock_each_time");
  CHECK(rules(run_of("allocate mapped", sums(1000, 1, 1000))).empty());    // the lock excludes somebody
  CHECK(rules(run_of("allocate mapped", sums(1000, 0, 100000))).empty());  // it opens much
  CHECK(rules(run_of("allocate mapped", sums(50, 0, 50))).empty());        // too few
  const json all = {{"routes", {{"mapped", {{"put", operations(1000)}}}}}, {"epochs", {{"lock_all", 1000}}}};
  CHECK(rules(run_of("allocate mapped", all)) == "lock_all_each_time");
}

TEST_CASE("accumulates off the fast path, and why") {
  const auto sums = [](const char* by, const char* why, std::uint64_t count) {
    return json{{"routes", {{"mapped", {{"accumulate", operations(1000)}}}}},
                {"slow_accumulates", {{by, {{why, count}}}}}};
  };
  CHECK(rules(run_of("allocate mapped", sums("lock", "type", 500))) == "accumulates_by_lock");
  CHECK_THAT(advise(run_of("allocate mapped", sums("lock", "unaligned", 500)))[0].text,
             Contains("500 accumulates") && Contains("not aligned"));
  CHECK_THAT(advise(run_of("allocate mapped", sums("lock", "floating_point", 500)))[0].text,
             Contains("floating-point"));
  CHECK_THAT(advise(run_of("allocate fabric", sums("handler", "provider", 500)))[0].text,
             Contains("message to the target's handler"));
  CHECK(rules(run_of("allocate mapped", sums("lock", "type", 5))).empty());
}

TEST_CASE("waits that take a share of the time") {
  const auto sums = [](const char* call, double seconds) {
    return json{{"waits", {{call, waits(10, seconds, 0.25)}}}};
  };
  CHECK(rules(run_of("allocate mapped", sums("lock", 1.0))) == "lock_waits");
  CHECK_THAT(advise(run_of("allocate mapped", sums("lock", 1.0)))[0].text,
             Contains("waited 1.00 s") && Contains("10% of the time") && Contains("250 ms"));
  CHECK(rules(run_of("allocate mapped", sums("lock", 0.4))).empty());
  CHECK(rules(run_of("allocate mapped", sums("fence", 1.0))) == "fence_waits");
  CHECK(rules(run_of("allocate mapped", sums("start", 1.0))) == "start_waits");
  CHECK(rules(run_of("allocate mapped", sums("wait", 1.0))) == "wait_waits");
}

TEST_CASE("very many small operations, and windows that are not farside's") {
  CHECK(rules(run_of("allocate mapped", {{"routes", {{"mapped", {{"put", operations(20'000'000)}}}}}})) ==
        "many_small");
  CHECK(rules(run_of("allocate mapped", {{"routes", {{"mapped", {{"put", operations(9'000'000)}}}}}})).empty());
  CHECK(rules(run_of("allocate mapped", json::object(), 3)) == "runtime_windows");
}

TEST_CASE("advice comes by weight, and the ranks are summed up") {
  Run run =
      run_of("create cma", {{"routes", {{"cma", {{"put", operations(1000)}}}}}, {"waits", {{"fence", waits(5, 3.0)}}}});
  CHECK(rules(run) == "fence_waits private_memory");
  add(run, "s.1.json", file_of(1, "create cma", {{"waits", {{"fence", waits(5, 1.0, 0.5)}}}}).dump());
  CHECK(run.files.size() == 2);
  CHECK(run.kinds.at("create cma").waits.at("fence").seconds == Approx(4.0));
  CHECK(run.kinds.at("create cma").waits.at("fence").longest == Approx(0.5));
  CHECK_THAT(in_words(run), Contains("create cma: waiting in fence") && Contains("20%") && Contains("What would help"));
}

TEST_CASE("a rank that made no window has no seconds") {
  Run run = run_of("create cma", json::object());
  const double seconds = run.seconds;
  json file = file_of(1, "", json::object());
  file.erase("seconds");
  file["window_kinds"] = json::object();
  add(run, "s.1.json", file.dump());
  CHECK(run.files.size() == 2);
  CHECK(run.seconds == seconds);
}

TEST_CASE("the first words say what was measured, and of which ranks") {
  Run run;
  add(run, "s.0.json", file_of(0, "allocate mapped", {{"windows", 3}, {"waits", {{"fence", waits(5, 4.0)}}}}).dump());
  json other = file_of(1, "allocate mapped", {{"windows", 3}, {"slow_operations", {{"count", 9}, {"seconds", 2.0}}}});
  other["seconds"] = 30.0;
  other["host"] = "other";
  add(run, "s.1.json", other.dump());
  const std::string words = in_words(run);
  CHECK_THAT(words, Catch::Matchers::StartsWith("Measured: the one-sided calls of 2 ranks on 2 hosts, with 6 windows"));
  CHECK_THAT(words, Contains("30.0 s at the rank that took longest, 40.0 s of all ranks together") &&
                        Contains("10% of this time were waits") && Contains("5.0% operations by system call"));
  CHECK_THAT(in_words(run_of("allocate mapped", json::object())), Contains("of 1 rank on node, with 1 window ("));
}

TEST_CASE("ranks without a file are said, first in words and first in the list") {
  Run run;
  add(run, "s.1.json", file_of(1, "allocate mapped", {{"waits", {{"fence", waits(5, 4.0)}}}}).dump());
  CHECK(rules(run) == "missing_ranks fence_waits");
  CHECK_THAT(in_words(run), Contains("\n! 1 of 2 ranks have left no file here (rank 0)"));
  CHECK_THAT(in_words(run), !Contains("- 1 of 2 ranks"));
}

TEST_CASE("ranks that share cores are said before all advice") {
  Run run;
  for (int rank = 0; rank < 2; ++rank) {
    json file = file_of(rank, "allocate mapped", {{"waits", {{"fence", waits(5, 4.0)}}}});
    file["cpus"] = "3";
    add(run, "s." + std::to_string(rank) + ".json", file.dump());
  }
  CHECK(rules(run) == "oversubscribed fence_waits");
  CHECK_THAT(in_words(run), Contains("\n! 2 ranks share 1 core on node: "));
}

TEST_CASE("figures by rank, pair, size and call site, and the names of windows") {
  Run run;
  json zero = file_of(0, "allocate mapped",
                      {{"waits", {{"lock", waits(5, 4.0)}}},
                       {"names", {"grid"}},
                       {"routes", {{"mapped", {{"put", operations(7, 56)}}}}}});
  zero["targets"] = {{"1", {{"count", 7}, {"bytes", 56}, {"wait_seconds", 4.0}, {"slow_operation_seconds", 0.5}}}};
  zero["sizes"] = {{"put", {{"8", {{"count", 7}, {"bytes", 56}, {"slow_count", 2}, {"slow_seconds", 0.5}}}}}};
  json lock = waits(5, 4.0, 1.0);
  lock["calls"] = 9;
  zero["sites"] = json::array({{{"site", "solve+0x10"}, {"calls", {{"lock", lock}}}}});
  add(run, "s.0.json", zero.dump());
  add(run, "s.1.json", file_of(1, "allocate mapped", json::object()).dump());
  CHECK_THAT(in_words(run), Contains("allocate mapped (grid)"));
  const std::string by_rank = figures_by(run, "rank");
  CHECK_THAT(by_rank, Contains("rank 0 on node | 10.0 s | 4.00 s |") && Contains("rank 1 on node | 10.0 s |      0 |"));
  CHECK_THAT(figures_by(run, "pair"), Contains("rank 0 on node | rank 1 on node | 4.00 s |          500 ms |"));
  CHECK_THAT(figures_by(run, "size"), Contains("put       | up to 8 B |      7 |    56 |") && Contains("250 ms"));
  CHECK_THAT(figures_by(run, "site"), Contains("solve+0x10 | lock |     9 |      5 | 4.00 s |  1.00 s"));
  CHECK_THAT(figures_by(run_of("allocate mapped", json::object()), "site"), Contains("FARSIDE_SITES=on"));
}

TEST_CASE("what is no statistics file is refused, by its name") {
  Run run;
  CHECK_THROWS_WITH(add(run, "s.0.json", "{"), Contains("s.0.json: no statistics"));
  CHECK_THROWS_WITH(add(run, "s.0.json", "[]"), Contains("s.0.json"));
  CHECK_THROWS_WITH(add(run, "s.0.json", R"({"rank": 0, "windows": {}})"), Contains("another version"));
  const auto with = [&](const char* name, const json& value) {
    json file = file_of(0, "create cma", json::object());
    file[json::json_pointer(name)] = value;
    return file.dump();
  };
  CHECK_NOTHROW(add(run, "s.0.json", with("/seconds", 1.0)));
  for (const auto& [name, value] : std::vector<std::pair<const char*, json>>{{"/seconds", "x"},
                                                                             {"/window_kinds/create cma/windows", -1},
                                                                             {"/window_kinds/create cma/epochs", 3},
                                                                             {"/job/started", -1.0},
                                                                             {"/job/agreed", "xyz"},
                                                                             {"/ranks", "x"},
                                                                             {"/targets", {{"x", operations(1)}}},
                                                                             {"/sizes", {{"put", 3}}},
                                                                             {"/sites", 3}}) {
    CHECK_THROWS_WITH(add(run, "s.0.json", with(name, value)), Contains("s.0.json"));
  }
  CHECK_THROWS_WITH(read("/tmp/farside-no-such-statistics"), Contains("FARSIDE_STATS=/tmp/farside-no-such-statistics"));
}

TEST_CASE("a file that cannot be read is left out, and is said") {
  std::string folder = (std::filesystem::temp_directory_path() / "farside-test.XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/s.0.json") << file_of(0, "create cma", json::object()).dump();
  std::ofstream(folder + "/s.1.json") << "{";
  const Run run = read(folder + "/s.0.json");
  CHECK(run.files.size() == 1);
  CHECK_THAT(in_words(run), Contains("! left out: " + folder + "/s.1.json: no statistics"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("values that are nested without end are refused") {
  std::string text = file_of(0, "create cma", json::object()).dump();
  text.pop_back();
  constexpr std::size_t kLevels = 1'000'000;  // more than the stack has room for
  for (const char* part : {"targets", "sites", "windows"}) {
    Run run;
    const std::string deep = fmt::format(",\"{}\":{:[>{}}{:]>{}}}}", part, "", kLevels, "", kLevels);
    CHECK_THROWS_WITH(add(run, "s.0.json", text + deep),
                      Contains("s.0.json: no statistics") && Contains("nested too deeply"));
  }
}

TEST_CASE("what the program and its host are called reaches the terminal without commands to it") {
  json sums = {{"routes", {{"cma", {{"put", operations(1000)}}}}}, {"names", {"grid\x1b]0;owned\x07\n! forged"}}};
  json file = file_of(0, "create cma", sums);
  file["host"] = "no\u009bde\x7f\r";
  file["sites"] = {{{"site", "solve\x1b[2J"}, {"calls", {{"lock", {{"calls", 1}, {"count", 1}, {"seconds", 1}}}}}}};
  Run run;
  add(run, "s.0.json", file.dump());
  for (const std::string& text : {in_words(run), figures_by(run, "rank"), figures_by(run, "site")}) {
    CHECK(std::ranges::none_of(text, [](unsigned char c) { return (c < ' ' && c != '\n') || c == 0x7f || c == 0x9b; }));
    CHECK_THAT(text, !Contains("\n! forged"));
  }
  CHECK_THAT(in_words(run), Contains("no?de?") && Contains("grid?]0;owned?") && Contains("?! forged"));
  file["window_kinds"]["create\x1b[31m"] = sums;
  CHECK_THROWS_WITH(add(run, "s.0.json", file.dump()), Contains("create?[31m: a name with control characters"));
}

}  // namespace farside::explain_test

// SPDX-License-Identifier: BSD-3-Clause
// What `farside doctor` says of examinations that these tests make, what its report leaves out, and that it ends.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tools/common/child.hpp"
#include "tools/doctor/examination.hpp"
#include "tools/doctor/rank.hpp"

namespace farside::doctor_test {

using namespace farside::tools;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Json rank(int number, int node, const char* host) {
  return {
      {"rank", number},
      {"node", node},
      {"host", host},
      {"farside", "0.1.0 (protocol 10)"},
      {"library", "/opt/farside/lib/libfarside-openmpi.so"},
      {"preload", "/opt/farside/lib/libfarside-openmpi.so"},
      {"preload_exists", true},
      {"peers", "0.1.0"},
      {"mpi", "Open MPI v4.1.4"},
      {"launched", 4},
      {"limits",
       {{{"limit", "locked memory"}, {"value", 8 << 20}, {"unit", "bytes"}, {"enough", false}, {"advice", "raise it"}},
        {{"limit", "/dev/shm"}, {"value", nullptr}, {"unit", "bytes"}, {"enough", true}, {"advice", ""}}}},
      {"routes",
       {{{"route", "mapped"}, {"possible", true}, {"allowed", true}, {"why", ""}, {"advice", ""}},
        {{"route", "cma"}, {"possible", true}, {"allowed", true}, {"why", ""}, {"advice", ""}}}},
      {"settings", Json::object()},
      {"bad_setting", ""},
      {"unknown_settings", Json::array()}};
}

Json host(const char* name) {
  return {{"host", name},
          {"libfabric", "1.17"},
          {"adapters", Json::array()},
          {"providers", Json::array({{{"provider", "tcp"}, {"device", "eth0"}, {"trouble", ""}}})}};
}

Json window(int rank, const char* among, const char* call, const char* wanted, const char* routes) {
  return {{"rank", rank},     {"call", call},   {"among", among}, {"wanted", wanted},
          {"routes", routes}, {"provider", ""}, {"device", ""},   {"trouble", ""}};
}

// Four ranks on two nodes, a with ranks 0 and 2, b with 1 and 3, and nothing wrong.
Json healthy() {
  Json all{{"farside_doctor", 1}, {"farside", "0.1.0"}, {"runtime", "openmpi"}};
  for (const int number : {0, 1, 2, 3}) {
    all["ranks"].push_back(rank(number, number % 2, number % 2 == 0 ? "node-a" : "node-b"));
    all["windows"].push_back(window(number, "node", "MPI_Win_allocate", "mapped", "mapped"));
    all["windows"].push_back(window(number, "node", "MPI_Win_create", "cma", "cma"));
    all["windows"].push_back(window(number, "all", "MPI_Win_allocate", "fabric", "mapped,fabric"));
  }
  const Json why_not = Json::array({"verbs: node-a: no adapter"});
  all["between"] = {{"hosts", {host("node-a"), host("node-b")}},
                    {"pairs",
                     {{{"from", "node-a"}, {"to", "node-b"}, {"provider", "tcp"}, {"why_not", why_not}},
                      {{"from", "node-b"}, {"to", "node-a"}, {"provider", "tcp"}, {"why_not", why_not}}}},
                    {"all", {{"provider", "tcp"}, {"why_not", why_not}}}};
  for (const int node : {0, 1}) {
    all["links"].push_back(
        {{"from", node}, {"to", 1 - node}, {"latency_us", 20.0}, {"megabytes_per_second", 1000.0}, {"trouble", ""}});
  }
  all["done"] = true;
  return all;
}

// The only cause.
Json cause(const Json& examination) {
  const Json causes = causes_of(examination);
  REQUIRE(causes.size() == 1);
  return causes[0];
}
std::string what(const Json& examination) { return cause(examination)["what"]; }

Json adapter(const char* name) {
  return {{"adapter", name}, {"type", ""}, {"board", ""}, {"firmware", ""}, {"driver", ""}, {"ports", Json::array()}};
}

}  // namespace

TEST_CASE("ranks and places are named briefly") {
  CHECK(rank_list({}) == "");
  CHECK(rank_list({0, 1, 2, 3, 8, 10, 11}) == "0-3, 8, 10, 11");
  Json all = healthy();
  CHECK(places(all, {1}) == "node-b (rank 1)");
  CHECK(places(all, {0, 1, 2}) == "node-a (ranks 0, 2), node-b (rank 1)");
  CHECK(places(all, {0, 1, 2, 3}) == "all ranks");
  Json many{{"ranks", Json::array()}};
  for (int i = 0; i < 7; ++i) many["ranks"].push_back(rank(i, i, ("h" + std::to_string(i)).c_str()));
  CHECK(places(many, {0, 1, 2, 3, 4, 5}) == "h0 (rank 0), h1 (rank 1), h2 (rank 2), h3 (rank 3) and 2 more hosts");
  for (Json& one : all["ranks"]) one["host"] = "same";
  CHECK(places(all, {1, 3}) == "same (node 1) (ranks 1, 3)");
}

TEST_CASE("lines of the ranks add to the examination, others do not") {
  Json all;
  CHECK(take_line(all, R"({"step": "nodes"})"));
  CHECK(take_line(all, R"(0: {"ranks": [1]})"));
  CHECK_FALSE(take_line(all, "hello"));
  CHECK_FALSE(take_line(all, "{hello}"));
  CHECK_FALSE(take_line(all, ""));
  CHECK(all == Json({{"step", "nodes"}, {"ranks", {1}}}));
}

TEST_CASE("an examination that lacks the facts of ranks has a text") {
  Json all = healthy();
  all["causes"] = Json::array();
  all["ranks"].erase(3);
  CHECK(examination_text(all).find("3 ranks on 2 hosts") != std::string::npos);
  all.erase("ranks");
  all["done"] = true;
  all["causes"] = causes_of(all);
  CHECK(examination_text(all).find("failure: the ranks have come to their end, but the launcher has lost") == 0);
}

TEST_CASE("where nothing is wrong there is no cause") {
  Json all = healthy();
  all["causes"] = causes_of(all);
  CHECK(all["causes"].empty());
  const std::string text = examination_text(all);
  CHECK(text.starts_with("nothing wrong: 4 ranks on 2 hosts, farside 0.1.0 (protocol 10), Open MPI v4.1.4\n"));
  CHECK(contains(text, "| 20.0 us | 1.00 GB/s"));
  CHECK(causes_of(Json::object()).empty());
}

TEST_CASE("a library that is not loaded is found, with what to do about it") {
  Json all = healthy();
  all["ranks"][1]["farside"] = all["ranks"][3]["farside"] = "";
  SECTION("not there") {
    all["ranks"][1]["preload_exists"] = all["ranks"][3]["preload_exists"] = false;
    CHECK(what(all) ==
          "farside is not loaded on node-b (ranks 1, 3): /opt/farside/lib/libfarside-openmpi.so, which "
          "LD_PRELOAD names, is not there");
    CHECK(contains(cause(all)["advice"], "install farside on all hosts"));
  }
  SECTION("not passed on") {
    all["ranks"][1]["preload"] = all["ranks"][3]["preload"] = "";
    CHECK(contains(what(all), "LD_PRELOAD does not name it there"));
    CHECK(contains(cause(all)["advice"], "mpirun -x LD_PRELOAD"));
  }
  SECTION("refused") {
    CHECK(contains(what(all), "the dynamic loader has refused /opt/farside"));
    CHECK(contains(cause(all)["advice"], "ldd"));
  }
  CHECK(cause(all)["severity"] == "failure");
  CHECK_FALSE(allows_windows(causes_of(all)));
}

TEST_CASE("what must be the same on all ranks, and is not, forbids windows") {
  Json all = healthy();
  SECTION("library") {
    all["ranks"][2]["farside"] = "0.2.0 (protocol 11)";
    CHECK(what(all) ==
          "the ranks load different versions of farside: 0.1.0 (protocol 10) on node-a (rank 0), node-b "
          "(ranks 1, 3), 0.2.0 (protocol 11) on node-a (rank 2)");
  }
  SECTION("tools") {
    all["ranks"][1]["peers"] = "0.2.0";
    CHECK(contains(what(all), "different versions of farside's tools"));
  }
  SECTION("MPI") {
    all["ranks"][3]["mpi"] = "Open MPI v5.0.1";
    CHECK(contains(what(all), "different MPI libraries: Open MPI v4.1.4 on "));
  }
  SECTION("settings") {
    all["ranks"][3]["settings"]["FARSIDE_ROUTES"] = "fabric";
    CHECK(what(all) ==
          "FARSIDE_ROUTES must agree on all ranks, and is unset on node-a (ranks 0, 2), node-b (rank 1), "
          "fabric on node-b (rank 3)");
  }
  SECTION("launcher") {
    all["ranks"].erase(3);
    all["windows"] = Json::array();
    CHECK(contains(what(all), "has started 4 ranks, of which Open MPI v4.1.4 sees only 3"));
  }
  SECTION("a bad setting") {
    for (Json& one : all["ranks"]) one["bad_setting"] = "FARSIDE_LOG='loud' is not allowed";
    CHECK(what(all) == "on all ranks: FARSIDE_LOG='loud' is not allowed");
  }
  CHECK(cause(all)["severity"] == "failure");
  CHECK_FALSE(allows_windows(causes_of(all)));
}

TEST_CASE("settings that may differ, and an unknown one, forbid nothing") {
  Json all = healthy();
  all["ranks"][1]["settings"]["FARSIDE_DEVICE"] = "mlx5_1";
  CHECK(causes_of(all).empty());
  all["ranks"][1]["unknown_settings"] = Json::array({"FARSIDE_LGO"});
  CHECK(what(all) == "FARSIDE_LGO on node-b (rank 1): no setting of farside, and ignored");
  all["ranks"][1]["unknown_settings"] = Json::array();
  all["ranks"][1]["sees_no_early_loads"] = "userfaultfd(2): no; allow it";
  CHECK(what(all) == "FARSIDE_CHECK=strict sees no early loads of results on node-b (rank 1): userfaultfd(2): no");
  CHECK(causes_of(all)[0]["advice"] == "allow it");
  CHECK(allows_windows(causes_of(all)));
}

TEST_CASE("hosts without a route are a failure, with the reason of the provider that asks least") {
  Json all = healthy();
  all["between"]["all"] = {{"provider", ""},
                           {"why_not", {"verbs: node-a: no adapter", "tcp: from node-a to node-b: refused"}}};
  for (Json& pair : all["between"]["pairs"]) pair.update(all["between"]["all"]);
  CHECK(what(all) == "no route between node-a and node-b: tcp: from node-a to node-b: refused");
  CHECK(allows_windows(causes_of(all)));
  SECTION("not allowed") {
    for (Json& one : all["ranks"]) one["settings"]["FARSIDE_ROUTES"] = "mapped,cma";
    all.erase("between");
    CHECK(contains(what(all), "no route between node-a and node-b: FARSIDE_ROUTES does not allow libfabric"));
  }
  SECTION("each pair has one, but not the same") {
    for (Json& pair : all["between"]["pairs"]) pair["provider"] = "tcp";
    CHECK(contains(what(all), "no provider that works between all hosts: tcp: "));
  }
}

TEST_CASE("locked memory counts where there is an adapter, and where there is none at all") {
  Json all = healthy();
  all["ranks"][1]["limits"][0]["value"] = 0;
  CHECK(what(all) ==
        "locked memory is limited to 0 on node-b (rank 1): too little for windows over an RDMA adapter, so "
        "farside takes TCP");
  CHECK(cause(all)["severity"] == "warning");
  all = healthy();
  all["between"]["hosts"][0]["adapters"] = Json::array({adapter("mlx5_0")});
  all["between"]["all"]["why_not"] = Json::array();
  CHECK(contains(what(all), "locked memory is limited to 8 MiB on node-a (ranks 0, 2)"));
  for (Json& one : all["ranks"]) one["limits"][0]["value"] = nullptr;
  CHECK(causes_of(all).empty());
}

TEST_CASE("an adapter that is not taken is a warning, unless it is emulated") {
  Json all = healthy();
  for (Json& one : all["ranks"]) one["limits"][0]["value"] = nullptr;
  all["between"]["hosts"][1]["adapters"] = Json::array({adapter("mlx5_0")});
  CHECK(causes_of(all).empty());  // the reason is the other host's, which has none
  all["between"]["all"]["why_not"] = {"verbs: node-a: no adapter", "verbs: node-b: mlx5_0: port 1 is DOWN"};
  CHECK(what(all) == "RDMA adapters are there, and the ranks take tcp: not verbs: node-b: mlx5_0: port 1 is DOWN");
  all["between"]["hosts"][1]["adapters"] = Json::array({adapter("rxe0")});
  all["between"]["all"]["why_not"] = Json::array(
      {"verbs: node-b: provider verbs: adapter rxe0 is emulated, and is taken only if FARSIDE_DEVICE names it"});
  CHECK(causes_of(all).empty());
}

TEST_CASE("routes inside a node: no shared memory is a failure, no CMA a warning unless it is switched off") {
  Json all = healthy();
  Json& routes = all["ranks"][1]["routes"];
  routes[1]["possible"] = false;
  routes[1]["why"] = "not permitted; a seccomp filter";
  routes[1]["advice"] = "allow it";
  CHECK(contains(what(all), "(CMA) on node-b (rank 1)"));
  CHECK(cause(all)["severity"] == "warning");
  CHECK(cause(all)["advice"] == "allow it");
  routes[1]["allowed"] = false;
  CHECK(causes_of(all).empty());
  routes[0]["possible"] = false;
  routes[0]["why"] = "memfd_create: not permitted";
  routes[0]["advice"] = "allow it";
  CHECK(what(all) == "no shared memory for windows on node-b (rank 1): memfd_create: not permitted");
  CHECK(cause(all)["severity"] == "failure");
}

TEST_CASE(
    "failures come before warnings; troubles of windows, and of ranks that have not come to the end, are failures") {
  Json all = healthy();
  all["ranks"][0]["unknown_settings"] = Json::array({"FARSIDE_LGO"});
  all["windows"][5]["trouble"] = "MPI_Put: bad";
  all["ended"] = {{"step", "puts to the next node"}, {"reason", "not within 60 s"}};
  all["causes"] = causes_of(all);
  REQUIRE(all["causes"].size() == 3);
  CHECK(all["causes"][0]["what"] ==
        "the ranks have not come to the end of the step 'puts to the next node': not within 60 s");
  CHECK(all["causes"][1]["what"] ==
        "a window of MPI_Win_allocate of all ranks (route fabric): MPI_Put: bad (node-b (rank 1))");
  CHECK(all["causes"][2]["severity"] == "warning");
  const std::string text = examination_text(all);
  CHECK(text.starts_with("failure: the ranks have not come"));
  CHECK(contains(text, "\n\n4 ranks on 2 hosts, farside 0.1.0"));
  CHECK(contains(text, "| FAILED"));
}

TEST_CASE("one of four links that is far from the others is a warning") {
  Json all = healthy();
  all["links"].push_back(all["links"][0]);
  all["links"].push_back(all["links"][1]);
  CHECK(causes_of(all).empty());
  all["links"][1]["megabytes_per_second"] = 100.0;
  CHECK(contains(what(all), "from node-b to node-a a put takes 20 us, and 1 MiB goes at 100 MB/s"));
  all["links"].erase(3);
  CHECK(causes_of(all).empty());  // too few to compare
}

TEST_CASE("a setting that cannot be used is one failure with its remedy, not one of the network or of farside") {
  Json all = healthy();
  const std::string trouble = "FARSIDE_DEVICE='ib7' cannot be used: no adapter ib7";
  for (Json& window : all["windows"]) window["trouble"] = "MPI_Win_allocate: known error (error: " + trouble + ")";
  all["between"]["all"] = {{"provider", ""}, {"why_not", {"tcp: node-a: " + trouble}}};
  const Json causes = causes_of(all);
  REQUIRE(causes.size() == 1);
  CHECK(causes[0]["what"] == trouble);
  CHECK(causes[0]["advice"] == "unset FARSIDE_DEVICE, or set it to one that farside info shows");
}

TEST_CASE("an examination that has ended early is shown as far as it went") {
  Json all{
      {"farside_doctor", 1}, {"farside", "0.1.0"}, {"ended", {{"step", "MPI_Init"}, {"reason", "not within 60 s"}}}};
  all["causes"] = causes_of(all);
  CHECK(examination_text(all).starts_with("failure: the ranks have not come to the end of the step 'MPI_Init'"));
  all["ranks"] = {rank(0, 0, "node-a"), rank(1, 0, "node-a")};
  CHECK(contains(examination_text(all), "| possible |"));
}

TEST_CASE("the versions of MPI libraries are short") {
  CHECK(mpi_version("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, May 26, 2022") == "Open MPI v4.1.4");
  CHECK(mpi_version("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7") == "MPICH 4.0.2");
}

TEST_CASE("private names are taken out of texts") {
  const Anonymizer anonymizer(
      {{"login7", "host-1"}, {"login7.example.org", "host-1"}, {"vm", "host-2"}, {"alice", "USER"}});
  CHECK(anonymizer.text("login7") == "host-1");
  CHECK(anonymizer.text("from login7 to login7.example.org: refused") == "from host-1 to host-1: refused");
  CHECK(anonymizer.text("login70 and login7-b") == "login70 and login7-b");
  CHECK(anonymizer.text("vm") == "host-2");
  CHECK(anonymizer.text("process_vm_readv in a vm") == "process_vm_readv in a vm");
  CHECK(anonymizer.text("connect to 10.1.2.3:4567: refused") == "connect to ADDRESS:4567: refused");
  CHECK(anonymizer.text("eth0 (10.1.0.0/24)") == "eth0 (ADDRESS/24)");
  CHECK(anonymizer.text("[fe80::5054:ff:fe12:3456]:80") == "[ADDRESS]:80");
  CHECK(anonymizer.text("libfabric 1.17.0, Open MPI 4.1.4, firmware 20.31.1014") ==
        "libfabric 1.17.0, Open MPI 4.1.4, firmware 20.31.1014");
  CHECK(anonymizer.text("/home/alice/farside/lib/libfarside-openmpi.so, which") == ".../libfarside-openmpi.so, which");
  CHECK(anonymizer.text("FARSIDE_STATS=/scratch/secret/stats") == "FARSIDE_STATS=.../stats");
  CHECK(anonymizer.text("(/usr/bin/mpirun.openmpi) and /dev/shm and a/b") ==
        "(/usr/bin/mpirun.openmpi) and /dev/shm and a/b");
  CHECK(anonymizer.text("user alice, in /etc/passwd.") == "user USER, in /etc/passwd.");
  CHECK(anonymizer.json({{"host", "login7"}, {"list", {1, "alice"}}}) ==
        Json({{"host", "host-1"}, {"list", {1, "USER"}}}));
}

TEST_CASE("a report shows the environment and the examination, and hosts by number only") {
  Json all = healthy();
  all["ranks"][1]["farside"] = "";
  all["ranks"][1]["library"] = "";
  const Json info{{"farside", "0.1.0"},
                  {"machine",
                   {{"host", "login7"},
                    {"kernel", "6.1"},
                    {"threads", 2},
                    {"sees_no_early_loads", ""},
                    {"has_no_huge_pages", ""},
                    {"has_no_numa", ""}}},
                  {"runtimes", Json::array()},
                  {"routes", Json::array()},
                  {"libfabric",
                   {{"version", "1.17"},
                    {"library", "/lib/libfabric.so"},
                    {"problem", ""},
                    {"providers", Json::array()},
                    {"verbs", {{"available", false}, {"devices", Json::array()}, {"why", "none"}, {"advice", ""}}}}},
                  {"limits", Json::array()},
                  {"settings", Json::array()},
                  {"unknown_settings", Json::array()}};
  const Environment environment{{"FARSIDE_STATS", "/home/bob/stats"}, {"HOME", "/home/bob"}, {"FI_PROVIDER", "tcp"}};
  const Anonymizer anonymizer = Anonymizer::of(all);
  const std::string text = report_text(all, info, environment, &anonymizer);
  CHECK(contains(text, "  FARSIDE_STATS=.../stats\n  FI_PROVIDER=tcp\n\n"));
  CHECK(contains(text, "failure: farside is not loaded on host-2 (rank 1)"));
  CHECK_FALSE(contains(text, "node-a"));
  CHECK_FALSE(contains(text, "node-b"));
  CHECK_FALSE(contains(text, "HOME"));
  CHECK_FALSE(contains(text, "bob"));
  CHECK(contains(report_text(all, info, environment, nullptr), "farside is not loaded on node-b (rank 1)"));
}

TEST_CASE("a step that takes too long ends the process, after it has said so; one that ends in time does not") {
  prepare_for_children();
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::seconds(30)); };
  const auto on_timeout = [](const std::string& step, int seconds, const std::string& place) {
    if (step != "second" || seconds != 1 || place != "MPI_Put") std::this_thread::sleep_for(std::chrono::seconds(30));
  };
  const auto heartbeat = [] {};
  const Attempt late = attempt([&] {
    Watchdog watchdog(on_timeout, heartbeat);
    watchdog.begin("first", std::chrono::seconds(60));
    watchdog.begin("second", std::chrono::seconds(1));
    watchdog.at("MPI_Put");
    wait();
    return std::string("not ended");
  });
  CHECK(late.end == "exit status 1");
  const Attempt in_time = attempt([&] {
    Watchdog watchdog(on_timeout, heartbeat);
    watchdog.begin("second", std::chrono::seconds(1));
    watchdog.end();
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    return std::string("came to its end");
  });
  CHECK(in_time.answer == "came to its end");
  forget_children();
}

}  // namespace farside::doctor_test

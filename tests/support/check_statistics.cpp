// SPDX-License-Identifier: BSD-3-Clause
// Reads the statistics that FARSIDE_STATS makes each rank write (PREFIX.RANK.json), and checks whether the run used the
// expected routes and windows:
//   check-statistics PREFIX RANKS used=ROUTE unused=ROUTE,... counted=ROUTE.OPERATION windows=farside|both|runtime|none
//     used=ROUTE      with two ranks or more, this route moved something (of all ranks together)
//     unused=ROUTES   no rank used any of these
//     counted=ROUTE.OPERATION  there was some of it (of all ranks together); <=N or >=N: at most or at least N
//     windows         farside: all windows were farside's, at least one on each rank; both: some of either
//                     kind; runtime: all the runtime's, at least one on each rank; none: there were none, and
//                     a rank need not have written a file
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

namespace {

int problems = 0;

void problem(const std::string& text) {
  std::cerr << "statistics: " << text << '\n';
  ++problems;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: check-statistics PREFIX RANKS [used=ROUTE] [unused=ROUTE,...] "
                 "[counted=ROUTE.OPERATION[<=N|>=N]] [windows=farside|both|runtime|none]\n";
    return 2;
  }
  const std::string prefix = argv[1];
  const int ranks = std::atoi(argv[2]);
  std::map<std::string, std::string> wanted{{"windows", "farside"}};
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const auto equals = word.find('=');
    if (equals == std::string::npos) {
      problem("'" + word + "' is not KEY=VALUE");
      return 2;
    }
    wanted[word.substr(0, equals)] = word.substr(equals + 1);
  }

  std::map<std::string, std::uint64_t> used;     // route: operations of all ranks
  std::map<std::string, std::uint64_t> counted;  // ROUTE.OPERATION: likewise
  std::string launch;                            // the launch, as the first file that has it names it
  const std::string& windows = wanted["windows"];
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = prefix + "." + std::to_string(rank) + ".json";
    std::ifstream file(path);
    if (!file) {
      if (windows != "none") problem("rank " + std::to_string(rank) + " wrote no " + path + "; was farside loaded?");
      continue;
    }
    const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
    if (json.is_discarded()) {
      problem(path + " is not JSON");
      continue;
    }
    const std::string who = "rank " + std::to_string(rank) + ": ";
    if (json.value("rank", -1) != rank) problem(who + "the file says another rank");
    if (json.value("ranks", 0) != ranks) problem(who + "the file says another number of ranks");
    const auto job = json.value("job", nlohmann::json::object());
    const std::string agreed = job.value("agreed", std::string());
    if (!agreed.empty() && launch.empty()) launch = agreed;
    if (!agreed.empty() && launch != agreed) problem(who + "the file says another launch (" + agreed + ")");
    if (const double started = job.value("started", 0.0), written = job.value("written", 0.0);
        started < 1e9 || written < started - 0.1 || written > started + 86400) {
      problem(who + "it started at " + std::to_string(started) + ", and wrote at " + std::to_string(written));
    }
    const auto counts = json.value("windows", nlohmann::json::object());
    const auto ours = counts.value("farside", std::int64_t{-1});
    const auto runtimes = counts.value("runtime", std::int64_t{-1});
    if (windows == "none" || windows == "runtime" ? ours != 0 : ours <= 0)
      problem(who + std::to_string(ours) + " windows of farside");
    if (windows == "both" || windows == "runtime" ? runtimes <= 0 : runtimes != 0) {
      problem(who + std::to_string(runtimes) + " windows of the runtime");
    }
    // The seconds since the first window: less than a day, and none if there was no window.
    const bool timed = json.contains("seconds");
    if (timed != (ours + runtimes > 0)) problem(who + (timed ? "seconds, but no window" : "windows, but no seconds"));
    const double seconds = json.value("seconds", 0.0);
    if (seconds < 0 || seconds > 86400) problem(who + std::to_string(seconds) + " seconds");
    const auto routes = json.value("routes", nlohmann::json::object());
    for (const auto& [route, operations] : routes.items()) {
      for (const auto& [name, operation] : operations.items()) {
        const auto count = operation.value("count", std::uint64_t{0});
        used[route] += count;
        counted[route + "." + name] += count;
      }
    }
  }

  if (!wanted["used"].empty() && ranks >= 2 && used[wanted["used"]] == 0) {
    problem("route " + wanted["used"] + " was not used");
  }
  const std::string operation = wanted["counted"].substr(0, wanted["counted"].find_first_of("<>"));
  const std::uint64_t done = counted[operation];
  if (!operation.empty() && done == 0) problem("there was no " + operation);
  if (operation.size() < wanted["counted"].size()) {
    const bool at_most = wanted["counted"][operation.size()] == '<';
    const std::uint64_t limit = std::stoull(wanted["counted"].substr(operation.size() + 2));
    if (at_most ? done > limit : done < limit) {
      problem("there were " + std::to_string(done) + " " + operation + (at_most ? ", more than " : ", less than ") +
              std::to_string(limit));
    }
  }
  std::istringstream unused(wanted["unused"]);
  for (std::string route; std::getline(unused, route, ',');) {
    if (used[route] != 0) problem("route " + route + " was used, " + std::to_string(used[route]) + " times");
  }
  if (problems == 0) return 0;
  std::cerr << "statistics: in all";
  for (const auto& [route, count] : used) std::cerr << ", " << route << ": " << count;
  std::cerr << '\n';
  return 1;
}

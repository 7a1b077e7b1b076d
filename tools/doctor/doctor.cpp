// SPDX-License-Identifier: BSD-3-Clause
// `farside doctor`: examines all ranks of a launch, and says what is wrong and what to do; or makes the text of a bug
// report of it.
#include <cstring>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/commands.hpp"
#include "tools/common/runtime.hpp"
#include "tools/doctor/examination.hpp"
#include "tools/info/info.hpp"
#include "tools/peers/launch.hpp"

namespace farside::tools {
namespace {

constexpr int kNothingWrong = 0, kSomethingWrong = 1, kNotStarted = 2, kInterrupted = 130;

struct DoctorOptions {
  std::string library_folder = default_library_folder();
  bool json = false;
  bool report = false;
  bool with_names = false;
  int time_limit = 60;  // seconds per step
  PeersRequest peers;
};

// The calls in which ranks were when a step timed out, of their lines on stderr.
constexpr std::size_t kMostPlaces = 4;
std::string places_of_ranks(const std::string& errors) {
  constexpr std::string_view kMark = "farside-peers: ";
  std::vector<std::string> places;
  for (const std::string& line : split(errors, "\n"))
    if (const std::size_t begin = line.find(kMark); begin != std::string::npos)
      places.push_back(line.substr(begin + kMark.size()));
  const std::size_t more = places.size() > kMostPlaces ? places.size() - kMostPlaces : 0;
  places.resize(places.size() - more);
  return fmt::format("{}{}", fmt::join(places, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string end_in_words(const ChildEnd& end) {
  switch (end.how) {
    case ChildEnd::How::kExited: return fmt::format("exit status {}", end.code);
    case ChildEnd::How::kSignalled: return fmt::format("signal {} ({})", end.code, strsignal(end.code));
    case ChildEnd::How::kSilent: return "no output for too long, ended";
    case ChildEnd::How::kInterrupted: return "the launcher has ended the ranks";
    case ChildEnd::How::kNotStarted: break;
  }
  return fmt::format("no process: {}", std::strerror(end.code));
}

struct Run {
  Json examination = Json::object();
  ChildEnd end;
  bool started() const { return examination.contains("step") || examination.contains("ended"); }
};

Run run_ranks(const PeersLaunch& launch, const DoctorOptions& options) {
  Run run;
  ChildRequest request;
  request.arguments = launch.words;
  request.environment = launch.environment;
  request.silence_seconds = 60.0 + options.time_limit;  // rank 0 prints heartbeats from the start of the runtime on
  request.on_line = [&](std::string_view line) { take_line(run.examination, line); };
  run.end = run_child(request);
  // Other output of the ranks is shown on demand only.
  const std::string level = variable("FARSIDE_LOG");
  if (level == "info" || level == "debug") fmt::print(stderr, "{}", run.end.error_output);
  if (!run.started() || run.examination.contains("done")) return run;
  std::string detail = places_of_ranks(run.end.error_output);
  if (run.examination.contains("ended")) {
    if (!detail.empty()) detail = ", " + detail;
    run.examination["ended"]["reason"] = text_of(run.examination["ended"], "reason") + detail;
  } else {
    if (const std::string lines = telling_lines(run.end.error_output); !lines.empty()) detail = lines;
    run.examination["ended"] = {{"step", text_of(run.examination, "step")},
                                {"reason", end_in_words(run.end) + (detail.empty() ? "" : "; " + detail)}};
  }
  return run;
}

// If all ranks are on one node, their windows have not used libfabric: those of a second launch do.
void add_fabric(const PeersLaunch& first, const DoctorOptions& options, Json& examination) {
  const bool other_routes = !variable("FARSIDE_ROUTES").empty();
  if (options.peers.in_place() || other_routes || node_count(examination) != 1 || !examination.contains("done")) return;
  if (part_of(examination, "windows").empty() || examination.at("between").at("all").at("provider") == "") return;
  PeersRequest request = options.peers;
  request.runtime = first.runtime.name;
  request.variables.emplace_back("FARSIDE_ROUTES", "fabric");
  // Without this, libfabric takes the first interface that is up, although all ranks are on one machine.
  if (variable("FI_TCP_IFACE").empty()) request.variables.emplace_back("FI_TCP_IFACE", "lo");
  const Result<PeersLaunch> launch = launch_of_peers(request, options.library_folder);
  if (!launch) return;
  const Run second = run_ranks(launch.value(), options);
  const Json& windows = part_of(second.examination, "windows");
  for (const Json& window : windows) examination["windows"].push_back(window);
  if (const Json& ended = part_of(second.examination, "ended"); !ended.empty()) {
    examination["ended"] = ended;
  } else if (windows.empty()) {
    const Json causes = causes_of(second.examination);
    examination["ended"] = {{"step", "a second launch, with FARSIDE_ROUTES=fabric"},
                            {"reason", causes.empty() ? end_in_words(second.end) : text_of(causes[0], "what")}};
  }
}

int not_started(const PeersLaunch& launch, const ChildEnd& end) {
  const std::string detail = telling_lines(end.error_output);
  fmt::print(stderr, "farside doctor: the ranks were not started ({}){}{}\n", end_in_words(end),
             detail.empty() ? "" : ": ", detail);
  fmt::print(stderr, "the command line was: {}\n", shell_line(launch.words));
  if (!end.error_output.empty()) fmt::print(stderr, "its output on stderr:\n{}", end.error_output);
  return kNotStarted;
}

int examine_ranks(const DoctorOptions& options) {
  prepare_for_children();
  const Result<PeersLaunch> launch = launch_of_peers(options.peers, options.library_folder);
  if (!launch) {
    fmt::print(stderr, "farside doctor: {}\n", launch.error().text);
    return kNotStarted;
  }
  Run run = run_ranks(launch.value(), options);
  // Of several ranks of a launcher, rank 0 has the examination, and prints the result.
  if (options.peers.in_place() && launched_rank() != 0) {
    const std::string places = places_of_ranks(run.end.error_output);
    if (!places.empty()) fmt::print(stderr, "farside doctor: {}\n", places);
    return run.end.how == ChildEnd::How::kExited && run.end.code == 0 ? kNothingWrong : kSomethingWrong;
  }
  if (run.end.how == ChildEnd::How::kInterrupted && !options.peers.in_place()) return kInterrupted;
  if (!run.started()) return not_started(launch.value(), run.end);
  Json examination{{"farside_doctor", 1}, {"farside", FARSIDE_VERSION}, {"runtime", launch.value().runtime.name}};
  examination.update(run.examination);
  add_fabric(launch.value(), options, examination);
  examination["causes"] = causes_of(examination);
  if (options.report) {
    const Json info = gather_info(options.library_folder);
    const Anonymizer anonymizer = Anonymizer::of(examination);
    fmt::print("{}", report_text(examination, info, current_environment(), options.with_names ? nullptr : &anonymizer));
  } else {
    fmt::print("{}", options.json ? json_text(examination, 2) + '\n' : examination_text(examination));
  }
  return examination["causes"].empty() ? kNothingWrong : kSomethingWrong;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "check farside on all ranks of a launch: what is wrong and how to fix it; or write a bug report");
  PeersRequest& peers = options->peers;
  peers.task = "doctor";
  peers.preload = true;
  peers.ranks_per_host = 2;
  CLI::Option* hosts = command->add_option("--hosts", peers.hosts, "hosts of the ranks, a,b (default: this machine)");
  command->add_option("-n", peers.ranks, "number of ranks (default: two per host)")->check(CLI::Range(1, 1'000'000));
  command->add_option("--launcher", peers.launcher, kLauncherHelp)->excludes(hosts);
  command->add_option("--runtime", peers.runtime, "MPI runtime (default: the first found)")
      ->check(CLI::IsMember(peers_runtimes()));
  command->add_option("--launcher-option", peers.launcher_options, "extra mpirun argument (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--time-limit", options->time_limit, "time limit of each step in seconds (default: 60)")
      ->check(CLI::Range(1, 86400));
  command->add_option("--lib-dir", options->library_folder, kLibraryFolderHelp);
  CLI::Option* json = command->add_flag("--json", options->json, "print JSON");
  CLI::Option* report = command->add_flag("--report", options->report,
                                          "print a bug report: versions, environment, findings, farside info");
  report->excludes(json);
  command
      ->add_flag("--with-names", options->with_names,
                 "with --report: keep the names of hosts and users, addresses and paths")
      ->needs(report);
  command->footer(
      "Under a launcher it examines the ranks of that launcher: mpirun -n 4 --host a,b farside doctor. A failure line\n"
      "names what does not work, a warning what works but not as well as it could; a table by node follows. The exit\n"
      "code is 0 if nothing is wrong, 1 if something is, 2 if the ranks could not be started.");
  command->callback([options, &exit_code] {
    PeersRequest& request = options->peers;
    request.arguments = {"--time-limit", fmt::format("{}", options->time_limit)};
    exit_code = examine_ranks(*options);
  });
}

}  // namespace farside::tools

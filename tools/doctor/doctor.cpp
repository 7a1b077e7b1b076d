// SPDX-License-Identifier: BSD-3-Clause
// `farside doctor`: examines all ranks of a launch, and says what is wrong and what to do; or makes the text of a bug
// report of it.
#include <memory>
#include <netdb.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/commands.hpp"
#include "tools/common/launched_ranks.hpp"
#include "tools/common/linkage.hpp"
#include "tools/common/runtime.hpp"
#include "tools/doctor/examination.hpp"
#include "tools/info/info.hpp"

namespace farside::tools {
namespace {

constexpr int kNothingWrong = 0, kSomethingWrong = 1, kNotStarted = 2, kInterrupted = 130;

struct DoctorOptions {
  std::string library_folder = default_library_folder();
  bool json = false;
  bool report = false;
  bool with_names = false;
  int time_limit = 60;                  // seconds per step
  Launch launch{0, {}, {}, false, {}};  // 0 ranks: two on each host
  std::string runtime;                  // empty: that of the launcher, or the first with a launcher and the program
  Variables variables;                  // further ones, for the ranks

  // Whether the ranks are those of the launcher that has started this process. Hosts or a launcher that the user names
  // take precedence, for instance in a shell that srun has started.
  bool in_place() const { return launched_ranks() > 1 && launch.hosts.empty() && launch.launcher.empty(); }
};

// ---- how farside-peers-RUNTIME is started ----

struct PeersLaunch {
  Runtime runtime;
  std::vector<std::string> words;  // the command line; under a launcher the program alone
  Environment environment;         // of the first word
};

std::string program_of(const Runtime& runtime) {
  const std::string path = fmt::format("{}/farside-peers-{}", own_folder(), runtime.name);
  return runnable(path) ? path : std::string();
}

// The runtimes for which the program may exist, and which may be those of the launcher.
std::vector<std::string> runtimes_to_try(const DoctorOptions& options) {
  if (!options.runtime.empty()) return {options.runtime};
  if (options.in_place() && rank_variables()->rank == std::string_view("OMPI_COMM_WORLD_RANK")) return {"openmpi"};
  // Slurm's plugin for pmi2 and Flux set PMI_RANK for every runtime.
  if (options.in_place() && rank_variables()->rank == std::string_view("PMI_RANK")) return {"mpich", "openmpi"};
  return {"openmpi", "mpich"};
}

// A rank of a launcher starts the program itself. The program reports a missing library, and examines the user's own
// preload of farside where there is one.
void launch_in_place(const DoctorOptions& options, PeersLaunch& launch) {
  const std::string old = variable("LD_PRELOAD"), &library = launch.runtime.library;
  if (old.find("libfarside-") == std::string::npos) {
    launch.environment["LD_PRELOAD"] = preload_list(
        old,
        !library.empty() ? library : fmt::format("{}/libfarside-{}.so", options.library_folder, launch.runtime.name));
  }
  for (const auto& [name, value] : options.variables) launch.environment[name] = value;
}

void launch_by_launcher(const DoctorOptions& options, PeersLaunch& launch) {
  launch.environment.erase("LD_PRELOAD");  // of the launcher itself
  Variables all = users_variables();
  all.emplace(all.begin(), "LD_PRELOAD", preload_list(variable("LD_PRELOAD"), launch.runtime.library));
  std::erase_if(all, [&](const auto& one) {
    return std::ranges::find(options.variables, one.first, &Variables::value_type::first) != options.variables.end();
  });
  all.insert(all.end(), options.variables.begin(), options.variables.end());
  Launch ranks = options.launch;
  ranks.in_turn = !ranks.hosts.empty();
  if (ranks.ranks == 0) ranks.ranks = 2 * static_cast<int>(split(ranks.hosts, ",").size());
  launch.words = launch_words(launch.runtime, ranks, all);
}

// The error says what is missing.
Result<PeersLaunch> launch_of_peers(const DoctorOptions& options) {
  const bool in_place = options.in_place();
  const std::vector<std::string> names = runtimes_to_try(options);
  PeersLaunch launch{{}, {}, current_environment()};
  const auto usable = [&](const std::string& name) {
    launch.runtime = find_runtime(name, options.library_folder);
    return !program_of(launch.runtime).empty() &&
           (in_place || !options.launch.launcher.empty() || !launch.runtime.launcher.empty());
  };
  if (std::ranges::none_of(names, usable)) {
    return cannot("no farside-peers-RUNTIME in {} with an mpirun of its runtime ({})", own_folder(),
                  fmt::join(names, ", "));
  }
  if (!in_place && !options.launch.launcher.empty()) {
    const bool takes_number = options.launch.launcher.find("{n}") != std::string::npos;
    if (takes_number && options.launch.ranks == 0) {
      return cannot("--launcher '{}': the number of ranks is not known here; write it in place of {{n}}",
                    options.launch.launcher);
    }
    if (!takes_number && options.launch.ranks > 0) {
      return cannot("--launcher '{}': it does not take the number of ranks, {}: write {{n}} where it stands",
                    options.launch.launcher, options.launch.ranks);
    }
  }
  if (!in_place)
    if (Status status = check_library(launch.runtime, options.library_folder); !status) return status.error();
  allow_root(launch.runtime, launch.environment);
  in_place ? launch_in_place(options, launch) : launch_by_launcher(options, launch);
  for (const std::string& word :
       {program_of(launch.runtime), std::string("--time-limit"), fmt::format("{}", options.time_limit)})
    launch.words.push_back(word);
  return launch;
}

// ---- the ranks' answers ----

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
  if (options.in_place() || other_routes || node_count(examination) != 1 || !examination.contains("done")) return;
  if (part_of(examination, "windows").empty() || examination.at("between").at("all").at("provider") == "") return;
  DoctorOptions again = options;
  again.runtime = first.runtime.name;
  again.variables.emplace_back("FARSIDE_ROUTES", "fabric");
  // Without this, libfabric takes the first interface that is up, although all ranks are on one machine.
  if (variable("FI_TCP_IFACE").empty()) again.variables.emplace_back("FI_TCP_IFACE", "lo");
  const Result<PeersLaunch> launch = launch_of_peers(again);
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

int not_started(const DoctorOptions& options, const PeersLaunch& launch, const ChildEnd& end) {
  for (const std::string& host : split(options.launch.hosts, ",")) {
    addrinfo* found = nullptr;
    const std::string name = host.substr(0, host.find(':'));
    if (const int code = getaddrinfo(name.c_str(), nullptr, nullptr, &found); !name.empty() && code != 0) {
      fmt::print(stderr, "farside doctor: --hosts: there is no host {} ({})\n", name, gai_strerror(code));
      return kNotStarted;
    }
    if (found != nullptr) freeaddrinfo(found);
  }
  const std::string detail = telling_lines(end.error_output);
  fmt::print(stderr, "farside doctor: the ranks were not started ({}){}{}\n", end_in_words(end),
             detail.empty() ? "" : ": ", detail);
  fmt::print(stderr, "the command line was: {}\n", shell_line(launch.words));
  if (!end.error_output.empty()) fmt::print(stderr, "its output on stderr:\n{}", end.error_output);
  return kNotStarted;
}

int examine_ranks(const DoctorOptions& options) {
  prepare_for_children();
  const Result<PeersLaunch> launch = launch_of_peers(options);
  if (!launch) {
    fmt::print(stderr, "farside doctor: {}\n", launch.error().text);
    return kNotStarted;
  }
  Run run = run_ranks(launch.value(), options);
  // Of several ranks of a launcher, rank 0 has the examination, and prints the result.
  if (options.in_place() && launched_rank() != 0) {
    const std::string places = places_of_ranks(run.end.error_output);
    if (!places.empty()) fmt::print(stderr, "farside doctor: {}\n", places);
    return run.end.how == ChildEnd::How::kExited && run.end.code == 0 ? kNothingWrong : kSomethingWrong;
  }
  if (run.end.how == ChildEnd::How::kInterrupted && !options.in_place()) return kInterrupted;
  if (!run.started()) return not_started(options, launch.value(), run.end);
  Json examination{{"farside_doctor", 1}, {"farside", FARSIDE_VERSION}, {"runtime", launch.value().runtime.name}};
  examination.update(run.examination);
  add_fabric(launch.value(), options, examination);
  examination["causes"] = causes_of(examination);
  if (options.report) {
    const Json info = gather_info(options.library_folder);
    const Anonymizer anonymizer = Anonymizer::of(examination);
    fmt::print("{}", report_text(examination, info, current_environment(), options.with_names ? nullptr : &anonymizer));
  } else {
    options.json ? fmt::print("{}\n", json_text(examination, 2)) : print_report(examination_text(examination));
  }
  return examination["causes"].empty() ? kNothingWrong : kSomethingWrong;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "check farside on all ranks of a launch: what is wrong and how to fix it; or write a bug report");
  command->add_option("-n", options->launch.ranks, "number of ranks (default: two per host)")
      ->check(CLI::Range(1, 1'000'000));
  add_launch_options(*command, options->launch, options->library_folder);
  command->add_option("--runtime", options->runtime, "MPI runtime (default: the first found)")
      ->check(CLI::IsMember({"openmpi", "mpich"}));
  command->add_option("--time-limit", options->time_limit, "time limit of each step in seconds (default: 60)")
      ->check(CLI::Range(1, 86400));
  CLI::Option* json = command->add_flag("--json", options->json, "print JSON");
  CLI::Option* report = command->add_flag("--report", options->report,
                                          "print a bug report: versions, environment, findings, farside info");
  report->excludes(json);
  command
      ->add_flag("--with-names", options->with_names,
                 "with --report: keep the names of hosts and users, addresses and paths")
      ->needs(report);
  command->footer(
      "Under a launcher it examines the ranks of that launcher: mpirun -n 4 --host a,b farside doctor. A failure line "
      "names what does not work, a warning what works but not as well as it could; a table by node follows. The exit "
      "code is 0 if nothing is wrong, 1 if something is, 2 if the ranks could not be started.");
  command->callback([options, &exit_code] { exit_code = examine_ranks(*options); });
}

}  // namespace farside::tools

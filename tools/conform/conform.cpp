// SPDX-License-Identifier: BSD-3-Clause
// `farside conform`: which requirements of MPI's one-sided chapter a runtime meets, natively and with farside. The
// requirements are sections of the test programs (tests/programs), which are plain MPI: each runs in processes of its
// own, under a time limit. The programs are compiled by the runtime's mpicxx unless there are compiled ones.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pages.hpp"
#include "tools/bench/driver.hpp"
#include "tools/common/child.hpp"
#include "tools/common/commands.hpp"
#include "tools/common/host.hpp"
#include "tools/common/text.hpp"

namespace farside::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::array kPrograms = {"windows",  "shared", "dynamic", "put_get", "accumulate",
                                  "requests", "active", "passive", "threads"};

struct ConformSettings : CommonSettings {
  std::vector<std::string> programs{kPrograms.begin(), kPrograms.end()};
  std::string sources = own_folder() + "/../share/farside/programs", compiled_folder = own_folder() + "/tests";
  int seconds = 60;
};

struct Requirement {
  std::string program, standard, text;
};

struct Judgement {
  std::string verdict;  // right, wrong data, wrong class, refused, crash, hang, failed, skipped
  std::string reason;   // for the user
};

// A folder for the compiled programs, which is removed at the end.
struct Scratch {
  fs::path path = fs::temp_directory_path() / "farside-conform.XXXXXX";
  Scratch() {
    std::string name = path.string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder like " + name);
    path = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Returns the path of the compiled program; an empty one, after a line on stderr, if it does not compile.
fs::path compile(const ConformSettings& settings, const Runtime& runtime, const std::string& program,
                 const fs::path& scratch) {
  const std::string name = fmt::format("{}-{}", program, runtime.name);
  if (fs::exists(fs::path(settings.compiled_folder) / name)) return fs::path(settings.compiled_folder) / name;
  const fs::path mpirun(runtime.launcher), out = scratch / name, sources(settings.sources);
  const std::string mpicxx = "mpicxx" + mpirun.filename().string().substr(std::string_view("mpirun").size());
  ChildRequest child;
  child.arguments = split("-std=c++20 -O1 -pthread -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -I", " ");
  child.arguments.insert(child.arguments.begin(), (mpirun.parent_path() / mpicxx).string());
  for (const fs::path& word : {sources, sources / (program + ".cpp"), fs::path("-o"), out})
    child.arguments.push_back(word.string());
  if (std::error_code none; fs::is_directory(sources / program, none))
    for (const fs::directory_entry& each : fs::directory_iterator(sources / program))
      if (each.path().extension() == ".cpp") child.arguments.push_back(each.path().string());
  child.silence_seconds = 600;
  const ChildEnd end = run_child(child);
  if (end.how == ChildEnd::How::kExited && end.code == 0) return out;
  fmt::print(stderr, "farside conform: {}\n  {}\n  {}\n", end_in_words(end), shell_line(child.arguments),
             end.error_output);
  return {};
}

// Runs a program with these variables; `on_line` gets what it prints.
ChildEnd launch(const ConformSettings& settings, const Runtime& runtime, const Launch& ranks, const fs::path& program,
                Variables variables, const Variables& of_launcher, std::function<void(std::string_view)> on_line) {
  variables.emplace_back("TEST_SECONDS", std::to_string(settings.seconds));
  ChildRequest child;
  allow_root(runtime, child.environment);
  child.environment.erase("LD_PRELOAD");
  for (const auto& [name, value] : of_launcher) child.environment[name] = value;
  child.arguments = launch_words(runtime, ranks, variables);
  child.arguments.push_back(program.string());
  child.silence_seconds = settings.seconds + 5;  // the program ends itself first, and says where it was
  child.on_line = std::move(on_line);
  return run_child(child);
}

// Returns the sections of a program that are requirements, as it lists them.
std::vector<Requirement> requirements_of(const ConformSettings& settings, const Runtime& runtime,
                                         const std::string& name, const fs::path& program) {
  std::vector<Requirement> all;
  Launch one = settings.launch;
  one.ranks = 1;
  one.hosts.clear();
  launch(settings, runtime, one, program, {{"TEST_SECTION", "?"}}, {}, [&](std::string_view line) {
    const std::size_t space = line.find(' ');
    if (!line.empty() && line.front() >= '1' && line.front() <= '9' && space != std::string_view::npos)
      all.push_back({name, std::string(line.substr(0, space)), std::string(line.substr(space + 1))});
  });
  return all;
}

// The verdict on the run of one requirement. A check that failed says so on stderr: "FILE:LINE: rank 1, in "...": ...".
Judgement judge(const ChildEnd& end, const std::string& section) {
  constexpr int kSkipped = 77, kOutOfTime = 124;
  std::string said;
  const std::string in_section = fmt::format("in \"{}\"", section);
  for (const std::string& line : split(end.error_output, "\n"))
    if (said.empty() && line.find(in_section) != std::string::npos) said = line;
  if (end.how == ChildEnd::How::kSilent || said.find(": out of time in ") != std::string::npos ||
      (end.how == ChildEnd::How::kExited && end.code == kOutOfTime))
    return {"hang", said.empty() ? "no end in time" : said};
  if (!said.empty()) {
    if (said.find(" gave class ") != std::string::npos) return {"wrong class", said};
    if (said.find(" returned ") != std::string::npos) return {"refused", said};
    return {"wrong data", said};
  }
  if (end.how == ChildEnd::How::kExited && end.code == 0) return {"right", ""};
  if (end.how == ChildEnd::How::kExited && end.code == kSkipped) return {"skipped", "not with this runtime"};
  const std::string reason = fmt::format("{}; {}", end_in_words(end), telling_lines(end.error_output));
  for (const char* fatal : {"An error occurred in MPI_", "Fatal error in "})  // the default error handler
    if (reason.find(fatal) != std::string::npos) return {"refused", reason};
  // Launchers pass on the signal that ended a rank as exit code 128 + signal.
  const bool crashed = end.how == ChildEnd::How::kSignalled || end.code > 128;
  return {crashed ? "crash" : "failed", reason};
}

struct Column {
  const Runtime* runtime;
  const Variant* variant;
  std::string title;
  std::map<std::string, Judgement> results;  // by program and text of the requirement
};

std::string key_of(const Requirement& one) { return one.program + ": " + one.text; }

Json to_json(const ConformSettings& settings, const std::vector<Requirement>& requirements,
             const std::vector<Column>& columns) {
  Json json{{"farside_conform", 1},           {"farside", FARSIDE_VERSION}, {"host", host_facts()},
            {"ranks", settings.launch.ranks}, {"columns", Json::array()},   {"requirements", Json::array()}};
  for (const Column& column : columns)
    json["columns"].push_back({{"title", column.title},
                               {"runtime", column.runtime->name},
                               {"variant", column.variant->key},
                               {"version", launcher_version(*column.runtime)}});
  for (const Requirement& one : requirements) {
    Json row{{"standard", one.standard}, {"program", one.program}, {"text", one.text}, {"results", Json::array()}};
    for (const Column& column : columns) {
      const auto found = column.results.find(key_of(one));
      const Judgement result = found != column.results.end() ? found->second : Judgement{"skipped", "not run"};
      row["results"].push_back({{"verdict", result.verdict}, {"reason", result.reason}});
    }
    json["requirements"].push_back(std::move(row));
  }
  return json;
}

// Returns whether all is right.
bool print_summary(const std::vector<Column>& columns, std::size_t total) {
  Table table({"", "requirements", "right", "not right"});
  bool all_right = true;
  for (const Column& column : columns) {
    const auto right =
        std::ranges::count_if(column.results, [](const auto& one) { return one.second.verdict == "right"; });
    std::map<std::string, int> others;
    for (const auto& [key, result] : column.results)
      if (result.verdict != "right") ++others[result.verdict];
    std::vector<std::string> words;
    for (const auto& [verdict, count] : others) words.push_back(fmt::format("{} {}", count, verdict));
    table.add(column.title, total, right, fmt::format("{}", fmt::join(words, ", ")));
    all_right = all_right && std::ranges::all_of(column.results, [](const auto& one) {
                  return one.second.verdict == "right" || one.second.verdict == "skipped";
                });
  }
  fmt::print("\n{}", table.text());
  return all_right;
}

int conform(const ConformSettings& settings) {
  prepare_for_children();
  std::vector<LeftOut> missing;
  const std::vector<Runtime> runtimes = find_runtimes(settings.library_folder, settings.runtimes, missing);
  if (runtimes.empty() || (!settings.launch.launcher.empty() && runtimes.size() > 1)) {
    fmt::print(stderr, "farside conform: {}\n",
               runtimes.empty() ? "no MPI runtime found" : "--launcher needs one --runtime");
    return 2;
  }
  const bool on_this_host = settings.launch.hosts.empty() && settings.launch.launcher.empty();
  const Scratch scratch;
  std::vector<Requirement> requirements;
  std::vector<Column> columns;
  for (const Runtime& runtime : runtimes) {
    std::map<std::string, fs::path> programs;
    fmt::print("{}: preparing {}\n", runtime.name, counted(settings.programs.size(), "program"));
    std::fflush(stdout);
    for (const std::string& name : settings.programs) {
      const fs::path program = compile(settings, runtime, name, scratch.path);
      if (program.empty()) return 1;
      std::vector<Requirement> listed = requirements_of(settings, runtime, name, program);
      if (listed.empty()) {
        fmt::print(stderr, "farside conform: {} lists no requirements: it does not start, or is an older one\n",
                   program.string());
        return 1;
      }
      for (Requirement& one : listed)
        if (std::ranges::find(requirements, key_of(one), key_of) == requirements.end())
          requirements.push_back(std::move(one));
      programs[name] = program;
    }
    for (const Variant* variant : variants_named(settings.variants)) {
      if (!variant->component.empty() && runtime.name != "openmpi") continue;
      if (!variant->native())
        if (const Status there = check_library(runtime, settings.library_folder); !there) {
          fmt::print(stderr, "farside conform: {}\n", there.error().text);
          return 1;
        }
      Column column{
          &runtime, variant, fmt::format("{}, {}", runtime.title, variant->full_title(settings.provider)), {}};
      for (const Requirement& one : requirements) {
        Variables variables = variables_of(*variant, runtime, settings.provider, on_this_host);
        variables.emplace_back("TEST_SECTION", one.text);
        const ChildEnd end = launch(settings, runtime, settings.launch, programs.at(one.program), variables,
                                    variant->component_variables(), {});
        if (end.how == ChildEnd::How::kInterrupted) return 1;
        const Judgement result = judge(end, one.text);
        print_report(fmt::format("{}: {} ({}): {}{}{}\n", column.title, key_of(one), one.standard, result.verdict,
                                 result.reason.empty() ? "" : ": ", result.reason));
        std::fflush(stdout);
        column.results[key_of(one)] = result;
      }
      columns.push_back(std::move(column));
    }
  }
  const bool right = print_summary(columns, requirements.size());
  const Json json = to_json(settings, requirements, columns);
  bool written = settings.json_file.empty() || write_file("farside conform", settings.json_file, json_text(json, 1));
  written = (settings.html_file.empty() ||
             write_file("farside conform", settings.html_file, page_with(kConformPage, json_text(json)))) &&
            written;
  return !written ? 2 : right ? 0 : 1;
}

}  // namespace

void add_conform_command(CLI::App& app, int& exit_code) {
  auto settings = std::make_shared<ConformSettings>();
  settings->variants = {"native", "node"};
  settings->launch.ranks = 3;
  CLI::App* command = app.add_subcommand(
      "conform", "check which requirements of MPI's one-sided chapter a runtime meets, natively and with farside");
  add_common_options(*command, *settings);
  command->add_option("--programs", settings->programs, "only requirements of these programs")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kPrograms.begin(), kPrograms.end())));
  command->add_option("--program-dir", settings->compiled_folder,
                      "folder of compiled programs, PROGRAM-RUNTIME; others are compiled by the runtime's mpicxx");
  command->add_option("-n,--ranks", settings->launch.ranks, "number of ranks")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--timeout", settings->seconds, "seconds after which a requirement counts as hung")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command->add_option("--json", settings->json_file, "write the results to this file");
  command->add_option("--html", settings->html_file, "write a self-contained HTML page to this file");
  command->callback([settings, &exit_code] { exit_code = conform(*settings); });
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// `farside run`: starts a program under the launcher of the runtime that it is linked to, with farside preloaded.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/child.hpp"
#include "tools/common/commands.hpp"
#include "tools/common/linkage.hpp"
#include "tools/common/runtime.hpp"
#include "tools/common/text.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

// Options of mpirun (Open MPI's mpirun(1), `mpiexec.hydra --help` of MPICH), without their dashes, by the
// number of their values. Between another option and a word that is no option, "--" is needed.
const std::array<std::vector<std::string>, 3> kMpirunOptions{
    split("allow-run-as-root display-map genvall l oversubscribe report-bindings tag-output", " "),
    split("bind-to f H host hostfile hosts iface launcher launcher-exec machinefile map-by n N np ppn prefix rank-by "
          "wdir x",
          " "),
    split("env genv mca", " ")};

// Returns the number of values behind this option; nothing if it is not known.
std::optional<int> values_of(const std::string& option, const OptionValues& own) {
  const std::size_t equals = option.find('=');
  if (const auto found = own.find(option.substr(0, equals)); found != own.end())
    return equals == std::string::npos ? found->second : 0;
  if (option.starts_with("--") && equals != std::string::npos) return 0;
  const std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
  for (std::size_t values = 0; values < kMpirunOptions.size(); ++values)
    if (std::ranges::find(kMpirunOptions[values], name) != kMpirunOptions[values].end()) return values;
  return std::nullopt;
}

RunWords split_at(const std::vector<std::string>& words, std::size_t options, std::size_t program) {
  const auto at = [&](std::size_t index) { return words.begin() + static_cast<std::ptrdiff_t>(index); };
  return {{words.begin(), at(options)}, {at(program), words.end()}};
}

}  // namespace

Result<RunWords> split_run_words(const std::vector<std::string>& words, const OptionValues& own) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") return split_at(words, i, i + 1);
    if (!words[i].starts_with('-') || words[i] == "-") return split_at(words, i, i);
    const std::optional<int> values = values_of(words[i], own);
    if (values) {
      i += static_cast<std::size_t>(*values);
    } else if (i + 1 < words.size() && !words[i + 1].starts_with('-')) {
      const auto dashes = std::find(words.begin(), words.end(), "--");
      if (dashes == words.end()) {
        return cannot("{} may be the program, or the value of {}: put -- in front of the program", words[i + 1],
                      words[i]);
      }
      const auto place = static_cast<std::size_t>(dashes - words.begin());
      return split_at(words, place, place + 1);
    }
  }
  return split_at(words, words.size(), words.size());
}

std::string take_ranks(std::vector<std::string>& options) {
  std::string ranks;
  for (auto option = options.begin(); option != options.end();) {
    if ((*option == "-n" || *option == "-np" || *option == "--np") && option + 1 != options.end()) {
      ranks = option[1];
      option = options.erase(option, option + 2);
    } else {
      ++option;
    }
  }
  return ranks;
}

namespace {

struct RunOptions {
  std::string runtime;
  bool unexamined = false;
  std::string launcher;
  std::vector<std::string> set;
  std::string library_folder = default_library_folder();
  bool dry_run = false;
};

constexpr int kRefused = 2;  // exit code: the launcher was not started

template <class... Args>
int refuse(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(stderr, "farside run: {}\n", fmt::format(format, std::forward<Args>(args)...));
  return kRefused;
}

// Puts --set NAME=VALUE into the environment of this process, where read_settings() finds it.
Status take_settings(const std::vector<std::string>& set) {
  for (const std::string& one : set) {
    const std::size_t equals = one.find('=');
    const std::string name = one.substr(0, equals);
    std::vector<std::string_view> names;
    for (const Setting& setting : settings_table()) names.emplace_back(setting.name);
    if (equals == std::string::npos || std::ranges::find(names, name) == names.end()) {
      return Error{ErrorKind::kBadSetting,
                   fmt::format("--set {}: it is --set NAME=VALUE, and NAME one of {}", one, fmt::join(names, ", "))};
    }
    setenv(name.c_str(), one.c_str() + equals + 1, 1);
  }
  Status read = read_settings().status();
  if (read) warn_of_unknown_settings();
  return read;
}

std::string described(const std::vector<MpiLibrary>& libraries) {
  std::vector<std::string> all;
  for (const MpiLibrary& one : libraries) all.push_back(fmt::format("{} ({})", one.name, one.runtime));
  return fmt::format("{}", fmt::join(all, ", "));
}

// Determines the runtime from the libraries of the program, or says why it cannot.
Result<std::string> detect(const Linkage& linkage) {
  if (linkage.mpi.empty()) {
    return cannot(
        "{} is linked to no MPI library, so it does not say which runtime it is for; if it loads MPI later, or starts "
        "a program that does, --runtime {} says which",
        linkage.examined, fmt::join(runtime_names(), " or --runtime "));
  }
  for (const MpiLibrary& one : linkage.mpi) {
    if (one.runtime == linkage.mpi.front().runtime) continue;
    return cannot(
        "{} is linked to the libraries of two MPI runtimes, {}: rebuild it with one of them, or choose by --runtime {}",
        linkage.examined, described(linkage.mpi), fmt::join(runtime_names(), " or --runtime "));
  }
  return linkage.mpi.front().runtime;
}

// Returns whether the launcher's own options set this variable for the ranks.
bool set_by_user(const std::vector<std::string>& launcher_options, std::string_view name) {
  static constexpr std::array<std::string_view, 6> kOptions = {"-x", "--x", "-genv", "--genv", "-env", "--env"};
  const auto sets = [&](const std::string& option, const std::string& value) {
    return std::ranges::find(kOptions, option) != kOptions.end() && value.substr(0, value.find('=')) == name;
  };
  return std::ranges::adjacent_find(launcher_options, sets) != launcher_options.end();
}

// Adds `set` after each ":" of Open MPI, because its -x applies to one program only.
std::vector<std::string> with_variables(const Runtime& runtime, const std::vector<std::string>& program,
                                        const std::vector<std::string>& set) {
  std::vector<std::string> words;
  for (const std::string& word : program) {
    words.push_back(word);
    if (word == ":" && runtime.launched_as == "openmpi") words.insert(words.end(), set.begin(), set.end());
  }
  return words;
}

// Checks that the library can be preloaded, and belongs to the MPI library of the program.
Status check_library_for(const Linkage& linkage, const Runtime& runtime, const RunOptions& options) {
  if (Status status = check_library(runtime, options.library_folder); !status) return status;
  const MpiLibrary ours = mpi_behind(runtime.library);
  for (const MpiLibrary& theirs : linkage.mpi) {
    if (ours.name.empty() || theirs.runtime != runtime.name || theirs.name == ours.name) continue;
    return cannot(
        "{} is linked to {} ({}), and {} was built for {}: build farside with the mpicc that the program was built "
        "with (-DFARSIDE_MPICC_{}=...)",
        linkage.examined, theirs.name, theirs.path.empty() ? "not found" : theirs.path, runtime.library, ours.name,
        runtime.name);
  }
  return {};
}

// Determines the runtime of the program: the one that the program is linked to, or options.runtime.
Result<std::string> runtime_for(const RunOptions& options, const Result<Linkage>& found) {
  const std::string& named = options.runtime;
  if (!found) return named.empty() ? Result<std::string>(found.error()) : named;
  const Linkage& linkage = found.value();
  const auto of_named = [&](const MpiLibrary& library) { return library.runtime == named; };
  if (!named.empty() && (linkage.mpi.empty() || std::ranges::any_of(linkage.mpi, of_named))) return named;
  const Result<std::string> detected = detect(linkage);
  if (named.empty() || !detected) return detected;
  return cannot(
      "{0} is linked to {1}, and --runtime says {2}: the libraries of {3} do not run under {2}. Leave --runtime out, "
      "or "
      "build the program with the mpicc of {2}. If it only starts another program, or another library takes the place "
      "of {1}, add --no-examine",
      linkage.examined, described(linkage.mpi), named, detected.value());
}

// Checks what the program is linked to: farside's library for another runtime, or an MPI library that is not there.
Status check_linkage(const Linkage& linkage, const std::string& runtime) {
  if (!linkage.farside.empty() && linkage.farside != runtime) {
    return cannot("{} is linked to libfarside-{}.so, which cannot run on {}", linkage.examined, linkage.farside,
                  runtime);
  }
  for (const MpiLibrary& one : linkage.mpi) {
    if (one.runtime != runtime || !one.path.empty()) continue;
    return cannot("{} needs {}, which is not found: load the module of that MPI, or set LD_LIBRARY_PATH",
                  linkage.examined, one.name);
  }
  return {};
}

std::string path_of_mpi(const Linkage& linkage, const std::string& runtime) {
  const auto found = std::ranges::find(linkage.mpi, runtime, &MpiLibrary::runtime);
  return found == linkage.mpi.end() ? std::string() : found->path;
}

// Returns the words of the user's launcher, up to the program.
Result<std::vector<std::string>> words_of_launcher(const RunOptions& options, std::vector<std::string> launcher_options,
                                                   const Variables& variables) {
  Launch launch;
  launch.launcher = options.launcher;
  if (launch.launcher.find("{n}") != std::string::npos) {
    const std::string ranks = take_ranks(launcher_options);
    const auto [end, error] = std::from_chars(ranks.data(), ranks.data() + ranks.size(), launch.ranks);
    if (error != std::errc() || end != ranks.data() + ranks.size() || launch.ranks < 1) {
      return cannot("--launcher '{}': -n N says what {{n}} is, a number from 1 on{}", launch.launcher,
                    ranks.empty() ? "; there is none" : fmt::format(", and not {}", ranks));
    }
  }
  launch.options = launcher_options;
  return launcher_words(launch, variables);
}

int run(const RunOptions& options, const std::vector<std::string>& launcher_options,
        const std::vector<std::string>& program) {
  if (program.empty()) return refuse("no program: farside run -n 2 ./program arguments");
  prepare_for_children();
  const Environment environment = current_environment();
  if (Status status = take_settings(options.set); !status) return refuse("{}", status.error().text);

  const Linkage unknown{program[0], program[0], {}, {}, {}};
  const Result<Linkage> found = options.unexamined ? unknown : find_linkage(program[0]);
  const Result<std::string> name = runtime_for(options, found);
  if (!name) return refuse("{}", name.error().text);
  const Linkage linkage = found ? found.value() : unknown;
  if (Status status = check_linkage(linkage, name.value()); !status) return refuse("{}", status.error().text);

  const Runtime runtime = find_runtime(name.value(), options.library_folder, path_of_mpi(linkage, name.value()));
  const bool by_mpirun = options.launcher.empty();
  if (by_mpirun && runtime.launcher.empty()) {
    return refuse("no launcher of {} (neither mpirun.{} nor an mpirun of its own in PATH); --launcher names another",
                  runtime.title, runtime.name);
  }
  const std::string old_preload = variable("LD_PRELOAD");
  std::string preload = old_preload;
  if (linkage.farside.empty()) {
    if (Status status = check_library_for(linkage, runtime, options); !status) return refuse("{}", status.error().text);
    preload = preload_list(old_preload, runtime.library, linkage.first);
  }
  const auto sets_preload = [](const std::string& word) { return word.find("LD_PRELOAD=") != std::string::npos; };
  if (set_by_user(launcher_options, "LD_PRELOAD") ||
      (!by_mpirun && std::ranges::any_of(shell_words(options.launcher), sets_preload))) {
    return refuse(
        "LD_PRELOAD among the options of the launcher would displace farside's: put it in the environment, where it "
        "is kept (LD_PRELOAD=... farside run ...)");
  }

  Variables variables;
  if (!preload.empty()) variables.emplace_back("LD_PRELOAD", preload);
  for (const auto& one : users_variables())
    if (!set_by_user(launcher_options, one.first)) variables.push_back(one);
  std::vector<std::string> words;
  const auto append = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (by_mpirun) {
    const std::vector<std::string> set = words_for_ranks(runtime, variables);
    words.push_back(runtime.launcher);
    append(set);
    append(launcher_options);
    append(with_variables(runtime, program, set));
  } else {
    if (std::ranges::find(program, ":") != program.end()) {
      return refuse(
          "--launcher starts one program with farside, and there is a ':': put 'env LD_PRELOAD={}' before each program "
          "of the launcher's own command line",
          preload);
    }
    const auto launcher = words_of_launcher(options, launcher_options, variables);
    if (!launcher) return refuse("{}", launcher.error().text);
    append(launcher.value());
    append(program);
  }
  if (options.dry_run) {
    fmt::print("{}\n", shell_line(words));
    return 0;
  }
  std::fflush(stdout);
  const int reason = become_program(words, environment);
  return refuse("{} could not be started: {}", words[0], std::strerror(reason));
}

}  // namespace

void add_run_command(CLI::App& app, const std::vector<std::string>& program, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run",
                                         "start an MPI program with farside, under the mpirun of its runtime:\n"
                                         "farside run [-n N] [mpirun options] [OPTIONS] [--] program [arguments]");
  // No short options: those are mpirun's (-n, -np, -host, ...). The command line's -h is --help (farside.cpp).
  command->set_help_flag("--help", "Print this help message and exit");
  command->allow_extras();
  CLI::Option* runtime = command->add_option("--runtime", options->runtime,
                                             "MPI runtime of the program (default: the one it is linked to)");
  runtime->check(CLI::IsMember(runtime_names()));
  command
      ->add_flag("--no-examine", options->unexamined,
                 "do not examine the libraries of the program: use --runtime although it is linked to another one, or "
                 "a wrapper")
      ->needs(runtime);
  command->add_option("--launcher", options->launcher, kLauncherHelp);
  command->add_option("--set", options->set, "setting for this run, NAME=VALUE (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option_function<std::string>(
      "--report",
      [options](const std::string& prefix) {
        options->set.insert(options->set.end(), {"FARSIDE_CHECK=strict", "FARSIDE_TRACE=" + prefix});
      },
      "FARSIDE_CHECK=strict, with its reports and the epochs of each rank in PREFIX.RANK.trace (farside trace)");
  command->add_option("--lib-dir", options->library_folder, kLibraryFolderHelp);
  command->add_flag("--dry-run", options->dry_run, "print the command line of mpirun without running it");
  command->footer(
      "The program is an executable, a script, or python; its libraries determine the runtime. Options not listed "
      "here are passed to mpirun or the launcher; after an option that is not among mpirun's most common ones, put -- "
      "before the program. LD_PRELOAD, FARSIDE_* and FI_* variables reach the ranks. The exit code is the launcher's, "
      "or 2 if it was not started.");
  command->callback(
      [options, command, &program, &exit_code] { exit_code = run(*options, command->remaining(), program); });
}

Result<RunWords> split_words_of_run(const CLI::App& app, const std::vector<std::string>& words) {
  OptionValues own{{"-h", 0}};
  for (const CLI::Option* option : app.get_subcommand("run")->get_options()) {
    const int values = std::min(option->get_expected_max(), 1);  // of a repeatable option, each time
    for (const std::string& name : option->get_lnames()) own["--" + name] = values;
  }
  return split_run_words(words, own);
}

}  // namespace farside::tools

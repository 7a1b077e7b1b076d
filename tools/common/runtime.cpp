// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/runtime.hpp"

#include <algorithm>
#include <array>
#include <system_error>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "pmpi/runtime/program_runtime.hpp"
#include "tools/common/linkage.hpp"
#include "tools/common/text.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

namespace fs = std::filesystem;

// CMake sets the launchers that belong to the compiler wrappers of the build (FARSIDE_MPIRUN_*, "" without one), the
// folder of the installed libraries, relative to this program (FARSIDE_INSTALLED_LIBRARIES), and the number in the
// sonames of the libraries (FARSIDE_SOVERSION).
struct Known {
  std::string_view name;
  std::string_view title;
  std::string_view built_with;
  // Texts in the output of `mpirun --version`, any of which will do. (Intel MPI is a relative of MPICH.)
  std::array<std::string_view, 2> signs;
};

constexpr auto kKnown = std::to_array<Known>({
    {"openmpi", "Open MPI", FARSIDE_MPIRUN_OPENMPI, {"Open MPI", "OpenRTE"}},
    {"mpich", "MPICH", FARSIDE_MPIRUN_MPICH, {"HYDRA", "Intel(R) MPI"}},
    {"mpi_abi", "MPI ABI", {}, {}},
});

// Returns the output of `launcher --version`.
std::vector<std::string> version_lines(const std::string& launcher) {
  std::vector<std::string> lines;
  ChildRequest request;
  request.arguments = {launcher, "--version"};
  request.silence_seconds = 10;
  request.on_line = [&](std::string_view line) { lines.emplace_back(line); };
  run_child(request);
  return lines;
}

bool is_launcher_of(const std::string& launcher, const Known& known) {
  const auto lines = version_lines(launcher);
  return std::ranges::any_of(lines, [&](const std::string& line) {
    return std::ranges::any_of(known.signs,
                               [&](std::string_view sign) { return line.find(sign) != std::string::npos; });
  });
}

constexpr int kMostLevels = 4;  // of folders between an MPI library and its prefix

// Returns the launcher of an MPI library in PREFIX/lib, PREFIX/lib/release or PREFIX/lib/x86_64-linux-gnu/openmpi/lib,
// which is in PREFIX/bin; empty if there is none.
std::string launcher_above(const fs::path& mpi_library, const Known& known) {
  std::error_code failed;
  fs::path folder = fs::canonical(mpi_library, failed).parent_path().parent_path();
  for (int level = 0; level < kMostLevels && folder.has_relative_path(); ++level, folder = folder.parent_path()) {
    for (const std::string& name : {fmt::format("mpirun.{}", known.name), std::string("mpirun")}) {
      const fs::path launcher = folder / "bin" / name;
      if (runnable(launcher) && (launcher == known.built_with || is_launcher_of(launcher.string(), known)))
        return launcher.string();
    }
  }
  return {};
}

std::string find_launcher(const Known& known, const fs::path& mpi_library) {
  if (std::string above = launcher_above(mpi_library, known); !above.empty()) return above;
  if (!known.built_with.empty() && runnable(known.built_with)) return std::string(known.built_with);
  if (std::string own = in_path(fmt::format("mpirun.{}", known.name)); !own.empty()) return own;
  std::string plain = in_path("mpirun");
  return !plain.empty() && is_launcher_of(plain, known) ? plain : std::string();
}

constexpr std::string_view kAbi = "mpi_abi";

// Returns the runtime that a library of the MPI ABI belongs to. Open MPI's is linked to the rest of Open MPI; MPICH's
// is all of MPICH.
const Known* runtime_behind(const std::string& mpi_library) {
  if (mpi_library.empty()) return kKnown.end();
  const bool openmpi = std::ranges::any_of(loaded_libraries(mpi_library), [](const LoadedLibrary& each) {
    return each.name.starts_with("libopen_mpi.so") || each.name.starts_with("libopen-pal.so");
  });
  return std::ranges::find(kKnown, openmpi ? "openmpi" : "mpich", &Known::name);
}

std::string absolute_if_there(const fs::path& path) {
  std::error_code failed;
  return fs::is_regular_file(path, failed) ? fs::absolute(path).lexically_normal().string() : std::string();
}

// Returns libfarside-NAME.so in this folder or, if only the files for run time are installed, the name with its
// number; empty if there is neither.
std::string library_in(const fs::path& folder, std::string_view name) {
  const fs::path plain = folder / fmt::format("libfarside-{}.so", name);
  std::string found = absolute_if_there(plain);
  return !found.empty() ? found : absolute_if_there(plain.string() + "." FARSIDE_SOVERSION);
}

}  // namespace

std::string own_folder() {
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  return failed ? std::string(".") : self.parent_path().string();
}

std::string default_library_folder() {
  const fs::path own(own_folder());
  const fs::path installed = (own / FARSIDE_INSTALLED_LIBRARIES).lexically_normal();
  const bool there =
      std::ranges::any_of(kKnown, [&](const Known& known) { return !library_in(installed, known.name).empty(); });
  return there ? installed.string() : (own / "../lib").lexically_normal().string();
}

std::vector<std::string> runtime_names() {
  std::vector<std::string> result;
  for (const Known& known : kKnown) result.emplace_back(known.name);
  return result;
}

Runtime find_runtime(const std::string& name, const std::string& library_folder, const std::string& mpi_library) {
  const auto known = std::ranges::find(kKnown, name, &Known::name);
  if (known == kKnown.end()) return {};
  const auto launched = name == kAbi ? runtime_behind(mpi_library) : known;
  const bool has_launcher = launched != kKnown.end();
  return {name,
          std::string(known->title),
          has_launcher ? std::string(launched->name) : std::string(),
          has_launcher ? find_launcher(*launched, mpi_library) : std::string(),
          absolute_if_there(fs::path(own_folder()) / fmt::format("farside-bench-{}", name)),
          library_in(library_folder, name)};
}

std::string launcher_version(const Runtime& runtime) {
  // Examples: "mpirun.openmpi (OpenRTE) 4.1.4", "mpirun (Open MPI) 5.0.3"; MPICH's hydra prints " Version:
  // 4.0.2".
  for (const std::string& line : version_lines(runtime.launcher)) {
    const bool tells = line.find("Version:") != std::string::npos || line.find(") ") != std::string::npos;
    if (tells) return fmt::format("{} {}", runtime.title, line.substr(line.find_last_of(' ') + 1));
  }
  return {};
}

std::vector<Runtime> find_runtimes(const std::string& library_folder, const std::vector<std::string>& wanted,
                                   std::vector<LeftOut>& missing) {
  std::vector<Runtime> result;
  for (const std::string& name : runtime_names()) {
    if (name == kAbi || (!wanted.empty() && std::ranges::find(wanted, name) == wanted.end())) continue;
    Runtime runtime = find_runtime(name, library_folder);
    if (runtime.launcher.empty()) {
      missing.push_back({name, fmt::format("no launcher (neither mpirun.{} nor an mpirun of its own in PATH)", name)});
    } else {
      result.push_back(std::move(runtime));
    }
  }
  return result;
}

void allow_root(const Runtime& runtime, Environment& environment) {
  if (runtime.launched_as != "openmpi" || geteuid() != 0) return;
  environment.emplace("OMPI_ALLOW_RUN_AS_ROOT", "1");
  environment.emplace("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
}

// ---- launch ----

namespace {

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::vector<std::string> mpirun_words(const Runtime& runtime, const Launch& launch, const Variables& variables) {
  const bool openmpi = runtime.launched_as == "openmpi";
  std::vector<std::string> words{runtime.launcher, "-n", std::to_string(launch.ranks)};
  // --oversubscribe: Open MPI refuses more ranks than cores (of the cpuset).
  // --bind-to none: MPICH does not bind either. Open MPI's binding to one core would put a rank and its helper
  // threads on one core while others are free, and two runs at a time on the same cores.
  if (openmpi) append(words, {"--oversubscribe", "--bind-to", "none"});
  if (!launch.hosts.empty()) append(words, {openmpi ? "--host" : "-hosts", launch.hosts});
  if (launch.in_turn && openmpi) append(words, {"--map-by", "node"});
  if (launch.in_turn && !openmpi) append(words, {"-ppn", "1"});
  append(words, words_for_ranks(runtime, variables));
  append(words, launch.options);
  return words;
}

}  // namespace

void add_launch_options(CLI::App& command, Launch& launch, std::string& library_folder) {
  command.add_option("--lib-dir", library_folder, kLibraryFolderHelp);
  CLI::Option* hosts = command.add_option("--hosts", launch.hosts, "hosts, in the format of mpirun: a:1,b:1");
  command.add_option("--launcher", launch.launcher, kLauncherHelp)->excludes(hosts);
  command.add_option("--launcher-option", launch.options, "extra argument of mpirun or the launcher (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
}

std::vector<std::string> launch_words(const Runtime& runtime, const Launch& launch, const Variables& variables) {
  return launch.launcher.empty() ? mpirun_words(runtime, launch, variables) : launcher_words(launch, variables);
}

std::vector<std::string> launcher_words(const Launch& launch, const Variables& variables) {
  std::vector<std::string> words = shell_words(launch.launcher);
  for (std::string& word : words)
    for (std::size_t at = 0; (at = word.find("{n}", at)) != std::string::npos;)
      word.replace(at, 3, std::to_string(launch.ranks));
  append(words, launch.options);
  words.emplace_back("env");
  for (const auto& [name, value] : variables) words.push_back(fmt::format("{}={}", name, value));
  return words;
}

std::vector<std::string> words_for_ranks(const Runtime& runtime, const Variables& variables) {
  std::vector<std::string> words;
  for (const auto& [name, value] : variables)
    if (runtime.launched_as == "openmpi")
      append(words, {"-x", fmt::format("{}={}", name, value)});
    else
      append(words, {"-genv", name, value});
  return words;
}

Variables users_variables() {
  Variables all;
  for (const Setting& setting : settings_table())
    if (const char* value = std::getenv(setting.name); value != nullptr) all.emplace_back(setting.name, value);
  for (const auto& one : current_environment())
    if (one.first.starts_with("FI_")) all.push_back(one);
  return all;
}

Status check_library(const Runtime& runtime, const std::string& library_folder) {
  if (runtime.library.empty()) {
    return cannot(
        "there is no libfarside-{0}.so in {1}: farside was built without {2} (see -DFARSIDE_MPI), the package "
        "farside-{0} is not installed, or --lib-dir says where it is",
        runtime.name, library_folder, runtime.title);
  }
  if (runtime.library.find_first_of(": ") != std::string::npos)
    return cannot("{}: LD_PRELOAD takes no path with a space or a colon; put it elsewhere", runtime.library);
  return {};
}

std::string preload_list(const std::string& old, const std::string& library, const std::string& needed) {
  const auto name = [](const std::string& path) { return std::string_view(path).substr(path.rfind('/') + 1); };
  const auto stem = [&](const std::string& path) { return name(path).substr(0, name(path).find(".so")); };
  std::vector<std::string> first, others;
  bool named = needed.empty();
  for (const std::string& entry : split(old, ": ")) {
    if (entry.empty() || entry.find("libfarside-") != std::string::npos) continue;
    (comes_first(entry) ? first : others).push_back(entry);
    named = named || stem(entry) == stem(needed);
  }
  if (!named) first.insert(first.begin(), needed);
  const auto is_mpi = [&](const std::string& path) { return !pmpi::runtime_of(name(path)).empty(); };
  if (!library.empty()) others.insert(std::ranges::find_if(others, is_mpi), library);
  append(first, others);
  return fmt::format("{}", fmt::join(first, ":"));
}

}  // namespace farside::tools

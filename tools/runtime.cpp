// SPDX-License-Identifier: BSD-3-Clause
#include "tools/runtime.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/child.hpp"

namespace farside::tools {
namespace {

namespace fs = std::filesystem;

// Set by CMake: the launchers that belong to the compiler wrappers of the build.
#ifndef FARSIDE_MPIRUN_OPENMPI
#define FARSIDE_MPIRUN_OPENMPI ""
#endif
#ifndef FARSIDE_MPIRUN_MPICH
#define FARSIDE_MPIRUN_MPICH ""
#endif

struct Known {
  std::string_view name;
  std::string_view built_with;
  std::string_view sign;  // what `mpirun --version` says
};

constexpr auto kKnown = std::to_array<Known>({
    {"openmpi", FARSIDE_MPIRUN_OPENMPI, "Open MPI"},
    {"mpich", FARSIDE_MPIRUN_MPICH, "HYDRA"},
});

bool runnable(const fs::path& path) { return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path); }

std::string in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    const fs::path candidate = fs::path(rest.substr(0, end)) / program;
    if (runnable(candidate)) return candidate.string();
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return {};
}

bool is_launcher_of(const std::string& launcher, const Known& known) {
  bool found = false;
  ChildRequest request;
  request.arguments = {launcher, "--version"};
  request.environment = Environment::current();
  request.silence_seconds = 10;
  request.on_line = [&](std::string_view line) {
    found = found || line.find(known.sign) != std::string_view::npos;
  };
  run_child(request);
  return found;
}

std::string find_launcher(const Known& known) {
  if (!known.built_with.empty() && runnable(known.built_with)) return std::string(known.built_with);
  if (std::string own = in_path(fmt::format("mpirun.{}", known.name)); !own.empty()) return own;
  std::string plain = in_path("mpirun");
  return !plain.empty() && is_launcher_of(plain, known) ? plain : std::string();
}

std::string absolute_if_there(const fs::path& path) {
  std::error_code failed;
  return fs::is_regular_file(path, failed) ? fs::absolute(path).lexically_normal().string() : std::string();
}

}  // namespace

std::string own_folder() {
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  return failed ? std::string(".") : self.parent_path().string();
}

std::string default_library_folder() {
  return (fs::path(own_folder()) / ".." / "lib").lexically_normal().string();
}

std::vector<Runtime> find_runtimes(const std::string& library_folder, std::vector<std::string>& missing) {
  std::vector<Runtime> result;
  for (const Known& known : kKnown) {
    Runtime runtime;
    runtime.name = known.name;
    runtime.launcher = find_launcher(known);
    if (runtime.launcher.empty()) {
      missing.push_back(fmt::format("{}: no launcher (neither mpirun.{} nor an mpirun of its own in PATH)",
                                    known.name, known.name));
      continue;
    }
    runtime.benchmark =
        absolute_if_there(fs::path(own_folder()) / fmt::format("farside-bench-{}", known.name));
    runtime.library =
        absolute_if_there(fs::path(library_folder) / fmt::format("libfarside-{}.so", known.name));
    result.push_back(std::move(runtime));
  }
  return result;
}

void allow_root(const Runtime& runtime, Environment& environment) {
  if (runtime.name != "openmpi" || geteuid() != 0) return;
  environment.set_if_unset("OMPI_ALLOW_RUN_AS_ROOT", "1");
  environment.set_if_unset("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
}

std::vector<std::string> local_launch(const Runtime& runtime, int ranks) {
  std::vector<std::string> words{runtime.launcher, "-n", std::to_string(ranks)};
  if (runtime.name == "openmpi") {
    // --oversubscribe: it counts cores, or a cpuset's, and refuses more ranks than that.
    // --bind-to none: MPICH does not bind either; and Open MPI's binding of a rank to one core would put the
    // rank and any helper thread on the same core while others are free, and two such runs at a time onto the
    // same cores.
    words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
  }
  return words;
}

void set_preload(Environment& environment, const std::string& library) {
  std::string list = library;
  const std::string old = environment.get("LD_PRELOAD").value_or("");
  for (std::size_t at = 0; at < old.size();) {
    const std::size_t end = std::min(old.find_first_of(": ", at), old.size());
    const std::string entry = old.substr(at, end - at);
    if (!entry.empty() && entry.find("libfarside-") == std::string::npos) {
      list += (list.empty() ? "" : ":") + entry;
    }
    at = end + 1;
  }
  if (list.empty()) {
    environment.unset("LD_PRELOAD");
  } else {
    environment.set("LD_PRELOAD", list);
  }
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include "tools/hosts/launch_peers.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/launch.hpp"
#include "tools/linkage.hpp"
#include "tools/text.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

std::string program_of(const Runtime& runtime) {
  const std::string path = fmt::format("{}/farside-peers-{}", own_folder(), runtime.name);
  return runnable(path) ? path : std::string();
}

// The user's settings, which not every launcher takes to other nodes.
Variables variables() {
  Variables all;
  for (const Setting& setting : settings_table())
    if (const char* value = std::getenv(setting.name); value != nullptr) all.emplace_back(setting.name, value);
  for (const auto& [name, value] : current_environment())
    if (name.starts_with("FI_")) all.emplace_back(name, value);
  return all;
}

int number(const char* name) { return std::atoi(variable(name).c_str()); }

}  // namespace

bool under_launcher() {
  // In a batch job, SLURM_STEP_NUM_TASKS is set only for what srun has started.
  return number("OMPI_COMM_WORLD_SIZE") > 1 || number("PMI_SIZE") > 1 || number("SLURM_STEP_NUM_TASKS") > 1;
}

Result<std::vector<std::string>> command_for_peers(PeersRequest& request, const std::string& library_folder) {
  const bool ranks = under_launcher();
  std::vector<std::string> names = runtime_names();
  if (!request.runtime.empty()) {
    names = {request.runtime};
  } else if (ranks && !variable("OMPI_COMM_WORLD_SIZE").empty()) {
    names = {"openmpi"};
  } else if (ranks && !variable("PMI_SIZE").empty()) {
    names = {"mpich"};
  }
  const auto usable = [&](const std::string& name) {
    const Runtime runtime = find_runtime(name, library_folder);
    return !program_of(runtime).empty() && (ranks || !request.launcher.empty() || !runtime.launcher.empty());
  };
  const auto found = std::ranges::find_if(names, usable);
  if (found == names.end()) {
    return cannot("no farside-peers-RUNTIME in {} with an mpirun of its runtime ({})", own_folder(),
                  fmt::join(names, ", "));
  }
  request.runtime = *found;
  const Runtime runtime = find_runtime(*found, library_folder);
  if (request.launcher.find("{n}") != std::string::npos) {
    return cannot("--launcher '{}': the number of hosts is not known here; write it in place of {{n}}",
                  request.launcher);
  }
  std::vector<std::string> words;
  if (!ranks) {
    const std::size_t hosts = split(request.hosts, ",").size();
    words = launch_words(runtime,
                         {static_cast<int>(hosts), request.launcher, request.hosts, true, request.launcher_options},
                         variables());
  }
  words.push_back(program_of(runtime));
  if (request.json) words.emplace_back("--json");
  return words;
}

}  // namespace farside::tools

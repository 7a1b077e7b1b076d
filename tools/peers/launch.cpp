// SPDX-License-Identifier: BSD-3-Clause
#include "tools/peers/launch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/linkage.hpp"
#include "tools/common/text.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

std::string program_of(const Runtime& runtime) {
  const std::string path = fmt::format("{}/farside-peers-{}", own_folder(), runtime.name);
  return runnable(path) ? path : std::string();
}

// The user's settings, which not every launcher takes to other nodes, and what is set for this launch.
Variables variables_of(const PeersRequest& request, const Runtime& runtime) {
  Variables all = users_variables();
  if (request.preload) all.emplace(all.begin(), "LD_PRELOAD", preload_list(variable("LD_PRELOAD"), runtime.library));
  std::erase_if(all, [&](const auto& one) {
    return std::ranges::find(request.variables, one.first, &Variables::value_type::first) != request.variables.end();
  });
  all.insert(all.end(), request.variables.begin(), request.variables.end());
  return all;
}

std::vector<std::string> runtimes_to_try(const PeersRequest& request) {
  if (!request.runtime.empty()) return {request.runtime};
  if (request.in_place() && rank_variables()->rank == std::string_view("OMPI_COMM_WORLD_RANK")) return {"openmpi"};
  // Slurm's plugin for pmi2 and Flux set PMI_RANK for every runtime.
  if (request.in_place() && rank_variables()->rank == std::string_view("PMI_RANK")) return {"mpich", "openmpi"};
  return peers_runtimes();
}

// A rank of a launcher starts the program by itself. The program reports a library that is missing.
PeersLaunch launch_in_place(const PeersRequest& request, const Runtime& runtime, const std::string& library_folder) {
  PeersLaunch launch{runtime, {}, current_environment()};
  allow_root(runtime, launch.environment);
  if (request.preload) {
    const std::string old = variable("LD_PRELOAD");
    const std::string library =
        runtime.library.empty() ? fmt::format("{}/libfarside-{}.so", library_folder, runtime.name) : runtime.library;
    // The user's own preload of farside is what is to be examined.
    if (old.find("libfarside-") == std::string::npos) launch.environment["LD_PRELOAD"] = preload_list(old, library);
  }
  for (const auto& [name, value] : request.variables) launch.environment[name] = value;
  return launch;
}

PeersLaunch launch_by_launcher(const PeersRequest& request, const Runtime& runtime) {
  PeersLaunch launch{runtime, {}, current_environment()};
  allow_root(runtime, launch.environment);
  // The launcher itself is started without the preload.
  if (request.preload) launch.environment.erase("LD_PRELOAD");
  const int hosts = request.hosts.empty() ? 1 : static_cast<int>(split(request.hosts, ",").size());
  const int ranks = request.ranks > 0 ? request.ranks : hosts * request.ranks_per_host;
  const bool in_turn = !request.hosts.empty();
  launch.words = launch_words(runtime, {ranks, request.launcher, request.hosts, in_turn, request.launcher_options},
                              variables_of(request, runtime));
  return launch;
}

}  // namespace

std::vector<std::string> peers_runtimes() { return {"openmpi", "mpich"}; }

Result<PeersLaunch> launch_of_peers(const PeersRequest& request, const std::string& library_folder) {
  const bool in_place = request.in_place();
  const std::vector<std::string> names = runtimes_to_try(request);
  Runtime runtime;
  const auto usable = [&](const std::string& name) {
    runtime = find_runtime(name, library_folder);
    return !program_of(runtime).empty() && (in_place || !request.launcher.empty() || !runtime.launcher.empty());
  };
  if (std::ranges::none_of(names, usable)) {
    return cannot("no farside-peers-RUNTIME in {} with an mpirun of its runtime ({})", own_folder(),
                  fmt::join(names, ", "));
  }
  if (!in_place && !request.launcher.empty()) {
    const bool takes_number = request.launcher.find("{n}") != std::string::npos;
    if (takes_number && request.ranks == 0) {
      return cannot("--launcher '{}': the number of ranks is not known here; write it in place of {{n}}",
                    request.launcher);
    }
    if (!takes_number && request.ranks > 0) {
      return cannot("--launcher '{}': it does not take the number of ranks, {}: write {{n}} where it stands",
                    request.launcher, request.ranks);
    }
  }
  if (request.preload && !in_place) {
    if (Status status = check_library(runtime, library_folder); !status) return status.error();
  }
  PeersLaunch launch =
      in_place ? launch_in_place(request, runtime, library_folder) : launch_by_launcher(request, runtime);
  launch.words.push_back(program_of(runtime));
  launch.words.push_back(request.task);
  launch.words.insert(launch.words.end(), request.arguments.begin(), request.arguments.end());
  return launch;
}

}  // namespace farside::tools

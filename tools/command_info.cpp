// SPDX-License-Identifier: BSD-3-Clause
// `farside info`: what this machine has and allows, what farside uses of it, and why; with several hosts, what farside
// takes between them, and why.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/child.hpp"
#include "tools/commands.hpp"
#include "tools/hosts/launch_peers.hpp"
#include "tools/info/info.hpp"
#include "tools/runtime.hpp"

namespace farside::tools {
namespace {

struct InfoOptions {
  std::string library_folder = default_library_folder();
  bool json = false;
  PeersRequest peers;
};

int show_machine(const InfoOptions& options) {
  prepare_for_children();
  const Json info = gather_info(options.library_folder);
  fmt::print("{}", options.json ? json_text(info, 2) + '\n' : info_text(info));
  return 0;
}

// Becomes the launcher, or, as one of several ranks of a launcher, the program itself.
int show_peers(InfoOptions options) {
  if (options.json) options.peers.arguments.emplace_back("--json");
  const Result<PeersLaunch> launch = launch_of_peers(options.peers, options.library_folder);
  if (!launch) {
    fmt::print(stderr, "farside info: {}\n", launch.error().text);
    return 2;
  }
  const int reason = become_program(launch.value().words, launch.value().environment);
  fmt::print(stderr, "farside info: {} could not be started: {}\n", launch.value().words[0], std::strerror(reason));
  return 2;
}

}  // namespace

void add_info_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* command = app.add_subcommand(
      "info",
      "runtimes, routes, libfabric providers, limits and settings of this machine, and what farside makes of them");
  command->add_flag("--json", options->json, "as JSON");
  command->add_option("--lib-dir", options->library_folder, kLibraryFolderHelp);
  PeersRequest& peers = options->peers;
  peers.task = "info";
  CLI::Option* hosts = command->add_option("--hosts", peers.hosts,
                                           "instead: what farside takes between these hosts, a,b, and why; by a trial");
  command
      ->add_option("--launcher", peers.launcher,
                   "likewise, between the hosts on which this starts programs: 'srun -n 2 --mpi=pmix'")
      ->excludes(hosts);
  command->add_option("--runtime", peers.runtime, "the runtime that brings the hosts together (default: the first)")
      ->check(CLI::IsMember(peers_runtimes()));
  command->add_option("--launcher-option", peers.launcher_options, "one more word for mpirun (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  command->footer(
      "Lines that begin with ! say what to change. It describes the machine, and the limits of the shell, that it\n"
      "runs on: mpirun -n 1 farside info shows those of a rank. With more ranks it shows what farside takes between\n"
      "their hosts: mpirun --host a,b farside info.");
  command->callback([options, &exit_code] {
    const bool several = under_launcher() || !options->peers.hosts.empty() || !options->peers.launcher.empty();
    exit_code = several ? show_peers(*options) : show_machine(*options);
  });
}

}  // namespace farside::tools

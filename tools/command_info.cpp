// SPDX-License-Identifier: BSD-3-Clause
// `farside info`: what this machine has and allows, what farside uses of it, and why.
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/child.hpp"
#include "tools/commands.hpp"
#include "tools/info/info.hpp"
#include "tools/runtime.hpp"

namespace farside::tools {
namespace {

struct Options {
  std::string library_folder = default_library_folder();
  bool json = false;
};

}  // namespace

void add_info_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "info",
      "runtimes, routes, libfabric providers, limits and settings of this machine, and what farside makes of them");
  command->add_flag("--json", options->json, "as JSON");
  command->add_option(
      "--lib-dir", options->library_folder,
      "where libfarside-RUNTIME.so are (default: lib beside this command's folder, or where they were installed)");
  command->footer(
      "Lines that begin with ! say what to change. It describes the machine, and the limits of the shell, that it\n"
      "runs on: mpirun -n 1 farside info shows those of a rank.");
  command->callback([options, &exit_code] {
    prepare_for_children();
    const nlohmann::ordered_json info = gather_info(options->library_folder);
    fmt::print("{}", options->json ? info.dump(2) + '\n' : info_text(info));
    exit_code = 0;
  });
}

}  // namespace farside::tools

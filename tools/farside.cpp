// SPDX-License-Identifier: BSD-3-Clause
// The `farside` command: what people run to see and measure farside. See command_*.cpp.
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "tools/commands.hpp"

int main(int argc, char** argv) {
  try {
    int exit_code = 0;
    CLI::App app("farside: MPI one-sided communication over shared memory and libfabric", "farside");
    app.require_subcommand(1);
    farside::tools::add_bench_command(app, exit_code);
    farside::tools::add_simulate_command(app, exit_code);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 2;
    }
    return exit_code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "farside: {}\n", error.what());
    return 1;
  }
}

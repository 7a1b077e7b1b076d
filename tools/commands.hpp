// SPDX-License-Identifier: BSD-3-Clause
// The subcommands of `farside`. Each lives in one file, command_NAME.cpp, and offers one function that adds
// itself to the command line; when it is chosen it runs and sets `exit_code` (0: as it should be, 1: not, 2:
// wrong usage).
#pragma once

namespace CLI {
class App;
}

namespace farside::tools {

void add_bench_command(CLI::App& app, int& exit_code);
void add_simulate_command(CLI::App& app, int& exit_code);

}  // namespace farside::tools

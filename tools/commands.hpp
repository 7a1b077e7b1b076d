// SPDX-License-Identifier: BSD-3-Clause
// The subcommands of `farside`. Each lives in one file, command_NAME.cpp, and offers one function that adds
// itself to the command line; when it is chosen it runs and sets `exit_code` (0: as it should be, 1: not, 2:
// wrong usage).
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace farside::tools {

// `program`: the words behind "--", the program and its arguments. They are taken off the command line before.
void add_run_command(CLI::App& app, const std::vector<std::string>& program, int& exit_code);
void add_info_command(CLI::App& app, int& exit_code);
// `line`: the command line, for the record.
void add_bench_command(CLI::App& app, const std::string& line, int& exit_code);
void add_simulate_command(CLI::App& app, int& exit_code);
void add_trace_command(CLI::App& app, int& exit_code);
void add_explain_command(CLI::App& app, int& exit_code);
// After all others: it describes them.
void add_man_command(CLI::App& app, int& exit_code);

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// The subcommands of `farside`. Each has a folder, with one function that adds the
// subcommand to the command line. A chosen subcommand runs and sets `exit_code`: 0 for success, 1 for failure, 2 for
// wrong usage.
#pragma once

#include <string>
#include <vector>

#include "tools/run/run.hpp"

namespace CLI {
class App;
}

namespace farside::tools {

// `program`: the program to be started and its arguments. They are not on the parsed command line.
void add_run_command(CLI::App& app, const std::vector<std::string>& program, int& exit_code);
// Splits the words behind `run`; `app` has the subcommand. The error names a word that may be the program or not.
farside::Result<RunWords> split_words_of_run(const CLI::App& app, const std::vector<std::string>& words);
void add_info_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
// `line`: the command line, which is recorded in the results.
void add_bench_command(CLI::App& app, const std::string& line, int& exit_code);
void add_trace_command(CLI::App& app, int& exit_code);
void add_explain_command(CLI::App& app, int& exit_code);
// Prints what may stand for the last word of a command line, one candidate per line, with a tab and its help. Prints
// nothing where a file may stand.
void complete(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace farside::tools

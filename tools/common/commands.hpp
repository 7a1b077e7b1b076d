// SPDX-License-Identifier: BSD-3-Clause
// The subcommands of `farside`. Each has a folder, with one function that adds the subcommand to the command line. A
// chosen subcommand runs and sets `exit_code`: 0 for success, 1 for failure, 2 for wrong usage.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transport/base/result.hpp"

namespace CLI {
class App;
}

namespace farside::tools {

// Carries out a command line without its first word, farside; returns the exit status. Throws a std::exception.
int run_command_line(std::vector<std::string> words);

// The words of `farside run`: options of farside and of the launcher, then the program with its arguments. The program
// begins behind "--" or, without it, at the first word that cannot be an option's value.
struct RunWords {
  std::vector<std::string> options;
  std::vector<std::string> program;  // empty: there is none
};

// How many values an option takes, by the option's name with its dashes.
using OptionValues = std::map<std::string, int, std::less<>>;

// Splits the words behind `run`. `own`: farside's options. An option that neither farside nor the table of mpirun's
// options has may take the next word as its value; the error then says to write "--".
farside::Result<RunWords> split_run_words(const std::vector<std::string>& words, const OptionValues& own);

// Takes -n N, -np N and their like out of the options of a launcher, and returns the last N: "" if there is none.
std::string take_ranks(std::vector<std::string>& options);

// `program`: the program to be started and its arguments. They are not on the parsed command line.
void add_run_command(CLI::App& app, const std::vector<std::string>& program, int& exit_code);
// Splits the words behind `run`; `app` has the subcommand. The error names a word that may be the program or not.
farside::Result<RunWords> split_words_of_run(const CLI::App& app, const std::vector<std::string>& words);
void add_info_command(CLI::App& app, int& exit_code);
void add_doctor_command(CLI::App& app, int& exit_code);
// `line`: the command line, which is recorded in the results.
void add_bench_command(CLI::App& app, const std::string& line, int& exit_code);
void add_conform_command(CLI::App& app, int& exit_code);
void add_trace_command(CLI::App& app, int& exit_code);
void add_explain_command(CLI::App& app, int& exit_code);

}  // namespace farside::tools

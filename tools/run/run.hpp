// SPDX-License-Identifier: BSD-3-Clause
// The words of `farside run`: options of farside and of the launcher, then the program with its arguments. The program
// begins behind "--" or, without it, at the first word that cannot be an option's value.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transport/base/result.hpp"

namespace farside::tools {

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

}  // namespace farside::tools

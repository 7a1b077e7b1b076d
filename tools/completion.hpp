// SPDX-License-Identifier: BSD-3-Clause
// What shells complete of the `farside` command, made of its own options and of the table of settings.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace farside::tools {

struct CompletedOption {
  std::vector<std::string> names;  // with their dashes: "-h", "--help"
  std::string help;                // one line
  bool takes_value = false;
  std::vector<std::string> choices;  // of its value; empty: anything, such as a file
  bool takes_setting = false;        // its value is one of the settings' names and =
};

struct CompletedCommand {
  std::string name;
  std::string help;
  std::vector<CompletedOption> options;
  std::vector<CompletedCommand> nested;  // commands of this command
};

// All commands that people use; those in no group of the help are left out.
std::vector<CompletedCommand> completed_commands(const CLI::App& app);

// Files for the shells: commands, their options, the choices of options that have some, settings behind --set,
// files elsewhere and behind --.
std::string bash_completion(const std::vector<CompletedCommand>& commands);
std::string zsh_completion(const std::vector<CompletedCommand>& commands);
std::string fish_completion(const std::vector<CompletedCommand>& commands);

}  // namespace farside::tools

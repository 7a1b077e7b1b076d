// SPDX-License-Identifier: BSD-3-Clause
// Shell completion for the `farside` command, made from its options and from the table of settings.
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
  std::vector<std::string> choices;  // values that it accepts; empty: any, such as a file
  bool takes_setting = false;        // its value begins with the name of a setting and =
};

struct CompletedCommand {
  std::string name;
  std::string help;
  std::vector<CompletedOption> options;
  std::vector<CompletedCommand> nested;  // its subcommands
};

// Returns all commands that the help lists.
std::vector<CompletedCommand> completed_commands(const CLI::App& app);

// Return the completion files of the shells: commands, options, the choices of options that have them, settings after
// --set, and files elsewhere and after --.
std::string bash_completion(const std::vector<CompletedCommand>& commands);
std::string zsh_completion(const std::vector<CompletedCommand>& commands);
std::string fish_completion(const std::vector<CompletedCommand>& commands);

}  // namespace farside::tools

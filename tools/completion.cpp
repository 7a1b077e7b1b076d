// SPDX-License-Identifier: BSD-3-Clause
#include "tools/completion.hpp"

#include <algorithm>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

// "TEXT:{openmpi,mpich}" has the choices openmpi and mpich.
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  std::string words = type.substr(begin + 1, end - begin - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

std::vector<std::string> long_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> commands;
  std::string options;
  std::string nested;  // commands of commands
  std::string values;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_group().empty()) continue;
    commands.push_back(command->get_name());
    std::vector<std::string> below;
    // "bench compare" before "bench", whose pattern takes all.
    for (const CLI::App* one : command->get_subcommands(nullptr)) {
      below.push_back(one->get_name());
      options += fmt::format("      '{} {}') words='{}' ;;\n", command->get_name(), one->get_name(),
                             fmt::join(long_names(*one), " "));
    }
    options += fmt::format("      '{} '*) words='{}' ;;\n", command->get_name(),
                           fmt::join(long_names(*command), " "));
    if (!below.empty())
      nested += fmt::format("      {}) words='{}' ;;\n", command->get_name(), fmt::join(below, " "));
    for (const CLI::Option* option : command->get_options()) {
      const std::string choices = choices_of(*option);
      if (choices.empty()) continue;
      for (const std::string& name : option->get_lnames())
        values += fmt::format("    '{} --{}') words='{}' ;;\n", command->get_name(), name, choices);
    }
  }
  std::vector<std::string> settings;
  for (const Setting& setting : settings_table()) settings.push_back(fmt::format("{}=", setting.name));
  return fmt::format(R"(# SPDX-License-Identifier: BSD-3-Clause
# What bash completes of farside; made by its build.
_farside() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} words='' i
  COMPREPLY=()
  # Behind -- stands a program: files, by default.
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ ${{COMP_WORDS[i]}} != -- ]] || return 0
  done
  case "${{COMP_WORDS[1]}} $before" in
{}    'run --set') words='{}'; type compopt >/dev/null 2>&1 && compopt -o nospace 2>/dev/null ;;
  esac
  if [[ -z $words ]]; then
    if ((COMP_CWORD == 1)); then
      words='{}'
    elif [[ $word == -* ]]; then
      case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{}      esac
    elif ((COMP_CWORD == 2)); then
      case ${{COMP_WORDS[1]}} in
{}      *) ;;
      esac
    fi
  fi
  [[ -z $words ]] || COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _farside farside
)",
                     values, fmt::join(settings, " "), fmt::join(commands, " "), options, nested);
}

}  // namespace farside::tools

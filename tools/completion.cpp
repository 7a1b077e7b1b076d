// SPDX-License-Identifier: BSD-3-Clause
#include "tools/completion.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

// "TEXT:{openmpi,mpich}" has the choices openmpi and mpich.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  std::istringstream list(type.substr(begin + 1, end - begin - 1));
  std::vector<std::string> choices;
  for (std::string choice; std::getline(list, choice, ',');) choices.push_back(choice);
  return choices;
}

std::string first_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (line.ends_with(':')) line.pop_back();
  return line;
}

CompletedCommand completed_command(const CLI::App& app) {
  CompletedCommand command{app.get_name(), first_line(app.get_description()), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    CompletedOption one;
    for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
    if (one.names.empty()) continue;  // positional: a file
    one.help = first_line(option->get_description());
    one.takes_value = option->get_expected_max() != 0;
    one.choices = choices_of(*option);
    one.takes_setting = option->check_lname("set");
    command.options.push_back(one);
  }
  for (const CLI::App* nested : app.get_subcommands(nullptr)) command.nested.push_back(completed_command(*nested));
  return command;
}

bool is_long(std::string_view name) { return name.starts_with("--"); }

std::vector<std::string> names_of(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> names;
  for (const CompletedCommand& command : commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> settings() {
  std::vector<std::string> names;
  for (const Setting& setting : settings_table()) names.push_back(fmt::format("{}=", setting.name));
  return names;
}

// Returns the text with a backslash before each of these characters.
std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char byte : text) {
    if (special.find(byte) != std::string_view::npos) result += '\\';
    result += byte;
  }
  return result;
}

// Quote the text with single quotes, for a POSIX shell and for fish.
std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char byte : text) result += byte == '\'' ? std::string("'\\''") : std::string(1, byte);
  return result + "'";
}
std::string fish_quoted(std::string_view text) { return fmt::format("'{}'", escaped(text, "\\'")); }

// ---- bash -----------------------------------------------------------------------------------------------------------

std::string long_names(const CompletedCommand& command) {
  std::vector<std::string> names;
  for (const CompletedOption& option : command.options)
    std::copy_if(option.names.begin(), option.names.end(), std::back_inserter(names), is_long);
  return fmt::format("{}", fmt::join(names, " "));
}

// ---- zsh ------------------------------------------------------------------------------------------------------------

// Returns the specifications of _arguments: one for each name of each option, then one for positional arguments.
std::string zsh_arguments(const CompletedCommand& command) {
  std::string text = "_arguments";
  for (const CompletedOption& option : command.options) {
    std::string value;
    if (option.takes_setting) {
      value = ":setting:_farside_settings";
    } else if (!option.choices.empty()) {
      value = fmt::format(":value:({})", fmt::join(option.choices, " "));
    } else if (option.takes_value) {
      value = ":value:_files";
    }
    for (const std::string& name : option.names) {
      text += " \\\n        " + shell_quoted(fmt::format("*{}[{}]{}", name, escaped(option.help, "\\[]:"), value));
    }
  }
  return text + " \\\n        '*:file:_files'";
}

std::string zsh_described(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> words;
  for (const CompletedCommand& command : commands)
    words.push_back(shell_quoted(fmt::format("{}:{}", command.name, escaped(command.help, "\\:"))));
  return fmt::format("{}", fmt::join(words, " "));
}

// ---- fish -----------------------------------------------------------------------------------------------------------

std::string fish_options(const CompletedCommand& command, const std::string& place) {
  std::string text;
  for (const CompletedOption& option : command.options) {
    text += fmt::format("complete -c farside -n {}", fish_quoted("__farside_in " + place));
    for (const std::string& name : option.names)
      text += is_long(name) ? fmt::format(" -l {}", name.substr(2)) : fmt::format(" -s {}", name.substr(1));
    if (option.takes_setting) {
      text += fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(settings(), " "))));
    } else if (!option.choices.empty()) {
      text += fmt::format(" -x -a {}", fish_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
    } else if (option.takes_value) {
      text += " -r";
    }
    text += fmt::format(" -d {}\n", fish_quoted(option.help));
  }
  return text;
}

}  // namespace

std::vector<CompletedCommand> completed_commands(const CLI::App& app) {
  std::vector<CompletedCommand> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (!command->get_group().empty()) commands.push_back(completed_command(*command));
  }
  return commands;
}

std::string bash_completion(const std::vector<CompletedCommand>& commands) {
  std::string options;
  std::string nested;  // subcommands of commands
  std::string values;
  for (const CompletedCommand& command : commands) {
    // "bench compare" stands before "bench", whose pattern would match both.
    for (const CompletedCommand& one : command.nested)
      options += fmt::format("      '{} {}') words='{}' ;;\n", command.name, one.name, long_names(one));
    options += fmt::format("      '{} '*) words='{}' ;;\n", command.name, long_names(command));
    if (!command.nested.empty())
      nested += fmt::format("      {}) words='{}' ;;\n", command.name, fmt::join(names_of(command.nested), " "));
    for (const CompletedOption& option : command.options) {
      if (option.choices.empty()) continue;
      for (const std::string& name : option.names)
        values += fmt::format("    '{} {}') words='{}' ;;\n", command.name, name, fmt::join(option.choices, " "));
    }
  }
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
                     values, fmt::join(settings(), " "), fmt::join(names_of(commands), " "), options, nested);
}

std::string zsh_completion(const std::vector<CompletedCommand>& commands) {
  std::string cases;
  for (const CompletedCommand& command : commands) {
    cases += fmt::format("    {})\n", command.name);
    if (!command.nested.empty()) {
      cases += "      case $words[2] in\n";
      for (const CompletedCommand& one : command.nested)
        cases += fmt::format("        {}) shift words; ((CURRENT--)); {}; return ;;\n", one.name, zsh_arguments(one));
      cases += fmt::format(
          "      esac\n"
          "      if ((CURRENT == 2)) && [[ $PREFIX != -* ]]; then\n"
          "        commands=({})\n"
          "        _describe -t commands 'farside {} command' commands && return\n"
          "      fi\n",
          zsh_described(command.nested), command.name);
    }
    cases += fmt::format("      {} ;;\n", zsh_arguments(command));
  }
  return fmt::format(R"(#compdef farside
# SPDX-License-Identifier: BSD-3-Clause
# What zsh completes of farside; made by its build.
_farside_settings() {{ compadd -S '' -- {}; }}
_farside() {{
  local context state line i
  local -a commands
  # Behind -- stands a program with arguments of its own.
  for ((i = 2; i < CURRENT; ++i)); do
    [[ $words[i] == -- ]] || continue
    shift $i words
    ((CURRENT -= i))
    _normal
    return
  done
  if ((CURRENT == 2)); then
    commands=({})
    _describe -t commands 'farside command' commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
{}  esac
}}
_farside "$@"
)",
                     fmt::join(settings(), " "), zsh_described(commands), cases);
}

std::string fish_completion(const std::vector<CompletedCommand>& commands) {
  std::string lines;
  for (const CompletedCommand& command : commands) {
    lines +=
        fmt::format("complete -c farside -n __farside_first -f -a {} -d {}\n", command.name, fish_quoted(command.help));
    for (const CompletedCommand& one : command.nested) {
      lines += fmt::format("complete -c farside -n '__farside_second {}' -a {} -d {}\n", command.name, one.name,
                           fish_quoted(one.help));
      lines += fish_options(one, command.name + " " + one.name);
    }
    std::string place = command.name;
    if (!command.nested.empty()) place += fmt::format(" not {}", fmt::join(names_of(command.nested), " "));
    lines += fish_options(command, place);
  }
  return fmt::format(R"(# SPDX-License-Identifier: BSD-3-Clause
# What fish completes of farside; made by its build.
function __farside_first
  test (count (commandline -opc)) -eq 1
end
# __farside_second COMMAND: the word behind it is being written.
function __farside_second
  set -l words (commandline -opc)
  test (count $words) -eq 2 -a "$words[2]" = $argv[1]
end
# __farside_in COMMAND [NESTED | not NESTED...]: an option of that command may stand here; behind -- stands a program.
function __farside_in
  set -l words (commandline -opc)
  contains -- -- $words; and return 1
  test (count $words) -ge 2; and test "$words[2]" = $argv[1]; or return 1
  test (count $argv) -ge 2; or return 0
  if test $argv[2] = not
    not contains -- "$words[3]" $argv[3..-1]
  else
    test "$words[3]" = $argv[2]
  end
end
{})",
                     lines);
}

}  // namespace farside::tools

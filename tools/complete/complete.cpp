// SPDX-License-Identifier: BSD-3-Clause
// `farside complete`, which the completion files of the shells call (farside.bash, farside.zsh, farside.fish).
#include <algorithm>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "tools/common/commands.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

// "TEXT:{openmpi,mpich}" has the choices openmpi and mpich.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  if (begin == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, type.find('}') - begin - 1), ',');
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// Whether the words end with the program of `farside run`, or with its arguments, which are not farside's.
bool behind_program(const CLI::App& app, const std::vector<std::string>& words) {
  if (std::ranges::find(words, "--") != words.end()) return true;
  if (words.empty() || words.front() != "run") return false;
  const Result<RunWords> split = split_words_of_run(app, {words.begin() + 1, words.end()});
  return split && !split.value().program.empty();
}

}  // namespace

void complete(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || behind_program(app, {words.begin(), words.end() - 1})) return;
  const std::string& word = words.back();  // the one that is being written
  const auto offer = [&word](const std::string& candidate, const std::string& help) {
    if (candidate.starts_with(word)) fmt::print("{}\t{}\n", candidate, help.substr(0, help.find('\n')));
  };
  const CLI::App* command = &app;
  for (auto before = words.begin(); before + 1 < words.end(); ++before) {
    for (const CLI::App* nested : command->get_subcommands(nullptr))
      if (nested->get_name() == *before) command = nested;
  }
  for (const CLI::Option* option : command->get_options()) {
    const std::vector<std::string> names = names_of(*option);
    const bool value_follows =
        words.size() > 1 && option->get_expected_max() != 0 && std::ranges::find(names, words.end()[-2]) != names.end();
    if (value_follows) {
      for (const std::string& choice : choices_of(*option)) offer(choice, "");
      for (const Setting& setting : settings_table())
        if (option->check_lname("set")) offer(fmt::format("{}=", setting.name), setting.help);
      return;
    }
    for (const std::string& name : names)
      if (word.starts_with('-')) offer(name, option->get_description());
  }
  // A subcommand stands right behind its command.
  if (words.size() > 1 && words.end()[-2] != command->get_name()) return;
  for (const CLI::App* nested : command->get_subcommands(nullptr)) offer(nested->get_name(), nested->get_description());
}

}  // namespace farside::tools

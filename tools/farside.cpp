// SPDX-License-Identifier: BSD-3-Clause
// The command line of `farside`; each of its subcommands has a folder.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/commands.hpp"
#include "tools/common/text.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

constexpr int kWrongUsage = 2;

std::string settings_help() {
  std::string help = "Environment:";
  for (const Setting& setting : settings_table()) {
    const std::string_view unless = *setting.default_value == '\0' ? "unset" : setting.default_value;
    help +=
        fmt::format("\n  {:<21} {}. Allowed: {}. Default: {}.", setting.name, setting.help, setting.allowed, unless);
  }
  return help;
}

// Returns what to print if a word stands where a subcommand must, and is none.
std::string wrong_subcommand(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string path = "farside";
  for (const std::string& word : words) {
    std::vector<std::string> names;
    for (const CLI::App* nested : command->get_subcommands(nullptr)) names.push_back(nested->get_name());
    if (names.empty() || word.starts_with('-')) break;
    if (std::ranges::find(names, word) == names.end())
      return fmt::format("{0}: there is no {0} {1}; all: {2}", path, word, fmt::join(names, ", "));
    command = command->get_subcommand(word);
    path += " " + word;
  }
  return {};
}

// "TEXT:{openmpi,mpich}" has the choices openmpi and mpich.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  if (begin == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, type.find('}') - begin - 1), ',');
}

// Whether the words end with the program of `farside run`, or with its arguments, which are not farside's.
bool behind_program(const CLI::App& app, const std::vector<std::string>& words) {
  if (std::ranges::find(words, "--") != words.end()) return true;
  if (words.empty() || words.front() != "run") return false;
  const Result<RunWords> split = split_words_of_run(app, {words.begin() + 1, words.end()});
  return split && !split.value().program.empty();
}

// `farside complete`, which the completion files of the shells call (complete/): prints candidates for the last word of
// a command line, one per line, with a tab and its help. Prints nothing where a file may stand.
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
    const std::vector<std::string> names = split(option->get_name(false, true), ",");
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

// CLI11 2.6 breaks the lines below the options again unless it is told not to; earlier versions do not.
void keep_lines_of_footers(auto& formatter) {
  if constexpr (requires { formatter.enable_footer_formatting(false); }) formatter.enable_footer_formatting(false);
}

struct Help : CLI::Formatter {
  Help() { keep_lines_of_footers(*this); }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return wrapped(CLI::Formatter::make_help(app, std::move(name), mode));
  }
};

}  // namespace

int run_command_line(std::vector<std::string> words) {
  int exit_code = 0;
  std::vector<std::string> program;  // what `farside run` starts; not parsed here
  CLI::App app("farside: MPI one-sided communication over shared memory and libfabric", "farside");
  app.formatter(std::make_shared<Help>());  // before the subcommands, which inherit it
  app.require_subcommand(1);
  app.set_version_flag("--version", "farside " FARSIDE_VERSION);
  std::vector<std::string> line{"farside"};
  line.insert(line.end(), words.begin(), words.end());
  add_run_command(app, program, exit_code);
  add_info_command(app, exit_code);
  add_doctor_command(app, exit_code);
  add_bench_command(app, shell_line(line), exit_code);
  add_conform_command(app, exit_code);
  add_trace_command(app, exit_code);
  add_explain_command(app, exit_code);
  app.footer(settings_help());  // after the subcommands, which would inherit it
  const std::string first = words.empty() ? "" : words.front();
  if (first == "complete") {
    complete(app, {words.begin() + 1, words.end()});
    return 0;
  }
  if (const std::string wrong = wrong_subcommand(app, words); !wrong.empty()) {
    fmt::print(stderr, "{}\n", wrong);
    return kWrongUsage;
  }
  if (first == "run") {
    const Result<RunWords> split = split_words_of_run(app, {words.begin() + 1, words.end()});
    if (!split) {
      fmt::print(stderr, "farside run: {}\n", split.error().text);
      return kWrongUsage;
    }
    program = split.value().program;
    words.resize(1 + split.value().options.size());
    std::ranges::replace(words, "-h", "--help");
  } else if (std::ranges::find(words, "--") != words.end()) {
    fmt::print(stderr, "farside: only run starts a program (the words behind --)\n");
    return kWrongUsage;
  }
  try {
    std::ranges::reverse(words);  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  return exit_code;
}

}  // namespace farside::tools

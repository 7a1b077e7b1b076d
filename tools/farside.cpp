// SPDX-License-Identifier: BSD-3-Clause
// The `farside` command; its subcommands are in command_*.cpp.
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "tools/commands.hpp"
#include "tools/text.hpp"
#include "transport/base/settings.hpp"

int main(int argc, char** argv) {
  try {
    int exit_code = 0;
    // The words after "--" belong to the program to be started and are not parsed here.
    std::vector<std::string> program;
    for (int i = 1; i < argc; ++i) {
      if (std::string_view(argv[i]) != "--" || std::string_view(argv[1]) == "complete") continue;
      if (std::string_view(argv[1]) != "run") {
        fmt::print(stderr, "farside: only run starts a program (the words behind --)\n");
        return 2;
      }
      program.assign(argv + i + 1, argv + argc);
      argc = i;
    }
    std::vector<std::string> words(argv + 1, argv + argc);
    words.insert(words.begin(), "farside");
    const std::string line = farside::tools::shell_line(words);
    CLI::App app("farside: MPI one-sided communication over shared memory and libfabric", "farside");
    app.require_subcommand(1);
    app.set_version_flag("--version", "farside " FARSIDE_VERSION);
    farside::tools::add_run_command(app, program, exit_code);
    farside::tools::add_info_command(app, exit_code);
    farside::tools::add_bench_command(app, line, exit_code);
    farside::tools::add_simulate_command(app, exit_code);
    farside::tools::add_trace_command(app, exit_code);
    farside::tools::add_explain_command(app, exit_code);
    std::string settings = "Environment:";
    for (const farside::Setting& setting : farside::settings_table()) {
      const std::string_view unless = *setting.default_value == '\0' ? "unset" : setting.default_value;
      settings +=
          fmt::format("\n  {:<27} {}. Allowed: {}. Default: {}.", setting.name, setting.help, setting.allowed, unless);
    }
    app.footer(settings);  // after the subcommands, which would inherit it
    if (words.size() > 1 && words[1] == "complete") {
      farside::tools::complete(app, {words.begin() + 2, words.end()});
      return 0;
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 2;
    }
    return exit_code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "farside: {}\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// `farside man`, which the build runs: writes the manual pages, from the help of the commands and the table of
// settings, and the completion files of the shells.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/commands.hpp"
#include "tools/completion.hpp"
#include "tools/runtime.hpp"
#include "transport/base/settings.hpp"

namespace farside::tools {
namespace {

// Escapes a text so that roff(7) prints it unchanged.
std::string roff(std::string_view text) {
  std::string result;
  bool begins_line = true;
  for (const char byte : text) {
    if (begins_line && (byte == '.' || byte == '\'')) result += "\\&";
    begins_line = byte == '\n';
    if (byte == '\\') {
      result += "\\e";
    } else if (byte == '-') {
      result += "\\-";
    } else {
      result += byte;
    }
  }
  return result;
}

// Formats lines so that roff(7) does not join them.
std::string lines(const std::string& text) { return text.empty() ? "" : fmt::format(".nf\n{}\n.fi\n", roff(text)); }

std::string title(std::string name, int section) {
  for (char& byte : name) byte = static_cast<char>(std::toupper(static_cast<unsigned char>(byte)));
  return fmt::format(".TH \"{}\" {} \"\" \"farside {}\" \"farside\"\n", roff(name), section, FARSIDE_VERSION);
}

std::string options_of(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    const std::string type = option->get_expected_max() == 0 ? "" : option->get_type_name();
    text += fmt::format(".TP\n\\fB{}\\fR{}\n{}", roff(option->get_name(false, true)),
                        type.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(type)), roff(option->get_description()));
    if (!option->get_default_str().empty()) text += fmt::format(" (default: {})", roff(option->get_default_str()));
    text += '\n';
  }
  return text;
}

// Lists the subcommands of a command, each with its arguments and options.
std::string nested_of(const CLI::App& command) {
  std::string text;
  for (const CLI::App* nested : command.get_subcommands(nullptr)) {
    std::string arguments;
    for (const CLI::Option* option : nested->get_options([](const CLI::Option* o) { return o->get_positional(); }))
      arguments += " " + option->get_name();
    text +=
        fmt::format(".SH \"farside {} {}\"\n{}{}.\n", roff(command.get_name()), roff(nested->get_name()),
                    lines(fmt::format("farside {} {}{} [OPTIONS]", command.get_name(), nested->get_name(), arguments)),
                    roff(nested->get_description()));
    text += options_of(*nested);
  }
  return text;
}

// A description is one line, optionally followed by lines on the usage of the command.
std::string page_of(const CLI::App& command) {
  const std::string name = "farside-" + command.get_name();
  const std::string description = command.get_description();
  const std::size_t end = std::min(description.find('\n'), description.size());
  std::string summary = description.substr(0, end);
  if (summary.ends_with(':')) summary.pop_back();
  const std::string use =
      end < description.size() ? description.substr(end + 1) : fmt::format("farside {} [OPTIONS]", command.get_name());
  return title(name, 1) + fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(summary)) +
         fmt::format(".SH SYNOPSIS\n{}", lines(use)) +
         fmt::format(".SH DESCRIPTION\n{}", lines(command.get_footer().empty() ? summary : command.get_footer())) +
         ".SH OPTIONS\n" + options_of(command) + nested_of(command) +
         ".SH SEE ALSO\n.BR farside (1),\n.BR farside (7)\n";
}

std::string overview(const CLI::App& app) {
  std::string text = title("farside", 1);
  text += fmt::format(".SH NAME\nfarside \\- {}\n.SH SYNOPSIS\n{}.SH COMMANDS\n", roff(app.get_description()),
                      lines("farside COMMAND [OPTIONS]"));
  std::string also;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_group().empty()) continue;
    const std::string description = command->get_description();
    text += fmt::format(".TP\n\\fBfarside {}\\fR\n{}\n", roff(command->get_name()),
                        roff(description.substr(0, description.find('\n'))));
    also += fmt::format(".BR farside\\-{} (1),\n", roff(command->get_name()));
  }
  return text + ".SH SEE ALSO\n" + also + ".BR farside (7)\n";
}

std::string settings_page() {
  std::string text = title("farside", 7);
  text +=
      ".SH NAME\nfarside \\- settings of the MPI one\\-sided library\n.SH DESCRIPTION\n"
      "The libraries libfarside\\-openmpi.so and libfarside\\-mpich.so carry the one\\-sided calls of an MPI "
      "program that is linked\n"
      "to them, or that they are preloaded into by\n.BR farside\\-run (1).\n"
      "They read these variables of the environment of each rank at its first window. A bad value is an "
      "error there.\n"
      ".SH ENVIRONMENT\n";
  for (const Setting& setting : settings_table()) {
    text += fmt::format(".TP\n.B {}\n{}. Allowed: {}. Default: {}.\n", roff(setting.name), roff(setting.help),
                        roff(setting.allowed), *setting.default_value == '\0' ? "unset" : roff(setting.default_value));
  }
  return text + ".SH SEE ALSO\n.BR farside (1),\n.BR mpirun (1)\n";
}

// Writes farside-bench-openmpi(1) and farside-bench-mpich(1). Their --help needs MPI, so the page refers to it.
std::string benchmark_page(const std::string& runtime) {
  const std::string name = roff("farside-bench-" + runtime);
  return title("farside-bench-" + runtime, 1) +
         fmt::format(
             ".SH NAME\n{0} \\- the program that farside bench measures with, for {1}\n"
             ".SH SYNOPSIS\n.nf\nmpirun \\-n 2 {0} [OPTIONS]\n.fi\n.SH DESCRIPTION\n"
             "A plain MPI program that knows nothing of farside. It measures one\\-sided communication between rank 0 "
             "(origin) and\nrank 1 (target) and prints a JSON object per line.\n"
             "Its option \\-\\-help lists its options, \\-\\-list its measures.\n"
             ".SH SEE ALSO\n.BR farside\\-bench (1),\n.BR mpirun (1)\n",
             name, runtime);
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw std::runtime_error(fmt::format("cannot write {}", file.string()));
}

}  // namespace

void add_man_command(CLI::App& app, int& exit_code) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("man", "write the manual pages, and what shells complete, into a folder");
  command->group("");  // hidden from the help, since only the build uses it
  command->add_option("folder", *folder)->required();
  command->callback([folder, &app, &exit_code] {
    const std::filesystem::path to(*folder);
    std::filesystem::create_directories(to);
    write(to / "farside.1", overview(app));
    write(to / "farside.7", settings_page());
    const std::vector<CompletedCommand> completed = completed_commands(app);
    write(to / "farside.bash", bash_completion(completed));
    write(to / "farside.zsh", zsh_completion(completed));
    write(to / "farside.fish", fish_completion(completed));
    for (const std::string& runtime : runtime_names())
      write(to / fmt::format("farside-bench-{}.1", runtime), benchmark_page(runtime));
    for (const CLI::App* one : app.get_subcommands(nullptr)) {
      if (!one->get_group().empty()) write(to / fmt::format("farside-{}.1", one->get_name()), page_of(*one));
    }
    exit_code = 0;
  });
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// `farside trace`: shows what FARSIDE_TRACE recorded, as text, for Perfetto, and as an HTML page.
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/common/commands.hpp"
#include "tools/common/rank_files.hpp"
#include "tools/trace/trace.hpp"

namespace farside::tools {

namespace {

struct TraceOptions {
  std::string prefix;
  std::string chrome_file;
  std::string page_file;
  bool summary = false;
  std::string by;
};

void write(const std::string& path, const std::function<void(std::ostream&)>& content) {
  std::ofstream file(path, std::ios::binary);
  content(file);
  file.close();
  if (!file) throw std::runtime_error(fmt::format("cannot write {}", path));
}

}  // namespace

void add_trace_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command =
      app.add_subcommand("trace",
                         "who waited for whom: the traces of all ranks, put together\n"
                         "farside trace PREFIX [-o FILE.json] [--html FILE.html] [--by rank|size|pair|site]");
  command->add_option("prefix", options->prefix, "what FARSIDE_TRACE was: the files are PREFIX.RANK.trace")->required();
  command->add_option("-o,--output", options->chrome_file, "write the trace for ui.perfetto.dev and chrome://tracing");
  command->add_option("--html", options->page_file,
                      "write a page to look at in a browser; it needs nothing but itself");
  command
      ->add_option(
          "--by", options->by,
          "print figures by rank (its waits, and how long others waited for it), by size of the operations, by "
          "pair of origin and target, or by call site (recorded with FARSIDE_SITES=on)")
      ->check(CLI::IsMember({"rank", "size", "pair", "site"}));
  command->add_flag("--summary", options->summary,
                    "print the summary though --by is given or a file is written (else it always is)");
  command->footer(
      "Run the program with FARSIDE_TRACE=PREFIX set for all ranks, for instance by\n"
      "  farside run -n 4 --set FARSIDE_TRACE=/tmp/t -- ./program; farside trace /tmp/t --html t.html");
  command->callback([options, &exit_code] {
    const trace::Timeline timeline = trace::merge(trace::read_all(options->prefix));
    const bool files = !options->chrome_file.empty() || !options->page_file.empty();
    if (!options->chrome_file.empty())
      write(options->chrome_file, [&](std::ostream& out) { write_chrome(out, timeline); });
    if (!options->page_file.empty()) write(options->page_file, [&](std::ostream& out) { write_page(out, timeline); });
    if (options->summary || (!files && options->by.empty())) fmt::print("{}", summary(timeline));
    if (!options->by.empty()) {
      for (const std::string& warning : timeline.warnings) fmt::print("! {}\n", warning);
      fmt::print("{}", figures_by(timeline, kByNames.at(options->by)));
    }
    exit_code = 0;
  });
}

}  // namespace farside::tools

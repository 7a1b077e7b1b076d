// SPDX-License-Identifier: BSD-3-Clause
// `farside explain`: the statistics of a run in plain words.
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/commands.hpp"
#include "tools/common/rank_files.hpp"
#include "tools/common/text.hpp"
#include "tools/explain/explain.hpp"

namespace farside::tools {

namespace {

struct ExplainOptions {
  std::string prefix;
  bool json = false;
  std::string by;
};

}  // namespace

void add_explain_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain",
                                         "where the time of a run went, and what would help\n"
                                         "farside explain PREFIX [--json] [--by rank|size|pair|site]");
  command->add_option("prefix", options->prefix, "what FARSIDE_STATS was: the files are PREFIX.RANK.json")->required();
  command->add_flag("--json", options->json, "the advice as JSON");
  command
      ->add_option("--by", options->by,
                   "print figures by rank, by size of the operations, by pair of origin and target, or by call site "
                   "(recorded with FARSIDE_SITES=on)")
      ->check(CLI::IsMember({"rank", "size", "pair", "site"}))
      ->excludes("--json");
  command->footer(
      "Run the program with FARSIDE_STATS=PREFIX set for all ranks, for instance by\n"
      "  farside run -n 4 --set FARSIDE_STATS=/tmp/s -- ./program; farside explain /tmp/s");
  command->callback([options, &exit_code] {
    const explain::Run run = explain::read(options->prefix);
    if (options->json) {
      nlohmann::json list = nlohmann::json::array();
      for (const explain::Advice& each : explain::advise(run)) {
        list.push_back({{"rule", each.rule}, {"windows", each.kind}, {"seconds", each.weight}, {"text", each.text}});
      }
      fmt::print("{}\n", json_text(list, 2));
    } else if (!options->by.empty()) {
      fmt::print("{}", explain::figures_by(run, kByNames.at(options->by)));
    } else {
      fmt::print("{}", explain::in_words(run));
    }
    exit_code = 0;
  });
}

}  // namespace farside::tools

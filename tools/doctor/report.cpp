// SPDX-License-Identifier: BSD-3-Clause
#include "tools/doctor/report.hpp"

#include <fmt/format.h>

#include "tools/doctor/diagnosis.hpp"
#include "tools/doctor/examination.hpp"
#include "tools/info/info.hpp"
#include "tools/machine.hpp"

namespace farside::tools {

std::string report_text(const Json& examination, const Json& info, const Environment& environment,
                        const Anonymizer* anonymizer) {
  const auto shown = [&](const std::string& text) { return anonymizer == nullptr ? text : anonymizer->text(text); };
  const auto shown_json = [&](const Json& json) { return anonymizer == nullptr ? json : anonymizer->json(json); };
  std::string text = fmt::format("```\nversions\n  farside {}, {}, Linux {}\n", text_of(info, "farside"), system_name(),
                                 text_of(part_of(info, "machine"), "kernel"));
  for (const Json& runtime : part_of(info, "runtimes"))
    if (!text_of(runtime, "version").empty()) text += fmt::format("  {}\n", text_of(runtime, "version"));
  text += fmt::format("  libfabric {}\n", text_of(part_of(info, "libfabric"), "version"));

  text += "\nenvironment\n";
  bool any = false;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("FARSIDE_") && !name.starts_with("FI_")) continue;
    text += fmt::format("  {}={}\n", name, shown(value));
    any = true;
  }
  if (!any) text += "  no variable FARSIDE_* or FI_*\n";

  // The causes are found anew, with the names in them replaced.
  Json all = shown_json(examination);
  all["causes"] = causes_of(all);
  text += fmt::format("\nfarside doctor\n\n{}\nfarside info\n\n{}```\n", examination_text(all),
                      info_text(shown_json(info)));
  return text;
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// The report of `farside info` as text: one line per item, and below it, marked, the advice.
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/info/info.hpp"

namespace farside::tools {
namespace {

class Text {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    std::string one = fmt::format(format, std::forward<Args>(args)...);
    one.erase(one.find_last_not_of(' ') + 1);
    text_ += one + '\n';
  }
  // Adds a line that explains the previous one; nothing if the text is empty.
  void more(const Json& what, const char* mark = "") {
    if (const auto text = what.get<std::string>(); !text.empty()) line("              {}{}", mark, text);
  }
  const std::string& all() const { return text_; }

 private:
  std::string text_;
};

std::string word(const Json& value) { return value.get<std::string>(); }

std::string amount(const Json& value, bool bytes) {
  return limit_text(value.is_null() ? kNoLimit : value.get<std::uint64_t>(), bytes);
}

void runtimes(Text& text, const Json& all) {
  text.line("\nruntimes");
  for (const Json& one : all) {
    const std::string version = word(one["version"]);
    text.line("  {:<11} {}", word(one["runtime"]),
              one["launcher"] != ""  ? fmt::format("{} ({})", version, word(one["launcher"]))
              : one["problem"] != "" ? word(one["problem"])
                                     : "the standard's binary interface, of Open MPI or MPICH");
    if (one["library"] != "")
      text.line("              {}, {}", word(one["library"]),
                one["mpi_library"] == "" ? "which takes the MPI library of the program"
                                         : fmt::format("linked to {}", word(one["mpi_library"])));
    if (one["launcher"] != "") text.more(one["problem"], "! ");
  }
}

void routes(Text& text, const Json& all) {
  text.line("\nroutes");
  for (const Json& one : all) {
    const char* verdict = !one["possible"].get<bool>() ? "impossible"
                          : one["allowed"].get<bool>() ? "possible"
                                                       : "switched off";
    text.line("  {:<11} {}: {}", word(one["route"]), verdict, word(one["how"]));
    if (!one["allowed"].get<bool>()) text.more("FARSIDE_ROUTES does not allow it", "");
    text.more(one["why"], "because ");
    text.more(one["advice"], "! ");
  }
}

void providers(Text& text, const Json& libfabric) {
  text.line("\nproviders of libfabric {} ({})", word(libfabric["version"]), word(libfabric["library"]));
  text.more(libfabric["problem"], "! ");
  for (const Json& one : libfabric["providers"]) {
    text.line("  {:<11} {}", word(one["provider"]), word(one["why"]));
    if (one["usable"].get<bool>()) {
      text.line("              endpoint: {} on {}", word(one["endpoint"]), word(one["network"]));
      text.line("              atomics:  {}", word(one["atomics"]));
      text.line("              progress: {}", word(one["progress"]));
    } else {
      text.line("              it offers {}", fmt::join(one["endpoints"].get<std::vector<std::string>>(), ", "));
    }
  }
  const Json& verbs = libfabric["verbs"];
  if (verbs["available"].get<bool>()) {
    text.line("  InfiniBand verbs: available ({})", fmt::join(verbs["devices"].get<std::vector<std::string>>(), ", "));
    return;
  }
  text.line("  InfiniBand verbs: not available: {}", word(verbs["why"]));
  text.more(verbs["advice"], "! ");
}

void limits(Text& text, const Json& all) {
  text.line("\nlimits");
  for (const Json& one : all) {
    const bool bytes = one["unit"] == "bytes";
    text.line("  {:<15} {:<10} {}", word(one["limit"]), amount(one["value"], bytes), word(one["meaning"]));
    if (const std::string advice = word(one["advice"]); !advice.empty()) text.line("                  ! {}", advice);
  }
}

void settings(Text& text, const Json& all, const Json& unknown) {
  text.line("\nsettings");
  std::size_t widest = 0;
  const auto shown = [](const Json& value) { return value == "" ? std::string("unset") : word(value); };
  for (const Json& one : all) widest = std::max(widest, shown(one["value"]).size());
  for (const Json& one : all) {
    const bool changed = one["source"] == "environment";
    text.line("  {:<21} {:<{}}  {}", word(one["name"]), shown(one["value"]), widest,
              changed ? fmt::format("environment (default: {})", shown(one["default"])) : "default");
    if (!one["valid"].get<bool>())
      text.line("                        ! not allowed; allowed: {}", word(one["allowed"]));
  }
  for (const Json& name : unknown) text.line("  {:<21} is not a setting, and is ignored", word(name));
}

}  // namespace

std::string info_text(const Json& info) {
  Text text;
  const Json& machine = info["machine"];
  text.line("farside {} on {}, Linux {}, {} threads", word(info["farside"]), word(machine["host"]),
            word(machine["kernel"]), machine["threads"].get<unsigned>());
  runtimes(text, info["runtimes"]);
  routes(text, info["routes"]);
  providers(text, info["libfabric"]);
  limits(text, info["limits"]);
  settings(text, info["settings"], info["unknown_settings"]);
  return text.all();
}

}  // namespace farside::tools

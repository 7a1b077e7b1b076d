// SPDX-License-Identifier: BSD-3-Clause
// `farside info`: what this machine has and allows, what farside uses of it, and why.
#include "tools/info/info.hpp"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <sys/utsname.h>
#include <thread>
#include <tuple>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/child.hpp"
#include "tools/common/commands.hpp"
#include "tools/common/launched_ranks.hpp"
#include "tools/common/linkage.hpp"
#include "tools/common/runtime.hpp"
#include "transport/base/settings.hpp"
#include "transport/fabric/devices.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/node/node_segment.hpp"
#include "transport/node/page_watch.hpp"

namespace farside::tools {
namespace {

Json runtimes(const std::string& library_folder) {
  Json all = Json::array();
  for (const std::string& name : runtime_names()) {
    // Its launcher is that of a program's runtime.
    const bool abi = name == "mpi_abi";
    const Runtime runtime = find_runtime(name, library_folder);
    if (abi && runtime.library.empty()) continue;
    const MpiLibrary mpi = runtime.library.empty() ? MpiLibrary() : mpi_behind(runtime.library);
    std::string problem;
    if (runtime.launcher.empty() && !abi) {
      problem = fmt::format("no launcher: neither mpirun.{} nor an mpirun of its own in PATH", name);
    } else if (runtime.library.empty()) {
      problem = fmt::format(
          "no libfarside-{0}.so in {1}: build farside with {2} there (-DFARSIDE_MPI), or install the package "
          "farside-{0}",
          name, library_folder, runtime.title);
    } else if (mpi.path.empty() && !mpi.name.empty()) {
      problem = fmt::format(
          "{}, which it is linked to, is not found: load the module of that MPI, or set LD_LIBRARY_PATH", mpi.name);
    }
    all.push_back({{"runtime", name},
                   {"title", runtime.title},
                   {"launcher", runtime.launcher},
                   {"version", runtime.launcher.empty() ? std::string() : launcher_version(runtime)},
                   {"library", runtime.library},
                   {"mpi_library", mpi.path.empty() ? mpi.name : mpi.path},
                   {"ready", problem.empty()},
                   {"problem", problem}});
  }
  return all;
}

// Returns all settings with their values, and puts the allowed ones into `settings`.
Json settings_now(Settings& settings) {
  Json all = Json::array();
  for (const Setting& setting : settings_table()) {
    const char* value = std::getenv(setting.name);
    Settings tried = settings;
    const bool good = value == nullptr || setting.parse(value, tried);
    if (good) settings = tried;
    all.push_back({{"name", setting.name},
                   {"value", value != nullptr ? value : setting.default_value},
                   {"source", value != nullptr ? "environment" : "default"},
                   {"default", setting.default_value},
                   {"allowed", setting.allowed},
                   {"help", setting.help},
                   {"valid", good}});
  }
  return all;
}

Json unusable_provider(const std::string& name, const std::string& why) {
  return {{"provider", name}, {"endpoints", Json::array()},
          {"usable", false},  {"chosen", false},
          {"why", why},       {"network", ""},
          {"atomics", ""}};
}

// A provider may take long or crash, so it is probed in its own process.
Json provider(const std::string& name, const Settings& settings) {
  const Attempt tried = attempt([&] { return probe_provider(name, settings).dump(); });
  if (tried.answered) return parse_json(tried.answer);
  return unusable_provider(name, fmt::format("refused: it was opened in a process of its own: {}", tried.end));
}

template <class Each>
void for_each_info(Each&& each) {
  const InfoHandle all = all_infos();
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) each(*info);
}

// The names of the providers that offer an endpoint here, with layered ones (NAME;ofi_rxm), the preferred ones first.
std::vector<std::string> offered_providers() {
  std::vector<std::string> names;
  for_each_info([&](const fi_info& info) { add_once<std::string>(names, info.fabric_attr->prov_name); });
  const auto rank = [](const std::string& name) { return std::ranges::find(preferred_providers(), name); };
  std::ranges::stable_sort(names, {}, rank);
  return names;
}

Json libfabric(const Settings& settings) {
  const Attempt listed = attempt([&] {
    const Status choice = choose_provider(settings.provider, settings.device).status();
    return Json{{"offered", offered_providers()}, {"no_choice", choice ? "" : choice.error().text}}.dump();
  });
  const Json list = listed.answered ? parse_json(listed.answer)
                                    : Json{{"offered", Json::array()},
                                           {"no_choice", "asking libfabric for its providers: " + listed.end}};
  const int placeholder = 0;
  Dl_info file{};
  const bool found = dladdr(libfabric_address(), &file) != 0 && file.dli_fname != nullptr;
  Json all{{"version", fi_tostr(&placeholder, FI_TYPE_VERSION)},
           {"library", found ? file.dli_fname : ""},
           {"problem", list["no_choice"]},
           {"providers", Json::array()}};
  const auto offered = list["offered"].get<std::vector<std::string>>();
  for (const std::string& name : offered) all["providers"].push_back(provider(name, settings));

  LibfabricVerbs verbs;
  verbs.offered = std::ranges::any_of(
      offered, [](const std::string& name) { return name == "verbs" || name.starts_with("verbs;"); });
  // A provider inside the library makes it need libibverbs. One beside it (libfabric/libverbs-fi.so) is not looked for.
  const std::vector<LoadedLibrary> needed = loaded_libraries(all["library"].get<std::string>());
  verbs.built_in = needed.empty() || std::ranges::any_of(needed, [](const LoadedLibrary& library) {
                     return library.name.starts_with("libibverbs.");
                   });
  verbs.filter = variable("FI_PROVIDER");
  const VerbsReport report = find_verbs(verbs);
  all["verbs"] = {
      {"available", report.available}, {"devices", report.devices}, {"why", report.why}, {"advice", report.advice}};
  return all;
}

}  // namespace

Json probe_provider(const std::string& name, const Settings& settings) {
  std::vector<std::string> endpoints;
  for_each_info([&](const fi_info& info) {
    if (name == info.fabric_attr->prov_name)
      add_once<std::string>(endpoints, fi_tostr(&info.ep_attr->type, FI_TYPE_EP_TYPE));
  });
  const Result<InfoHandle> choice = choose_provider(settings.provider, settings.device);
  const bool chosen = choice.ok() && name == choice.value()->fabric_attr->prov_name;
  Json probe = unusable_provider(name, "");
  probe["endpoints"] = endpoints;
  probe["chosen"] = chosen;
  const auto with = [&](const std::string& why) {
    probe["why"] = why;
    return probe;
  };
  const Result<InfoHandle> info = find_provider(name, settings.device);
  if (!info) {
    const bool connects = std::ranges::find(endpoints, "FI_EP_MSG") != endpoints.end();
    return with("refused: " + (connects ? info.error().text : "it has no connected endpoint (FI_EP_MSG)"));
  }
  NoProgress progress;
  Statistics statistics;
  const Result<std::unique_ptr<OpenEndpoint>> opened =
      open_endpoint(InfoHandle(fi_dupinfo(info.value().get())), settings, progress, statistics);
  if (!opened)
    return with(fmt::format("{}: {}", chosen ? "chosen, and cannot be opened" : "refused", opened.error().text));
  probe["usable"] = true;
  probe["network"] = fmt::format("{} ({})", info.value()->domain_attr->name, info.value()->fabric_attr->name);
  probe["atomics"] = opened.value()->nic_atomics()
                         ? "by the adapter of the target on 64-bit integers, and for locks; by "
                           "farside's handler there for the others"
                         : "by farside's handler at the target";
  const bool tested = std::ranges::find(preferred_providers(), name) != preferred_providers().end();
  if (chosen && settings.provider.empty()) return with("chosen: the first of farside's preferences that is there");
  if (chosen)
    return with(fmt::format("chosen: FARSIDE_PROVIDER names it{}", tested ? "" : "; farside is not tested on it"));
  if (!settings.provider.empty()) return with("passed over: FARSIDE_PROVIDER names another");
  if (settings.device.empty() && is_emulated(*info.value()))
    return with("passed over: emulated adapters are taken only if FARSIDE_DEVICE names them");
  if (tested) return with("passed over: a better one is there");
  return with(
      fmt::format("passed over: farside is not tested on it; FARSIDE_PROVIDER='{}' takes it all the same", name));
}

Json gather_info(const std::string& library_folder) {
  utsname system{};
  uname(&system);
  Settings settings;
  Json info;
  info["farside_info"] = 1;  // the version of this format
  info["farside"] = FARSIDE_VERSION;
  info["machine"] = {
      {"host", system.nodename}, {"kernel", system.release}, {"threads", std::thread::hardware_concurrency()}};
  info["machine"]["sees_no_early_loads"] = PageWatch::why_not();
  info["machine"]["has_no_huge_pages"] = HugePages::why_not();
  const Result<Segment> page = make_segment(1);
  const Status placed = page ? place_on_nodes(page.value().mapping.base(), 1, Numa::kInterleave) : page.status();
  info["machine"]["has_no_numa"] = placed ? "" : placed.error().text;
  info["runtimes"] = runtimes(library_folder);
  Json table = settings_now(settings);
  info["libfabric"] = libfabric(settings);
  RouteReport fabric;
  fabric.how = farside::info(RouteKind::kFabric).how;
  fabric.why = info["libfabric"]["problem"];
  for (const Json& one : info["libfabric"]["providers"]) {
    if (!one["chosen"].get<bool>()) continue;
    fabric.possible = one["usable"];
    if (!fabric.possible) fabric.why = one["why"];
    if (fabric.possible) fabric.how += fmt::format(": {}", one["provider"].get<std::string>());
  }
  if (!fabric.possible) fabric.advice = "see the providers";
  info["routes"] = route_facts(settings, &fabric);
  info["limits"] = limit_facts();
  info["settings"] = std::move(table);
  info["unknown_settings"] = unknown_settings();
  return info;
}

// The report of `farside info` as text: one line per item, and below it, marked, the advice.

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
      text.line("              device:  {}", word(one["network"]));
      text.line("              atomics: {}", word(one["atomics"]));
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
    text.line("  {:<15} {:<10} {}", word(one["limit"]), limit_text(one), word(one["meaning"]));
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
  for (const auto& [setting, effect, obstacle] :
       {std::tuple("FARSIDE_CHECK=strict", "early loads of result buffers are {}seen", "sees_no_early_loads"),
        std::tuple("FARSIDE_HUGE_PAGES=transparent", "large windows do {}get huge pages", "has_no_huge_pages"),
        std::tuple("FARSIDE_NUMA=interleave", "pages of windows are {}placed", "has_no_numa")}) {
    text.line("\n{}\n  {}", setting, fmt::format(fmt::runtime(effect), machine[obstacle] == "" ? "" : "not "));
    text.more(machine[obstacle], "! ");
  }
  settings(text, info["settings"], info["unknown_settings"]);
  return text.all();
}

void add_info_command(CLI::App& app, int& exit_code) {
  struct Options {
    std::string library_folder = default_library_folder();
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "info",
      "show the runtimes, routes, libfabric providers, limits and settings of this machine, and what farside uses");
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("--lib-dir", options->library_folder, kLibraryFolderHelp);
  command->footer(
      "Lines that begin with ! say what to change. The limits are those of this shell; mpirun -n 1 farside info shows "
      "those of a rank. What farside uses between hosts: farside doctor --hosts a,b.");
  command->callback([options, &exit_code] {
    exit_code = 0;
    if (launched_rank() != 0) return;  // one answer is enough
    prepare_for_children();
    const Json info = gather_info(options->library_folder);
    options->json ? fmt::print("{}\n", json_text(info, 2)) : print_report(info_text(info));
  });
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdlib>
#include <sys/utsname.h>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tools/child.hpp"
#include "tools/info/info.hpp"
#include "tools/linkage.hpp"
#include "tools/runtime.hpp"
#include "transport/base/settings.hpp"
#include "transport/fabric/provider_probe.hpp"

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

Json described(const ProviderProbe& probe) {
  return {{"provider", probe.name},    {"endpoints", probe.endpoints},
          {"usable", probe.usable},    {"chosen", probe.chosen},
          {"why", probe.why},          {"endpoint", probe.endpoint},
          {"network", probe.network},  {"atomics", probe.atomics},
          {"progress", probe.progress}};
}

Json provider(const std::string& name, const Settings& settings) {
  const Attempt tried = attempt([&] { return described(probe_provider(name, settings)).dump(); });
  if (tried.answered) return parse_json(tried.answer);
  ProviderProbe none;
  none.name = name;
  none.why = fmt::format("refused: opening it in a process of its own {}",
                         tried.end.starts_with("no answer") ? "brought " + tried.end : tried.end);
  return described(none);
}

Json libfabric(const Settings& settings) {
  const Attempt listed = attempt([&] {
    return Json{
        {"offered", offered_providers()}, {"registered", registered_providers()}, {"no_choice", no_choice(settings)}}
        .dump();
  });
  Json all{{"version", fabric_version()}, {"library", fabric_library()}, {"problem", ""}, {"providers", Json::array()}};
  std::vector<std::string> offered;
  if (listed.answered) {
    const Json list = parse_json(listed.answer);
    offered = list["offered"].get<std::vector<std::string>>();
    all["problem"] = list["no_choice"];
    all["registered"] = list["registered"];
  } else {
    all["problem"] = fmt::format("asking libfabric for its providers {}", listed.end);
  }
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

Json gather_info(const std::string& library_folder) {
  utsname system{};
  uname(&system);
  Settings settings;
  Json info;
  info["farside_info"] = 1;  // the version of this format
  info["farside"] = FARSIDE_VERSION;
  info["machine"] = {
      {"host", system.nodename}, {"kernel", system.release}, {"threads", std::thread::hardware_concurrency()}};
  info["runtimes"] = runtimes(library_folder);
  Json table = settings_now(settings);
  info["libfabric"] = libfabric(settings);
  RouteReport fabric;
  fabric.how = "libfabric, between nodes, and inside one where nothing else reaches";
  fabric.why = info["libfabric"]["problem"];
  for (const Json& one : info["libfabric"]["providers"]) {
    if (!one["chosen"].get<bool>()) continue;
    fabric.possible = one["usable"];
    if (!fabric.possible) fabric.why = one["why"];
    if (fabric.possible) fabric.how += fmt::format(": {}", one["provider"].get<std::string>());
  }
  if (!fabric.possible) fabric.advice = "see the providers";
  info["routes"] = {route_facts("mapped", settings.mapped, try_mapped()),
                    route_facts("cma", settings.cma && settings.mapped, try_cma()),
                    route_facts("fabric", settings.fabric, fabric)};
  info["limits"] = limit_facts();
  info["settings"] = std::move(table);
  info["unknown_settings"] = unknown_settings();
  return info;
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include "tools/doctor/rank.hpp"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <sys/utsname.h>
#include <system_error>
#include <unistd.h>

#include "tools/common/child.hpp"
#include "tools/common/launched_ranks.hpp"
#include "tools/info/info.hpp"
#include "transport/base/settings.hpp"
#include "transport/node/page_watch.hpp"

namespace farside::tools {
namespace {

// The file in which the dynamic loader finds a symbol; empty if there is none.
std::string file_of(void* symbol) {
  Dl_info where{};
  return symbol != nullptr && dladdr(symbol, &where) != 0 ? where.dli_fname : "";
}

// A library without farside_version() (pmpi/entries/entries_start.cpp) is recognised by its MPI calls.
void add_library(Json& facts) {
  void* const version = dlsym(RTLD_DEFAULT, "farside_version");
  const std::string calls = file_of(dlsym(RTLD_DEFAULT, "MPI_Win_create"));
  const bool old = version == nullptr && calls.find("libfarside-") != std::string::npos;
  facts["farside"] = version != nullptr ? reinterpret_cast<const char* (*)()>(version)()
                     : old              ? "unknown (it does not say)"
                                        : "";
  facts["library"] = version != nullptr ? file_of(version) : old ? calls : "";
  const std::vector<std::string> preloads = split(variable("LD_PRELOAD"), ": ");
  const auto named = std::ranges::find_if(
      preloads, [](const std::string& one) { return one.find("libfarside-") != std::string::npos; });
  std::error_code failed;
  facts["preload"] = named == preloads.end() ? "" : *named;
  facts["preload_exists"] = named != preloads.end() && std::filesystem::exists(*named, failed);
}

void add_settings(Json& facts, Settings& settings) {
  facts["settings"] = Json::object();
  for (const Setting& setting : settings_table())
    if (const char* value = std::getenv(setting.name); value != nullptr) facts["settings"][setting.name] = value;
  const Result<Settings> read = read_settings();
  if (read) settings = read.value();
  facts["bad_setting"] = read ? "" : read.error().text;
  facts["unknown_settings"] = unknown_settings();
}

}  // namespace

Json rank_facts() {
  utsname system{};
  uname(&system);
  Json facts{{"host", system.nodename}};
  add_library(facts);
  facts["peers"] = FARSIDE_VERSION;
  facts["launched"] = launched_ranks();
  facts["limits"] = limit_facts();
  Settings settings;
  add_settings(facts, settings);
  facts["routes"] = route_facts(settings, nullptr);
  if (settings.check == Check::kStrict) facts["sees_no_early_loads"] = PageWatch::why_not();
  return facts;
}

std::string mpi_version(const std::string& library_version) {
  // "Open MPI v4.1.4, package: ..."; "MPICH Version:\t4.0.2\nMPICH Release date:..."
  std::string text = library_version.substr(0, library_version.find_first_of(",\n"));
  std::ranges::replace(text, '\t', ' ');
  constexpr std::string_view kWord = " Version:";
  if (const std::size_t at = text.find(kWord); at != std::string::npos) text.erase(at, kWord.size());
  text.erase(std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; }), text.end());
  return text;
}

void Watchdog::watch(const std::stop_token& over) {
  Clock::time_point next_heartbeat = Clock::now() + kHeartbeat;
  for (; !over.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    if (Clock::now() >= next_heartbeat) {
      next_heartbeat += kHeartbeat;
      heartbeat_();
    }
    std::unique_lock held(mutex_);
    if (step_.empty() || Clock::now() < begun_ + limit_ + grace_) continue;
    const std::string step = step_, place = place_;
    held.unlock();
    on_timeout_(step, static_cast<int>(limit_.count()), place);
    _exit(1);
  }
}

}  // namespace farside::tools

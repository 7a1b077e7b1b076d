// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/settings.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <unistd.h>
#include <utility>

namespace farside {
namespace {

bool parse_routes(std::string_view value, Settings& settings) {
  settings.routes = bit(RouteKind::kSelf);
  while (true) {
    const std::size_t comma = value.find(',');
    const RouteInfo* const route = std::ranges::find_if(
        kRoutes, [&](const RouteInfo& each) { return each.allowed_by_name && each.name == value.substr(0, comma); });
    if (route == std::end(kRoutes)) return false;
    settings.routes |= static_cast<RouteSet>(1U << (route - kRoutes));
    if (comma == std::string_view::npos) return true;
    value.remove_prefix(comma + 1);
  }
}

// The names of these routes in one text.
struct RouteNames {
  char text[128] = {};
  consteval RouteNames(std::string_view before, std::string_view between, std::string_view behind) {
    char* to = text;
    const auto add = [&](std::string_view part) { to = std::ranges::copy(part, to).out; };
    add(before);
    bool first = true;
    for (const RouteInfo& each : kRoutes) {
      if (!each.allowed_by_name) continue;
      if (!std::exchange(first, false)) add(between);
      add(each.name);
    }
    add(behind);
  }
};
constexpr RouteNames kDefaultRoutes{"", ",", ""};
constexpr RouteNames kAllowedRoutes{"one or more of ", ", ", ", separated by commas"};

bool parse_provider(std::string_view value, Settings& settings) {
  settings.provider = value;
  return true;
}

bool parse_device(std::string_view value, Settings& settings) {
  settings.device = value;
  return true;
}

bool parse_nic_atomics(std::string_view value, Settings& settings) {
  settings.nic_atomics = value == "on";
  return value == "on" || value == "off";
}

bool parse_sites(std::string_view value, Settings& settings) {
  settings.sites = value == "on";
  return value == "on" || value == "off";
}

bool parse_huge_pages(std::string_view value, Settings& settings) {
  settings.huge_pages = value == "transparent";
  return value == "transparent" || value == "off";
}

bool parse_overcommit(std::string_view value, Settings& settings) {
  settings.overcommit = value == "on";
  return value == "on" || value == "off";
}

bool parse_number(std::string_view value, std::uint32_t most, std::uint32_t& into) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), into);
  return error == std::errc() && end == value.data() + value.size() && into <= most;
}

bool parse_connections(std::string_view value, Settings& settings) {
  return parse_number(value, 1'000'000, settings.connections);
}

bool parse_peer_timeout(std::string_view value, Settings& settings) {
  return parse_number(value, 86400, settings.peer_timeout);
}

bool parse_hang(std::string_view value, Settings& settings) { return parse_number(value, 86400, settings.hang); }

bool parse_check(std::string_view value, Settings& settings) {
  static constexpr std::array<std::string_view, 4> kWords = {"off", "warn", "on", "strict"};
  const auto* word = std::find(kWords.begin(), kWords.end(), value);
  if (word == kWords.end()) return false;
  settings.check = static_cast<Check>(word - kWords.begin());
  return true;
}

bool parse_log(std::string_view value, Settings& settings) {
  static constexpr std::array<std::string_view, 4> kLevels = {"error", "warn", "info", "debug"};
  const auto* level = std::find(kLevels.begin(), kLevels.end(), value);
  if (level == kLevels.end()) return false;
  settings.log = static_cast<LogLevel>(level - kLevels.begin());
  return true;
}

bool parse_stats(std::string_view value, Settings& settings) {
  settings.stats = value;
  return true;
}

bool parse_trace(std::string_view value, Settings& settings) {
  settings.trace = value;
  return true;
}

constexpr Setting kSettings[] = {
    {"FARSIDE_ROUTES", kDefaultRoutes.text, kAllowedRoutes.text,
     "routes to a peer's memory that may be used; cma only together with mapped; fabric alone sends everything through "
     "libfabric, inside a node too",
     parse_routes},
    {"FARSIDE_PROVIDER", "", "a libfabric provider with connected endpoints, as fi_info names it: verbs or tcp",
     "libfabric provider; when unset the first that works for all ranks of verbs (adapters, after a trial) and tcp",
     parse_provider},
    {"FARSIDE_DEVICE", "", "a device as fi_info names it (its domain), for instance mlx5_0 or eth0",
     "network device of this process; when unset the nearest to its processors among the fastest; processes of a node "
     "share equally near ones; emulated adapters are taken only if it names them",
     parse_device},
    {"FARSIDE_NIC_ATOMICS", "on", "on or off",
     "locks and notifications by atomics of the network adapter, if it has them (provider verbs) and they pass a "
     "self-test; off: by the target's progress thread",
     parse_nic_atomics},
    {"FARSIDE_HUGE_PAGES", "off", "off or transparent",
     "pages of windows of MPI_Win_allocate and MPI_Win_allocate_shared from 16 MiB per rank on (eight huge pages); "
     "transparent: huge pages, where the kernel gives them to shared memory "
     "(/sys/kernel/mm/transparent_hugepage/shmem_enabled: advise or more)",
     parse_huge_pages},
    {"FARSIDE_OVERCOMMIT", "off", "on or off",
     "windows larger than the free memory, of which the program touches a part; on: they are made", parse_overcommit},
    {"FARSIDE_CONNECTIONS", "1024", "0 to 1000000",
     "connections that a process keeps to its peers by each of its devices (providers verbs and tcp), fewer if its "
     "share of what the node has for them is smaller (descriptors: ulimit -Hn, fs.file-max; queue pairs of the "
     "adapter); beyond this limit the "
     "least recently used are closed, and reopened on demand; 0: no limit",
     parse_connections},
    {"FARSIDE_PEER_TIMEOUT", "60", "0 to 86400",
     "seconds after which operations over libfabric fail if their target stays out of reach; 0: never",
     parse_peer_timeout},
    {"FARSIDE_HANG", "60", "0 to 86400",
     "seconds after which a rank that waits for one thing in a call logs a warning that names it, and again after each "
     "doubling of the time; 0: never",
     parse_hang},
    {"FARSIDE_CHECK", "on", "off, warn, on or strict",
     "checking of MPI's rules; warn: what can be carried out without harm to memory and locks is, and is reported once "
     "per place in the program; off: the same in silence; strict: also accesses that conflict, of one rank and of "
     "several (slow)",
     parse_check},
    {"FARSIDE_LOG", "warn", "error, warn, info or debug", "verbosity of farside's messages on stderr", parse_log},
    {"FARSIDE_STATS", "", "a path prefix",
     "each rank writes PREFIX.RANK.json at MPI_Finalize, SIGTERM and SIGUSR1; farside explain reads them", parse_stats},
    {"FARSIDE_TRACE", "", "a path prefix",
     "each rank records its epochs and waits, and writes PREFIX.RANK.trace at MPI_Finalize, SIGTERM and SIGUSR1; "
     "farside "
     "trace reads them",
     parse_trace},
    {"FARSIDE_SITES", "off", "on or off",
     "FARSIDE_STATS and FARSIDE_TRACE say where in the program synchronization calls and slow operations are made "
     "(farside "
     "explain and farside trace, --by site); takes some microseconds per call",
     parse_sites},
};

// Variables that build and test scripts read, and the library does not.
constexpr std::string_view kForScripts[] = {"FARSIDE_LIB", "FARSIDE_TEST_"};

}  // namespace

std::span<const Setting> settings_table() { return kSettings; }

std::vector<std::string> unknown_settings() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("FARSIDE_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const auto known = [&](const Setting& setting) { return name == setting.name; };
    const auto other = [&](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(kSettings, known) || std::ranges::any_of(kForScripts, other)) continue;
    result.emplace_back(name);
  }
  return result;
}

void warn_of_unknown_settings() {
  for (const std::string& name : unknown_settings()) {
    std::string names;
    for (const Setting& setting : kSettings) names += fmt::format(" {}", setting.name);
    log(LogLevel::kWarn, "environment variable {} is not a setting of farside and is ignored; there are:{}", name,
        names);
  }
}

Result<Settings> read_settings() {
  Settings settings;
  for (const Setting& setting : kSettings) {
    const char* value = secure_getenv(setting.name);
    if (value == nullptr) continue;
    if (!setting.parse(value, settings)) {
      return Error{ErrorKind::kBadSetting, fmt::format("{}='{}' is not allowed; allowed: {} (default: {})",
                                                       setting.name, value, setting.allowed, setting.default_value)};
    }
  }
  Log::set_level(settings.log);
  return settings;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "transport/base/integers.hpp"

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

template <auto kMember>
bool parse_text(std::string_view value, Settings& settings) {
  settings.*kMember = value;
  return true;
}

template <auto kMember, std::uint32_t kMost>
bool parse_up_to(std::string_view value, Settings& settings) {
  return parse_number(value, settings.*kMember) && settings.*kMember <= kMost;
}

constexpr std::string_view kOffOn[] = {"off", "on"}, kOffTransparent[] = {"off", "transparent"},
                           kChecks[] = {"off", "warn", "on", "strict"}, kLevels[] = {"error", "warn", "info", "debug"};

// The values of the member's type, a bool or an enumeration, are the places of their words.
template <auto kMember, auto& kWords>
bool parse_word(std::string_view value, Settings& settings) {
  auto& member = settings.*kMember;
  const auto* const word = std::ranges::find(kWords, value);
  if (word == std::end(kWords)) return false;
  member = static_cast<std::remove_reference_t<decltype(member)>>(word - kWords);
  return true;
}

constexpr Setting kSettings[] = {
    {"FARSIDE_ROUTES", kDefaultRoutes, kAllowedRoutes,
     "routes to a peer's memory that may be used; cma only together with mapped; fabric alone sends everything through "
     "libfabric, inside a node too",
     parse_routes},
    {"FARSIDE_PROVIDER", "", "a libfabric provider with connected endpoints, as fi_info names it: verbs or tcp",
     "libfabric provider; when unset the first that works for all ranks of verbs (adapters, after a trial) and tcp",
     parse_text<&Settings::provider>},
    {"FARSIDE_DEVICE", "", "a device as fi_info names it (its domain), for instance mlx5_0 or eth0",
     "network device of this process; when unset the nearest to its processors among the fastest; processes of a node "
     "share equally near ones; emulated adapters are taken only if it names them",
     parse_text<&Settings::device>},
    {"FARSIDE_NIC_ATOMICS", "on", "on or off",
     "locks and notifications by atomics of the network adapter, if it has them (provider verbs) and they pass a "
     "self-test; off: by the target's progress thread",
     parse_word<&Settings::nic_atomics, kOffOn>},
    {"FARSIDE_HUGE_PAGES", "off", "off or transparent",
     "pages of windows of MPI_Win_allocate and MPI_Win_allocate_shared from 16 MiB per rank on (eight huge pages); "
     "transparent: huge pages, where the kernel gives them to shared memory "
     "(/sys/kernel/mm/transparent_hugepage/shmem_enabled: advise or more)",
     parse_word<&Settings::huge_pages, kOffTransparent>},
    {"FARSIDE_NUMA", "first_touch", "first_touch, bind or interleave",
     "NUMA nodes of a rank's memory in windows of MPI_Win_allocate and MPI_Win_allocate_shared; first_touch: that of "
     "the first user of a page; bind: that of the rank's processor, while it has free pages; interleave: all in turn",
     parse_word<&Settings::numa, kNumaWords>},
    {"FARSIDE_OVERCOMMIT", "off", "on or off",
     "windows larger than the free memory, of which the program touches a part; on: they are made",
     parse_word<&Settings::overcommit, kOffOn>},
    {"FARSIDE_CONNECTIONS", "1024", "0 to 1000000",
     "connections that a process keeps to its peers by each of its devices (providers verbs and tcp), fewer if it has "
     "fewer descriptors (ulimit -Hn), or its share of the adapter's queue pairs is smaller; beyond this limit the "
     "least recently used are closed, and reopened on demand; 0: no limit",
     parse_up_to<&Settings::connections, 1'000'000>},
    {"FARSIDE_PEER_TIMEOUT", "60", "0 to 86400",
     "seconds after which operations over libfabric fail if their target stays out of reach; 0: never",
     parse_up_to<&Settings::peer_timeout, 86400>},
    {"FARSIDE_HANG", "60", "0 to 86400",
     "seconds after which a rank that waits for one thing in a call logs a warning that names it, and again after each "
     "doubling of the time; 0: never",
     parse_up_to<&Settings::hang, 86400>},
    {"FARSIDE_CHECK", "on", "off, warn, on or strict",
     "checking of MPI's rules; warn: what can be carried out without harm to memory and locks is, and is reported once "
     "per place in the program; off: the same in silence; strict: also accesses that conflict, of one rank and of "
     "several (slow)",
     parse_word<&Settings::check, kChecks>},
    {"FARSIDE_LOG", "warn", "error, warn, info or debug", "verbosity of farside's messages on stderr",
     parse_word<&Settings::log, kLevels>},
    {"FARSIDE_STATS", "", "a path prefix",
     "each rank writes PREFIX.RANK.json at MPI_Finalize, SIGTERM and SIGUSR1; farside explain reads them",
     parse_text<&Settings::stats>},
    {"FARSIDE_TRACE", "", "a path prefix",
     "each rank records its epochs and waits, and writes PREFIX.RANK.trace at MPI_Finalize, SIGTERM and SIGUSR1; "
     "farside trace reads them",
     parse_text<&Settings::trace>},
    {"FARSIDE_SITES", "off", "on or off",
     "FARSIDE_STATS and FARSIDE_TRACE say where in the program synchronization calls and slow operations are made "
     "(farside explain --by site, farside trace); takes some microseconds per call",
     parse_word<&Settings::sites, kOffOn>},
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

namespace {

// How many characters have to be changed, added or removed to make b of a (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] == b[j] ? 0 : 1)}));
  }
  return row.back();
}

}  // namespace

void warn_of_unknown_settings() {
  for (const std::string& name : unknown_settings()) {
    const auto nearest =
        std::ranges::min_element(kSettings, {}, [&](const Setting& setting) { return distance(name, setting.name); });
    log(LogLevel::kWarn,
        "environment variable {} is not a setting of farside and is ignored; is {} meant? (farside --help has all)",
        name, nearest->name);
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

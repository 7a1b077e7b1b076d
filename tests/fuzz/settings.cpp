// SPDX-License-Identifier: BSD-3-Clause
// Settings with any text as value: farside must accept exactly the values that the table allows.
//
//   input:  which setting, then its value
#include "transport/base/settings.hpp"

#include "tests/fuzz/fuzz.hpp"

namespace farside::fuzz {

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  const auto add = [&](std::size_t which, std::string_view value) {
    Bytes input = bytes_of(value);
    input.insert(input.begin(), static_cast<std::uint8_t>(which));
    all.push_back(std::move(input));
  };
  static constexpr std::string_view kValues[] = {"mapped,cma,fabric",
                                                 "fabric",
                                                 "mapped,,cma",
                                                 "tcp;ofi_rxm",
                                                 "60",
                                                 "86400",
                                                 "86401",
                                                 "-1",
                                                 "off",
                                                 "warn",
                                                 "on",
                                                 "strict",
                                                 "transparent",
                                                 "error",
                                                 "debug",
                                                 "/tmp/prefix",
                                                 "",
                                                 ","};
  for (std::size_t which = 0; which < settings_table().size(); ++which) {
    for (const std::string_view value : kValues) add(which, value);
  }
  return all;
}

}  // namespace farside::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farside;
  using namespace farside::fuzz;
  if (size == 0) return 0;
  const auto table = settings_table();
  const Setting& setting = table[data[0] % table.size()];
  // Not terminated by zero, so that a sanitizer reports code that relies on a terminator.
  const std::string_view value(reinterpret_cast<const char*>(data) + 1, size - 1);
  Settings settings;
  if (!setting.parse(value, settings)) return 0;
  const std::string_view name = setting.name;
  if (name == "FARSIDE_ROUTES") {
    require(settings.routes != bit(RouteKind::kSelf), "there is a route");
    for (std::size_t i = 1; i < kRouteKinds; ++i) {
      require(settings.allows(static_cast<RouteKind>(i)) == (value.find(kRoutes[i].name) != value.npos),
              "a route is on if it is named");
    }
  } else if (name == "FARSIDE_PEER_TIMEOUT") {
    require(settings.peer_timeout <= 86400 && value.find_first_not_of("0123456789") == value.npos,
            "seconds are a number in range");
  } else if (name == "FARSIDE_HANG") {
    require(settings.hang <= 86400 && value.find_first_not_of("0123456789") == value.npos,
            "seconds are a number in range");
  } else if (name == "FARSIDE_CONNECTIONS") {
    require(settings.connections <= 1000000 && value.find_first_not_of("0123456789") == value.npos,
            "a number in range");
  } else if (name == "FARSIDE_CHECK") {
    require(settings.check <= Check::kStrict, "a level that there is");
  } else if (name == "FARSIDE_LOG") {
    require(settings.log <= LogLevel::kDebug, "a level that there is");
  } else if (name == "FARSIDE_SITES") {
    require(value == (settings.sites ? "on" : "off"), "one of two words");
  } else if (name == "FARSIDE_NIC_ATOMICS") {
    require(value == (settings.nic_atomics ? "on" : "off"), "one of two words");
  } else if (name == "FARSIDE_OVERCOMMIT") {
    require(value == (settings.overcommit ? "on" : "off"), "one of two words");
  } else if (name == "FARSIDE_HUGE_PAGES") {
    require(value == (settings.huge_pages ? "transparent" : "off"), "one of two words");
  } else if (name == "FARSIDE_NUMA") {
    require(value == kNumaWords[static_cast<std::size_t>(settings.numa)], "one of three words");
  } else {
    require(
        settings.provider == value || settings.device == value || settings.stats == value || settings.trace == value,
        "text is taken as it is");
  }
  return 0;
}

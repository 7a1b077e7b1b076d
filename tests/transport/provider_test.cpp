// SPDX-License-Identifier: BSD-3-Clause
// Which provider and which device are chosen, and what is said where one cannot be.
#include <algorithm>
#include <string>

#include <catch2/catch.hpp>

#include "transport/base/log.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/provider_choice.hpp"
#include "transport/process.hpp"

using namespace farside;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string device_of(const Result<InfoHandle>& info) {
  return info ? info.value()->domain_attr->name : "none: " + info.error().text;
}

}  // namespace

TEST_CASE("a device is taken by its name, on whatever provider") {
  for (const std::string provider : {"tcp"}) {
    INFO(provider);
    const std::string first = device_of(find_provider(provider));
    CHECK(device_of(find_provider(provider, first)) == first);
    CHECK(device_of(find_provider(provider, "lo")) == "lo");
    CHECK(device_of(choose_provider(provider, "lo")) == "lo");
    CHECK(device_of(choose_provider("", "lo")) == "lo");
    const Result<InfoHandle> none = find_provider(provider, "nowhere");
    REQUIRE_FALSE(none.ok());
    CHECK(none.error().kind == ErrorKind::kNoRoute);
    CHECK(contains(none.error().text, "provider " + provider + " has no device nowhere; it has: "));
    CHECK(contains(none.error().text, first));
  }
}

TEST_CASE("a device or a provider that is not there is a bad setting, and what there is is said") {
  const Result<InfoHandle> device = choose_provider("", "nowhere");
  REQUIRE_FALSE(device.ok());
  CHECK(device.error().kind == ErrorKind::kBadSetting);
  CHECK(contains(device.error().text, "FARSIDE_DEVICE='nowhere' cannot be used: "));
  CHECK(contains(device.error().text, "; provider tcp has no device nowhere; it has: "));
  const Result<InfoHandle> both = choose_provider("tcp", "nowhere");
  REQUIRE_FALSE(both.ok());
  CHECK(both.error().kind == ErrorKind::kBadSetting);
  CHECK(contains(both.error().text,
                 "FARSIDE_PROVIDER='tcp' with FARSIDE_DEVICE='nowhere' cannot be used: provider tcp has no device"));
  const Result<InfoHandle> provider = choose_provider("nonsense", "");
  REQUIRE_FALSE(provider.ok());
  CHECK(provider.error().kind == ErrorKind::kBadSetting);
  CHECK(contains(provider.error().text, "FARSIDE_PROVIDER='nonsense' cannot be used: "));
}

TEST_CASE("without a device's name there is no adapter among the candidates, whether or not the log names it") {
  for (const LogLevel level : {LogLevel::kInfo, LogLevel::kWarn}) {
    Log::set_level(level);
    const Result<std::vector<Candidate>> all = candidates();
    REQUIRE(all.ok());
    CHECK(std::ranges::none_of(all.value(), [](const Candidate& each) { return is_adapter(*each.info); }));
    CHECK(all.value().front().info->fabric_attr->prov_name == std::string("tcp"));
  }
}

TEST_CASE("processes that cannot all have the best provider meet on another") {
  const auto names = preferred_providers();
  const auto bit = [&](std::string_view name) {
    return Providers{1} << (std::ranges::find(names, name) - names.begin());
  };
  Settings settings;
  Statistics statistics;
  ProviderChoice choice(settings, Process::instance(), statistics);
  REQUIRE((choice.usable() & bit("tcp")) == bit("tcp"));
  const Result<ProviderChoice::Taken> none = choice.take(1U << 31);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().kind == ErrorKind::kNoRoute);
  CHECK(contains(none.error().text, "no libfabric provider in common; this one has "));
  Result<ProviderChoice::Taken> taken = choice.take(bit("tcp") | 1U << 31);
  REQUIRE(taken.ok());
  CHECK(taken.value().provider == bit("tcp"));
  CHECK(taken.value().fabric->provider() == std::string("tcp"));
}

TEST_CASE("the provider of FARSIDE_PROVIDER is the only one, and its error stays") {
  Settings settings;
  Statistics statistics;
  settings.provider = "tcp";
  ProviderChoice choice(settings, Process::instance(), statistics);
  CHECK(choice.usable() == 1);
  Result<ProviderChoice::Taken> taken = choice.take(kAnyProvider);
  REQUIRE(taken.ok());
  CHECK(taken.value().fabric->provider() == std::string("tcp"));
  settings.provider = "nonsense";
  ProviderChoice bad(settings, Process::instance(), statistics);
  CHECK(bad.usable() == 0);
  for (int i = 0; i < 2; ++i) {
    const Result<ProviderChoice::Taken> refused = bad.take(kAnyProvider);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().kind == ErrorKind::kBadSetting);
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Which provider and which device are chosen, and what is said where one cannot be.
#include "transport/fabric/provider.hpp"

#include <algorithm>
#include <string>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "tests/unit/transport/fabric/best_endpoint.hpp"
#include "transport/base/log.hpp"
#include "transport/fabric/devices.hpp"
#include "transport/process.hpp"

namespace farside::provider_test {

using namespace farside::testing;

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
  CHECK(contains(device.error().text, "provider tcp has no device nowhere; it has: "));
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

TEST_CASE("without adapters tcp is the only candidate, whether or not the log says why") {
  if (!adapter_names().empty()) return;
  for (const LogLevel level : {LogLevel::kInfo, LogLevel::kWarn}) {
    Log::set_level(level);
    const Candidates all = candidates();
    REQUIRE(all.found.size() == 1);
    CHECK(all.found.front().info->fabric_attr->prov_name == std::string("tcp"));
    CHECK(all.reasons == std::vector<std::string>{"provider verbs: no adapter", ""});
    CHECK(all.wanted == 2);
    CHECK_FALSE(all.unknown_device);
  }
}

TEST_CASE("where a device is unknown, another rank may have it, and tcp takes any device") {
  const Candidates all = candidates("", "mlx5_0");
  REQUIRE(all.unknown_device);
  REQUIRE(all.found.size() == 1);
  CHECK(all.found.front().info->fabric_attr->prov_name == std::string("tcp"));
  const Error& error = *all.unknown_device;
  CHECK(error.kind == ErrorKind::kBadSetting);
  CHECK(contains(error.text, "FARSIDE_DEVICE='mlx5_0' cannot be used: provider verbs: no adapter"));
  CHECK(contains(error.text, "; provider tcp has no device mlx5_0; it has: "));
}

TEST_CASE("processes that cannot all have the best provider meet on another") {
  const auto names = preferred_providers();
  const auto bit = [&](std::string_view name) {
    return Providers{1} << (std::ranges::find(names, name) - names.begin());
  };
  Settings settings;
  Statistics statistics;
  ProviderChoice choice(settings, Process::instance(), statistics);
  REQUIRE((choice.offer().usable & bit("tcp")) == bit("tcp"));
  const Result<OpenEndpoint*> none = choice.try_best(1U << 31);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().kind == ErrorKind::kNoRoute);
  CHECK(contains(none.error().text, "no libfabric provider in common"));
  const Result<OpenEndpoint*> tried = choice.try_best(bit("tcp") | 1U << 31);
  REQUIRE(tried.ok());
  CHECK(tried.value()->provider() == std::string("tcp"));
  CHECK(choice.use(*tried.value()) == bit("tcp"));
}

TEST_CASE("a discarded provider is not usable again, and its reason stays") {
  Settings settings;
  Statistics statistics;
  ProviderChoice choice(settings, Process::instance(), statistics);
  const Providers tcp = choice.offer().usable;
  CHECK(choice.why_not(tcp).empty());
  const Result<OpenEndpoint*> tried = choice.try_best(kAnyProvider);
  REQUIRE(tried.ok());
  choice.leave(*tried.value(), "rank 1: no answer");
  CHECK(choice.offer().usable == 0);
  CHECK(choice.offer().wanted == tcp);
  CHECK(choice.why_not(tcp) == "rank 1: no answer");
  const Result<OpenEndpoint*> none = choice.try_best(kAnyProvider);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().text == "rank 1: no answer");
}

TEST_CASE("a process has an endpoint per provider, and keeps those that it uses") {
  const auto two = [] {
    std::vector<Candidate> all;
    for (std::size_t i = 0; i < 2; ++i) all.push_back({i, std::move(find_provider("tcp").value())});
    return all;
  };
  Settings settings;
  Statistics statistics;
  ProviderChoice choice(settings, Process::instance(), statistics);
  choice.take(two());
  REQUIRE(choice.offer().usable == 3);
  OpenEndpoint* const best = choice.try_best(kAnyProvider).value();
  OpenEndpoint* const other = choice.try_best(2).value();
  CHECK(best->address().identity != other->address().identity);
  CHECK(choice.use(*best) == 1);
  CHECK(choice.try_best(2).value() == other);  // it is tried, and stays
  choice.leave(*other);
  CHECK(choice.use(*other) == 2);
  CHECK(choice.try_best(kAnyProvider).value() == best);
  CHECK(choice.use(*best) == 0);  // it was in use
  CHECK(choice.try_best(2).value() == other);
  choice.leave(*other, "no answer");
  CHECK(choice.offer().usable == 1);
  CHECK(choice.try_best(2).value() == other);  // one in use stays

  ProviderChoice second(settings, Process::instance(), statistics);
  second.take(two());
  OpenEndpoint* const failing = second.try_best(kAnyProvider).value();
  OpenEndpoint* const working = second.try_best(2).value();
  CHECK(second.use(*working) == 2);
  second.leave(*failing, "no answer");
  CHECK(second.offer().usable == 2);
  CHECK(second.try_best(kAnyProvider).value() == working);
}

TEST_CASE("the provider of FARSIDE_PROVIDER is the only one, and its error stays") {
  Settings settings;
  Statistics statistics;
  settings.provider = "tcp";
  ProviderChoice choice(settings, Process::instance(), statistics);
  CHECK(choice.offer().usable == 1);
  const Result<OpenEndpoint*> opened = choice.try_best(kAnyProvider);
  REQUIRE(opened.ok());
  CHECK(opened.value()->provider() == std::string("tcp"));
  settings.provider = "nonsense";
  ProviderChoice bad(settings, Process::instance(), statistics);
  CHECK(bad.offer().usable == 0);
  for (int i = 0; i < 2; ++i) {
    const Result<OpenEndpoint*> refused = bad.try_best(kAnyProvider);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().kind == ErrorKind::kBadSetting);
  }
}

TEST_CASE("the provider of FARSIDE_PROVIDER is looked for without an endpoint") {
  Settings settings;
  Statistics statistics;
  CHECK(ProviderChoice(settings, Process::instance(), statistics).find().ok());
  settings.provider = "tcp";
  ProviderChoice choice(settings, Process::instance(), statistics);
  CHECK(choice.find().ok());
  CHECK(choice.find().ok());
  CHECK(choice.offer().usable == 1);
  CHECK(choice.find().ok());
  settings.provider = "nonsense";
  ProviderChoice bad(settings, Process::instance(), statistics);
  for (const bool asked : {false, false, true}) {
    if (asked) CHECK(bad.offer().usable == 0);
    const Status found = bad.find();
    REQUIRE_FALSE(found.ok());
    CHECK(found.error().kind == ErrorKind::kBadSetting);
    CHECK(contains(found.error().text, "FARSIDE_PROVIDER='nonsense' cannot be used: "));
  }
  settings.provider = "verbs";
  settings.device = "no_such_adapter";
  const Status adapter = ProviderChoice(settings, Process::instance(), statistics).find();
  REQUIRE_FALSE(adapter.ok());
  CHECK(adapter.error().kind == ErrorKind::kBadSetting);
}

TEST_CASE("an endpoint on trial stays until no thread tries it, and then its provider is not tried again") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    Process& process = Process::instance();
    ProviderChoice& choice = process.provider_choice();
    const Result<OpenEndpoint*> one = choice.try_best(kAnyProvider), two = choice.try_best(kAnyProvider);
    ranks.check(one.ok() && two.ok() && one.value() == two.value(), "both try the same");
    choice.leave(*one.value(), "no answer");
    ranks.check(choice.offer().usable == 0, "it is not usable any more");
    ranks.check(two.value()->provider() == std::string("tcp"), "the second still tries it");
    choice.leave(*two.value());
    const Result<OpenEndpoint*> none = choice.try_best(kAnyProvider);
    ranks.check(!none.ok() && none.error().text == "no answer", "the reason stays");
    ranks.check(process.endpoints_in_use().empty(), "no endpoint is in use");
  }));
}

TEST_CASE("an endpoint in use is not discarded by another trial") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    Process& process = Process::instance();
    ProviderChoice& choice = process.provider_choice();
    const Result<OpenEndpoint*> one = choice.try_best(kAnyProvider), two = choice.try_best(kAnyProvider);
    ranks.check(one.ok() && two.ok(), "both try");
    process.use_fabric(*one.value());
    choice.leave(*two.value(), "no answer");
    ranks.check(use_best_endpoint().ok(), "it stays in use");
    const auto all = process.endpoints_in_use();
    ranks.check(all.size() == 1 && all.front().endpoint == one.value(), "once, and no other");
  }));
}

}  // namespace farside::provider_test

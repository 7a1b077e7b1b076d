// SPDX-License-Identifier: BSD-3-Clause
// Which provider and which device are chosen, what is said where one cannot be, and memory that peers may access.
#include "transport/fabric/provider.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/fabric/devices.hpp"
#include "transport/process.hpp"

namespace farside::provider_test {

using namespace farside::testing;

namespace {

constexpr Providers kAnyProvider = ~0U;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string device_of(const Result<InfoHandle>& info) {
  return info ? info.value()->domain_attr->name : "none: " + info.error().text;
}

}  // namespace

TEST_CASE("a device is taken by its name, on whatever provider") {
  const std::string first = device_of(find_provider("tcp"));
  CHECK(device_of(find_provider("tcp", first)) == first);
  for (const char* const provider : {"tcp", ""}) CHECK(device_of(choose_provider(provider, "lo")) == "lo");
  const Result<InfoHandle> none = find_provider("tcp", "nowhere");
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().kind == ErrorKind::kNoRoute);
  CHECK(contains(none.error().text, "provider tcp has no device nowhere; it has: "));
  CHECK(contains(none.error().text, first));
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

TEST_CASE("a domain of tcp exposes memory with the key that is wanted, and not twice with the same one") {
  FabricDomain domain = std::move(FabricDomain::open(std::move(find_provider("tcp").value()), 0).value());
  CHECK(std::string(domain.provider()) == "tcp");
  CHECK_FALSE(domain.by_adapter());
  CHECK(domain.by_sockets());
  CHECK(domain.queue_fd() >= 0);
  CHECK(domain.largest_part(8) >= 8);
  CHECK(domain.largest_part(FabricDomain::kTcpPart * 4) == FabricDomain::kTcpPart);
  CHECK(domain.largest_part(FabricDomain::kTcpPart * 640) == FabricDomain::kTcpPart * 11);
  REQUIRE(domain.keys_are_chosen());
  std::array<std::uint64_t, 8> words{};
  const std::uint64_t key = random_bits();
  {
    const auto first = std::move(domain.register_memory(words.data(), sizeof words, key).value());
    CHECK(first.key.key == key);
    CHECK(first.key.base == 0);
    const auto second = domain.register_memory(words.data(), sizeof words, key);
    REQUIRE_FALSE(second);
    CHECK(second.error().kind == ErrorKind::kNoMemory);
  }
  CHECK(domain.register_memory(words.data(), sizeof words, key));  // it is free again
}

TEST_CASE("a provider that does not open is no route, and the error names the step") {
  InfoHandle info = std::move(find_provider("tcp").value());
  free(std::exchange(info->domain_attr->name, nullptr));
  info->fabric_attr->api_version = 0;
  free(std::exchange(info->fabric_attr->prov_name, strdup("none")));
  const Result<FabricDomain> none = FabricDomain::open(std::move(info), 0);
  REQUIRE_FALSE(none);
  CHECK(none.error().kind == ErrorKind::kNoRoute);
  CHECK(none.error().text.find("fi_fabric") != std::string::npos);
}

}  // namespace farside::provider_test

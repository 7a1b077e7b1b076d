// SPDX-License-Identifier: BSD-3-Clause
// The provider by itself: what it says, and memory that peers may access.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "transport/base/integers.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::domain_test {

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

}  // namespace farside::domain_test

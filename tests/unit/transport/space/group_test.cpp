// SPDX-License-Identifier: BSD-3-Clause
// Which endpoint a group of ranks uses, of those that its processes have.
#include "transport/space/group.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "tests/unit/transport/routes/fake_endpoint.hpp"
#include "transport/process.hpp"

namespace farside::group_test {

using namespace farside::testing;

namespace {

using Directories = std::vector<PeerAddresses>;

// A communicator of this process alone.
class Alone final : public Group {
 public:
  explicit Alone(Directories& kept) : Group(0, 1), kept_(kept) { join(NodeGroup::alone(0), 0, 7); }
  // Returns which of the endpoints the group uses: 0 or 1, or 2 if none.
  std::size_t used(Endpoint& best, Endpoint& other) {
    const UsedEndpoint found = find_endpoint(std::array{UsedEndpoint{&best, 0}, UsedEndpoint{&other, 1}});
    return found.endpoint != nullptr ? found.provider : 2;
  }
  void gather_from(const Endpoint* endpoint) { REQUIRE(gather_addresses(endpoint, Process::instance()).ok()); }
  Status combine(std::span<std::uint64_t>) override { return {}; }
  Status take_lowest(int&) override { return {}; }
  Status broadcast(std::span<std::byte>, int) override { return {}; }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    std::ranges::copy(own, all.begin());
    return {};
  }

 private:
  PeerAddresses find_addresses(std::uint64_t identity) override {
    for (const auto& each : kept_) {
      if (each.of(0).identity == identity) return each;
    }
    return {};
  }
  void keep(const PeerAddresses& directory, bool) override { kept_.push_back(directory); }
  Directories& kept_;
};

// Two ranks, of which this process is the first, on nodes of their own.
class Apart final : public Group {
 public:
  Apart() : Group(0, 2) {}
  Status combine(std::span<std::uint64_t>) override { return count(); }
  Status take_lowest(int&) override { return count(); }
  Status broadcast(std::span<std::byte>, int) override { return count(); }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    std::ranges::copy(own, all.begin());
    std::ranges::fill(all.subspan(own.size()), std::byte{1});
    return count();
  }
  int collectives = 0;

 private:
  Status count() {
    ++collectives;
    return {};
  }
};

}  // namespace

// In a child, since the process gets its nonce.
TEST_CASE("ranks that share no node find that out by one collective") {
  expect_well(run_processes(1, [](Ranks& child) {
    Apart ranks;
    const Result<Nodes> nodes = ranks.find_nodes(Process::instance());
    child.check(nodes.ok() && ranks.collectives == 1, "one collective");
    child.check(nodes.value().count == 2 && nodes.value().largest == 1, "two nodes");
    child.check(nodes.value().leaders == std::vector{0, 1}, "each rank leads its own");
    child.check(nodes.value().own->members() == 1, "no member but this process");
  }));
}

TEST_CASE("a group uses the endpoint whose addresses it has kept, and other groups find them") {
  FakeEndpoint best(1), other(2);
  Directories kept;
  Alone first(kept), second(kept);
  CHECK(first.used(best, other) == 2);
  first.gather_from(&other);
  CHECK(first.used(best, other) == 1);
  CHECK(second.used(best, other) == 2);  // the first group may still fail
  first.keep_addresses(true);
  first.keep_addresses(true);
  CHECK(kept.size() == 1);
  CHECK(second.used(best, other) == 1);

  SECTION("a group stays with its endpoint, and a new group takes the best one") {
    second.gather_from(&best);
    second.keep_addresses(true);
    Alone third(kept);
    CHECK(first.used(best, other) == 1);
    CHECK(second.used(best, other) == 0);
    CHECK(third.used(best, other) == 0);
  }
  SECTION("what was gathered for an endpoint that is not taken is forgotten") {
    second.gather_from(&best);
    second.forget_addresses();
    second.keep_addresses(true);
    CHECK(kept.size() == 1);
    CHECK(second.used(best, other) == 1);
    second.gather_from(nullptr);
    second.keep_addresses(true);
    CHECK_FALSE(second.addresses().known());
  }
  SECTION("an endpoint that was opened again is another one") {
    FakeEndpoint again(3);
    CHECK(first.used(best, again) == 2);
  }
}

}  // namespace farside::group_test

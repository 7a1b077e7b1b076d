// SPDX-License-Identifier: BSD-3-Clause
// Which endpoint a group of ranks uses, of those that its processes have.
#include "transport/space/group_peers.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fake_endpoint.hpp"
#include "transport/process.hpp"

namespace farside::group_peers_test {

using namespace farside::testing;

namespace {

struct OneRank final : Group {
  OneRank() : Group(0, 1) {}
  Status combine(std::span<std::uint64_t>) override { return {}; }
  Status take_lowest(int&) override { return {}; }
  Status broadcast(std::span<std::byte>, int) override { return {}; }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    std::ranges::copy(own, all.begin());
    return {};
  }
};

using Directories = std::vector<std::shared_ptr<const AddressTable>>;

// A communicator of this process alone.
class Peers final : public GroupPeers {
 public:
  explicit Peers(Directories& kept) : GroupPeers(NodeGroup::alone(0), 0, 7), kept_(kept) {}
  // Returns which of the endpoints the group uses: 0 or 1, or 2 if none.
  std::size_t used(Endpoint& best, Endpoint& other) {
    const UsedEndpoint found = find_endpoint(0, std::array{UsedEndpoint{&best, 0}, UsedEndpoint{&other, 1}});
    return found.endpoint != nullptr ? found.provider : 2;
  }
  void gather(const Endpoint* endpoint) {
    OneRank group;
    REQUIRE(gather_addresses(group, endpoint, Process::instance()).ok());
  }

 private:
  PeerAddresses find_addresses(int rank, std::uint64_t identity) override {
    for (const auto& each : kept_) {
      if (each->at(static_cast<std::size_t>(rank)).identity == identity) return PeerAddresses(each);
    }
    return {};
  }
  void keep(const std::shared_ptr<const AddressTable>& directory, bool) override { kept_.push_back(directory); }
  Directories& kept_;
};

}  // namespace

TEST_CASE("a group uses the endpoint whose addresses it has kept, and other groups find them") {
  FakeEndpoint best(1), other(2);
  Directories kept;
  Peers first(kept), second(kept);
  CHECK(first.used(best, other) == 2);
  first.gather(&other);
  CHECK(first.used(best, other) == 1);
  CHECK(second.used(best, other) == 2);  // the first group may still fail
  first.keep_addresses(true);
  first.keep_addresses(true);
  CHECK(kept.size() == 1);
  CHECK(second.used(best, other) == 1);

  SECTION("a group stays with its endpoint, and a new group takes the best one") {
    second.gather(&best);
    second.keep_addresses(true);
    Peers third(kept);
    CHECK(first.used(best, other) == 1);
    CHECK(second.used(best, other) == 0);
    CHECK(third.used(best, other) == 0);
  }
  SECTION("what was gathered for an endpoint that is not taken is forgotten") {
    second.gather(&best);
    second.forget_addresses();
    second.keep_addresses(true);
    CHECK(kept.size() == 1);
    CHECK(second.used(best, other) == 1);
    second.gather(nullptr);
    second.keep_addresses(true);
    CHECK_FALSE(second.addresses().known());
  }
  SECTION("an endpoint that was opened again is another one") {
    FakeEndpoint again(3);
    CHECK(first.used(best, again) == 2);
  }
}

}  // namespace farside::group_peers_test

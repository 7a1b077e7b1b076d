// SPDX-License-Identifier: BSD-3-Clause
// The addresses of a group's processes: one table per node, and the ranks of other groups as entries of it.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <malloc.h>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/node/node_group.hpp"

namespace farside::peer_addresses_test {

using namespace farside::testing;

namespace {

FabricAddress address_of(std::size_t index) {
  FabricAddress address;
  address.socket.host.fill(static_cast<std::uint8_t>(index));
  address.socket.family = 2;
  address.identity = 1000 + index;
  address.secret = 7 * index;
  return address;
}

std::vector<FabricAddress> addresses(std::size_t count) {
  std::vector<FabricAddress> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(address_of(i));
  return all;
}

bool is(const FabricAddress& address, std::size_t index) {
  const FabricAddress expected = address_of(index);
  return address.socket == expected.socket && address.identity == expected.identity &&
         address.secret == expected.secret;
}

bool holds(const PeerAddresses& directory, std::size_t count) {
  if (directory.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is(directory.of(static_cast<int>(i)), i)) return false;
  }
  return true;
}

// Returns the line of /proc/self/maps for the mapping that holds this address.
std::string mapping_of(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::size_t end = 0;
    const std::uintptr_t from = std::stoull(line, &end, 16);
    const std::uintptr_t to = std::stoull(line.substr(end + 1), nullptr, 16);
    if (from <= at && at < to) return line;
  }
  return {};
}

// The memory that is allocated now; 0 under a sanitizer.
std::size_t heap() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

PeerAddresses directory_of(std::size_t count) {
  return PeerAddresses::share(*NodeGroup::alone(0), addresses(count), Process::instance());
}

}  // namespace

TEST_CASE("the processes of a node map one table of addresses for reading, and keep none of their own") {
  expect_well(run_processes(3, [](Ranks& ranks) {
    const std::unique_ptr<NodeGroup> node = make_node(ranks);
    const std::size_t files = open_memory_files();
    constexpr std::size_t kProcesses = 1000;
    const auto directory = PeerAddresses::share(*node, addresses(kProcesses), Process::instance());
    ranks.check(holds(directory, kProcesses), "each address is there");
    ranks.check(directory.private_bytes() == 0, "none of them is in private memory");
    ranks.check(open_memory_files() == files, "no descriptor stays");
    const std::string mapping = mapping_of(&directory.of(kProcesses - 1));
    ranks.check(mapping.find(" r--s ") != std::string::npos, fmt::format("the table is only read: {}", mapping));
    ranks.check(mapping.find("memfd:farside") != std::string::npos, "the table is shared");
    // The same file has the same inode.
    const auto inode = std::stoull(mapping.substr(mapping.find("00:", mapping.find(' ')) + 5));
    ranks.check(ranks.all_gather(inode)[0] == inode, "it is the same table");
    ranks.barrier();
  }));
}

TEST_CASE("a process that cannot map the table keeps one of its own, and if the leader has none, all do") {
  if (kSanitized) return;
  for (const int failing : {0, 1, 2}) {
    INFO("member " << failing);
    expect_well(run_processes(3, [&](Ranks& ranks) {
      const std::unique_ptr<NodeGroup> node = make_node(ranks);
      std::optional<NoDescriptors> few;
      if (ranks.rank() == failing) few.emplace();
      const auto directory = PeerAddresses::share(*node, addresses(10), Process::instance());
      few.reset();
      ranks.check(holds(directory, 10), "each address is there");
      const bool alone = failing == 0 || ranks.rank() == failing;
      ranks.check((directory.private_bytes() > 0) == alone, "the others share a table");
      const auto next = PeerAddresses::share(*node, addresses(20), Process::instance());
      ranks.check(holds(next, 20) && next.private_bytes() == 0, "all share the next one");
      ranks.barrier();
    }));
  }
}

TEST_CASE("a rank of a group has the address of its entry, at equal distances or not") {
  const auto directory = directory_of(64);
  const std::vector<std::vector<int>> groups = {
      {0, 1, 2, 3},             // the first ones
      {7},                      // one
      {5, 9, 13, 17, 21},       // at a distance
      {40, 30, 20, 10, 0},      // backwards
      {3, 2},                   // likewise
      {0, 1, 2, 4},             // irregular at the end
      {0, 2, 3, 5, 8, 13, 21},  // everywhere
      {63, 0, 62, 1},
  };
  for (const std::vector<int>& indexes : groups) {
    const PeerAddresses ranks = directory.of_group(indexes);
    const PeerAddresses copy = ranks;  // NOLINT(performance-unnecessary-copy-initialization)
    REQUIRE(copy.known());
    for (std::size_t rank = 0; rank < indexes.size(); ++rank) {
      INFO("rank " << rank << " of " << indexes.size() << ", the first of which is " << indexes[0]);
      CHECK(is(ranks.of(static_cast<int>(rank)), static_cast<std::size_t>(indexes[rank])));
      CHECK(is(copy.of(static_cast<int>(rank)), static_cast<std::size_t>(indexes[rank])));
    }
  }
  for (int rank = 0; rank < 64; ++rank) CHECK(is(directory.of(rank), static_cast<std::size_t>(rank)));
}

TEST_CASE("ranks at equal distances in a directory take no memory, and others 4 bytes each") {
  const auto directory = directory_of(1);
  const auto taken_by = [&](int first, int distance, bool regular) {
    constexpr std::size_t kRanks = 1 << 20;
    const std::size_t before = heap();
    std::vector<int> indexes(kRanks);
    for (std::size_t i = 0; i < kRanks; ++i) indexes[i] = first + distance * static_cast<int>(i);
    if (!regular) ++indexes.back();
    const PeerAddresses addresses = directory.of_group(std::move(indexes));
    const std::size_t after = heap();
    return after > before ? (after - before + kRanks / 2) / kRanks : 0;
  };
  CHECK(taken_by(0, 1, true) == 0);
  CHECK(taken_by(1000, 7, true) == 0);
  CHECK(taken_by(1 << 30, -8, true) == 0);
  CHECK(taken_by(0, 1, false) == (heap() > 0 ? 4 : 0));
}

TEST_CASE("addresses are unknown until there is a directory, which lives as long as they") {
  PeerAddresses addresses;
  CHECK_FALSE(addresses.known());
  {
    std::vector<int> indexes(20);
    std::iota(indexes.begin(), indexes.end(), 5);
    addresses = directory_of(64).of_group(std::move(indexes));
  }
  CHECK(addresses.known());
  CHECK(is(addresses.of(19), 24));
}

}  // namespace farside::peer_addresses_test

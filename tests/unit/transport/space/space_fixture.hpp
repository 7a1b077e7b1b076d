// SPDX-License-Identifier: BSD-3-Clause
// The common parts of the tests of Space: a space of several processes. Each test runs on every kind of route to a
// peer's memory.
//
//   for (const Variant variant : kAllVariants) {
//     INFO(name(variant));
//     expect_well(run_with_space(2, variant, 4096, [&](Ranks& ranks, SpaceFixture& space) {
//       space.good(space->route(1 - ranks.rank()).put(1 - ranks.rank(), 0, &word, 8), "put");
//       ...
//     }));
//   }
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/transport/base/processes.hpp"
#include "tests/unit/transport/data/elements.hpp"
#include "transport/base/address.hpp"
#include "transport/node/node_group.hpp"
#include "transport/process.hpp"
#include "transport/space/control_memory.hpp"
#include "transport/space/group.hpp"
#include "transport/space/space.hpp"

namespace farside::testing {

// ---- How the ranks of a test make a space: as in a job, but the collective calls are those of Ranks -----------------

// Some of the ranks. Each collective call is one gather of all ranks, in which the others must take part, too.
class RankGroup : public Group {
 public:
  // `members`: the ranks, in the order of the group. This rank is one of them.
  RankGroup(Ranks& ranks, std::vector<int> members)
      : Group(static_cast<int>(std::ranges::find(members, ranks.rank()) - members.begin()),
              static_cast<int>(members.size())),
        ranks_(ranks),
        members_(std::move(members)) {}
  // The first `members` ranks.
  RankGroup(Ranks& ranks, int members) : RankGroup(ranks, first(members)) {}
  explicit RankGroup(Ranks& ranks) : RankGroup(ranks, ranks.size()) {}
  Status combine(std::span<std::uint64_t> words) override;
  Status take_lowest(int& number) override;
  Status broadcast(std::span<std::byte> bytes, int root) override;
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override;

  struct Message {
    bool last = false;
    std::array<std::byte, 512> bytes{};
  };

 private:
  static std::vector<int> first(int members);
  std::vector<Message> exchange(std::span<const std::byte> own);
  Ranks& ranks_;
  const std::vector<int> members_;
};

// Collective: returns the group of all ranks, which are on one node.
std::unique_ptr<NodeGroup> make_node(Ranks& ranks);

struct OpenSpace {
  std::unique_ptr<Group> group;
  std::unique_ptr<Space> space;
  std::vector<FabricAddress> addresses;  // of the endpoints
};
// Collective over all ranks: a space of the first `members` ranks, which are on one node. The others get the addresses.
// This function sets the rank, the number of ranks and the id of the request. An error is a failure of the test, and
// ends the rank.
OpenSpace make_space(Ranks& ranks, Space::Request request, int members, Line line = Line::here());
inline OpenSpace make_space(Ranks& ranks, const Space::Request& request, Line line = Line::here()) {
  return make_space(ranks, request, ranks.size(), line);
}
// A request for `bytes` of data, in this private memory unless it is null.
Space::Request space_request(std::size_t control_bytes, std::uint64_t bytes, void* private_data = nullptr);

// ---- Variants -------------------------------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

enum class Variant { kMapped, kCma, kFabric, kFabricPrivate };
constexpr Variant kAllVariants[] = {Variant::kMapped, Variant::kCma, Variant::kFabric, Variant::kFabricPrivate};
constexpr Variant kFabricVariants[] = {Variant::kFabric, Variant::kFabricPrivate};

const char* name(Variant variant);
inline bool over_fabric(Variant variant) { return variant != Variant::kMapped && variant != Variant::kCma; }
inline bool on_private(Variant variant) { return variant == Variant::kCma || variant == Variant::kFabricPrivate; }

constexpr std::size_t kControlBytes = 4096;

// Returns the provider of the variants over the fabric: tcp, or FARSIDE_TEST_PROVIDER.
const char* test_provider();

// Sets this process's settings, before its first Space.
void use_routes(const char* routes, const char* provider = test_provider());

// One rank's end of a Space, with the steps of space.hpp.
class SpaceFixture {
 public:
  // Private data begins `misaligned` bytes after a multiple of 64. With kAtPageEnd it ends at the end of a page, and
  // the next page is not mapped.
  static constexpr std::size_t kAtPageEnd = SIZE_MAX;
  SpaceFixture(Ranks& ranks, Variant variant, std::size_t bytes, std::size_t misaligned = 0);
  SpaceFixture(const SpaceFixture&) = delete;
  SpaceFixture& operator=(const SpaceFixture&) = delete;
  ~SpaceFixture();
  Space& operator*() { return *space_; }
  Space* operator->() { return space_.get(); }
  // If the status is an error, fails with the text of the status.
  void good(const Status& status, std::string_view what, Line line = Line::here());

 private:
  Ranks& ranks_;
  std::vector<std::byte> private_;
  std::unique_ptr<Space> space_;
};

// Runs the program in each of `size` processes, and then closes the endpoints in order. Returns the result of
// run_processes(). FARSIDE_TEST_VARIANT may name variants, separated by commas; then this function does nothing for
// other variants. Tests that need the kernel, not an emulation of it (process_vm_readv, limits of an address space),
// have the tag [native].
std::string run_with_space(int size, Variant variant, std::size_t bytes,
                           const std::function<void(Ranks&, SpaceFixture&)>& program, std::size_t misaligned = 0);

// Returns how often this process executed such operations by this route.
std::uint64_t counted(RouteKind route, Counted what);

// Waits until the control operation is complete or has failed.
void await(SpaceFixture& space, ControlMemory::Operation& operation);

// Returns data of the window that other ranks have put.
template <class T>
T read_data(SpaceFixture& space, std::uint64_t offset) {
  std::array<std::byte, sizeof(T)> bytes;
  read_memory(space->data() + offset, bytes.data(), sizeof(T));
  return std::bit_cast<T>(bytes);
}

}  // namespace farside::testing

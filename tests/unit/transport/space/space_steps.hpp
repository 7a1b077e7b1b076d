// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a test make a space: as in a job (transport/space/make_space.hpp), but the collective calls are
// those of Ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/unit/transport/base/processes.hpp"
#include "transport/base/address.hpp"
#include "transport/node/node_group.hpp"
#include "transport/process.hpp"
#include "transport/space/group.hpp"
#include "transport/space/space.hpp"

namespace farside::testing {

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

// Returns the memory files that this process has open for its peers.
std::size_t open_memory_files();

}  // namespace farside::testing

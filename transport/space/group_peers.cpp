// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/group_peers.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "transport/base/log.hpp"

namespace farside {
namespace {

template <class T>
Result<std::vector<T>> gather(Group& group, const T& own) {
  std::vector<T> all(static_cast<std::size_t>(group.ranks()));
  Status done = group.gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  if (!done) return done.error();
  return all;
}

}  // namespace

Result<Nodes> GroupPeers::find_nodes(Group& group, Progress& progress, std::uint64_t identity) {
  const Result<std::vector<std::uint64_t>> identities = gather(group, identity);
  if (!identities) return identities.error();
  const std::vector<std::uint64_t>& all = identities.value();
  const std::uint64_t own = all[static_cast<std::size_t>(group.rank())];
  const auto members = static_cast<int>(std::ranges::count(all, own));
  const auto index = static_cast<int>(std::count(all.begin(), all.begin() + group.rank(), own));
  const auto leader = static_cast<std::size_t>(std::ranges::find(all, own) - all.begin());

  NodeGroup::Place place;
  Result<std::unique_ptr<NodeGroup>> made = NodeGroup::alone(group.rank());
  if (index == 0) {
    made = NodeGroup::lead(members);
    if (made) place = made.value()->place();
  }
  const Result<std::vector<NodeGroup::Place>> places = gather(group, place);
  if (!places) return places.error();
  if (index > 0) made = NodeGroup::join(places.value()[leader], index, members);
  Nodes nodes;
  nodes.partner = trial_partner(group.rank(), all);
  std::unordered_map<std::uint64_t, std::size_t> ranks;  // by node
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::size_t count = ++ranks[all[rank]];
    nodes.largest = std::max(nodes.largest, count);
    if (count == 1) nodes.leaders.push_back(static_cast<int>(rank));
    if (all[rank] == own) nodes.members.push_back(static_cast<int>(rank));
  }
  nodes.count = ranks.size();
  // A member that has not joined cannot tell the others by the board.
  int failed = made ? group.ranks() : group.rank();
  if (Status done = group.take_lowest(failed); !done) return done.error();
  if (failed < group.ranks()) {
    if (!made) log(LogLevel::kWarn, "this rank shares no memory with its node: {}", made.error().text);
    made = NodeGroup::alone(group.rank());
    nodes.leaders.clear();
    nodes.members.clear();
    nodes.largest = 0;
  }
  made.value()->publish_member(group.rank(), progress);
  nodes.own = std::move(made.value());
  return nodes;
}

int GroupPeers::trial_partner(int rank, std::span<const std::uint64_t> nodes) {
  std::vector<int> by_node(nodes.size());
  std::iota(by_node.begin(), by_node.end(), 0);
  std::ranges::stable_sort(by_node, {}, [&](int each) { return nodes[static_cast<std::size_t>(each)]; });
  std::unordered_map<std::uint64_t, std::size_t> ranks;
  std::size_t largest = 0;
  for (const std::uint64_t node : nodes) largest = std::max(largest, ++ranks[node]);
  // The ranks of a node are neighbours, so those of the largest node are on others, or all ranks are on one.
  const std::size_t ahead = largest < nodes.size() ? largest : 1;
  const auto own = static_cast<std::size_t>(std::ranges::find(by_node, rank) - by_node.begin());
  return by_node[(own + ahead) % nodes.size()];
}

Status GroupPeers::combine(std::span<std::uint64_t> words, Progress& progress) {
  struct Combined {
    std::array<std::uint64_t, kMostWords> words{};
    std::uint64_t failed = 0;
  };
  static_assert(sizeof(Combined) <= NodeGroup::kSlotBytes);
  Combined own;
  std::ranges::copy(words, own.words.begin());
  Status carried;
  const auto combine = [&](const std::vector<Combined>& members) {
    Combined of_node;
    for (const Combined& each : members) {
      for (std::size_t i = 0; i < kMostWords; ++i) of_node.words[i] |= each.words[i];
    }
    carried = combine_leaders(std::span(of_node.words).first(words.size()));
    of_node.failed = carried ? 0 : 1;
    return of_node;
  };
  const Combined all = node_->exchange_by_leader(own, progress, combine).result;
  if (!carried) return carried;
  if (all.failed != 0) return Error{ErrorKind::kPeer, "the rank that leads this node could not reach the other nodes"};
  std::ranges::copy(std::span(all.words).first(words.size()), words.begin());
  return {};
}

UsedEndpoint GroupPeers::find_endpoint(int rank, std::span<const UsedEndpoint> endpoints) {
  // An endpoint that was opened again has another identity.
  for (const UsedEndpoint& each : endpoints) {
    if (addresses_.known() && addresses_.of(rank).identity == each.endpoint->address().identity) return each;
  }
  for (const UsedEndpoint& each : endpoints) {
    addresses_ = find_addresses(rank, each.endpoint->address().identity);
    if (addresses_.known()) return each;
  }
  return {};
}

Status GroupPeers::gather_addresses(Group& group, const Endpoint* endpoint, Progress& progress) {
  forget_addresses();
  const Result<std::vector<FabricAddress>> all =
      gather(group, endpoint != nullptr ? endpoint->address() : FabricAddress{});
  if (!all) return all.status();
  if (std::ranges::any_of(all.value(), [](const FabricAddress& address) { return address.identity == 0; })) return {};
  unkept_ = AddressTable::share(*node_, all.value(), progress);
  addresses_ = PeerAddresses(unkept_);
  return {};
}

void GroupPeers::keep_addresses(bool best) {
  if (unkept_ != nullptr) keep(std::exchange(unkept_, nullptr), best);
}

}  // namespace farside

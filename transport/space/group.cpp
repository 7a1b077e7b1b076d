// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/group.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <unordered_map>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside {
namespace {

constexpr int kFailureBits = 64 - Group::kFlags;  // of the first word: one per ErrorKind
static_assert(static_cast<int>(ErrorKind::kUnsupported) < kFailureBits);

// Agreed values: version 8 bits, routes 3, whether there are logs of FARSIDE_CHECK=strict 1 (each window then has a
// second space), the provider's name 20.
constexpr std::uint32_t kVersionMask = 0xff;
std::uint32_t settings_word(const Settings& settings) {
  static_assert(kRouteKinds == 1 + 3);
  const std::uint32_t routes = settings.routes >> 1;  // without self
  const std::uint32_t strict = settings.check == Check::kStrict ? 1U : 0U;
  return (static_cast<std::uint32_t>(fnv1a(settings.provider)) & ~0xfffU) | strict << 11 | routes << 8 |
         Group::kProtocol;
}

std::uint64_t failure_bit(const Status& status) {
  return status ? 0 : std::uint64_t{1} << (Group::kFlags + static_cast<int>(status.error().kind));
}

template <class T>
Result<std::vector<T>> gather_values(Group& group, const T& own) {
  std::vector<T> all(static_cast<std::size_t>(group.ranks()));
  Status done = group.gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  if (!done) return done.error();
  return all;
}

}  // namespace

// All ranks act according to the kind, so the kind is the same on all ranks; the text may be that of this rank's own
// error.
Error Group::explain(const Status& own, ErrorKind kind) {
  const bool mine = !own && own.error().kind == kind;
  int lowest = mine ? rank_ : std::numeric_limits<int>::max();
  if (Status carried = take_lowest(lowest); !carried) return carried.error();
  std::array<char, 512> text{};
  if (rank_ == lowest) own.error().text.copy(text.data(), text.size() - 1);
  if (Status carried = broadcast(std::as_writable_bytes(std::span(text)), lowest); !carried) return carried.error();
  if (mine) return own.error();
  return Error{kind, fmt::format("rank {}: {}", lowest, text.data())};
}

Result<std::uint64_t> Group::handshake(const Status& own) {
  const std::uint32_t word = own ? settings_word(*Process::instance().settings().value()) : kProtocol;
  std::array<std::uint64_t, 3> all{failure_bit(own), pair(word), rank_ == 0 ? random_bits() : 0};
  if (Status carried = combine(all); !carried) return carried.error();
  const std::uint64_t failures = all[0] >> kFlags;
  if (failures != 0) return explain(own, static_cast<ErrorKind>(std::countr_zero(failures)));
  if (is_equal(all[1])) return all[2];
  // The ranks that differ from rank 0 say so.
  std::uint32_t first = word;
  if (Status carried = broadcast(std::as_writable_bytes(std::span(&first, 1)), 0); !carried) return carried.error();
  Status differs;
  if ((first & kVersionMask) != (word & kVersionMask)) {
    differs = Error{ErrorKind::kBadSetting,
                    fmt::format("this rank runs another version of farside than rank 0: protocol {}, and rank 0 {}; "
                                "load the same library on every rank",
                                word & kVersionMask, first & kVersionMask)};
  } else if (first != word) {
    differs = Error{ErrorKind::kBadSetting,
                    "this rank has other values of FARSIDE_ROUTES, FARSIDE_PROVIDER or "
                    "FARSIDE_CHECK=strict than rank 0; they must agree"};
  }
  return explain(differs, ErrorKind::kBadSetting);
}

Result<Group::Combined> Group::agree(const Status& own, std::uint64_t flags, const Words& words) {
  std::array<std::uint64_t, kWords + 1> all{failure_bit(own) | flags};
  std::copy(words.begin(), words.end(), all.begin() + 1);
  Status carried = by_nodes_ ? combine_by_nodes(all, Process::instance()) : combine(all);
  if (!carried) return carried.error();
  const std::uint64_t failures = all[0] >> kFlags;
  if (failures != 0) return explain(own, static_cast<ErrorKind>(std::countr_zero(failures)));
  Combined combined{all[0], {}};
  std::copy(all.begin() + 1, all.end(), combined.words.begin());
  return combined;
}

Result<Nodes> Group::find_nodes(Progress& progress, std::uint64_t identity) {
  const Result<std::vector<std::uint64_t>> identities = gather_values(*this, identity);
  if (!identities) return identities.error();
  const std::vector<std::uint64_t>& all = identities.value();
  const std::uint64_t own = all[static_cast<std::size_t>(rank_)];
  const auto index = static_cast<int>(std::count(all.begin(), all.begin() + rank_, own));
  Nodes nodes;
  nodes.partner = trial_partner(rank_, all);
  std::unordered_map<std::uint64_t, std::size_t> ranks;  // by node
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::size_t count = ++ranks[all[rank]];
    nodes.largest = std::max(nodes.largest, count);
    if (count == 1) nodes.leaders.push_back(static_cast<int>(rank));
    if (all[rank] == own) nodes.members.push_back(static_cast<int>(rank));
  }
  nodes.count = ranks.size();
  Result<std::unique_ptr<NodeGroup>> made = NodeGroup::alone(rank_);
  if (nodes.largest > 1) {
    const auto members = static_cast<int>(nodes.members.size());
    if (index == 0) made = NodeGroup::lead(members);
    const auto places = gather_values(*this, index == 0 && made ? made.value()->place() : SegmentPlace());
    if (!places) return places.error();
    const auto leader = static_cast<std::size_t>(nodes.members.front());
    if (index > 0) made = NodeGroup::join(places.value()[leader], index, members);
    // A member that has not joined cannot tell the others by the board.
    int failed = made ? ranks_ : rank_;
    if (Status done = take_lowest(failed); !done) return done.error();
    if (failed < ranks_) {
      if (!made) log(LogLevel::kWarn, "this rank shares no memory with its node: {}", made.error().text);
      made = NodeGroup::alone(rank_);
      nodes.leaders.clear();
      nodes.members.clear();
      nodes.largest = 0;
    }
  }
  made.value()->publish_member(rank_, progress);
  nodes.own = std::move(made.value());
  return nodes;
}

int Group::trial_partner(int rank, std::span<const std::uint64_t> nodes) {
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

Status Group::combine_by_nodes(std::span<std::uint64_t> words, Progress& progress) {
  struct Part {
    std::array<std::uint64_t, kMostWords> words{};
    std::uint64_t failed = 0;
  };
  static_assert(sizeof(Part) <= NodeGroup::kSlotBytes);
  Part own;
  std::ranges::copy(words, own.words.begin());
  Status carried;
  const auto lead = [&](const std::vector<Part>& members) {
    Part of_node;
    for (const Part& each : members) {
      for (std::size_t i = 0; i < kMostWords; ++i) of_node.words[i] |= each.words[i];
    }
    carried = combine_leaders(std::span(of_node.words).first(words.size()));
    of_node.failed = carried ? 0 : 1;
    return of_node;
  };
  const Part all = node_->exchange_by_leader(own, progress, lead).result;
  if (!carried) return carried;
  if (all.failed != 0) return Error{ErrorKind::kPeer, "the rank that leads this node could not reach the other nodes"};
  std::ranges::copy(std::span(all.words).first(words.size()), words.begin());
  return {};
}

UsedEndpoint Group::find_endpoint(std::span<const UsedEndpoint> endpoints) {
  // An endpoint that was opened again has another identity.
  for (const UsedEndpoint& each : endpoints) {
    if (addresses_.known() && addresses_.of(rank_).identity == each.endpoint->address().identity) return each;
  }
  for (const UsedEndpoint& each : endpoints) {
    addresses_ = find_addresses(each.endpoint->address().identity);
    if (addresses_.known()) return each;
  }
  return {};
}

Status Group::gather_addresses(const Endpoint* endpoint, Progress& progress) {
  forget_addresses();
  const Result<std::vector<FabricAddress>> all =
      gather_values(*this, endpoint != nullptr ? endpoint->address() : FabricAddress{});
  if (!all) return all.status();
  if (std::ranges::any_of(all.value(), [](const FabricAddress& address) { return address.identity == 0; })) return {};
  addresses_ = PeerAddresses::share(*node_, all.value(), progress);
  unkept_ = true;
  return {};
}

}  // namespace farside

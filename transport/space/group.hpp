// SPDX-License-Identifier: BSD-3-Clause
// Group: the ranks that make spaces together; the collective operations that this needs, how they agree, and what a
// process keeps of the group for all its spaces: the processes of this node and, after the first space that needs the
// fabric, the addresses of all ranks. pmpi/ implements the collectives with the MPI runtime; tests and the simulation
// of large jobs have their own.
//
// In each step of an agreement every rank contributes a few words, or its failure, and all ranks see the same result: a
// bitwise "or". So a rank needs no memory for the others.
//
//   x and ~x      equal on all ranks exactly if the "or" of x and the "or" of ~x have no bit in common
//   x at rank 0   and 0 at the others: all ranks get x
//
// After a failure one reduction and one broadcast more bring the reason of the lowest failed rank to all. If a
// collective fails (a rank has died), the ranks that notice get an error of kind kPeer.
//
// Thread safety: one thread per object, and no concurrent collective call in the group. Errors of the collectives:
// kPeer if a rank has died. Cost: one reduction of at most 32 bytes per step. After combine_by_nodes() the words of a
// node are combined by its board, and only the leaders of the nodes take part in a collective. Memory: that of
// NodeGroup and PeerAddresses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/integers.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/node/identity.hpp"
#include "transport/node/node_group.hpp"

namespace farside {

// The processes of this node, after NodeGroup::publish_member(), and the nodes of the group. No rank knows leaders if
// some rank is alone because it cannot map the board of its node.
struct Nodes {
  std::unique_ptr<NodeGroup> own;
  std::vector<int> members;  // the ranks of this node, ascending; the first one leads it
  std::vector<int> leaders;  // the ranks that lead the nodes, ascending
  std::size_t count = 0;     // the number of nodes
  std::size_t largest = 0;   // the number of ranks of the largest node
  int partner = 0;           // Group::trial_partner()
};

class Group {
 public:
  // The protocol between ranks. Change it with everything that ranks must have in common: descriptions, control block,
  // messages, the sequence of collectives.
  static constexpr std::uint32_t kProtocol = 32;
  static constexpr std::size_t kWords = 3;
  using Words = std::array<std::uint64_t, kWords>;
  // The combined contributions of the ranks.
  struct Combined {
    std::uint64_t flags = 0;
    Words words{};
  };
  static constexpr int kFlags = 48;  // the number of bits for flags

  Group(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  virtual ~Group() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Collective: replaces each word by the bitwise "or" of the words of all ranks.
  virtual Status combine(std::span<std::uint64_t> words) = 0;
  // Collective: replaces the number by the lowest of all ranks.
  virtual Status take_lowest(int& number) = 0;
  // Collective: gives all ranks the bytes of `root`.
  virtual Status broadcast(std::span<std::byte> bytes, int root) = 0;
  // Collective: gives all ranks the bytes of each rank, in rank order. `all` has ranks() times as many as `own`.
  virtual Status gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;

  // The first step: checks that every rank runs this version of farside with the same settings (else kBadSetting). It
  // is the same in all versions. Returns random bits, the same on all ranks.
  Result<std::uint64_t> handshake(const Status& own);
  // One step. The error is that of the lowest failed rank with the agreed kind, the lowest that any rank has; its kind
  // is the same on all ranks. A rank that failed itself in this way returns its own text.
  Result<Combined> agree(const Status& own, std::uint64_t flags = 0, const Words& words = {});
  // A word that is equal on all ranks exactly if is_equal() holds for the result.
  static std::uint64_t pair(std::uint32_t x) { return std::uint64_t{~x} << 32 | x; }
  static bool is_equal(std::uint64_t pair) { return (static_cast<std::uint32_t>(pair >> 32) & pair) == 0; }

  // Collective: finds the processes of this node, those of equal identities that can map each other's memory. If some
  // rank of the group cannot map the board of its node, all are alone, with a warning. Errors: kPeer. Cost: a gather of
  // 8 bytes per rank; if a node has several ranks, one of 16 and a reduction more.
  Result<Nodes> find_nodes(Progress& progress, std::uint64_t identity = node_identity());
  // The processes of this node from now on. `id`: random bits, the same on all ranks (handshake()).
  void join(std::unique_ptr<NodeGroup> node, int trial_partner, std::uint64_t id) {
    node_ = std::move(node);
    trial_partner_ = trial_partner;
    id_ = id;
    spaces_ = 0;
  }
  bool joined() const { return node_ != nullptr; }
  // The following members after join().
  NodeGroup& node() const { return *node_; }
  // The rank with which this one tries a provider.
  int trial_partner() const { return trial_partner_; }
  // Computes the partner from the identities of all ranks' nodes: each rank has another one, on another node unless
  // more than half of the ranks are on one.
  static int trial_partner(int rank, std::span<const std::uint64_t> nodes);
  // Collective, but local: returns the id of the group's next space, the same on all ranks.
  std::uint64_t next_id() { return mixed(id_ + ++spaces_); }
  // The number of ids so far.
  std::uint64_t spaces() const { return spaces_; }

  // Collective: as combine(). The board combines the words inside a node, and combine_leaders() those of the leaders.
  // At most kMostWords words. Errors: kPeer.
  static constexpr std::size_t kMostWords = NodeGroup::kSlotBytes / 8 - 1;
  Status combine_by_nodes(std::span<std::uint64_t> words, Progress& progress);
  // Whether agree() combines words by nodes from now on. All ranks must call this between the same two steps.
  void combine_by_nodes(bool by_nodes) { by_nodes_ = by_nodes; }

  // Returns which of this process's endpoints, the best first, the group uses. A group uses an endpoint if it knows the
  // addresses of all ranks. If the group uses none, it uses from now on the first endpoint whose addresses are in a
  // kept directory (find_addresses()). Returns null if there is no such endpoint.
  UsedEndpoint find_endpoint(std::span<const UsedEndpoint> endpoints);
  // Collective: gathers the addresses of an endpoint. If a rank has none (a null `endpoint`), they are unknown on all
  // ranks.
  Status gather_addresses(const Endpoint* endpoint, Progress& progress);
  // The group uses the endpoint whose addresses were gathered, and so do groups of the same ranks and, if no rank could
  // do better in another group (`best`), of some of its ranks.
  void keep_addresses(bool best) {
    if (std::exchange(unkept_, false)) keep(addresses_, best);
  }
  // It does not.
  void forget_addresses() {
    addresses_ = {};
    unkept_ = false;
  }
  const PeerAddresses& addresses() const { return addresses_; }

 protected:
  // Looks for the addresses in kept directories of other groups: that of this rank has the identity, and groups of
  // these ranks use it (keep_addresses()). Returns unknown ones if there are none.
  virtual PeerAddresses find_addresses(std::uint64_t /*identity*/) { return {}; }
  // Collective over the leaders: as combine().
  virtual Status combine_leaders(std::span<std::uint64_t>) { return {}; }
  virtual void keep(const PeerAddresses&, bool /*best*/) {}

 private:
  Error explain(const Status& own, ErrorKind kind);

  const int rank_;
  const int ranks_;
  std::unique_ptr<NodeGroup> node_;
  int trial_partner_ = 0;
  std::uint64_t id_ = 0;
  std::uint64_t spaces_ = 0;
  bool by_nodes_ = false;
  PeerAddresses addresses_;
  bool unkept_ = false;  // gathered, until keep_addresses()
};

}  // namespace farside

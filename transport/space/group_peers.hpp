// SPDX-License-Identifier: BSD-3-Clause
// GroupPeers: the state of a group of ranks that a process keeps for all spaces of the group: the processes of this
// node and, after the first space that needs the fabric, the addresses of all ranks.
//
// Thread safety: one thread at a time. Memory: that of NodeGroup, AddressTable and PeerAddresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/integers.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/address_table.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/node/identity.hpp"
#include "transport/node/node_group.hpp"

namespace farside {

// Group: the ranks that make a space together, and the collective operations that this needs. pmpi/ implements it with
// the MPI runtime; tests and the simulation of large jobs have implementations of their own.
//
// Thread safety: one thread per object. Errors: kPeer if a rank has died.

class Group {
 public:
  Group(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

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

 protected:
  ~Group() = default;

 private:
  const int rank_;
  const int ranks_;
};

// The processes of this node, after NodeGroup::publish_member(), and the nodes of the group. No rank knows leaders if
// some rank is alone because it cannot map the board of its node.
struct Nodes {
  std::unique_ptr<NodeGroup> own;
  std::vector<int> members;  // the ranks of this node, ascending; the first one leads it
  std::vector<int> leaders;  // the ranks that lead the nodes, ascending
  std::size_t count = 0;     // the number of nodes
  std::size_t largest = 0;   // the number of ranks of the largest node
  int partner = 0;           // trial_partner()
};

// An endpoint of this process; null: none.
struct UsedEndpoint {
  Endpoint* endpoint = nullptr;
  Providers provider = 0;
};

class GroupPeers {
 public:
  // Collective: finds the processes of this node, those of equal identities that can map each other's memory. If some
  // rank of the group cannot map the board of its node, all are alone, with a warning. Errors: kPeer. Cost: two gathers
  // of at most 16 bytes per rank, and one reduction.
  static Result<Nodes> find_nodes(Group& group, Progress& progress, std::uint64_t identity = node_identity());

  // `id`: random bits, the same on all ranks (Agreement::handshake).
  GroupPeers(std::unique_ptr<NodeGroup> node, int trial_partner, std::uint64_t id)
      : node_(std::move(node)), trial_partner_(trial_partner), id_(id) {}
  virtual ~GroupPeers() = default;

  NodeGroup& node() { return *node_; }
  // The rank with which this one tries a provider.
  int trial_partner() const { return trial_partner_; }
  // Computes the partner from the identities of all ranks' nodes: each rank has another one, on another node unless
  // more than half of the ranks are on one.
  static int trial_partner(int rank, std::span<const std::uint64_t> nodes);
  // Collective, but local: returns the id of the group's next space, the same on all ranks.
  std::uint64_t next_id() { return mixed(id_ + ++spaces_); }
  // The number of ids so far.
  std::uint64_t spaces() const { return spaces_; }

  // Collective: replaces each word by the bitwise "or" of the words of all ranks. The board combines the words inside a
  // node, and combine_leaders() those of the leaders. At most kMostWords words. Errors: kPeer.
  static constexpr std::size_t kMostWords = NodeGroup::kSlotBytes / 8 - 1;
  Status combine(std::span<std::uint64_t> words, Progress& progress);

  // Returns which of this process's endpoints, the best first, the group uses. A group uses an endpoint if it knows the
  // addresses of all ranks. If the group uses none, it uses from now on the first endpoint whose addresses are in a
  // kept directory (find_addresses()). Returns null if there is no such endpoint. `rank`: of this process.
  UsedEndpoint find_endpoint(int rank, std::span<const UsedEndpoint> endpoints);
  // Collective: gathers the addresses of an endpoint. If a rank has none (a null `endpoint`), they are unknown on all
  // ranks.
  Status gather_addresses(Group& group, const Endpoint* endpoint, Progress& progress);
  // The group uses the endpoint whose addresses were gathered, and so do groups of the same ranks and, if no rank could
  // do better in another group (`best`), of some of its ranks.
  void keep_addresses(bool best);
  // It does not.
  void forget_addresses() {
    addresses_ = {};
    unkept_.reset();
  }
  const PeerAddresses& addresses() const { return addresses_; }

 protected:
  // Looks for the addresses in kept directories of other groups: that of this rank has the identity, and groups of
  // these ranks use it (keep_addresses()). Returns unknown ones if there are none.
  virtual PeerAddresses find_addresses(int /*rank*/, std::uint64_t /*identity*/) { return {}; }
  // Collective over the leaders: the same as combine().
  virtual Status combine_leaders(std::span<std::uint64_t>) { return {}; }
  virtual void keep(const std::shared_ptr<const AddressTable>&, bool /*best*/) {}

 private:
  std::unique_ptr<NodeGroup> node_;
  const int trial_partner_;
  const std::uint64_t id_;
  std::uint64_t spaces_ = 0;
  PeerAddresses addresses_;
  std::shared_ptr<const AddressTable> unkept_;  // until keep_addresses()
};

}  // namespace farside

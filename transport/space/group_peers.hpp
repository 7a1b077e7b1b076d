// SPDX-License-Identifier: BSD-3-Clause
// GroupPeers: what a process keeps of a group of ranks for all spaces that they make: the processes of this node, and
// the addresses of all ranks, once some space needs the fabric.
//
// Thread safety: one thread at a time. Memory: that of NodeGroup, PeerDirectory and PeerAddresses.
#pragma once

#include <memory>
#include <utility>

#include "transport/base/result.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/peer_directory.hpp"
#include "transport/node/node_group.hpp"
#include "transport/space/group.hpp"

namespace farside {

class GroupPeers {
 public:
  // Collective: finds the processes of this node (node/node_identity.hpp). If one of them cannot map the board, each is
  // alone, with a warning. Errors: kPeer. Cost: two gathers of at most 16 bytes per rank, and one reduction.
  static Result<std::unique_ptr<NodeGroup>> find_node(Group& group, Progress& progress);

  // `node`: the processes of this node, after NodeGroup::introduce().
  explicit GroupPeers(std::unique_ptr<NodeGroup> node) : node_(std::move(node)) {}
  GroupPeers(const GroupPeers&) = delete;
  GroupPeers& operator=(const GroupPeers&) = delete;
  virtual ~GroupPeers() = default;

  NodeGroup& node() { return *node_; }

  // Returns whether the addresses of all ranks are known, and that of this rank, `rank`, is of `endpoint`.
  bool knows_addresses(int rank, const Endpoint* endpoint);
  // Collective: gathers the addresses. If a rank has none (a null `endpoint`), they remain unknown on all ranks.
  Status gather_addresses(Group& group, const Endpoint* endpoint, Progress& progress);
  // Precondition: knows_addresses().
  const PeerAddresses& addresses() const { return addresses_; }

 protected:
  // Looks for the addresses in directories of other groups. Returns unknown ones if there are none.
  virtual PeerAddresses find_addresses() { return {}; }
  // Called after the addresses were gathered.
  virtual void gathered(const std::shared_ptr<const PeerDirectory>&) {}

 private:
  std::unique_ptr<NodeGroup> node_;
  PeerAddresses addresses_;
};

}  // namespace farside

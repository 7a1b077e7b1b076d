// SPDX-License-Identifier: BSD-3-Clause
// PeerAddresses: the addresses of the ranks of a group, which the ranks have gathered once. The processes of a node
// share one table of them, which they map for reading. The ranks of other groups are entries of the same table.
//
// Thread safety: any. Cheap to copy. Cost: of share() one segment and two exchanges; of of() two loads. Memory per
// node: one FabricAddress per process of the group. Per process: none if the entries of consecutive ranks are at equal
// distances, else 4 bytes per rank, shared by all copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/node_group.hpp"
#include "transport/node/segment.hpp"

namespace farside {

class PeerAddresses {
 public:
  PeerAddresses() = default;
  // Collective over the members of the node. `all`: the addresses by rank, equal on all members. A process that cannot
  // map the shared table has one of its own.
  static PeerAddresses share(NodeGroup& node, std::span<const FabricAddress> all, Progress& progress);
  // Those of another group, whose rank r is rank `ranks[r]` here. Precondition: this has the whole table.
  PeerAddresses of_group(std::vector<int> ranks) const;
  bool known() const { return table_ != nullptr; }
  const FabricAddress& of(int rank) const {
    const auto index = listed_ != nullptr ? (*listed_)[static_cast<std::size_t>(rank)] : first_ + rank * stride_;
    return table_->addresses[static_cast<std::size_t>(index)];
  }
  // The number of addresses in the table.
  std::size_t size() const { return table_->addresses.size(); }
  // Private memory of this process for the table, in bytes.
  std::size_t private_bytes() const { return table_->own.capacity() * sizeof(FabricAddress); }

 private:
  struct Table {
    Mapping mapping;
    std::vector<FabricAddress> own;
    std::span<const FabricAddress> addresses;
  };
  std::shared_ptr<const Table> table_;
  int first_ = 0;
  int stride_ = 1;
  std::shared_ptr<const std::vector<int>> listed_;  // of other groups
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// AddressTable: the addresses of the processes of a group, which the ranks have gathered once. The processes of a node
// share one table, which they map for reading.
//
// Thread safety: any. Cost: of share() one segment and two exchanges; of at() a load. Memory per node: one
// FabricAddress per process of the group.
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

class AddressTable {
 public:
  // Collective over the members of the node. `all`: the addresses, equal on all members. A process that cannot map the
  // shared table has one of its own.
  static std::shared_ptr<const AddressTable> share(NodeGroup& node, std::span<const FabricAddress> all,
                                                   Progress& progress);
  std::size_t size() const { return addresses_.size(); }
  const FabricAddress& at(std::size_t index) const { return addresses_[index]; }
  // Private memory of this process, in bytes.
  std::size_t private_bytes() const { return own_.capacity() * sizeof(FabricAddress); }

 private:
  Mapping mapping_;
  std::vector<FabricAddress> own_;
  std::span<const FabricAddress> addresses_;
};

// The ranks of a group as entries of a table. Cheap to copy. Memory: none if the entries of consecutive ranks are
// at equal distances, else 4 bytes per rank, shared by all copies.
class PeerAddresses {
 public:
  PeerAddresses() = default;
  // Rank r of the group is entry `indexes[r]`.
  PeerAddresses(std::shared_ptr<const AddressTable> table, std::vector<int> indexes);
  // Rank r is entry r.
  explicit PeerAddresses(std::shared_ptr<const AddressTable> table) : table_(std::move(table)) {}
  bool known() const { return table_ != nullptr; }
  const FabricAddress& of(int rank) const {
    const auto index = listed_ != nullptr ? (*listed_)[static_cast<std::size_t>(rank)] : first_ + rank * stride_;
    return table_->at(static_cast<std::size_t>(index));
  }

 private:
  std::shared_ptr<const AddressTable> table_;
  int first_ = 0;
  int stride_ = 1;
  std::shared_ptr<const std::vector<int>> listed_;  // of other groups
};

}  // namespace farside

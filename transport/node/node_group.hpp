// SPDX-License-Identifier: BSD-3-Clause
// NodeGroup: the processes of a group that share the memory of this node, and their board. The board is shared memory
// in which the members exchange small values while they make a space: no message, and no collective call of the MPI
// runtime. The member with index 0 leads: it makes what all of them map.
//
//   leader    NodeGroup::lead(members)           ->  place()
//   others    NodeGroup::join(place, index, members)
//   all       publish_member(own), then exchange(...) and exchange_by_leader(...) in the same order
//
// The board, where each part but the members exists twice, for even and for odd exchanges:
//
//   | nonce, wake events | arrivals, released | results of the leader | members | slots |
//
// In an exchange a member writes its slot and counts itself. The leader waits until all members are counted, makes a
// result of all slots, and releases it to the others, which wait for that. Then all read all slots. Two sets suffice: a
// member writes a slot again two exchanges later; the exchange between them has shown that all members have read it.
//
// Thread safety: one call at a time per object. Errors: kNoMemory and kNoRoute of the board. Cost of an
// exchange: two atomics, and O(members) reads; a member that waits sleeps once. Memory per node: 256 bytes per member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/segment.hpp"

namespace farside {

// A member, as the others know it. Plain bytes.
struct NodeMember {
  std::int32_t rank = 0;  // in the group
  std::int32_t pid = 0;
  std::uint64_t nonce_address = 0;  // of a nonce in its private memory, to try process_vm_readv(2) on
  std::uint64_t nonce = 0;
  std::uint64_t membarrier = 0;   // 1: the process takes part in global_membarrier()
  MemoryNeed::LimitIds limits{};  // that apply to the process
  SegmentPlace handler;           // its message queue; set before the first exchange that concerns private data
};

class NodeGroup {
 public:
  static constexpr std::size_t kSlotBytes = 64;

  static Result<std::unique_ptr<NodeGroup>> lead(int members);
  static Result<std::unique_ptr<NodeGroup>> join(const SegmentPlace& board, int index, int members);
  // A group of one process, which is `rank`.
  static std::unique_ptr<NodeGroup> alone(int rank);
  ~NodeGroup();

  // The location of the board. Valid until publish_member().
  SegmentPlace place() const;
  // Collective: makes this process, which is `rank`, known to the other members. `progress` is made while it waits.
  void publish_member(int rank, Progress& progress);

  int members() const { return members_; }
  int index() const { return index_; }
  bool leads() const { return index_ == 0; }
  NodeMember member(int index) const { return *member_at(index); }
  // Tells the members where this process's message queue is, from the next exchange on.
  void set_handler(const SegmentPlace& handler) { member_at(index_)->handler = handler; }

  template <class T, class Result>
  struct LeaderExchange {
    std::vector<T> values;  // of the members, by their indexes
    Result result;
  };

  // Collective: returns the values of all members, by their indexes.
  template <class T>
  std::vector<T> exchange(const T& own, Progress& progress) {
    return exchange_by_leader(own, progress, [](const std::vector<T>&) { return '\0'; }).values;
  }
  // Collective: the leader calls lead(values of all members), and all members get its result, too.
  template <class T, class Lead>
  auto exchange_by_leader(const T& own, Progress& progress, Lead&& lead) {
    using Result = std::invoke_result_t<Lead, const std::vector<T>&>;
    static_assert(sizeof(T) <= kSlotBytes && std::is_trivially_copyable_v<T>);
    static_assert(sizeof(Result) <= kSlotBytes && std::is_trivially_copyable_v<Result>);
    LeaderExchange<T, Result> exchanged{std::vector<T>(static_cast<std::size_t>(members_)), Result{}};
    std::memcpy(slot(index_), &own, sizeof own);
    await_others(progress);
    for (int i = 0; i < members_; ++i) std::memcpy(&exchanged.values[static_cast<std::size_t>(i)], slot(i), sizeof(T));
    if (leads()) {
      exchanged.result = lead(std::as_const(exchanged.values));
      std::memcpy(result(), &exchanged.result, sizeof exchanged.result);
      release();
    } else {
      std::memcpy(&exchanged.result, result(), sizeof exchanged.result);
    }
    ++exchanges_;
    return exchanged;
  }

 private:
  struct Board;
  NodeGroup(int index, int members) : index_(index), members_(members) {}
  static std::size_t bytes(int members);
  Board& board() const;
  NodeMember* member_at(int index) const;
  std::byte* slot(int index) const;
  std::byte* result() const;
  std::uint64_t all_arrived() const { return (exchanges_ / 2 + 1) * static_cast<std::uint64_t>(members_); }
  void await_others(Progress& progress);
  void release();

  int index_;
  int members_;
  std::uint64_t exchanges_ = 0;
  Segment segment_;                     // of the leader
  Mapping mapping_;                     // of the others
  std::unique_ptr<std::byte[]> alone_;  // of a group of one
};

// PeerAddresses: the addresses of the ranks of a group, which the ranks have gathered once. The processes of a node
// share one table of them, which they map for reading. The ranks of other groups are entries of the same table.
//
// Thread safety: any. Cheap to copy. Cost: of share() one segment and two exchanges; of of() two loads. Memory per
// node: one FabricAddress per process of the group. Per process: none if the entries of consecutive ranks are at equal
// distances, else 4 bytes per rank, shared by all copies.
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

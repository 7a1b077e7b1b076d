// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a group agree while they make a space. In each step every rank contributes a few words, or its
// failure, and all ranks see the same result: a bitwise "or". So a rank needs no memory for the others.
//
//   x and ~x      equal on all ranks exactly if the "or" of x and the "or" of ~x have no bit in common
//   x at rank 0   and 0 at the others: all ranks get x
//
// After a failure one reduction and one broadcast more bring the reason of the lowest failed rank to all. If a
// collective fails (a rank has died), the ranks that notice get an error of kind kPeer.
//
// Thread safety: one thread per object, and no concurrent collective call in the group. Cost: one reduction of at most
// 32 bytes per step. After combine_by_nodes() the words of a node are combined by its board, and only the leaders of
// the nodes take part in a collective.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "transport/base/result.hpp"
#include "transport/space/group_peers.hpp"

namespace farside {

class Agreement {
 public:
  // The protocol between ranks. Change it with everything that ranks must have in common: descriptions, control block,
  // messages, the sequence of collectives.
  static constexpr std::uint32_t kProtocol = 27;
  static constexpr std::size_t kWords = 3;
  using Words = std::array<std::uint64_t, kWords>;
  // What the ranks have contributed together.
  struct Combined {
    std::uint64_t flags = 0;
    Words words{};
  };
  static constexpr int kFlags = 48;  // the number of bits for flags

  explicit Agreement(Group& group) : group_(group) {}
  Group& group() const { return group_; }
  // From now on `peers` combine the words. All ranks must call this between the same two steps.
  void combine_by_nodes(GroupPeers& peers) { peers_ = &peers; }
  int rank() const { return group_.rank(); }
  int ranks() const { return group_.ranks(); }

  // The first step: checks that every rank runs this version of farside with the same settings (else kBadSetting). It
  // is the same in all versions. Returns random bits, the same on all ranks.
  Result<std::uint64_t> handshake(const Status& own);
  // One step. The error is that of the lowest failed rank with the agreed kind, the lowest that any rank has; its kind
  // is the same on all ranks. A rank that failed itself in this way returns its own text.
  Result<Combined> agree(const Status& own, std::uint64_t flags = 0, const Words& words = {});

  // A word that is equal on all ranks exactly if is_equal() holds for the result.
  static std::uint64_t pair(std::uint32_t x) { return std::uint64_t{~x} << 32 | x; }
  static bool is_equal(std::uint64_t pair) { return (static_cast<std::uint32_t>(pair >> 32) & pair) == 0; }

 private:
  Status combine(std::span<std::uint64_t> words);
  Error explain(const Status& own, ErrorKind kind);

  Group& group_;
  GroupPeers* peers_ = nullptr;
};

}  // namespace farside

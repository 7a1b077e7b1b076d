// SPDX-License-Identifier: BSD-3-Clause
// ControlWords: the control blocks of this rank and its on-node peers, and the route to the words of others. It owns
// the table of the node's ranks, so that the fast path finds a word in it without another load.
//
// A rank's control block:   | header: accumulate lock, wake event, integer words | control words ... | region words |
//                           0                                                    576                     whole pages
//
// Thread safety: any, once the space is made.
#pragma once

#include <algorithm>

#include "transport/node/accumulate_lock.hpp"
#include "transport/node/identity.hpp"
#include "transport/node/integer_method.hpp"
#include "transport/routes/mapped/node_targets.hpp"
#include "transport/routes/route.hpp"

namespace farside {

struct ControlHeader {
  static constexpr std::size_t kBytes = 576;  // control words follow
  std::uint64_t nonce;                        // of the segment, in the first control block (node/node_segment.hpp)
  AccumulateLockWord accumulate_lock;
  WakeEvent wake_event;
  ProcessIdentity owner;
  IntegerWords integers;

  static ControlHeader& of(std::byte* control_block) { return *reinterpret_cast<ControlHeader*>(control_block); }
};
static_assert(sizeof(ControlHeader) <= ControlHeader::kBytes);

class ControlWords {
 public:
  explicit ControlWords(int rank) : rank_(rank) {}
  NodeTargets& node() { return node_; }
  const NodeTargets& node() const { return node_; }
  int rank() const { return rank_; }

  // A control block that is mapped, and whose words CPU atomics change; or none.
  class Mapped {
   public:
    explicit Mapped(std::byte* begin) : begin_(begin) {}
    explicit operator bool() const { return begin_ != nullptr; }
    // `offset`: in bytes from the start of the control block, at least ControlHeader::kBytes.
    std::uint64_t& word(std::uint32_t offset) const { return *reinterpret_cast<std::uint64_t*>(begin_ + offset); }
    // Wakes the owner if it sleeps; called after a change of the words.
    void wake() const { ControlHeader::of(begin_).wake_event.wake_if_armed(); }

   private:
    std::byte* begin_;
  };
  Mapped mapped(int rank) const {
    const NodeTarget* const here = node_.find(rank);
    return Mapped(here != nullptr && !by_nic_ ? here->control : nullptr);
  }
  // The same for words that CPU atomics change in either domain.
  Mapped on_node(int rank) const {
    const NodeTarget* const here = node_.find(rank);
    return Mapped(here != nullptr ? here->control : nullptr);
  }
  // The route to words that are not mapped; null if there are none.
  ControlRoute* route() const { return route_; }
  // The same for the words of a rank; null if they are mapped.
  ControlRoute* route(int rank) const { return route_ == nullptr || mapped(rank) ? nullptr : route_; }
  // The rank of this node that a target, whose control words are not mapped, selects: the same on all ranks of the
  // node. -1 if there is no other rank, or if some control block of the node is not mapped.
  int near_home(int target) const {
    if (!node_mapped_ || mapped(target)) return -1;
    return node_.all()[static_cast<std::size_t>(target) % node_.size()].rank;
  }
  // The same as mapped() for the fast path: null also where operations towards the rank are not complete when they
  // return, and for some placements of ranks (NodeTargets::find_regular).
  std::uint64_t* fast(int rank, std::uint32_t word) const {
    const NodeTarget* const here = node_.find_regular(rank);
    if (here == nullptr || here->control == nullptr || by_nic_) return nullptr;
    if (!all_immediate_ && rank != rank_ && !info(node_.route(*here)).immediate) return nullptr;
    return reinterpret_cast<std::uint64_t*>(here->control + word);
  }
  // Returns whether operations towards all ranks are complete when they return; then all words are mapped, too.
  bool all_immediate() const { return all_immediate_; }
  // Returns whether CPU atomics change control words, own ones included: the domain cpu.
  bool changed_by_cpu() const { return !by_nic_; }
  // Returns whether all ranks' control words are mapped, and CPU atomics change them.
  bool all_mapped() const { return all_mapped_; }
  // Returns whether the control words of on-node peers are mapped, the same on all ranks. (A rank may still have to go
  // over the fabric to some of them.)
  bool mapped_in_nodes() const { return mapped_in_nodes_; }
  // Returns this rank's own word. In the domain nic it is only for reading, and changes go through the route.
  std::uint64_t* own(std::uint32_t word) const { return reinterpret_cast<std::uint64_t*>(own_ + word); }
  WakeEvent& wake_event() const { return ControlHeader::of(own_).wake_event; }
  // For reports of long waits. Returns the process of a rank of this node whose control words are mapped; otherwise the
  // identity is unknown.
  ProcessIdentity process_of(int rank) const {
    const NodeTarget* const here = node_.find(rank);
    return here != nullptr && here->control != nullptr ? ControlHeader::of(here->control).owner : ProcessIdentity();
  }

  std::byte* own_block() const { return own_; }

  // Called while the space is made: with this rank's control block, and when the ranks have agreed.
  void begin(std::byte* own) { own_ = own; }
  void finish(int ranks, bool by_nic, bool mapped_in_nodes, ControlRoute* route) {
    by_nic_ = by_nic;
    mapped_in_nodes_ = mapped_in_nodes && !by_nic;
    route_ = route;
    const bool all_here = !by_nic && static_cast<int>(node_.size()) == ranks;
    const bool mapped = std::ranges::all_of(node_.all(), [](const NodeTarget& t) { return t.control != nullptr; });
    node_mapped_ = node_.size() > 1 && mapped;
    all_mapped_ = all_here && mapped;
    all_immediate_ = all_here && std::ranges::all_of(
                                     node_.all(), [&](const auto& each) { return info(node_.route(each)).immediate; });
  }

 private:
  NodeTargets node_;
  std::byte* own_ = nullptr;
  ControlRoute* route_ = nullptr;
  const int rank_;
  bool by_nic_ = false;
  bool all_immediate_ = false;
  bool all_mapped_ = false;
  bool mapped_in_nodes_ = false;
  bool node_mapped_ = false;  // this rank maps the control blocks of all ranks of its node, which are several
};

}  // namespace farside

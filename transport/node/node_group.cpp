// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/node_group.hpp"

#include <atomic>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/base/integers.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/wake_event.hpp"

namespace farside {

// In private memory, for the life of the process.
struct ProcessNonce {
  const std::uint64_t bits = random_bits();
};

namespace {

constexpr std::size_t kLine = 64;

std::size_t in_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

struct NodeGroup::Board {
  std::uint64_t nonce = 0;
  WakeEvent wake_event;                                            // of members that wait for the leader
  alignas(kLine) WakeEvent leader_wake_event;                      // of the leader that waits for arrivals
  alignas(kLine) std::atomic<std::uint64_t> arrivals[2] = {0, 0};  // of even and odd exchanges, since the start
  std::atomic<std::uint64_t> released[2] = {0, 0};                 // the number of even and odd meetings released last
  alignas(kLine) std::byte results[2][kSlotBytes] = {};
};

std::size_t NodeGroup::bytes(int members) {
  return in_lines(sizeof(Board)) + static_cast<std::size_t>(members) * (in_lines(sizeof(NodeMember)) + 2 * kSlotBytes);
}

NodeGroup::~NodeGroup() = default;

Result<std::unique_ptr<NodeGroup>> NodeGroup::lead(int members) {
  if (members == 1) return alone(0);
  std::unique_ptr<NodeGroup> group(new NodeGroup(0, members));
  Result<Segment> made = make_segment(bytes(members));
  if (!made) return made.error();
  group->segment_ = std::move(made.value());
  new (group->segment_.mapping.base()) Board{random_bits(), {}, {}};
  return group;
}

Result<std::unique_ptr<NodeGroup>> NodeGroup::join(const SegmentPlace& board, int index, int members) {
  std::unique_ptr<NodeGroup> group(new NodeGroup(index, members));
  Result<Mapping> mapped = map_peer_segment(board, bytes(members));
  if (!mapped) return mapped.error();
  group->mapping_ = std::move(mapped.value());
  return group;
}

std::unique_ptr<NodeGroup> NodeGroup::alone(int rank) {
  std::unique_ptr<NodeGroup> group(new NodeGroup(0, 1));
  group->alone_ = std::make_unique<std::byte[]>(bytes(1) + kLine);
  new (&group->board()) Board{};
  NodeMember* const own = new (group->member_at(0)) NodeMember{};
  own->rank = rank;
  own->membarrier = supports_global_membarrier() ? 1 : 0;
  return group;
}

SegmentPlace NodeGroup::place() const { return {getpid(), segment_.fd.get(), board().nonce}; }

NodeGroup::Board& NodeGroup::board() const {
  std::byte* base = mapping_.base() != nullptr ? mapping_.base() : segment_.mapping.base();
  if (base == nullptr) {
    base = alone_.get();
    base += -reinterpret_cast<std::uintptr_t>(base) % kLine;
  }
  return *reinterpret_cast<Board*>(base);
}

NodeMember* NodeGroup::member_at(int index) const {
  return reinterpret_cast<NodeMember*>(reinterpret_cast<std::byte*>(&board()) + in_lines(sizeof(Board)) +
                                       static_cast<std::size_t>(index) * in_lines(sizeof(NodeMember)));
}

std::byte* NodeGroup::slot(int index) const {
  const auto set = static_cast<std::size_t>(exchanges_ % 2);
  return reinterpret_cast<std::byte*>(member_at(members_)) +
         (set * static_cast<std::size_t>(members_) + static_cast<std::size_t>(index)) * kSlotBytes;
}

std::byte* NodeGroup::result() const { return board().results[exchanges_ % 2]; }

void NodeGroup::publish_member(int rank, Progress& progress) {
  *member_at(index_) = {rank,
                        getpid(),
                        reinterpret_cast<std::uint64_t>(&this_process.nonce->bits),
                        this_process.nonce->bits,
                        supports_global_membarrier() ? 1U : 0U,
                        memory_limit_ids(),
                        {}};
  (void)exchange('\0', progress);
  segment_.fd.reset();
}

// Arrivals and releases are sequentially consistent: this publishes the slot or the result, and wake events require it.
// The last to arrive wakes the leader.
void NodeGroup::await_others(Progress& progress) {
  Board& on = board();
  std::atomic<std::uint64_t>& arrivals = on.arrivals[exchanges_ % 2];
  if (arrivals.fetch_add(1, std::memory_order_seq_cst) + 1 == all_arrived()) on.leader_wake_event.wake_if_armed();
  const std::atomic<std::uint64_t>& awaited = leads() ? arrivals : on.released[exchanges_ % 2];
  const std::uint64_t enough = leads() ? all_arrived() : exchanges_ + 1;
  Waiter waiter(progress, leads() ? on.leader_wake_event : on.wake_event);
  while (awaited.load(std::memory_order_acquire) < enough) waiter.pause();
}

void NodeGroup::release() {
  Board& on = board();
  on.released[exchanges_ % 2].store(exchanges_ + 1, std::memory_order_seq_cst);
  on.wake_event.wake_if_armed();
}

namespace {

// The table begins behind its nonce.
constexpr std::size_t kHeader = 64;

}  // namespace

PeerAddresses PeerAddresses::share(NodeGroup& node, std::span<const FabricAddress> all, Progress& progress) {
  auto table = std::make_shared<Table>();
  const std::size_t bytes = kHeader + all.size_bytes();
  Segment made;
  SegmentPlace place;
  if (node.members() > 1 && node.leads()) {
    if (Result<Segment> segment = make_segment(bytes)) {
      made = std::move(segment.value());
      place = {getpid(), made.fd.get(), random_bits()};
      std::memcpy(made.mapping.base(), &place.nonce, sizeof place.nonce);
      std::memcpy(made.mapping.base() + kHeader, all.data(), all.size_bytes());
      table->mapping = std::move(made.mapping);
    }
  }
  if (node.members() > 1) place = node.exchange(place, progress).front();
  if (place.fd >= 0 && !node.leads()) {
    if (Result<Mapping> mapped = map_peer_segment(place, bytes)) table->mapping = std::move(mapped.value());
  }
  // The leader's descriptor is closed when all have mapped the table.
  if (place.fd >= 0) (void)node.exchange('\0', progress);
  if (const std::byte* base = table->mapping.base()) {
    (void)mprotect(table->mapping.base(), bytes, PROT_READ);
    table->addresses = {reinterpret_cast<const FabricAddress*>(base + kHeader), all.size()};
  } else {
    table->own.assign(all.begin(), all.end());
    table->addresses = table->own;
  }
  PeerAddresses shared;
  shared.table_ = std::move(table);
  return shared;
}

PeerAddresses PeerAddresses::of_group(std::vector<int> ranks) const {
  PeerAddresses others;
  others.table_ = table_;
  others.first_ = ranks.front();
  others.stride_ = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank] == others.first_ + static_cast<int>(rank) * others.stride_) continue;
    others.listed_ = std::make_shared<const std::vector<int>>(std::move(ranks));
    break;
  }
  return others;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The halves of large puts and gets that go by the second device (fabric/second_rail.hpp).
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "transport/routes/fabric_route.hpp"

namespace farside {

// A transfer is not larger than the memory. So memory that is smaller than the smallest split transfer needs no
// registration.
void FabricRoute::register_at_second_rail(std::byte* base, std::size_t bytes, std::uint64_t wanted_key) {
  constexpr std::uint64_t kMostKey = std::numeric_limits<decltype(TargetDescription::second_key)>::max();
  Endpoint& endpoint = rail_->rail.endpoint();
  Result<Endpoint::Registration> data = endpoint.register_memory(base, bytes, wanted_key);
  const bool chosen = endpoint.keys_are_chosen();
  const std::uint64_t key = data ? data.value().key.key : 0;
  if (!data || chosen != endpoint_.keys_are_chosen() || (!chosen && (key == 0 || key > kMostKey))) {
    rail_->why_not = data ? "its memory keys do not have 32 bits" : data.error().text;
    return;
  }
  rail_->data = std::move(data.value().region);
  if (!chosen) own_.second_key = static_cast<std::uint32_t>(key);
}

// Issues a large put or get from its byte `begin` on by the second rail.
Status FabricRoute::issue_by_second_rail(BusyTarget& to, Pending& among, const DataOperation& operation,
                                         std::size_t begin) {
  const Result<Peer> peer = rail_->rail.find(to.target->peer, waiting_, wake_event_);
  if (!peer) return among.named(peer.error());
  const TargetDescription target = targets_.description(*to.target);
  // Where processes choose keys, they have chosen the same for both rails.
  const std::uint64_t key = target.second_key != 0 ? target.second_key : target.data_key.key;
  const Endpoint::Place place{peer.value(), {target.data_key.base, key}, operation.offset + begin};
  const std::size_t bytes = operation.count - begin;
  if (operation.kind == OperationKind::kGet)
    return rail_->rail.endpoint().read(among, place, static_cast<std::byte*>(operation.fetched) + begin, bytes);
  Status written =
      rail_->rail.endpoint().write(among, place, static_cast<const std::byte*>(operation.origin) + begin, bytes);
  if (written && rail_->rail.reads_back()) {
    const auto held = targets_.hold(*to.target);
    if (to.read_back == nullptr) to.read_back = std::make_unique<ReadBack>();
    to.read_back->written(place);
  }
  return written;
}

// Waits for the halves that went by the second rail, and reads a word back behind them where that is needed.
Status FabricRoute::complete_second_rail(BusyTarget& to) {
  Status first = wait_for(to.second_rail);
  if (rail_ == nullptr) return first;
  std::optional<ReadBack::Word> word;
  {
    const auto held = targets_.hold(*to.target);
    if (to.read_back != nullptr) word = to.read_back->next();
  }
  if (!word) return first;
  std::uint64_t ignored = 0;
  Pending pending;
  pending.towards(to.rank);
  Status read = rail_->rail.endpoint().read(pending, word->place, &ignored, sizeof ignored);
  Status waited = wait_for(pending);
  {
    const auto held = targets_.hold(*to.target);
    to.read_back->done(word->number);
  }
  if (!first) return first;
  return read ? std::move(waited) : std::move(read);
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/peer_states.hpp"

namespace farside {

PeerState& PeerStates::make(Peer peer) {
  const std::scoped_lock held(making_);
  if (PeerState* const state = find(peer)) return *state;
  const auto [chunk, place] = place_of(peer);
  Place* places = chunks_.at(chunk).load(std::memory_order_relaxed);
  if (places == nullptr) {
    places = new Place[chunk == 0 ? kFirst : kFirst << (chunk - 1)]();
    chunks_[chunk].store(places, std::memory_order_release);
  }
  made_.push_back(std::make_unique<PeerState>(peer));
  places[place].store(made_.back().get(), std::memory_order_release);
  return *made_.back();
}

}  // namespace farside

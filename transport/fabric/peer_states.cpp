// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/peer_states.hpp"

#include <algorithm>
#include <bit>

namespace farside {

PeerState& PeerStates::make(Peer peer) {
  const std::scoped_lock held(making_);
  if (PeerState* const state = find(peer)) return *state;
  const std::span<Place> before = places_.get();
  if (peer >= before.size()) {
    constexpr std::size_t kLeast = 16;
    places_.replace(std::max(std::bit_ceil(std::size_t{peer} + 1), kLeast), [&](std::span<Place> places) {
      for (std::size_t i = 0; i < before.size(); ++i)
        places[i].store(before[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    });
  }
  made_.push_back(std::make_unique<PeerState>(peer));
  places_.get()[peer].store(made_.back().get(), std::memory_order_release);
  return *made_.back();
}

}  // namespace farside

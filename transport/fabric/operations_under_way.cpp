// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/operations_under_way.hpp"

#include <cstring>
#include <utility>

namespace farside {

void OperationsUnderWay::completed(Operation& operation) {
  if (operation.into != nullptr && operation.pending != nullptr) {
    std::memcpy(operation.into, operation.slot->bytes, operation.into_bytes);
  }
  if (--operation.completions_left == 0) finish(operation);
}

void OperationsUnderWay::failed(Operation& operation, Error error) {
  if (operation.pending != nullptr) operation.pending->failed(std::move(error));
  finish(operation);
}

bool OperationsUnderWay::take_reply(std::span<const std::byte> message) {
  Operation* const operation = pool_.take_answer(message);
  if (operation == nullptr) return false;
  if (--operation->completions_left == 0) finish(*operation);
  return true;
}

void OperationsUnderWay::fail_all(PeerState& peer_state, const Error& error) {
  peer_state.issued.for_each([&](Operation& operation) {
    Pending& pending = *std::exchange(operation.pending, nullptr);
    peer_state.issued.remove(operation);
    peers_.end(peer_state);
    if (operation.request) --peer_state.requests;
    // A request no longer awaits its reply: it ends here if its send has completed.
    if (std::exchange(operation.awaits_reply, false) && --operation.completions_left == 0) recycle(operation);
    pending.failed(error);
    pending.completed();
  });
}

void OperationsUnderWay::fail_awaiting(Peer peer, const Error& error) {
  peers_.of(peer).issued.for_each([&](Operation& operation) {
    if (!std::exchange(operation.awaits_reply, false)) return;
    operation.pending->failed(error);
    if (--operation.completions_left == 0) finish(operation);
  });
}

void OperationsUnderWay::release_memory() {
  pool_.for_each([](Operation& operation) { operation.registered.reset(); });
  memory_ = {};
}

// Ends an operation after its last completion.
void OperationsUnderWay::finish(Operation& operation) {
  Pending* const pending = operation.pending;
  if (pending != nullptr) {
    PeerState& peer_state = peers_.of(operation.peer);
    peer_state.issued.remove(operation);
    peers_.end(peer_state);
    if (operation.request) --peer_state.requests;
    ++peer_state.completed;
  }
  recycle(operation);
  if (pending != nullptr) pending->completed();
}

void OperationsUnderWay::recycle(Operation& operation) {
  if (operation.slot != nullptr) memory_.release(std::exchange(operation.slot, nullptr));
  if (operation.registered != nullptr) memory_.end_large(operation.registered);
  pool_.release(operation);
}

}  // namespace farside

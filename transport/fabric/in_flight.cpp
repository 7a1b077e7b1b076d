// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/in_flight.hpp"

#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace farside {

namespace {

// Stores the data of a reply: those of the list, then those of the request. Between two steps these are the former
// values of the acquire step's word and, unless the list was stopped, of the release step's.
Status deliver(Operation& operation, ReplyStatus status, std::span<const std::byte> data) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  LockedResult* const locked = operation.message.locked;
  const bool stopped = status == ReplyStatus::kStopped && locked != nullptr;
  if (status != ReplyStatus::kDone && !stopped) return refusal(status);
  const std::size_t listed = operation.list != nullptr && !stopped ? operation.list->fetched_bytes() : 0;
  const std::size_t words = stopped ? kWord : kMostControls * kWord;
  const std::span<std::byte> fetched = operation.message.fetched;
  if (data.size() != listed + (locked != nullptr ? words : fetched.size()))
    return Error{ErrorKind::kPeer, "the target's handler answered with a wrong length"};
  if (listed > 0) operation.list->deliver(data);
  const std::byte* const behind = data.data() + listed;
  if (locked == nullptr) {
    if (!fetched.empty()) std::memcpy(fetched.data(), behind, fetched.size());
    return {};
  }
  locked->stopped = stopped;
  std::memcpy(&locked->acquire_step, behind, kWord);
  if (stopped) {
    locked->list = std::move(operation.list);
  } else {
    std::memcpy(&locked->release_step, behind + kWord, kWord);
  }
  return {};
}

}  // namespace

void OperationsInFlight::completed(Operation& operation) {
  PeerState& peer_state = peers_.of(operation.peer);
  const std::scoped_lock held(peer_state.mutex);
  if (operation.into != nullptr && operation.pending != nullptr)
    std::memcpy(operation.into, operation.slot->bytes, operation.into_bytes);
  if (--operation.completions_left == 0) finish(operation, peer_state);
}

const fid_ep* OperationsInFlight::failed(Operation& operation, Error error) {
  PeerState& peer_state = peers_.of(operation.peer);
  const std::scoped_lock held(peer_state.mutex);
  const fid_ep* const endpoint = operation.endpoint;
  if (operation.pending != nullptr) operation.pending->failed(std::move(error));
  finish(operation, peer_state);
  return endpoint;
}

bool OperationsInFlight::take_reply(std::span<const std::byte> message) {
  ReplyHeader header;
  if (message.size() < sizeof header) return false;
  std::memcpy(&header, message.data(), sizeof header);
  const std::uint64_t number = header.operation ^ mask_;
  PeerState* const peer_state = peers_.find(number >> 32);
  if (peer_state == nullptr) return false;
  const std::scoped_lock held(peer_state->mutex);
  Operation* const operation = peer_state->pool.find(number & 0xffff'ffff);
  if (operation == nullptr || !operation->awaits_reply || operation->generation != header.generation) return false;
  // Without memory for the text of an error the reply counts all the same.
  Status delivered =
      without_bad_alloc([&] { return deliver(*operation, header.status, message.subspan(sizeof header)); });
  if (!delivered) operation->pending->failed(delivered.error());
  operation->awaits_reply = false;
  if (--operation->completions_left == 0) finish(*operation, *peer_state);
  return true;
}

void OperationsInFlight::fail_all(PeerState& peer_state, const Error& error) {
  const std::scoped_lock held(peer_state.mutex);
  interrupted(peer_state);
  peer_state.pool.for_each([&](Operation& operation) {
    Pending* const pending = std::exchange(operation.pending, nullptr);
    if (pending == nullptr) return;
    PeerStates::end(peer_state);
    if (operation.request) --peer_state.requests;
    // A request no longer awaits its reply: it ends here unless its send must still complete.
    if (std::exchange(operation.awaits_reply, false) && --operation.completions_left == 0)
      recycle(operation, peer_state);
    pending->failed(error);
    pending->completed();
  });
}

void OperationsInFlight::fail_awaiting(Peer peer, const Error& error, bool in_order) {
  if (in_order && peers_.find(peer) == nullptr) return;
  PeerState& peer_state = peers_.of(peer);
  const std::scoped_lock held(peer_state.mutex);
  if (!in_order) interrupted(peer_state);
  peer_state.pool.for_each([&](Operation& operation) {
    if (operation.pending == nullptr || !std::exchange(operation.awaits_reply, false)) return;
    operation.pending->failed(error);
    if (--operation.completions_left == 0) finish(operation, peer_state);
  });
}

void OperationsInFlight::interrupted(PeerState& peer_state) {
  if (peer_state.confirmed != peer_state.notifications) {
    peer_state.confirmed = peer_state.notifications;
    peer_state.losses.lost_notifications.fetch_add(1, std::memory_order_relaxed);
    peer_state.losses.to_report.store(true, std::memory_order_relaxed);
  }
  const std::uint32_t number = interruptions_.load(std::memory_order_relaxed) + 1;
  peer_state.losses.last_interruption.store(number, std::memory_order_relaxed);
  // Release: a thread that reads the number sees the words that the peer's messages have changed, and the peer's
  // losses.
  interruptions_.store(number, std::memory_order_release);
}

// Ends an operation after its last completion.
void OperationsInFlight::finish(Operation& operation, PeerState& peer_state) {
  Pending* const pending = operation.pending;
  if (pending != nullptr) {
    PeerStates::end(peer_state);
    if (operation.request) --peer_state.requests;
    ++peer_state.completed;
    // An operation that the peer has acknowledged arrived there behind the earlier notifications. Numbers may wrap.
    const std::uint32_t arrived = operation.notifications_before - peer_state.confirmed;
    if (!operation.notification && !pending->has_error() && arrived <= peer_state.notifications - peer_state.confirmed)
      peer_state.confirmed = operation.notifications_before;
  }
  recycle(operation, peer_state);
  if (pending != nullptr) pending->completed();
}

void OperationsInFlight::recycle(Operation& operation, PeerState& peer_state) {
  if (operation.slot != nullptr) memory_.release(std::exchange(operation.slot, nullptr));
  if (operation.registered != nullptr) memory_.end_large(operation.registered);
  peer_state.pool.release(operation);
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/in_flight.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "transport/fabric/operation.hpp"

namespace farside {

namespace {

// The data that a reply must bring, in bytes: those of the list, and those behind them.
struct Expected {
  std::size_t listed;
  std::size_t behind;
};

Expected expected_of(const Operation& operation, ReplyStatus status) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (status == ReplyStatus::kStopped) return {0, kWord};
  return {operation.list != nullptr ? operation.list->fetched_bytes() : 0,
          operation.locked_result != nullptr ? kMostControls * kWord : operation.fetched_bytes};
}

// Without memory for the text the reply counts all the same.
template <class Make>
Error error_with_text(Make&& make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return Error::out_of_memory();
  }
}

// Fills in the result of a list between two steps. `words`: the previous value of the acquire step's word and, unless
// the list was stopped, of the release step's.
void fill_locked_result(Operation& operation, bool stopped, std::span<const std::byte> words) {
  LockedResult& locked_result = *operation.locked_result;
  locked_result.stopped = stopped;
  std::memcpy(&locked_result.acquire_step, words.data(), sizeof locked_result.acquire_step);
  if (stopped) {
    locked_result.list = std::move(operation.list);
  } else {
    std::memcpy(&locked_result.release_step, words.data() + sizeof locked_result.acquire_step,
                sizeof locked_result.release_step);
  }
}

}  // namespace

Operation* OperationPool::take_reply(std::uint64_t index, const ReplyHeader& header, std::span<const std::byte> data) {
  if (index >= all_.size()) return nullptr;
  Operation& operation = *all_[index];
  if (!operation.awaits_reply || operation.generation != header.generation) return nullptr;
  const bool stopped = header.status == ReplyStatus::kStopped && operation.locked_result != nullptr;
  const auto [listed, behind] = expected_of(operation, header.status);
  if (header.status != ReplyStatus::kDone && !stopped) {
    operation.pending->failed(error_with_text([&] { return refusal(header.status); }));
  } else if (data.size() != listed + behind) {
    operation.pending->failed(error_with_text([] {
      return Error{ErrorKind::kPeer, "the target's handler answered with a wrong length"};
    }));
  } else {
    if (listed > 0) operation.list->deliver(data);
    if (operation.locked_result != nullptr) {
      fill_locked_result(operation, stopped, data.subspan(listed));
    } else if (behind > 0) {
      std::memcpy(operation.fetched, data.data() + listed, behind);
    }
  }
  operation.awaits_reply = false;
  return &operation;
}

namespace {

// Advances the number of a notification to `to`, unless it is there already. `last` is the latest number; numbers may
// wrap.
void advance(std::uint32_t& number, std::uint32_t to, std::uint32_t last) {
  if (to - number <= last - number) number = to;
}

void no_longer_requested(const Operation& operation, PeerState& peer_state) {
  if (!operation.request) return;
  --peer_state.requests;
  if (operation.sent_outside_ring) --peer_state.sent_outside_ring;
}

}  // namespace

Operation* OperationsInFlight::run_for_write(PeerState& peer_state, const Pending& pending) {
  if (Operation* const open = peer_state.run.open; open != nullptr) return open->pending == &pending ? open : nullptr;
  if (runs_.fetch_add(1, std::memory_order_relaxed) >= most_runs_) {
    runs_.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  Operation& run = begin(peer_state);
  run.run = true;
  return &run;
}

void OperationsInFlight::written(Operation& run, PeerState& peer_state, Pending& pending, const fid_ep* endpoint,
                                 bool last) {
  WriteRun& state = peer_state.run;
  if (state.open == nullptr) {
    issued(run, peer_state, pending, endpoint);
    state.open = &run;
    state.length = 0;
  }
  ++state.length;
  ++state.since_wait;
  if (last) state.open = nullptr;
}

void OperationsInFlight::completed(Operation& operation) {
  PeerState& peer_state = peers_.of(operation.peer);
  const std::scoped_lock held(peer_state.mutex);
  if (operation.into != nullptr && operation.pending != nullptr) {
    if (operation.swapped) std::reverse(operation.slot->bytes, operation.slot->bytes + operation.into_bytes);
    std::memcpy(operation.into, operation.slot->bytes, operation.into_bytes);
  }
  if (Operation* const run = std::exchange(operation.covers, nullptr)) finish(*run, peer_state);
  if (--operation.completions_left == 0) finish(operation, peer_state);
}

const fid_ep* OperationsInFlight::failed(Operation& operation, Error error) {
  PeerState& peer_state = peers_.of(operation.peer);
  const std::scoped_lock held(peer_state.mutex);
  const fid_ep* const endpoint = operation.endpoint;
  // The run may count in the Pending of another window. The provider has dropped the errors of the run's writes, so it
  // is not known which of the two failed first: the run, after which the queue executed nothing more, or this operation
  // alone. So both fail. Each window gets an error of its own operations only, on a connection that ends with this
  // error; a window with nothing in flight to the peer gets none.
  if (Operation* const run = std::exchange(operation.covers, nullptr)) {
    if (run->pending != nullptr) run->pending->failed(error);
    finish(*run, peer_state);
  }
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
  Operation* const operation =
      peer_state->pool.take_reply(number & 0xffff'ffff, header, message.subspan(sizeof header));
  if (operation == nullptr) return false;
  if (--operation->completions_left == 0) finish(*operation, *peer_state);
  return true;
}

void OperationsInFlight::fail_all(PeerState& peer_state, const Error& error) {
  const std::scoped_lock held(peer_state.mutex);
  interrupted(peer_state);
  peer_state.issued.for_each([&](Operation& operation) {
    Pending& pending = *std::exchange(operation.pending, nullptr);
    peer_state.issued.remove(operation);
    PeerStates::end(peer_state);
    no_longer_requested(operation, peer_state);
    // A request no longer awaits its reply: it ends here unless its send must still complete.
    if (std::exchange(operation.awaits_reply, false) && --operation.completions_left == 0)
      recycle(operation, peer_state);
    // An open run ends here: the provider has not been asked for its completion.
    if (&operation == peer_state.run.open) {
      peer_state.run.open = nullptr;
      recycle(operation, peer_state);
    }
    pending.failed(error);
    pending.completed();
  });
}

void OperationsInFlight::fail_awaiting(Peer peer, const Error& error, bool in_order) {
  if (in_order && peers_.find(peer) == nullptr) return;
  PeerState& peer_state = peers_.of(peer);
  const std::scoped_lock held(peer_state.mutex);
  if (!in_order) interrupted(peer_state);
  fail_open_run(peer_state, error);
  peer_state.issued.for_each([&](Operation& operation) {
    if (!std::exchange(operation.awaits_reply, false)) return;
    operation.pending->failed(error);
    if (--operation.completions_left == 0) finish(operation, peer_state);
  });
}

void OperationsInFlight::interrupted(PeerState& peer_state) {
  peer_state.handled = peer_state.notifications;
  if (peer_state.confirmed != peer_state.notifications) {
    peer_state.confirmed = peer_state.notifications;
    ++peer_state.lost_notifications;
    peer_state.loss_to_report = true;
  }
  peer_state.last_interruption = interruptions_.load(std::memory_order_relaxed) + 1;
  // Release: a thread that reads the number sees the words that the peer's messages have changed, and the peer's last
  // number.
  interruptions_.store(peer_state.last_interruption, std::memory_order_release);
}

bool OperationsInFlight::take_lost_notification(PeerState& peer_state) {
  const std::scoped_lock held(peer_state.mutex);
  return std::exchange(peer_state.loss_to_report, false);
}

void OperationsInFlight::fail_open_run(PeerState& peer_state, const Error& error) {
  Operation* const run = std::exchange(peer_state.run.open, nullptr);
  if (run == nullptr) return;
  run->pending->failed(error);
  finish(*run, peer_state);
}

void OperationsInFlight::release_memory() {
  peers_.for_each([](PeerState& peer_state) {
    const std::scoped_lock held(peer_state.mutex);
    peer_state.pool.for_each([](Operation& operation) { operation.registered.reset(); });
  });
  memory_.end();
}

// Ends an operation after its last completion.
void OperationsInFlight::finish(Operation& operation, PeerState& peer_state) {
  Pending* const pending = operation.pending;
  if (pending != nullptr) {
    peer_state.issued.remove(operation);
    PeerStates::end(peer_state);
    no_longer_requested(operation, peer_state);
    ++peer_state.completed;
    // An operation that the peer has acknowledged arrived there behind the earlier notifications.
    const bool acknowledged = !operation.notification && !pending->has_error();
    if (acknowledged) advance(peer_state.confirmed, operation.notifications_before, peer_state.notifications);
    if (acknowledged && operation.request)
      advance(peer_state.handled, operation.notifications_before, peer_state.notifications);
  }
  recycle(operation, peer_state);
  if (pending != nullptr) pending->completed();
}

void OperationsInFlight::recycle(Operation& operation, PeerState& peer_state) {
  if (operation.slot != nullptr) memory_.release(std::exchange(operation.slot, nullptr));
  if (operation.registered != nullptr) memory_.end_large(operation.registered);
  if (operation.run) runs_.fetch_sub(1, std::memory_order_relaxed);
  peer_state.pool.release(operation);
}

}  // namespace farside

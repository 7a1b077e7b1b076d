// SPDX-License-Identifier: BSD-3-Clause
// The completion queue: which threads read it and when, how operations end, and peers that are out of reach.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/tcp_path.hpp"

namespace farside {
namespace {

constexpr std::chrono::milliseconds kSafetyNet{250};       // the longest sleep while something is under way
constexpr std::chrono::milliseconds kIdle{10'000};         // the longest sleep else
constexpr std::chrono::milliseconds kLookNow{1};           // between checks of connections during its back-off
constexpr std::chrono::milliseconds kTryAgain{1};          // while answers are unsent
constexpr std::chrono::seconds kLastAnswers{2};            // at the end, for peers that take no answers
constexpr std::chrono::microseconds kLook{50};

}  // namespace

bool Fabric::poll() {
  polls_.fetch_add(1, std::memory_order_relaxed);
  // A thread that holds the mutex makes progress already.
  bool moved = false;
  if (const std::unique_lock held(mutex_, std::try_to_lock); held) {
    moved = drain();
    end_long_sleep();
  }
  // Another thread may sleep until one of these completions.
  if (moved) wake_listeners();
  return moved;
}

bool Fabric::poll_from_runtime() {
  runtime_polls_.store(runtime_polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (!runtime_serves_.load(std::memory_order_relaxed) || !poll()) return false;
  statistics_.add(RouteKind::kFabric, Counted::kFromRuntime, 0);
  return true;
}

void Fabric::listen(WakeEvent& wake_event) {
  const std::scoped_lock held(listeners_mutex_);
  listeners_.push_back(&wake_event);
  listening_.begin();
  back_off_event_.wake_if_armed();
}

void Fabric::stop_listening(WakeEvent& wake_event) {
  const std::scoped_lock held(listeners_mutex_);
  const auto found = std::find(listeners_.begin(), listeners_.end(), &wake_event);
  if (found == listeners_.end()) return;  // it began to sleep before the endpoint was opened
  listeners_.erase(found);
  listening_.end();
}

void Fabric::wake_listeners() {
  if (!listening_.any_behind_changes()) return;
  const std::scoped_lock held(listeners_mutex_);
  for (WakeEvent* wake_event : listeners_) wake_event->wake();
}

// Takes all completions, and moves connections, answers and evictions on. Returns whether anything completed or
// happened. Called with the mutex held.
bool Fabric::drain() {
  bool any = take_completions();
  if (connections_->connecting()) any = connections_->progress() || any;
  follow_connections();
  if (!unsent_.empty()) send_replies();
  if (!disconnecting_.empty()) disconnect_idle();
  if (too_many_connections()) make_room();
  return any;
}

bool Fabric::take_completions() {
  std::array<fi_cq_msg_entry, 32> entries;
  bool any = false;
  while (true) {
    const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      complete_with_error();
      any = true;
      continue;
    }
    if (count <= 0) break;
    any = true;
    for (ssize_t i = 0; i < count; ++i) complete(entries[static_cast<std::size_t>(i)]);
    if (static_cast<std::size_t>(count) < entries.size()) break;
  }
  return any;
}

// Ends an operation after its last completion. A waiting thread may destroy `pending` right after completed().
void Fabric::finish(Operation& operation) {
  Pending* pending = operation.pending;
  if (pending != nullptr) {
    PeerState& peer_state = peer_states_.of(operation.peer);
    peer_state.issued.remove(operation);
    peer_states_.end(peer_state);
    if (operation.request) --peer_state.requests;
    ++peer_state.completed;
  }
  recycle(operation);
  if (pending != nullptr) pending->completed();
}

void Fabric::complete(const fi_cq_msg_entry& entry) {
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  if (context == nullptr) return;
  switch (context->kind) {
    case Context::Kind::kOperation: {
      auto& operation = static_cast<Operation&>(*context);
      if (operation.into != nullptr && operation.pending != nullptr) {
        std::memcpy(operation.into, operation.slot->bytes, operation.into_bytes);
      }
      if (--operation.parts == 0) finish(operation);
      return;
    }
    case Context::Kind::kReceive:
      receive(static_cast<Receive&>(*context), entry.len);
      receive_again(static_cast<Receive&>(*context));
      return;
    case Context::Kind::kReply: {
      auto& reply = static_cast<Reply&>(*context);
      if (reply.probe) {
        PeerState& peer_state = peer_states_.of(reply.peer);
        peer_state.probed = false;
        peer_state.quiet_since = Clock::now();
      }
      --answers_under_way_;
      spare_.emplace_back(&reply);
      return;
    }
  }
}

void Fabric::complete_with_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.get(), &entry, 0) != 1) return;
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  const std::string text = fmt::format("{}: {}", fi_strerror(entry.err),
                                       fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, nullptr, 0));
  if (context == nullptr) {
    // The tcp provider of libfabric 1.17 reports the receive under way at a shutdown a second time, without its
    // context.
    if (entry.err != FI_ECANCELED) log(LogLevel::kError, "libfabric {}: {}", provider(), text);
    return;
  }
  switch (context->kind) {
    case Context::Kind::kOperation: {
      auto& operation = static_cast<Operation&>(*context);
      if (operation.pending != nullptr) {
        const char* const why = entry.err == FI_ECANCELED ? "the connection has ended: " : "";
        operation.pending->failed(Error{ErrorKind::kPeer, fmt::format("libfabric {}: {}{}", provider(), why, text)});
      }
      const Peer peer = operation.peer;
      const fid_ep* const endpoint = operation.endpoint;
      // A request whose send failed gets no reply.
      finish(operation);
      connections_->failed(peer, endpoint, text);
      return;
    }
    case Context::Kind::kReceive:
      // Cancelled: the connection ended while the message was arriving.
      if (entry.err != FI_ECANCELED) log(LogLevel::kWarn, "a message was refused: {}", text);
      receive_again(static_cast<Receive&>(*context));
      return;
    case Context::Kind::kReply: {
      auto& reply = static_cast<Reply&>(*context);
      if (reply.probe) {
        peer_states_.of(reply.peer).probed = false;
      } else {
        log(LogLevel::kWarn, "an answer to a peer could not be delivered: {}", text);
      }
      --answers_under_way_;
      spare_.emplace_back(&reply);
      connections_->failed(reply.peer, reply.endpoint, text);
      return;
    }
  }
}

// Returns whether operations are under way towards the peer, and none has completed for `so_long`.
bool Fabric::quiet(PeerState& peer_state, Clock::time_point now, Clock::duration so_long) {
  if (peer_state.under_way == 0) return false;
  if (peer_state.completed != peer_state.completed_then) {
    peer_state.completed_then = peer_state.completed;
    peer_state.quiet_since = now;
    peer_state.unacknowledged_since = {};
  }
  return now - peer_state.quiet_since >= so_long;
}

// Abandons peers that stay out of reach. Sends a probe to a peer towards which nothing has completed for half the
// timeout. An answer does not matter, since the peer may be stopped; but the provider takes no probe to a dead peer.
// An adapter takes any probe, and must have completed it before the timeout. Called with the mutex held.
void Fabric::check_peers() {
  connections_->clear_lost([this](Peer peer) { return !peer_states_.is_active(peer); });
  if (peer_timeout().count() == 0) return;
  const Clock::time_point now = Clock::now();
  peer_states_.for_each_active([&](PeerState& peer_state) { check_peer(peer_state, now); });
}

void Fabric::check_peer(PeerState& peer_state, Clock::time_point now) {
  // The peer may well be in reach.
  if (connections_->waits_for_place(peer_state.peer)) peer_state.quiet_since = now;
  if (!quiet(peer_state, now, std::chrono::duration_cast<Clock::duration>(peer_timeout()) / 2)) return;
  const bool too_long = now - peer_state.quiet_since >= peer_timeout();
  if (peer_state.probed) {
    if (too_long) fail_peer(peer_state, "its adapter acknowledges nothing that is sent to it");
    return;
  }
  if (answers_under_way_ >= limits_.answers) return;
  std::unique_ptr<Reply> probe = take_reply_buffer();
  probe->peer = peer_state.peer;
  const ssize_t code = send_probe(*probe);
  if (code == 0) {
    probe.release();  // until its completion: NOLINT(bugprone-unused-return-value)
    ++answers_under_way_;
    peer_state.probed = is_adapter(*info_);
    if (!peer_state.probed) peer_state.quiet_since = now;
    return;
  }
  spare_.push_back(std::move(probe));
  if (code == -FI_EAGAIN && !too_long) return;
  const std::string trouble = connections_->trouble(peer_state.peer);
  fail_peer(peer_state, trouble.empty() ? fabric_error(ErrorKind::kPeer, "a probe", code).text
                                        : "connecting to it: " + trouble);
}

// A socket's buffer takes a probe even if the cable is cut. So this function reads the kernel's state of connections
// to peers towards which operations stay under way. It abandons a peer whose host has sent nothing for the whole
// timeout, not even acknowledgements, while data awaited one for half of it.
void Fabric::check_for_dead_paths() {
  constexpr Clock::duration kQuietEnough = std::chrono::seconds(1);
  const std::string_view name = provider();
  if (peer_timeout().count() == 0 || !(name.starts_with("tcp") || name.starts_with("net"))) return;
  struct Path {
    Peer peer;
    Connections::TcpPath known;
    std::optional<TcpState> state;
  };
  std::vector<Path> paths;
  {
    const std::scoped_lock held(mutex_);
    const Clock::time_point now = Clock::now();
    peer_states_.for_each_active([&](PeerState& peer_state) {
      const bool noted = peer_state.unacknowledged_since != Clock::time_point{};
      if (!quiet(peer_state, now, noted ? Clock::duration{} : kQuietEnough)) return;
      if (const auto path = connections_->tcp_path(peer_state.peer)) {
        paths.push_back({peer_state.peer, *path, {}});
      } else {
        peer_state.unacknowledged_since = {};
      }
    });
  }
  if (paths.empty()) return;
  // Without the mutex, as a search may take a millisecond.
  std::vector<TcpEnds> sought;
  for (Path& path : paths) {
    path.state = tcp_state(path.known.socket, path.known.ends);
    if (!path.state) sought.push_back(path.known.ends);
  }
  if (!sought.empty()) {
    const std::vector<int> found = find_tcp_sockets(sought);
    auto next = found.begin();
    for (Path& path : paths) {
      if (path.state) continue;
      path.known.socket = *next++;
      path.state = tcp_state(path.known.socket, path.known.ends);
    }
  }
  const std::scoped_lock held(mutex_);
  const Clock::time_point now = Clock::now();
  for (const Path& path : paths) {
    PeerState& peer_state = peer_states_.of(path.peer);
    if (!quiet(peer_state, now, {}) || connections_->number(path.peer) != path.known.number) continue;
    connections_->found_socket(path.peer, path.known.socket);
    if (!path.state || !path.state->unanswered) {
      peer_state.unacknowledged_since = {};
      continue;
    }
    if (peer_state.unacknowledged_since == Clock::time_point{}) peer_state.unacknowledged_since = now;
    if (path.state->silent >= peer_timeout() &&
        now - peer_state.unacknowledged_since >= std::chrono::duration_cast<Clock::duration>(peer_timeout()) / 2) {
      fail_peer(peer_state, "its host acknowledges nothing that is sent to it");
    }
  }
}

Error Fabric::out_of_reach(const std::string& why) const {
  const std::chrono::seconds limit = peer_timeout();
  return {ErrorKind::kPeer, fmt::format("libfabric {}: the peer is out of reach for {} s{}: {}", provider(),
                                        limit.count(), limit == asked_timeout_ ? " (FARSIDE_PEER_TIMEOUT)" : "", why)};
}

// Why an operation was never issued to a peer that is out of reach.
std::string Fabric::why_not_taken(Peer peer, const char* what) const {
  const std::string trouble = connections_->trouble(peer);
  if (!trouble.empty()) return "connecting to it: " + trouble;
  return connections_->connected(peer) ? fmt::format("{} is not taken", what)
                                       : "it does not answer the request to connect";
}

// Fails the operations towards the peer. Operations that the provider still has are not reused until they complete.
void Fabric::fail_peer(PeerState& peer_state, const std::string& why) {
  ++peer_state.failures;
  peer_state.quiet_since = Clock::now();
  peer_state.probed = false;
  connections_->stop(peer_state.peer);
  peer_state.issued.for_each([&](Operation& operation) {
    Pending& pending = *std::exchange(operation.pending, nullptr);
    peer_state.issued.remove(operation);
    peer_states_.end(peer_state);
    if (operation.request) --peer_state.requests;
    // A request no longer awaits its reply: it ends here if its send has completed.
    if (operation.awaits_reply && --operation.parts == 0) recycle(operation);
    operation.awaits_reply = false;
    pending.failed(out_of_reach(why));
    pending.completed();
  });
}

// Called when the connection to the peer has ended. The provider fails operations that were being sent. Requests that
// had been sent fail here, except those whose replies arrived before the event.
void Fabric::drop_replies(Peer peer, const std::string& why) {
  take_completions();
  peer_states_.of(peer).issued.for_each([&](Operation& operation) {
    if (!operation.awaits_reply) return;
    operation.pending->failed(
        Error{ErrorKind::kPeer, fmt::format("libfabric {}: the peer is lost: {}", provider(), why)});
    operation.awaits_reply = false;
    if (--operation.parts == 0) finish(operation);
  });
}

// Waits for answers that the provider has refused so far, or has not sent yet.
void Fabric::finish_answers() {
  for (const Clock::time_point end = Clock::now() + kLastAnswers; Clock::now() < end;
       std::this_thread::sleep_for(kLook)) {
    const std::scoped_lock held(mutex_);
    drain();
    if (unsent_.empty() && answers_under_way_ == 0) return;
  }
  log(LogLevel::kWarn, "answers to peers were not taken for {} s", kLastAnswers.count());
}

// Leaves the progress thread's work to application threads for a while, if they poll. Returns whether it has.
bool Fabric::back_off_for(AdaptivePolling& polling) {
  const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
  std::optional<std::chrono::microseconds> back_off;
  if (listening_.any())
    polling.end(polls);
  else
    back_off = polling.next(polls, Clock::now());
  runtime_serves_.store(polling.runtime_serves(), std::memory_order_relaxed);
  if (!back_off) return false;
  const std::uint32_t seen = back_off_event_.arm();
  if (!listening_.any() && !stop_.load(std::memory_order_acquire)) back_off_event_.sleep(seen, *back_off);
  back_off_event_.disarm();
  return true;
}

// Returns whether the progress thread has nothing to do until something arrives.
bool Fabric::idle() const {
  return peer_states_.active().empty() && unsent_.empty() && disconnecting_.empty() && !connections_->connecting() &&
         !connections_->any_lost();
}

// Returns how long the progress thread may sleep if nothing arrives. Called with the mutex held.
std::chrono::milliseconds Fabric::sleep_limit() {
  // Without new operations since the last check: a program that issues one now and then wakes the thread only once.
  sleeps_long_ = idle() && peer_states_.activations() == activations_then_;
  // Answers that the provider refused are sent again soon.
  if (!unsent_.empty()) return kTryAgain;
  if (too_many_connections()) return kRoomAgain;
  return sleeps_long_ ? kIdle : kSafetyNet;
}

// Wakes the progress thread if it sleeps long and there is something to check. Called with the mutex held.
void Fabric::end_long_sleep() {
  if (!sleeps_long_ || idle()) [[likely]]
    return;
  sleeps_long_ = false;
  eventfd_write(wake_fd_.get(), 1);
}

void Fabric::run_progress_thread() {
  fid* waited[] = {&queue_->fid, connections_->events()};
  const int to_try = waited[1] != nullptr ? 2 : 1;
  AdaptivePolling polling;
  std::chrono::milliseconds limit = kSafetyNet;
  bool something_came = false, connection_woke = false;
  int events_fd = -1;
  Clock::time_point look_at_connections{};
  Clock::time_point check_again = Clock::now() + kSafetyNet;
  while (!stop_.load(std::memory_order_acquire)) {
    if (Clock::now() >= check_again) {
      {
        const std::scoped_lock held(mutex_);
        check_peers();
        activations_then_ = peer_states_.activations();
      }
      check_for_dead_paths();
      check_again = Clock::now() + kSafetyNet;
    }
    if (back_off_for(polling)) {
      // The pollers take completions, but no connection events.
      if (Clock::now() >= look_at_connections) {
        const std::scoped_lock held(mutex_);
        connections_->progress();
        look_at_connections = Clock::now() + kLookNow;
      }
      continue;
    }
    const std::uint32_t runtime_polls = runtime_polls_.load(std::memory_order_relaxed);
    {
      const std::scoped_lock held(mutex_);
      if (!connections_->progress() && connection_woke) connections_->look_for_shortage();
      drain();
      limit = sleep_limit();
      // A listener that lacks descriptors keeps the file descriptor readable.
      events_fd = connections_->shortage() ? -1 : connections_->events_fd();
    }
    // Wakes also if nothing completed here: a peer may have written into this process's memory.
    wake_listeners();
    if (something_came && runtime_polls_.load(std::memory_order_relaxed) != runtime_polls) {
      polling.leave_to_runtime(Clock::now());
      something_came = false;
      continue;
    }
    something_came = true;
    if (fi_trywait(fabric_.get(), waited, to_try) != FI_SUCCESS) continue;
    // fi_trywait makes progress as well, and does not say whether it has.
    wake_listeners();
    // poll(2) ignores negative descriptors.
    pollfd fds[] = {{queue_fd_, POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}, {events_fd, POLLIN, 0}};
    something_came = ::poll(fds, 3, static_cast<int>(limit.count())) > 0 && fds[0].revents != 0;
    connection_woke = fds[2].revents != 0;
    eventfd_t wakes = 0;
    if (fds[1].revents != 0) eventfd_read(wake_fd_.get(), &wakes);
  }
}

}  // namespace farside

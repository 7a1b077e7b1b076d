// SPDX-License-Identifier: BSD-3-Clause
// What moves the endpoint on: completions, messages of peers, the polls of application threads, and the work of the
// progress thread (ProgressThread::Work). It checks the peers for PeerHealth, and acts on those that are out of reach.
#include "transport/fabric/fabric_progress.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <sys/uio.h>
#include <thread>
#include <utility>
#include <vector>

#include <rdma/fi_rma.h>

#include "transport/base/log.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/trace.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/handler/memory_fault.hpp"

namespace farside {
namespace {

// ns; between two polls that look at connection events. A thread that polls without a pause keeps the mutex from the
// progress thread, which would have to sleep until it is unlocked.
constexpr std::uint64_t kReadEventsEveryNs = Timing::Nanoseconds(Timing::kReadEventsEvery).count();
constexpr std::uint64_t kLongPollNs = Timing::kLongPoll.count();

}  // namespace

Status FabricProgress::start(const Settings& settings, ConnectionEndpoints::Resolve resolve, std::size_t openers) {
  Connections::Opening opening;
  opening.threads = domain_.by_adapter() || resolve ? openers : 0;
  opening.opened = [this] { thread_.wake(); };
  opening.resolve = std::move(resolve);
  Result<std::unique_ptr<Connections>> connections = Connections::open(
      domain_, limits_.most_receives,
      [this](Peer peer, const std::string& why, bool in_order) { drop_replies(peer, why, in_order); },
      [this](Peer peer) { in_flight_.peers().withdraw_endpoint(peer); }, std::move(opening));
  if (!connections) return connections.error();
  connections_ = std::move(connections.value());
  // The peer may have sent DISCONNECT before it ended the connection.
  connections_->before_end = [this] { take_completions(); };
  connections_->before_more = [this](std::size_t number) { receives_.follow(number); };
  eviction_.emplace(*connections_, in_flight_.peers(), replies_, settings.connections);
  share_node(1);
  if (domain_.registers_local()) in_flight_.memory().begin(domain_.domain());
  if (Status s = receives_.begin(connections_->endpoints().receiver(), connections_->endpoints().most_receives()); !s)
    return s;
  // Without its thread the endpoint is useless: no route.
  if (Status s = thread_.start(*this, domain_.queue_fd()); !s) return Error{ErrorKind::kNoRoute, s.error().text};
  return {};
}

FabricProgress::~FabricProgress() {
  if (thread_.running()) {
    {
      const std::scoped_lock held(mutex_);
      leaving_ = true;
      if (!domain_.by_adapter()) eviction_->leave_all();
    }
    finish_answers();
    thread_.stop();
  }
  connections_.reset();  // before the buffers to which the endpoints may still write
}

void FabricProgress::share_node(std::size_t processes) {
  const std::scoped_lock held(mutex_);
  eviction_->share_node(processes);
}

void FabricProgress::expect_transfer(std::size_t bytes) {
  constexpr std::size_t kLarge = 65536;
  constexpr std::uint64_t kLongest = Timing::Nanoseconds(Timing::kLongestTransfer).count();
  if (bytes < kLarge) [[likely]]
    return;
  // 1 ns per byte. An addition of another thread may be lost.
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t until = std::max(now, transfers_until_.load(std::memory_order_relaxed)) + bytes;
  transfers_until_.store(std::min(until, now + kLongest), std::memory_order_relaxed);
}

// Called with the mutex held.
Error FabricProgress::out_of_reach(Peer peer, const std::string& why) const {
  const std::chrono::seconds timeout = health_.timeout(peer);
  return {ErrorKind::kPeer,
          fmt::format("libfabric {}: the peer is out of reach for {} s{}: {}", domain_.provider(), timeout.count(),
                      timeout == health_.timeout() ? " (FARSIDE_PEER_TIMEOUT)" : "", why)};
}

ssize_t FabricProgress::make_ready(PeerState& peer_state) {
  const std::scoped_lock held(mutex_);
  in_flight_.peers().activate(peer_state);
  fid_ep* endpoint = nullptr;
  const ssize_t code = connections_->reach(peer_state.peer, endpoint);
  if (code != 0) return code;
  if (peer_state.losses.to_report.exchange(false, std::memory_order_relaxed)) return -FI_ECONNRESET;
  const std::scoped_lock held_peer(peer_state.mutex);
  peer_state.endpoint = endpoint;
  return 0;
}

Reach FabricProgress::reach(Peer peer) {
  const std::scoped_lock held(mutex_);
  fid_ep* endpoint = nullptr;
  (void)connections_->reach(peer, endpoint);
  return {connections_->connected(peer), connections_->connect_error(peer)};
}

Error FabricProgress::not_taken(Peer peer, const char* what) {
  const std::scoped_lock held(mutex_);
  const std::string error = connections_->connect_error(peer);
  if (!error.empty()) return out_of_reach(peer, "connecting to it: " + error);
  return out_of_reach(peer, connections_->connected(peer) ? fmt::format("{} is not taken", what)
                                                          : "it does not answer the request to connect");
}

// Takes all completions, and moves connections, answers and evictions on. Returns whether anything completed or
// happened. Called with the mutex held.
bool FabricProgress::advance() {
  bool any = take_completions();
  if (connections_->connecting()) {
    any = connections_->progress() || any;
    any = take_from_rings() || any;  // libfabric 1.18 and later poll the sockets there, too
  }
  if (receives_.any_refused()) receives_.post_refused();
  if (!deferred_.empty()) execute_deferred();
  if (replies_.any_unsent()) replies_.send_unsent(health_.timeout());
  if (eviction_->any_disconnecting()) eviction_->disconnect_idle();
  if (eviction_->too_many()) eviction_->make_room();
  return any;
}

bool FabricProgress::take_completions() {
  std::array<fi_cq_msg_entry, 32> entries;
  bool any = false;
  while (true) {
    const ssize_t count = [&] {
      const MemoryFault::Reported reported;
      return fi_cq_read(domain_.queue(), entries.data(), entries.size());
    }();
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
  return take_from_rings() || any;
}

void FabricProgress::complete(const fi_cq_msg_entry& entry) {
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  if (context == nullptr) return;
  switch (context->kind) {
    case Context::Kind::kOperation: return in_flight_.completed(static_cast<Operation&>(*context));
    case Context::Kind::kReceive: {
      auto& buffer = static_cast<Receive&>(*context);
      take_from_rings();  // the messages ahead of it
      receive({buffer.bytes.data(), entry.len});
      return receives_.post_again(buffer);
    }
    case Context::Kind::kReply: {
      auto& reply = static_cast<Reply&>(*context);
      if (reply.probe) PeerHealth::probe_completed(in_flight_.peers().of(reply.peer), Clock::now());
      return replies_.completed(reply);
    }
  }
}

void FabricProgress::complete_with_error() {
  fi_cq_err_entry entry{};
  fid_cq* const queue = domain_.queue();
  if (fi_cq_readerr(queue, &entry, 0) != 1) return;
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  const std::string text = fmt::format("{}: {}", fi_strerror(entry.err),
                                       fi_cq_strerror(queue, entry.prov_errno, entry.err_data, nullptr, 0));
  if (context == nullptr) {
    // Errors without a context have two causes. The tcp provider of libfabric 1.17 reports the receive in flight at a
    // shutdown a second time, without its context. A write into a ring has no context, and fails if the connection
    // ends.
    if (entry.err != FI_ECANCELED)
      log(domain_.by_sockets() ? LogLevel::kInfo : LogLevel::kError, "libfabric {}: {}", domain_.provider(), text);
    return;
  }
  switch (context->kind) {
    case Context::Kind::kOperation: {
      auto& operation = static_cast<Operation&>(*context);
      const char* const why = entry.err == FI_ECANCELED ? "the connection has ended: " : "";
      const Peer peer = operation.peer;
      // A request whose send failed gets no reply.
      const fid_ep* const endpoint = in_flight_.failed(
          operation, Error{ErrorKind::kPeer, fmt::format("libfabric {}: {}{}", domain_.provider(), why, text)});
      connections_->failed(peer, endpoint, text);
      return;
    }
    case Context::Kind::kReceive:
      // Cancelled: the connection ended while the message was arriving.
      if (entry.err != FI_ECANCELED) log(LogLevel::kWarn, "a message was refused: {}", text);
      return receives_.post_again(static_cast<Receive&>(*context));
    case Context::Kind::kReply: {
      auto& reply = static_cast<Reply&>(*context);
      const Peer peer = reply.peer;
      const fid_ep* const endpoint = reply.endpoint;
      if (reply.probe) {
        PeerHealth::probe_failed(in_flight_.peers().of(peer));
      } else {
        log(LogLevel::kWarn, "an answer to a peer could not be delivered: {}", text);
      }
      replies_.completed(reply);
      connections_->failed(peer, endpoint, text);
      return;
    }
  }
}

// Called when the connection to the peer has ended, and the provider no longer reads the buffers of messages on it. The
// provider itself fails the operations that were to generate a completion. This function fails the requests, except
// those whose replies arrived before the event.
void FabricProgress::drop_replies(Peer peer, const std::string& why, bool in_order) {
  take_completions();
  in_flight_.fail_awaiting(
      peer, Error{ErrorKind::kPeer, fmt::format("libfabric {}: the peer is lost: {}", domain_.provider(), why)},
      in_order);
}

// Messages that arrive: requests of peers, which the message handler executes and answers, and replies to requests of
// this process.
void FabricProgress::receive(std::span<const std::byte> message) {
  if (message.empty()) return;
  const auto kind = static_cast<MessageKind>(message[0]);
  if (kind == MessageKind::kReply) {
    if (!in_flight_.take_reply(message)) log(LogLevel::kWarn, "a reply without a request was dropped");
    return;
  }
  if (kind == MessageKind::kProbe) return;
  if (kind == MessageKind::kDisconnect) return eviction_->receive(message);
  if (kind != MessageKind::kOperations && kind != MessageKind::kRegions && kind != MessageKind::kDescribe) {
    log(LogLevel::kWarn, "a message of unknown kind was dropped");
    return;
  }
  RequestHeader request{};
  std::memcpy(&request, message.data(), std::min(message.size(), sizeof request));
  const std::optional<Peer> sender = connections_->table().find_known(request.identity);
  if (!sender) return log(LogLevel::kWarn, "a request of an unknown process was dropped");
  const TraceServed served(RouteKind::kFabric, message.size());
  const bool behind = std::ranges::find(deferred_, *sender, &Deferred::sender) != deferred_.end();
  if (behind || !execute_request(*sender, message))
    patiently([&] { deferred_.push_back({*sender, std::vector(message.begin(), message.end())}); });
}

// Returns false if the request must be executed later. It waits for an accumulate lock only while no other one has to.
bool FabricProgress::execute_request(Peer sender, std::span<const std::byte> message) {
  RequestHeader request{};
  std::memcpy(&request, message.data(), std::min(message.size(), sizeof request));
  // Before the message is executed, since there may be no memory.
  std::unique_ptr<Reply> reply = patiently([&] { return Replies::take(sender); });
  MessageHandler::Answer answer =
      deferred_.empty() ? handler_.execute(message) : handler_.execute(message, {}, std::chrono::microseconds(0));
  if (answer.deferred || !answer.known_sender || (request.flags & RequestHeader::kNoReply) != 0) {
    replies_.drop(std::move(reply));
    return !answer.deferred;
  }
  statistics_.add(RouteKind::kFabric, Counted::kHandler, message.size());
  reply->header = answer.header;
  reply->fetched = std::move(answer.fetched);
  replies_.answer(std::move(reply));
  return true;
}

// Executes the requests that were deferred, in their order per peer.
void FabricProgress::execute_deferred() {
  std::vector<Peer> waiting;
  for (auto next = deferred_.begin(); next != deferred_.end();) {
    const bool behind = std::ranges::find(waiting, next->sender) != waiting.end();
    if (!behind && execute_request(next->sender, next->message)) {
      next = deferred_.erase(next);
      continue;
    }
    if (!behind) waiting.push_back(next->sender);
    ++next;
  }
}

bool FabricProgress::take_from_rings() {
  return connections_->take_messages([this](std::span<const std::byte> message) { receive(message); });
}

ssize_t FabricProgress::send(Reply& reply) {
  const iovec parts[] = {{&reply.header, sizeof reply.header}, {reply.fetched.data(), reply.fetched.size()}};
  // DISCONNECT concerns one connection, and must not open another one.
  if (reply.header.kind == MessageKind::kDisconnect && reply.header.operation != connections_->number(reply.peer))
    return -FI_ENOTCONN;
  fid_ep* endpoint = nullptr;
  if (const ssize_t code = connections_->reach(reply.peer, endpoint, Connections::What::kAnswer); code != 0)
    return code;
  reply.endpoint = endpoint;
  // An adapter completes an operation when the peer's adapter has acknowledged it. An empty write therefore suffices as
  // a probe, and no process has to wake for it.
  if (reply.header.kind == MessageKind::kProbe && domain_.by_adapter()) {
    const fi_rma_iov nowhere{};
    const fi_msg_rma nothing{nullptr, nullptr, 0, FI_ADDR_UNSPEC, &nowhere, 1, &reply.provider_context, 0};
    return fi_writemsg(endpoint, &nothing, FI_COMPLETION);
  }
  const std::size_t count = reply.fetched.empty() ? 1 : 2;
  MessageRing* const ring = MessageRing::of(endpoint);
  if (ring != nullptr && reply.header.kind == MessageKind::kReply) {
    using enum MessageRing::Release;
    // When the endpoint is being closed, answers have completions, because the process waits until the last ones are
    // sent.
    const bool copied = !leaving_ && ring->copies(sizeof reply.header + reply.fetched.size());
    const ssize_t code = ring->write(endpoint, {parts, count}, reply, copied ? kAtOnce : kCompletion);
    reply.copied = code == 0 && copied;
    if (code != -FI_EAGAIN) return code;
  }
  const ssize_t code = send_message(in_flight_.memory(), endpoint, {parts, count}, reply.slot, reply);
  if (code == 0 && reply.header.kind == MessageKind::kDisconnect)
    connections_->present(reply.peer)->disconnect_sent = true;
  return code;
}

// Waits for answers that the provider has refused so far, or has not sent yet.
void FabricProgress::finish_answers() {
  for (const Clock::time_point end = Clock::now() + Timing::kLastReplies; Clock::now() < end;
       std::this_thread::sleep_for(Timing::kLookAtEnd)) {
    const std::scoped_lock held(mutex_);
    advance();
    if (replies_.idle() && deferred_.empty()) return;
  }
  log(LogLevel::kWarn, "answers to peers were not taken for {} s", Timing::kLastReplies.count());
}

bool FabricProgress::poll() {
  // A thread that holds the mutex already makes progress, or holds it for a moment only to find out whether another
  // thread does (endpoint_is_busy).
  return poll_with(std::unique_lock(mutex_, std::try_to_lock));
}

bool FabricProgress::poll_with(std::unique_lock<std::mutex> held) {
  thread_.polled();
  if (!held) return false;
  bool moved = false;
  const std::uint64_t begin = monotonic_ns();
  // A lack of memory there is none of the caller's, and the next poll tries again.
  (void)without_bad_alloc([&]() -> Status {
    if (begin >= read_events_at_ns_) {
      moved = connections_->progress();  // libfabric 1.18 and later poll the sockets there; advance() reads the rings
      read_events_at_ns_ = begin + kReadEventsEveryNs;
    }
    moved = advance() || moved;
    return {};
  });
  // RDMA over TCP that a peer issues generates no completion here. Only the duration of the poll shows that it moved
  // data.
  if (moved || monotonic_ns() - begin >= kLongPollNs) thread_.taken();
  held.unlock();
  // Another thread may sleep until one of these completions.
  if (moved) thread_.wake_listeners();
  return moved;
}

bool FabricProgress::poll_from_runtime() {
  if (!thread_.polled_from_runtime()) return false;
  if (!poll()) return false;
  statistics_.add(RouteKind::kFabric, Counted::kFromRuntime, 0);
  return true;
}

void FabricProgress::check() {
  std::vector<OperationPool::Operations> unused;  // freed at the end, without a mutex
  const std::scoped_lock held(mutex_);
  connections_->table().close_ended([this](Peer peer) { return !in_flight_.peers().any_in_flight(peer); });
  unused = in_flight_.peers().deactivate_unused();
  const Clock::time_point now = Clock::now();
  health_.check(now);
  if (!domain_.by_sockets()) return;
  end_silent_connections(now);
  health_.check_hosts(now);
}

// The provider accepts each connection to its listener, and keeps it until the request of a peer has come.
void FabricProgress::end_silent_connections(Clock::time_point now) {
  if (now < look_for_silence_at_) return;
  std::chrono::milliseconds longest = Timing::kLongestSilence;
  if (health_.timeout().count() > 0) longest = std::min<std::chrono::milliseconds>(longest, health_.timeout());
  look_for_silence_at_ = now + std::min<Clock::duration>(longest / 2, Timing::kSearchForSilence);
  if (const std::size_t ended = end_silent_sockets(connections_->address().socket, longest); ended > 0)
    log(LogLevel::kInfo, "{} connections on which nothing has come are closed", ended);
}

void FabricProgress::read_connection_events() {
  if (const std::unique_lock held(mutex_, std::try_to_lock); held) connections_->progress();
}

ProgressThread::Work::Sleep FabricProgress::progress(bool connection_woke) {
  const std::scoped_lock held(mutex_);
  // Readable without an event: the provider's listener may have failed to accept a connection, and does not say so.
  const int events = connections_->endpoints().events_fd();
  if (!connections_->progress() && connection_woke) connections_->room().look_for_shortage(events);
  advance();
  // While the listener lacks descriptors, the file descriptor of connection events stays readable.
  Sleep sleep{Timing::kSafetyNet, connections_->room().shortage ? -1 : events};
  // The answers, credits and receives that the provider has refused are soon given to it again.
  if (replies_.any_unsent() || receives_.any_refused() || connections_->owes_credits() || !deferred_.empty()) {
    sleep.limit = Timing::kTryAgain;
  } else if (eviction_->too_many()) {
    sleep.limit = Timing::kRoomAgain;
  }
  return sleep;
}

bool FabricProgress::may_sleep() {
  fid* waited[] = {&domain_.queue()->fid, &connections_->endpoints().events()->fid};
  // fi_trywait polls: a message may come into a ring, which wakes nobody. With the mutex, since another thread may be
  // reading the rings.
  const std::scoped_lock held(mutex_);
  if (fi_trywait(domain_.fabric(), waited, waited[1] != nullptr ? 2 : 1) != FI_SUCCESS) return false;
  return !connections_->any_message();
}

std::optional<ssize_t> FabricProgress::send_probe(Peer peer) {
  if (!replies_.room()) return {};
  std::unique_ptr<Reply> probe = Replies::take(peer);
  probe->header.kind = MessageKind::kProbe;
  probe->probe = true;
  return replies_.send(std::move(probe));
}

void FabricProgress::abandon(PeerState& peer_state, const std::string& why) {
  connections_->stop(peer_state.peer);  // first: the provider must not read what fail_all() gives free
  in_flight_.fail_all(peer_state, out_of_reach(peer_state.peer, why));
}

}  // namespace farside

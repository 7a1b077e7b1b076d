// SPDX-License-Identifier: BSD-3-Clause
// Progress of the endpoint: completions, messages of peers, the polls of application threads, and the work of the
// progress thread (ProgressThread::Work). It checks the peers for PeerHealth, and acts on those that are out of reach.
#include <algorithm>
#include <array>
#include <cstring>
#include <sys/uio.h>
#include <thread>
#include <vector>

#include <rdma/fi_rma.h>

#include "transport/base/log.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/trace.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/handler/memory_fault.hpp"

namespace farside {
namespace {

// ns; between two polls that look at connection events. A thread that polls without a pause keeps the mutex from the
// progress thread, which would have to sleep until it is unlocked.
constexpr std::uint64_t kReadEventsEveryNs = Timing::Nanoseconds(Timing::kReadEventsEvery).count();
constexpr std::uint64_t kLongPollNs = Timing::kLongPoll.count();

}  // namespace

Fabric::~Fabric() {
  if (thread_.running()) {
    {
      const std::scoped_lock held(mutex_);
      leaving_ = true;
      if (!domain_.by_adapter()) eviction_.leave_all();
    }
    // Waits for answers that the provider has refused so far, or has not sent yet.
    bool finished = false;
    for (const Clock::time_point end = Clock::now() + Timing::kLastReplies; !finished && Clock::now() < end;) {
      {
        const std::scoped_lock held(mutex_);
        advance();
        finished = replies_.idle();
      }
      if (!finished) std::this_thread::sleep_for(Timing::kLookAtEnd);
    }
    if (!finished) log(LogLevel::kWarn, "answers to peers were not taken for {} s", Timing::kLastReplies.count());
    thread_.stop();
  }
}

// Takes all completions, and moves connections, answers and evictions on. Returns whether anything completed or
// happened. Called with the mutex held.
bool Fabric::advance() {
  bool any = take_completions();
  if (connections_.connecting()) {
    any = connections_.progress() || any;
    any = take_from_rings() || any;  // libfabric 1.18 and later poll the sockets there, too
  }
  if (receives_.any_refused()) receives_.post_refused();
  if (replies_.any_deferred()) replies_.execute_deferred();
  if (replies_.any_unsent()) replies_.send_unsent(health_.timeout());
  if (eviction_.any_disconnecting()) eviction_.disconnect_idle();
  if (eviction_.too_many()) eviction_.make_room();
  return any;
}

bool Fabric::take_completions() {
  std::array<fi_cq_msg_entry, 32> entries;
  bool any = false;
  while (true) {
    const ssize_t count = [&] {
      const MemoryFault::Reported reported;
      return fi_cq_read(domain_.queue(), entries.data(), entries.size());
    }();
    if (fi_cq_err_entry error{}; count == -FI_EAVAIL && fi_cq_readerr(domain_.queue(), &error, 0) == 1) {
      complete_with_error(error);
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

void Fabric::complete(const fi_cq_msg_entry& entry) {
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  if (context == nullptr) return;
  switch (context->kind) {
    case Context::Kind::kOperation: return peers_.completed(static_cast<FabricOperation&>(*context));
    case Context::Kind::kReceive: {
      auto& buffer = static_cast<Receive&>(*context);
      take_from_rings();  // the messages ahead of it
      receive({buffer.bytes.data(), entry.len});
      return receives_.post_again(buffer);
    }
    case Context::Kind::kReply: {
      auto& reply = static_cast<Reply&>(*context);
      PeerState& peer = peers_.of(reply.peer);
      if (reply.header.kind == MessageKind::kProbe) PeerHealth::probe_completed(peer, Clock::now());
      if (reply.header.kind == MessageKind::kDisconnect && reply.header.operation == peer.connection_number())
        peer.current->disconnect_left = true;
      return replies_.completed(reply);
    }
  }
}

void Fabric::complete_with_error(const fi_cq_err_entry& entry) {
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  const std::string text = fmt::format("{}: {}", fi_strerror(entry.err),
                                       fi_cq_strerror(domain_.queue(), entry.prov_errno, entry.err_data, nullptr, 0));
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
      auto& operation = static_cast<FabricOperation&>(*context);
      const char* const why = entry.err == FI_ECANCELED ? "the connection has ended: " : "";
      PeerState& peer = operation.peer;
      // A request whose send failed gets no reply.
      const fid_ep* const endpoint = peers_.failed(
          operation, Error{ErrorKind::kPeer, fmt::format("libfabric {}: {}{}", domain_.provider(), why, text)});
      connections_.failed(peer, endpoint, text);
      return;
    }
    case Context::Kind::kReceive:
      // Cancelled: the connection ended while the message was arriving.
      if (entry.err != FI_ECANCELED) log(LogLevel::kWarn, "a message was refused: {}", text);
      return receives_.post_again(static_cast<Receive&>(*context));
    case Context::Kind::kReply: {
      auto& reply = static_cast<Reply&>(*context);
      PeerState& peer = peers_.of(reply.peer);
      const fid_ep* const endpoint = reply.endpoint;
      if (reply.header.kind == MessageKind::kProbe) peer.probed = false;
      if (reply.is_answer()) log(LogLevel::kWarn, "an answer to a peer could not be delivered: {}", text);
      replies_.completed(reply);
      connections_.failed(peer, endpoint, text);
      return;
    }
  }
}

// Messages that arrive: requests of peers, which the message handler executes and answers, and replies to requests of
// this process.
void Fabric::receive(std::span<const std::byte> message) {
  if (message.empty()) return;
  const auto kind = static_cast<MessageKind>(message[0]);
  if (kind == MessageKind::kReply) {
    if (!peers_.take_reply(message)) log(LogLevel::kWarn, "a reply without a request was dropped");
    return;
  }
  if (kind == MessageKind::kProbe) {
    ReplyHeader header{};
    std::memcpy(&header, message.data(), std::min(message.size(), sizeof header));
    PeerState* const told = header.operation != 0 ? peers_.find(header.operation) : nullptr;
    if (told != nullptr) peers_.numbered(*told, header.generation);
    return;
  }
  if (kind == MessageKind::kDisconnect) return eviction_.receive(message);
  if (kind != MessageKind::kOperations && kind != MessageKind::kRegions && kind != MessageKind::kDescribe) {
    log(LogLevel::kWarn, "a message of unknown kind was dropped");
    return;
  }
  RequestHeader request{};
  std::memcpy(&request, message.data(), std::min(message.size(), sizeof request));
  PeerState* const sender = peers_.find(request.identity);
  if (sender == nullptr) return log(LogLevel::kWarn, "a request of an unknown process was dropped");
  const TraceServed served(RouteKind::kFabric, message.size());
  replies_.execute(sender->number, message);
  if ((request.flags & RequestHeader::kNoReply) != 0) peers_.numbered(*sender, request.generation);
}

ssize_t Fabric::send(Reply& reply) {
  const iovec parts[] = {{&reply.header, sizeof reply.header}, {reply.fetched.data(), reply.fetched.size()}};
  PeerState& peer = peers_.of(reply.peer);
  // DISCONNECT concerns one connection, and must not open another one.
  if (reply.header.kind == MessageKind::kDisconnect && reply.header.operation != peer.connection_number())
    return -FI_ENOTCONN;
  fid_ep* endpoint = nullptr;
  if (const ssize_t code = connections_.reach(peer, endpoint, Connections::What::kAnswer); code != 0) return code;
  reply.endpoint = endpoint;
  // An adapter completes an operation when the peer's adapter has acknowledged it. An empty write therefore suffices as
  // a probe, and no process has to wake for it.
  if (reply.header.kind == MessageKind::kProbe && reply.header.operation == 0 && domain_.by_adapter()) {
    const fi_rma_iov nowhere{};
    const fi_msg_rma nothing{nullptr, nullptr, 0, FI_ADDR_UNSPEC, &nowhere, 1, &reply.provider_context, 0};
    return fi_writemsg(endpoint, &nothing, FI_COMPLETION);
  }
  const std::size_t count = reply.fetched.empty() ? 1 : 2;
  MessageRing* const ring = MessageRing::of(endpoint);
  if (ring != nullptr && reply.is_answer()) {
    using enum MessageRing::Release;
    // When the endpoint is being closed, answers have completions, because the process waits until the last ones are
    // sent.
    const bool copied = !leaving_ && ring->copies({parts, count});
    const ssize_t code = ring->write(endpoint, {parts, count}, reply, copied ? kAtOnce : kCompletion);
    reply.copied = code == 0 && copied;
    if (code != -FI_EAGAIN) return code;
  }
  const ssize_t code = send_message(peers_.memory(), endpoint, {parts, count}, reply.slot, reply);
  if (code == 0 && reply.header.kind == MessageKind::kDisconnect) peer.current->disconnect_sent = true;
  return code;
}

bool Fabric::poll_with(std::unique_lock<std::mutex> held) {
  thread_.polled();
  if (!held) return false;
  bool moved = false;
  const std::uint64_t begin = monotonic_ns();
  // A lack of memory there is none of the caller's, and the next poll tries again.
  (void)without_bad_alloc([&] {
    if (begin >= read_events_at_ns_) {
      moved = connections_.progress();  // libfabric 1.18 and later poll the sockets there; advance() reads the rings
      read_events_at_ns_ = begin + kReadEventsEveryNs;
    }
    moved = advance() || moved;
  });
  // RDMA over TCP that a peer issues generates no completion here. Only the duration of the poll shows that it moved
  // data.
  if (moved || monotonic_ns() - begin >= kLongPollNs) thread_.taken();
  held.unlock();
  // Another thread may sleep until one of these completions.
  if (moved) thread_.wake_listeners();
  return moved;
}

bool Fabric::poll_from_runtime() {
  if (!thread_.polled_from_runtime()) return false;
  if (!poll_with(std::unique_lock(mutex_, std::try_to_lock))) return false;
  statistics_.add(RouteKind::kFabric, Counted::kFromRuntime, 0);
  return true;
}

void Fabric::check() {
  std::vector<OperationPool::Operations> unused;  // freed at the end, without a mutex
  const std::scoped_lock held(mutex_);
  connections_.close_ended();
  unused = peers_.deactivate_unused();
  const Clock::time_point now = Clock::now();
  if (domain_.by_sockets()) health_.check_hosts(now);  // first: a probe ends the quiet
  health_.check(now);
}

ProgressThread::Work::Sleep Fabric::progress(bool connection_woke) {
  const std::scoped_lock held(mutex_);
  // Readable without an event: the provider's listener may have failed to accept a connection, and does not say so.
  const int events = connections_.events_fd();
  if (!connections_.progress() && connection_woke) connections_.room().look_for_shortage(events);
  advance();
  // While the listener lacks descriptors, the file descriptor of connection events stays readable.
  Sleep sleep{Timing::kSafetyNet, connections_.room().shortage ? -1 : events};
  // The answers, credits and receives that the provider has refused are soon given to it again.
  if (replies_.any_unsent() || receives_.any_refused() || connections_.owes_credits() || replies_.any_deferred()) {
    sleep.limit = Timing::kTryAgain;
  } else if (eviction_.too_many()) {
    sleep.limit = Timing::kRoomAgain;
  }
  return sleep;
}

bool Fabric::may_sleep() {
  fid* waited[] = {&domain_.queue()->fid, &connections_.events()->fid};
  // fi_trywait polls, and a message that arrives in a ring wakes no thread. With the mutex, since another thread may
  // be reading the rings.
  const std::scoped_lock held(mutex_);
  if (fi_trywait(domain_.fabric(), waited, waited[1] != nullptr ? 2 : 1) != FI_SUCCESS) return false;
  return !connections_.any_message();
}

}  // namespace farside

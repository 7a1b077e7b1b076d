// SPDX-License-Identifier: BSD-3-Clause
// Messages that arrive: requests of peers, which the message handler executes and answers, and replies to requests of
// this process.
#include <algorithm>
#include <cstring>
#include <optional>
#include <sys/uio.h>
#include <thread>
#include <utility>
#include <vector>

#include "transport/base/log.hpp"
#include "transport/base/trace.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/local_buffers.hpp"
#include "transport/fabric/message_ring.hpp"

namespace farside {
namespace {

constexpr std::chrono::seconds kLastAnswers{2};  // at the end, for peers that take no answers
constexpr std::chrono::microseconds kLook{50};

}  // namespace

void Fabric::receive(std::span<const std::byte> message) {
  if (message.empty()) return;
  const auto kind = static_cast<MessageKind>(message[0]);
  if (kind == MessageKind::kReply) {
    if (!under_way_.take_reply(message)) log(LogLevel::kWarn, "a reply without a request was dropped");
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
  const std::optional<Peer> sender = connections_->find_connected(request.identity);
  if (!sender) return log(LogLevel::kWarn, "a request of an unknown process was dropped");
  const TraceServed served(RouteKind::kFabric, message.size());
  const bool behind = std::ranges::find(deferred_, *sender, &Deferred::sender) != deferred_.end();
  if (behind || !execute_request(*sender, message))
    patiently([&] { deferred_.push_back({*sender, std::vector(message.begin(), message.end())}); });
}

// Returns false if the request must be executed later. It waits for an accumulate lock only while no other one has to.
bool Fabric::execute_request(Peer sender, std::span<const std::byte> message) {
  RequestHeader request{};
  std::memcpy(&request, message.data(), std::min(message.size(), sizeof request));
  // Before the message is executed, since there may be no memory.
  std::unique_ptr<Reply> reply = patiently([&] { return replies_.take(sender); });
  MessageHandler::Answer answer =
      deferred_.empty() ? handler_.execute(message) : handler_.execute(message, {}, std::chrono::microseconds(0));
  if (!answer.deferred) answer.log_refusal();
  if (answer.deferred || !answer.known_sender || (request.flags & RequestHeader::kNoReply) != 0) {
    replies_.reuse(std::move(reply));
    return !answer.deferred;
  }
  statistics_.add(RouteKind::kFabric, Counted::kHandler, message.size());
  reply->header = answer.header;
  reply->fetched = std::move(answer.fetched);
  replies_.answer(std::move(reply), [this](Reply& each) { return send(each); });
  return true;
}

// Executes the requests that were deferred, in their order per peer.
void Fabric::execute_deferred() {
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

bool Fabric::take_from_rings() {
  return connections_->take_messages([this](std::span<const std::byte> message) { receive(message); });
}

ssize_t Fabric::send(Reply& reply) {
  const iovec parts[] = {{&reply.header, sizeof reply.header}, {reply.fetched.data(), reply.fetched.size()}};
  // DISCONNECT concerns one connection, and must not open another one.
  if (reply.header.kind == MessageKind::kDisconnect && reply.header.operation != connections_->number(reply.peer))
    return -FI_ENOTCONN;
  fid_ep* endpoint = nullptr;
  if (const ssize_t code = connections_->reach(reply.peer, endpoint, Connections::What::kAnswer); code != 0)
    return code;
  reply.endpoint = endpoint;
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
  const ssize_t code = send_message(under_way_.memory(), endpoint, parts, count, reply.slot, reply);
  if (code == 0 && reply.header.kind == MessageKind::kDisconnect)
    connections_->present(reply.peer)->disconnect_sent = true;
  return code;
}

void Fabric::send_replies() {
  std::optional<Clock::duration> timeout;
  if (health_.timeout().count() > 0) timeout = health_.timeout();
  replies_.send_unsent(timeout, [this](Reply& reply) { return send(reply); });
}

// Waits for answers that the provider has refused so far, or has not sent yet.
void Fabric::finish_answers() {
  for (const Clock::time_point end = Clock::now() + kLastAnswers; Clock::now() < end;
       std::this_thread::sleep_for(kLook)) {
    const std::scoped_lock held(mutex_);
    advance();
    if (replies_.idle() && deferred_.empty()) return;
  }
  log(LogLevel::kWarn, "answers to peers were not taken for {} s", kLastAnswers.count());
}

}  // namespace farside

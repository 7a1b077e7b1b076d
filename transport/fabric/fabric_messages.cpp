// SPDX-License-Identifier: BSD-3-Clause
// Messages that arrive: requests of peers, which the message handler executes and answers, and replies to requests of
// this process.
#include <algorithm>
#include <cstring>
#include <optional>

#include <rdma/fi_rma.h>

#include "transport/base/log.hpp"
#include "transport/base/trace.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {

Status Fabric::post_receive(Receive& buffer) {
  ssize_t code = 0;
  do {
    void* const descriptor = buffer.registered != nullptr ? fi_mr_desc(buffer.registered.get()) : nullptr;
    code = fi_recv(connections_->receiver(), buffer.bytes.data(), buffer.bytes.size(), descriptor, FI_ADDR_UNSPEC,
                   &buffer.reserved);
  } while (code == -FI_EAGAIN);
  return code == 0 ? Status() : Status(fabric_error(ErrorKind::kOther, "fi_recv", code));
}

void Fabric::receive_again(Receive& buffer) {
  if (Status status = post_receive(buffer); !status) log(LogLevel::kError, "{}", status.error().text);
}

void Fabric::receive(Receive& buffer, std::size_t bytes) {
  const std::span<const std::byte> message(buffer.bytes.data(), bytes);
  if (bytes == 0) return;
  const auto kind = static_cast<MessageKind>(message[0]);
  if (kind == MessageKind::kReply) return take_reply(message);
  if (kind == MessageKind::kProbe) return;
  if (kind == MessageKind::kDisconnect) return receive_disconnect(message);
  if (kind != MessageKind::kOperations && kind != MessageKind::kRegions && kind != MessageKind::kDescribe) {
    log(LogLevel::kWarn, "a message of unknown kind was dropped");
    return;
  }
  RequestHeader request{};
  std::memcpy(&request, message.data(), std::min(message.size(), sizeof request));
  const std::optional<Peer> sender = connections_->find_connected(request.identity);
  if (!sender) return log(LogLevel::kWarn, "a request of an unknown process was dropped");
  const TraceServed served(RouteKind::kFabric, bytes);
  MessageHandler::Answer answer = handler_.execute(message);
  if (answer.refused != nullptr) log(LogLevel::kWarn, "a request to the handler was refused: {}", answer.refused);
  if (!answer.known_sender) return;
  statistics_.add(RouteKind::kFabric, Counted::kHandler, bytes);
  std::unique_ptr<Reply> reply = take_reply_buffer();
  reply->refused_since = {};
  reply->probe = false;
  reply->peer = *sender;
  reply->header = answer.header;
  reply->fetched = std::move(answer.fetched);
  unsent_.push_back(std::move(reply));
  send_replies();
}

std::unique_ptr<Reply> Fabric::take_reply_buffer() {
  if (spare_.empty()) return std::make_unique<Reply>();
  std::unique_ptr<Reply> reply = std::move(spare_.back());
  spare_.pop_back();
  return reply;
}

ssize_t Fabric::send(Reply& reply) {
  const iovec parts[] = {{&reply.header, sizeof reply.header}, {reply.fetched.data(), reply.fetched.size()}};
  fid_ep* endpoint = nullptr;
  if (const ssize_t code = connections_->reach(reply.peer, endpoint, Connections::What::kAnswer); code != 0)
    return code;
  reply.endpoint = endpoint;
  return send(endpoint, parts, reply.fetched.empty() ? 1U : 2U, reply.slot, reply);
}

// An adapter completes an operation when the peer's adapter has acknowledged it. So an empty write suffices, for
// which no process has to wake.
ssize_t Fabric::send_probe(Reply& probe) {
  probe.header = {};
  probe.header.kind = MessageKind::kProbe;
  probe.fetched.clear();
  probe.probe = true;
  if (!is_adapter(*info_)) return send(probe);
  fid_ep* endpoint = nullptr;
  if (const ssize_t code = connections_->reach(probe.peer, endpoint); code != 0) return code;
  probe.endpoint = endpoint;
  const fi_rma_iov nowhere{};
  const fi_msg_rma nothing{nullptr, nullptr, 0, FI_ADDR_UNSPEC, &nowhere, 1, &probe.reserved, 0};
  return fi_writemsg(endpoint, &nothing, FI_COMPLETION);
}

void Fabric::send_replies() {
  // A peer that takes no answers must not delay answers to other peers.
  std::optional<Peer> refused;
  for (auto next = unsent_.begin(); next != unsent_.end() && answers_under_way_ < limits_.answers;) {
    Reply& reply = **next;
    if (reply.peer == refused) {
      ++next;
      continue;
    }
    const ssize_t code = send(reply);
    if (code == -FI_EAGAIN) {  // again at the next poll
      refused = reply.peer;
      const Clock::time_point now = Clock::now();
      if (reply.refused_since == Clock::time_point{}) reply.refused_since = now;
      const bool patient = peer_timeout().count() == 0 || now - reply.refused_since < peer_timeout();
      if (patient) {
        ++next;
        continue;
      }
    }
    if (code == 0) {
      next->release();  // the provider has it until its completion: NOLINT(bugprone-unused-return-value)
      ++answers_under_way_;
    } else {
      log(LogLevel::kWarn, "{}", fabric_error(ErrorKind::kPeer, "an answer to a peer", code).text);
      spare_.push_back(std::move(*next));  // with its slot of registered memory
    }
    next = unsent_.erase(next);
  }
}

void Fabric::take_reply(std::span<const std::byte> message) {
  Operation* const operation = operations_.take_answer(message);
  if (operation == nullptr) return log(LogLevel::kWarn, "a reply without a request was dropped");
  if (--operation->parts == 0) finish(*operation);
}

}  // namespace farside

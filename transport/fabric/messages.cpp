// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/messages.hpp"

#include <cstring>
#include <iterator>

#include "transport/base/log.hpp"

namespace farside {

ssize_t send_message(LocalMemory& memory, fid_ep* endpoint, std::span<const iovec> parts, LocalMemory::Slot*& slot,
                     Context& context) {
  if (!memory.needed()) {
    const fi_msg message{parts.data(), nullptr, parts.size(), FI_ADDR_UNSPEC, &context.provider_context, 0};
    return fi_sendmsg(endpoint, &message, FI_COMPLETION);
  }
  if (slot == nullptr) {
    if (const int code = memory.take(context.kind == Context::Kind::kOperation, slot); code != 0) return code;
  }
  iovec whole{slot->bytes, 0};
  for (const iovec& part : parts) {
    if (part.iov_len > 0) std::memcpy(slot->bytes + whole.iov_len, part.iov_base, part.iov_len);
    whole.iov_len += part.iov_len;
  }
  const fi_msg message{&whole, &slot->descriptor, 1, FI_ADDR_UNSPEC, &context.provider_context, 0};
  return fi_sendmsg(endpoint, &message, FI_COMPLETION);
}

void Receives::follow(std::size_t connections) {
  const std::size_t wanted = limits_.receives(connections);
  if (wanted <= buffers_.size()) return;
  if (Status added = add(wanted - buffers_.size()); !added) {
    limits_.most_receives = buffers_.size();
    log(LogLevel::kInfo, "{} receives for {} connections: {}", buffers_.size(), connections, added.error().text);
  }
}

Status Receives::add(std::size_t count) {
  buffers_.reserve(buffers_.size() + count);  // the provider has each one before it is kept
  for (std::size_t i = 0; i < count; ++i) {
    auto buffer = std::make_unique<Receive>();
    if (memory_.needed()) {
      const int refused =
          memory_.register_memory(buffer->bytes.data(), buffer->bytes.size(), FI_RECV, buffer->registered);
      if (refused != 0)
        return fabric_error(ErrorKind::kNoMemory, "registering receives (locked memory limit: ulimit -l)", refused);
    }
    // The queue has room. libfabric says FI_EAGAIN where it has no memory for an entry (prov/tcp).
    ssize_t code = post(*buffer);
    if (code == -FI_EAGAIN) code = -FI_ENOMEM;
    if (code != 0) return fabric_error(ErrorKind::kNoRoute, "fi_recv", code);
    buffers_.push_back(std::move(buffer));
  }
  return {};
}

void Receives::post_again(Receive& buffer) {
  const ssize_t code = post(buffer);
  if (code == -FI_EAGAIN) {
    refused_.push_back(&buffer);
  } else if (code != 0) {
    log(LogLevel::kError, "{}", fabric_error(ErrorKind::kOther, "fi_recv", code).text);
  }
}

// Returns false if the request must be executed later. It waits for an accumulate lock only while no other one has to.
bool Replies::execute_now(Peer sender, std::span<const std::byte> message) {
  RequestHeader request{};
  std::memcpy(&request, message.data(), std::min(message.size(), sizeof request));
  // Before the message is executed, since there may be no memory.
  std::unique_ptr<Reply> reply = patiently([&] { return take(sender); });
  MessageHandler::Answer done =
      deferred_.empty() ? handler_.execute(message) : handler_.execute(message, {}, std::chrono::microseconds(0));
  if (done.deferred || !done.known_sender || (request.flags & RequestHeader::kNoReply) != 0) {
    drop(std::move(reply));
    return !done.deferred;
  }
  statistics_.add(RouteKind::kFabric, Counted::kHandler, message.size());
  reply->header = done.header;
  reply->fetched = std::move(done.fetched);
  answer(std::move(reply));
  return true;
}

void Replies::execute_deferred() {
  std::vector<Peer> waiting;
  for (auto next = deferred_.begin(); next != deferred_.end();) {
    const bool behind = std::ranges::find(waiting, next->sender) != waiting.end();
    if (!behind && execute_now(next->sender, next->message)) {
      next = deferred_.erase(next);
      continue;
    }
    if (!behind) waiting.push_back(next->sender);
    ++next;
  }
}

ssize_t Replies::send(std::unique_ptr<Reply> reply) {
  const ssize_t code = send_(*reply);
  if (code != 0) {
    drop(std::move(reply));
  } else {
    end(std::move(reply), 0);
  }
  return code;
}

void Replies::answer(std::unique_ptr<Reply> reply) {
  if (!room() || unsent_.contains(reply->peer)) return keep(std::move(reply));
  const ssize_t code = send_(*reply);
  if (code == -FI_EAGAIN) return keep(std::move(reply));
  end(std::move(reply), code);
}

void Replies::send_unsent(Clock::duration timeout) {
  // Another peer is the first one in each pass, since the provider may have no room for all.
  auto each = unsent_.lower_bound(first_);
  for (std::size_t peers = unsent_.size(); peers > 0 && room(); --peers) {
    if (each == unsent_.end()) each = unsent_.begin();
    first_ = each->first + 1;
    for (auto& answers = each->second; !answers.empty() && room(); answers.pop_front()) {
      Reply& reply = *answers.front();
      const ssize_t code = send_(reply);
      if (code == -FI_EAGAIN) {
        const Clock::time_point now = Clock::now();
        if (reply.refused_since == Clock::time_point{}) reply.refused_since = now;
        if (timeout == Clock::duration{} || now - reply.refused_since < timeout) break;
      }
      end(std::move(answers.front()), code);
    }
    each = each->second.empty() ? unsent_.erase(each) : std::next(each);
  }
}

void Replies::end(std::unique_ptr<Reply> reply, ssize_t code) {
  if (code == 0 && !reply->copied) {
    reply.release();  // the provider has it until its completion: NOLINT(bugprone-unused-return-value)
    ++in_flight_;
    return;
  }
  if (code != 0 && reply->is_answer())
    log(LogLevel::kWarn, "{}", fabric_error(ErrorKind::kPeer, "an answer to a peer", code).text);
  drop(std::move(reply));
}

}  // namespace farside

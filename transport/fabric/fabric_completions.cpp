// SPDX-License-Identifier: BSD-3-Clause
// The completion queue: the operation that each completion ends, or the message that it delivers.
#include <array>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/handler/memory_fault.hpp"

namespace farside {

// Takes all completions, and moves connections, answers and evictions on. Returns whether anything completed or
// happened. Called with the mutex held.
bool Fabric::advance() {
  bool any = take_completions();
  if (connections_->connecting()) {
    any = connections_->progress() || any;
    any = take_from_rings() || any;  // libfabric 1.18 and later poll the sockets there, too
  }
  if (receives_.any_refused()) receives_.post_refused();
  if (!deferred_.empty()) execute_deferred();
  if (replies_.any_unsent()) send_replies();
  if (eviction_->any_disconnecting()) eviction_->disconnect_idle();
  if (eviction_->too_many()) eviction_->make_room();
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

void Fabric::complete(const fi_cq_msg_entry& entry) {
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  if (context == nullptr) return;
  switch (context->kind) {
    case Context::Kind::kOperation: return under_way_.completed(static_cast<Operation&>(*context));
    case Context::Kind::kReceive: {
      auto& buffer = static_cast<Receive&>(*context);
      take_from_rings();  // the messages ahead of it
      receive({buffer.bytes.data(), entry.len});
      return receives_.post_again(buffer);
    }
    case Context::Kind::kReply: {
      auto& reply = static_cast<Reply&>(*context);
      if (reply.probe) PeerHealth::probe_completed(under_way_.peers().of(reply.peer), Clock::now());
      return replies_.completed(reply);
    }
  }
}

void Fabric::complete_with_error() {
  fi_cq_err_entry entry{};
  fid_cq* const queue = domain_.queue();
  if (fi_cq_readerr(queue, &entry, 0) != 1) return;
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  const std::string text = fmt::format("{}: {}", fi_strerror(entry.err),
                                       fi_cq_strerror(queue, entry.prov_errno, entry.err_data, nullptr, 0));
  if (context == nullptr) {
    // Errors without a context have two causes. The tcp provider of libfabric 1.17 reports the receive under way at a
    // shutdown a second time, without its context. A write into a ring has no context, and fails if the connection
    // ends.
    if (entry.err != FI_ECANCELED)
      log(domain_.by_sockets() ? LogLevel::kInfo : LogLevel::kError, "libfabric {}: {}", provider(), text);
    return;
  }
  switch (context->kind) {
    case Context::Kind::kOperation: {
      auto& operation = static_cast<Operation&>(*context);
      const char* const why = entry.err == FI_ECANCELED ? "the connection has ended: " : "";
      const Peer peer = operation.peer;
      // A request whose send failed gets no reply.
      const fid_ep* const endpoint = under_way_.failed(
          operation, Error{ErrorKind::kPeer, fmt::format("libfabric {}: {}{}", provider(), why, text)});
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
        PeerHealth::probe_failed(under_way_.peers().of(peer));
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
void Fabric::drop_replies(Peer peer, const std::string& why, bool in_order) {
  take_completions();
  under_way_.fail_awaiting(
      peer, Error{ErrorKind::kPeer, fmt::format("libfabric {}: the peer is lost: {}", provider(), why)}, in_order);
}

}  // namespace farside

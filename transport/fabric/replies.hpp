// SPDX-License-Identifier: BSD-3-Clause
// Replies: the messages that this process sends to peers besides its own operations: the answers of its handler,
// probes, and DISCONNECT. It keeps the answers that the provider has refused, limits how many messages the provider has
// at once, and reuses their buffers.
//
// Not thread-safe: Fabric's mutex guards it. Errors: an answer that cannot be sent is logged and dropped; its peer is
// out of reach. Cost: a send, or a try for each peer with unsent answers. Memory: nothing per peer; about 200 bytes for
// each that was under way at once, and a slot, where local memory is registered, for each that is unsent or under way.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <rdma/fi_errno.h>

#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/local_memory.hpp"
#include "transport/fabric/operation.hpp"

namespace farside {

class Replies {
 public:
  using Clock = std::chrono::steady_clock;
  // `most`: how many the provider may have at once. `memory`: from which their slots are.
  Replies(std::size_t most, LocalMemory& memory) : most_(most), memory_(memory) {}

  // Returns whether the provider may have one more.
  bool room() const { return under_way_ < most_; }
  // Returns a buffer for a message to the peer, with an empty header and no data.
  std::unique_ptr<Reply> take(Peer peer) {
    std::unique_ptr<Reply> reply;
    if (spare_.empty()) {
      reply = std::make_unique<Reply>();
    } else {
      reply = std::move(spare_.back());
      spare_.pop_back();
    }
    reply->peer = peer;
    reply->probe = false;
    reply->copied = false;
    reply->refused_since = {};
    reply->header = {};
    reply->fetched.clear();
    return reply;
  }
  // Sends it at once. send(Reply&) returns 0 if the provider has it now, else a negative libfabric code, which is
  // returned.
  template <class Send>
  ssize_t send(std::unique_ptr<Reply> reply, Send&& send) {
    const ssize_t code = send(*reply);
    if (code != 0) {
      reuse(std::move(reply));
      return code;
    }
    sent(std::move(reply));
    return 0;
  }
  // Sends an answer as send() does, unless earlier ones to the peer are unsent. Keeps it if the provider refuses it.
  template <class Send>
  void answer(std::unique_ptr<Reply> reply, Send&& send) {
    if (!room() || unsent_.contains(reply->peer)) return keep(std::move(reply));
    const ssize_t code = send(*reply);
    if (code == -FI_EAGAIN) return keep(std::move(reply));
    end(std::move(reply), code);
  }
  // Keeps an answer until send_unsent().
  void keep(std::unique_ptr<Reply> reply) {
    patiently([&] { unsent_[reply->peer].push_back(std::move(reply)); });
  }
  // Sends the answers that were kept, in their order per peer, and tries one for each peer that takes none. An answer
  // that the provider refuses for longer than `timeout` is dropped; none: no limit.
  template <class Send>
  void send_unsent(std::optional<Clock::duration> timeout, Send&& send);
  // Notes that the provider has completed it.
  void completed(Reply& reply) {
    --under_way_;
    reuse(std::unique_ptr<Reply>(&reply));
  }

  // Keeps the buffer of a message that is sent, or is not sent after all; without its slot, which others may need where
  // no more memory can be registered.
  void reuse(std::unique_ptr<Reply> reply) {
    if (reply->slot != nullptr) memory_.release(std::exchange(reply->slot, nullptr));
    (void)without_bad_alloc([&]() -> Status {
      spare_.push_back(std::move(reply));
      return {};
    });
  }

  bool any_unsent() const { return !unsent_.empty(); }
  // Returns whether no answer is unsent and no message has a completion to come.
  bool idle() const { return unsent_.empty() && under_way_ == 0; }

 private:
  // What send(Reply&) has returned for it, if it is not -FI_EAGAIN, or it was refused for too long.
  void end(std::unique_ptr<Reply> reply, ssize_t code) {
    if (code == 0) return sent(std::move(reply));
    if (!reply->probe) log(LogLevel::kWarn, "{}", fabric_error(ErrorKind::kPeer, "an answer to a peer", code).text);
    reuse(std::move(reply));
  }
  // The provider has it until its completion, or has copied it.
  void sent(std::unique_ptr<Reply> reply) {
    if (reply->copied) return reuse(std::move(reply));
    reply.release();  // NOLINT(bugprone-unused-return-value)
    ++under_way_;
  }

  const std::size_t most_;
  LocalMemory& memory_;
  std::map<Peer, std::deque<std::unique_ptr<Reply>>> unsent_;  // refused with EAGAIN, or behind a refused one
  Peer first_ = 0;                                             // whose answers are the first to be sent next
  std::size_t under_way_ = 0;                  // that the provider has
  std::vector<std::unique_ptr<Reply>> spare_;
};

template <class Send>
void Replies::send_unsent(std::optional<Clock::duration> timeout, Send&& send) {
  // Another peer is the first one in each pass, since the provider may have no room for all.
  auto each = unsent_.lower_bound(first_);
  for (std::size_t peers = unsent_.size(); peers > 0 && room(); --peers) {
    if (each == unsent_.end()) each = unsent_.begin();
    first_ = each->first + 1;
    for (auto& answers = each->second; !answers.empty() && room(); answers.pop_front()) {
      Reply& reply = *answers.front();
      const ssize_t code = send(reply);
      if (code == -FI_EAGAIN) {
        const Clock::time_point now = Clock::now();
        if (reply.refused_since == Clock::time_point{}) reply.refused_since = now;
        if (!timeout || now - reply.refused_since < *timeout) break;
      }
      end(std::move(answers.front()), code);
    }
    each = each->second.empty() ? unsent_.erase(each) : std::next(each);
  }
}

}  // namespace farside

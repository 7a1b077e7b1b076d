// SPDX-License-Identifier: BSD-3-Clause
// An endpoint without a network. It records the calls, and completes operations at once or when the test calls
// complete(). It moves no data, and answers only requests for descriptions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/waiter.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/routes/fabric/fabric_route.hpp"

namespace farside::testing {

class FakeEndpoint final : public Endpoint {
 public:
  enum class CallKind : std::uint8_t { kWrite, kRead, kControl, kMessage, kNotification, kRegions, kDescription };
  struct Call {
    CallKind kind;
    int rank;               // of the target
    std::uint64_t key = 0;  // of its memory
    std::uint64_t offset = 0;
    std::size_t bytes = 0;       // of a write or read
    std::size_t operations = 0;  // in the list of a message
    int steps = 0;               // of a message
  };

  explicit FakeEndpoint(int rank = 0) : own_(address_of(rank)) {}

  // The address of a rank.
  static FabricAddress address_of(int rank) {
    FabricAddress address;
    address.identity = static_cast<std::uint64_t>(rank) + 1;
    return address;
  }

  // The behaviour of the endpoint.
  bool held = false;  // operations stay in flight until complete()
  bool chosen_keys = true;
  bool atomics = false;            // the endpoint has adapter atomics
  bool lock_is_free = true;        // an acquire step does not stop the operations
  bool ring = false;               // messages go through rings
  bool acknowledges = false;       // notifications have replies
  std::uint32_t interrupted = 0;   // so many interruptions
  std::map<int, PeerLosses> lost;  // by rank
  std::map<int, TargetDescription> descriptions;

  // The next call of this kind fails, at once or later.
  void fail_next(CallKind kind, bool at_once) { failing_ = {kind, at_once}; }
  // Completes all outstanding operations. Thread safety: any.
  void complete() {
    std::vector<UnderWay> all;
    {
      const std::scoped_lock lock(mutex_);
      all.swap(in_flight_);
    }
    for (UnderWay& each : all) each.end();
  }
  std::size_t in_flight() {
    const std::scoped_lock lock(mutex_);
    return in_flight_.size();
  }

  // Returns the calls since the last take_calls(), in order.
  std::vector<Call> take_calls() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(calls_, {});
  }
  std::size_t inserted() const { return ranks_.size(); }
  const MessageHandler::ServedSpace* published(std::uint64_t id) const {
    const auto found = published_.find(id);
    return found != published_.end() ? &found->second : nullptr;
  }

  const FabricAddress& address() const override { return own_; }
  Peer insert(const FabricAddress& address) override {
    const std::scoped_lock lock(mutex_);
    const int rank = static_cast<int>(address.identity) - 1;
    const auto found = std::ranges::find(ranks_, rank);
    if (found != ranks_.end()) return static_cast<Peer>(found - ranks_.begin());
    ranks_.push_back(rank);
    return ranks_.size() - 1;
  }
  Result<Registration> register_memory(void* base, std::size_t, std::uint64_t wanted) override {
    Registration made;
    made.key.key = chosen_keys ? wanted : 0xfee1'0000 + next_key_++;
    if (!chosen_keys) made.key.base = reinterpret_cast<std::uint64_t>(base);
    return made;
  }
  bool keys_are_chosen() const override { return chosen_keys; }
  Status write(Pending& pending, const Place& place, const void*, std::size_t bytes) override {
    return issue(pending, Pending::kWrites, place.peer, {CallKind::kWrite, 0, place.key.key, place.offset, bytes});
  }
  Status read(Pending& pending, const Place& place, void*, std::size_t bytes) override {
    return issue(pending, Pending::kReads, place.peer, {CallKind::kRead, 0, place.key.key, place.offset, bytes});
  }
  bool nic_atomics() const override { return atomics; }
  Status control(Pending& pending, const Place& place, const ControlStep&, std::uint64_t*) override {
    return issue(pending, Pending::kAtomics, place.peer, {CallKind::kControl, 0, place.key.key, place.offset});
  }
  bool has_message_ring(Peer) override { return ring; }
  Status request(Pending& pending, Peer peer, const HandlerRequest& request,
                 std::unique_ptr<OperationList> list) override {
    const bool fetches = list != nullptr && list->fetched_bytes() > 0;
    const Pending::Class counted = fetches ? Pending::kFetches : Pending::kMessages;
    if (request.header.kind == MessageKind::kRegions) return issue(pending, counted, peer, {CallKind::kRegions, 0});
    if (request.header.kind == MessageKind::kDescribe) {
      return issue(pending, counted, peer, {CallKind::kDescription, 0}, [this, answer = request.fetched](int rank) {
        std::memcpy(answer.data(), &descriptions.at(rank), answer.size());
      });
    }
    if (request.last_interruption && *request.last_interruption != losses(peer).last_interruption)
      return pending.named(Error{ErrorKind::kPeer, "the connection has ended"});
    Call call = message(list, request.header.controls);
    if (request.header.flags != 0) call.kind = CallKind::kNotification;
    if (request.locked != nullptr) {
      request.locked->stopped = !lock_is_free;
      if (!lock_is_free) request.locked->list = std::move(list);
    }
    return issue(pending, counted, peer, call);
  }
  std::uint32_t interruptions() const override { return interrupted; }
  const PeerLosses& losses(Peer peer) override { return lost[ranks_.at(peer)]; }
  bool acknowledges_notifications() const override { return acknowledges; }
  bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) override {
    return published_.try_emplace(id, space).second;
  }
  void withdraw(std::uint64_t id) override { published_.erase(id); }

 private:
  struct UnderWay {
    Pending* pending;
    Pending::Class counted;
    std::optional<Error> error;
    std::function<void()> answer;
    void end() {
      if (error) {
        pending->failed(std::move(*error));
      } else if (answer) {
        answer();
      }
      pending->completed(counted);
    }
  };

  static Call message(const std::unique_ptr<OperationList>& list, int steps) {
    Call call{CallKind::kMessage, 0};
    call.steps = steps;
    if (list == nullptr) return call;
    OperationListReader reader(list->bytes());
    for (DataOperation operation; reader.next(operation);) call.operations += operation.blocks;
    return call;
  }

  Status issue(Pending& pending, Pending::Class counted, Peer peer, Call call,
               const std::function<void(int)>& answer = nullptr) {
    UnderWay operation{&pending, counted, {}, nullptr};
    {
      const std::scoped_lock lock(mutex_);
      call.rank = ranks_.at(peer);
      calls_.push_back(call);
      if (answer) operation.answer = [answer, rank = call.rank] { answer(rank); };
      if (failing_ && failing_->first == call.kind) {
        const bool at_once = std::exchange(failing_, {})->second;
        if (at_once) return pending.named(Error{ErrorKind::kPeer, "lost"});
        operation.error = Error{ErrorKind::kPeer, "lost"};
      }
      pending.issued(counted);
      if (held) {
        in_flight_.push_back(std::move(operation));
        return {};
      }
    }
    operation.end();
    return {};
  }

  const FabricAddress own_;
  std::mutex mutex_;
  std::vector<int> ranks_;  // by peer
  std::vector<Call> calls_;
  std::vector<UnderWay> in_flight_;
  std::optional<std::pair<CallKind, bool>> failing_;
  std::map<std::uint64_t, MessageHandler::ServedSpace> published_;
  std::uint64_t next_key_ = 0;
};

// A waiting thread completes the outstanding operations, since nothing else does.
class CompletesWhileWaiting final : public Progress {
 public:
  explicit CompletesWhileWaiting(FakeEndpoint& endpoint) : endpoint_(endpoint) {}
  void poll() override {
    ++polls;
    endpoint_.complete();
  }
  void poll_runtime() override {}
  void listen(WakeEvent&) override {}
  void stop_listening(WakeEvent&) override {}
  std::atomic<std::uint64_t> polls{0};

 private:
  FakeEndpoint& endpoint_;
};

}  // namespace farside::testing

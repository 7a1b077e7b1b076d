// SPDX-License-Identifier: BSD-3-Clause
// Rank 0's route to the other ranks of a space, over an endpoint without a network.
#pragma once

#include <algorithm>
#include <array>
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
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "transport/base/waiter.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/node/node_group.hpp"
#include "transport/routes/fabric/fabric_route.hpp"

namespace farside::testing {

// The endpoint records the calls, and completes operations at once or when the test calls complete(). It answers
// requests for descriptions, and moves no data but by `loops`.
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
  // All ranks are this one: operations move data in its memory, and descriptions are those of its spaces.
  bool loops = false;
  std::function<void(CallKind, std::byte*, std::size_t)> spoil;  // changes what was fetched

  // The next call of this kind, or that behind `more` others, fails, at once or later.
  void fail_next(CallKind kind, bool at_once, int more = 0) { failing_ = Failing{kind, at_once, more}; }
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
  Status write(Pending& pending, const Place& place, const void* local, std::size_t bytes) override {
    return issue(pending, Pending::kWrites, place.peer, {CallKind::kWrite, 0, place.key.key, place.offset, bytes},
                 [=, this](int) {
                   if (loops) std::memcpy(at(place), local, bytes);
                 });
  }
  Status read(Pending& pending, const Place& place, void* local, std::size_t bytes) override {
    return issue(pending, Pending::kReads, place.peer, {CallKind::kRead, 0, place.key.key, place.offset, bytes},
                 [=, this](int) {
                   if (loops) fetch(CallKind::kRead, at(place), local, bytes);
                 });
  }
  bool nic_atomics() const override { return atomics; }
  // By `loops` a fetch-add.
  Status control(Pending& pending, const Place& place, const ControlStep& step, std::uint64_t* fetched) override {
    return issue(pending, Pending::kAtomics, place.peer, {CallKind::kControl, 0, place.key.key, place.offset},
                 [=, this, operand = step.operand](int) {
                   if (!loops) return;
                   std::uint64_t sum = 0;
                   std::memcpy(&sum, at(place), sizeof sum);
                   fetch(CallKind::kControl, at(place), fetched, sizeof *fetched);
                   sum += operand;
                   std::memcpy(at(place), &sum, sizeof sum);
                 });
  }
  bool has_message_ring(Peer) override { return ring; }
  Status request(Pending& pending, Peer peer, const HandlerRequest& request,
                 std::unique_ptr<OperationList> list) override {
    const bool fetches = list != nullptr && list->fetched_bytes() > 0;
    const Pending::Class counted = fetches ? Pending::kFetches : Pending::kMessages;
    if (request.header.kind == MessageKind::kRegions) return issue(pending, counted, peer, {CallKind::kRegions, 0});
    if (request.header.kind == MessageKind::kDescribe) {
      return issue(pending, counted, peer, {CallKind::kDescription, 0},
                   [this, answer = request.fetched, space = request.header.space](int rank) {
                     const void* const from = loops ? static_cast<const void*>(published(space)->description.data())
                                                    : &descriptions.at(rank);
                     fetch(CallKind::kDescription, from, answer.data(), answer.size());
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

  static std::byte* at(const Place& place) { return reinterpret_cast<std::byte*>(place.key.base + place.offset); }
  void fetch(CallKind kind, const void* from, void* into, std::size_t bytes) {
    std::memcpy(into, from, bytes);
    if (spoil) spoil(kind, static_cast<std::byte*>(into), bytes);
  }

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
      if (failing_ && failing_->kind == call.kind && failing_->more-- == 0) {
        const bool at_once = std::exchange(failing_, {})->at_once;
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

  const FabricAddress own_ = address_of(0);
  std::mutex mutex_;
  std::vector<int> ranks_;  // by peer
  std::vector<Call> calls_;
  std::vector<UnderWay> in_flight_;
  struct Failing {
    CallKind kind;
    bool at_once;
    int more;
  };
  std::optional<Failing> failing_;
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

using CallKind = FakeEndpoint::CallKind;
using Call = FakeEndpoint::Call;

// The calls in words: "write 3, message 5 of 2 and 1" is a write to rank 3, and a message to rank 5 with two operations
// and a control step.
inline std::string in_words(const std::vector<Call>& calls) {
  constexpr std::array kNames = {"write", "read", "control", "message", "notification", "regions", "description"};
  std::string words;
  for (const Call& call : calls) {
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", kNames[static_cast<std::size_t>(call.kind)], call.rank);
    if (call.kind == CallKind::kMessage || call.kind == CallKind::kNotification)
      words += fmt::format(" of {}", call.operations);
    if (call.steps > 0) words += fmt::format(" and {}", call.steps);
  }
  return words;
}

struct RouteFixture {
  static constexpr std::uint64_t kRegion = 0x5eed'0000'd00d;
  static constexpr std::uint32_t kUnit = 5;
  static constexpr std::size_t kBytes = 16384;

  // The values that the ranks have in common, and the behaviour of the endpoint. Change them before agree().
  FabricRoute::Agreed agreed;
  FakeEndpoint endpoint;

  RouteFixture() {
    std::vector<FabricAddress> addresses;
    for (int rank = 0; rank < 1000; ++rank) {
      addresses.push_back(FakeEndpoint::address_of(rank));
      endpoint.descriptions[rank] = description_of(rank);
    }
    agreed.addresses = PeerAddresses::share(*NodeGroup::alone(0), addresses, waiting);
    agreed.same_bytes = agreed.same_units = true;
  }
  // Exposes the memory of this rank, and agrees with the other ranks.
  void agree(std::size_t bytes = kBytes) {
    MessageHandler::ServedSpace space;
    space.base = data.data();
    space.bytes = bytes;
    space.lock = &lock;
    space.control = control.data();
    space.control_bytes = control.size();
    CHECK(route->register_memory(space, bytes, kUnit).ok());
    route->agree(agreed);
  }

  // The descriptions of the ranks' memory, if they differ.
  static TargetDescription description_of(int rank) {
    const auto number = static_cast<std::uint64_t>(rank);
    return {0x10000 * number,
            0x20000 * number,
            100 * number,
            static_cast<std::uint32_t>(7000 + number),
            static_cast<std::uint32_t>(9000 + number),
            static_cast<std::uint32_t>(number)};
  }
  Status put(int rank, std::size_t bytes = 8, Pending* own = nullptr, std::uint64_t offset = 0) {
    return route->operate(rank, DataOperation::put(offset, data.data(), bytes), own);
  }
  Status get(int rank, std::size_t bytes = 8) {
    return route->operate(rank, DataOperation::get(0, data.data(), bytes), nullptr);
  }
  Status add(int rank, Pending* own = nullptr, std::size_t count = 1) {
    return route->operate(
        rank, DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kInt64, data.data(), nullptr, count), own);
  }
  // Sends a list with one put, the last one of its operation or not.
  Status send_list(int rank, bool last) {
    auto list = std::make_unique<OperationList>();
    list->add(DataOperation::put(0, data.data(), 8));
    return route->send_lists(rank, std::span(&list, 1), nullptr, last);
  }
  // Issues a fetch-add on a control word, and waits for it. A release ends the access to the rank's data.
  Status release(int rank) { return fetch_add(rank, DataAccess::kEnds); }
  Status fetch_add(int rank, DataAccess access = DataAccess::kGoesOn) {
    Pending pending;
    std::uint64_t fetched = 0;
    Status status = route->control().control({ControlCall::kFetchAdd, {}, 64, 1, 1}, access, rank, pending, &fetched);
    endpoint.complete();
    return status ? pending.take_error() : std::move(status);
  }
  // The same with a notification, or a write. The notification need not be complete at the return.
  Status notify(int rank, ControlCall call = ControlCall::kFetchAdd, DataAccess access = DataAccess::kEnds) {
    Pending pending;
    std::uint64_t fetched = 0;
    Status status = route->control().control({call, {}, 64, 1, 0}, access, rank, pending, &fetched, false);
    endpoint.complete();
    return status ? pending.take_error() : std::move(status);
  }
  // Returns the calls of the endpoint since the last call of this function.
  std::string calls() { return in_words(endpoint.take_calls()); }
  // The same after a flush.
  std::string calls_to(int rank) {
    CHECK(route->flush(rank).ok());
    return calls();
  }
  bool all_at_rest() { return endpoint.in_flight() == 0 && route->targets().busy() == 0; }

  alignas(64) std::array<std::byte, kBytes> data{};
  std::array<std::byte, 4096> control{};
  AccumulateLockWord lock;
  CompletesWhileWaiting waiting{endpoint};
  WakeEvent wake_event;
  std::unique_ptr<FabricRoute> route =
      std::make_unique<FabricRoute>(FabricRoute::Setup{endpoint, waiting, wake_event, 0, kRegion});
};

// One that has agreed.
struct AgreedRoute : RouteFixture {
  AgreedRoute() { agree(); }
};

}  // namespace farside::testing

// SPDX-License-Identifier: BSD-3-Clause
// The trial of a provider between two ranks, over an endpoint that is memory of this process and makes mistakes.
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "transport/base/waiter.hpp"
#include "transport/space/provider_agreement.hpp"

namespace farside::provider_trial_test {

namespace {

// Rank 0 and rank 1 are in this process. All operations are complete when they return.
class LoopEndpoint final : public Endpoint {
 public:
  bool atomics = true;
  int messages = 0, writes = 0, reads = 0, atomics_done = 0;
  std::size_t exposed = 0;
  // Each is called with the result of an operation, and its number from 1 on.
  std::function<void(RemoteKey&, int)> spoil_message = [](RemoteKey&, int) {};
  std::function<void(std::byte*, std::size_t, int)> spoil_read = [](std::byte*, std::size_t, int) {};
  std::function<void(std::uint64_t&, int)> spoil_atomic = [](std::uint64_t&, int) {};
  int failing_message = 0;  // this message fails at once, and with a negative number later

  const FabricAddress& address() const override { return own_; }
  Peer insert(const FabricAddress&) override { return 0; }
  Result<Registration> register_memory(void* base, std::size_t bytes, std::uint64_t) override {
    exposed = bytes;
    Registration made;
    made.key = {reinterpret_cast<std::uint64_t>(base), 7};
    return made;
  }
  bool keys_are_chosen() const override { return false; }
  Status write(Pending&, const Place& place, const void* local, std::size_t bytes) override {
    ++writes;
    std::memcpy(at(place), local, bytes);
    return {};
  }
  Status read(Pending&, const Place& place, void* local, std::size_t bytes) override {
    std::memcpy(local, at(place), bytes);
    spoil_read(static_cast<std::byte*>(local), bytes, ++reads);
    return {};
  }
  bool nic_atomics() const override { return atomics; }
  Status control(Pending&, const Place& place, const ControlStep& step, std::uint64_t* fetched) override {
    REQUIRE(step.call == ControlCall::kFetchAdd);
    std::memcpy(fetched, at(place), sizeof *fetched);
    const std::uint64_t sum = *fetched + step.operand;
    std::memcpy(at(place), &sum, sizeof sum);
    spoil_atomic(*fetched, ++atomics_done);
    return {};
  }
  std::uint32_t interruptions() const override { return 0; }
  const PeerLosses& losses(Peer) override { return losses_; }
  bool acknowledges_notifications() const override { return false; }
  Status request(Pending& pending, Peer, const HandlerRequest& request, std::unique_ptr<OperationList>) override {
    REQUIRE(request.header.kind == MessageKind::kDescribe);
    const std::span<std::byte> description = request.fetched;
    ++messages;
    if (messages == failing_message) return pending.named(Error{ErrorKind::kPeer, "lost"});
    if (messages == -failing_message) pending.failed(Error{ErrorKind::kPeer, "lost later"});
    const MessageHandler::ServedSpace& space = published_.at(request.header.space);
    REQUIRE(space.description_bytes == description.size());
    REQUIRE(request.header.sender < space.ranks);
    RemoteKey key;
    std::memcpy(&key, space.description.data(), sizeof key);
    spoil_message(key, messages);
    std::memcpy(description.data(), &key, sizeof key);
    return {};
  }
  bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) override {
    return published_.try_emplace(id, space).second;
  }
  void withdraw(std::uint64_t id) override { published_.erase(id); }
  std::size_t published() const { return published_.size(); }

 private:
  static std::byte* at(const Place& place) { return reinterpret_cast<std::byte*>(place.key.base + place.offset); }
  FabricAddress own_;
  std::map<std::uint64_t, MessageHandler::ServedSpace> published_;
  PeerLosses losses_;
};

// Runs a trial of rank 0 with rank 1, and returns its error, or an empty text.
std::string run(LoopEndpoint& endpoint) {
  NoProgress progress;
  ProviderTrial trial(endpoint, 0, 2, 42);
  const Status begun = trial.begin();
  REQUIRE(begun.ok());
  const Status done = trial.run(1, FabricAddress{}, progress);
  CHECK((done || done.error().kind == ErrorKind::kPeer));
  return done ? std::string() : done.error().text;
}

}  // namespace

TEST_CASE("a trial writes, reads, adds and sends messages, and leaves nothing behind") {
  LoopEndpoint endpoint;
  CHECK(run(endpoint).empty());
  CHECK(endpoint.messages == ProviderTrial::kMessages);
  CHECK(endpoint.writes == 2);
  CHECK(endpoint.reads == 2);
  CHECK(endpoint.atomics_done == 3);
  CHECK(endpoint.exposed == ProviderTrial::kBytes + 8);
  CHECK(endpoint.published() == 0);
}

TEST_CASE("without atomics of the adapter a trial has none") {
  LoopEndpoint endpoint;
  endpoint.atomics = false;
  CHECK(run(endpoint).empty());
  CHECK(endpoint.atomics_done == 0);
}

TEST_CASE("each wrong result fails a trial, whichever it is") {
  for (int bad = 1; bad <= 3; ++bad) {
    LoopEndpoint endpoint;
    endpoint.spoil_atomic = [&](std::uint64_t& fetched, int number) { fetched += number == bad ? 1 : 0; };
    CHECK(run(endpoint) == "a fetch-add of the adapter gave a wrong result");
  }
  for (int bad = 1; bad <= 2; ++bad) {
    for (const bool last : {false, true}) {
      LoopEndpoint endpoint;
      endpoint.spoil_read = [&](std::byte* data, std::size_t bytes, int number) {
        if (number == bad) data[last ? bytes - 1 : 0] ^= std::byte{1};
      };
      CHECK(run(endpoint) == "a read of data that were written before gave a wrong result");
    }
  }
  for (const int bad : {1, 2, ProviderTrial::kMessages}) {
    LoopEndpoint endpoint;
    endpoint.spoil_message = [&](RemoteKey& key, int number) { key.key += number == bad ? 1 : 0; };
    CHECK(run(endpoint) == "a message gave a wrong result");
  }
}

TEST_CASE("an operation that fails, at once or later, fails a trial") {
  for (const int which : {1, 30, ProviderTrial::kMessages}) {
    for (const bool later : {false, true}) {
      LoopEndpoint endpoint;
      endpoint.failing_message = later ? -which : which;
      CHECK(run(endpoint) == (later ? "lost later" : "lost"));
      CHECK(endpoint.writes == 0);
      CHECK(endpoint.published() == 0);
    }
  }
}

}  // namespace farside::provider_trial_test

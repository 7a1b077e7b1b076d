// SPDX-License-Identifier: BSD-3-Clause
// SecondRail: a second network device of this process (a rail), over which half of each large put and get goes. The
// first device carries all other traffic: small operations, messages, control words and all atomics, so that one
// adapter executes all atomics on a process's memory.
//
// Each device has an endpoint of its own, with its own connections, progress thread and registrations of memory. An
// origin requests the address of a peer's second endpoint from the handler of the first one, at its first large
// transfer to the peer. The ranks agree when a window is made whether it uses second rails (ProviderAgreement).
//
// The two rails are not ordered with respect to each other: an operation that must take effect behind a large put waits
// until both halves are complete.
//
// Thread safety: any thread. Cost: find() is one round trip at the first call for a peer, then a look-up under a mutex.
// Memory: some 50 bytes per peer with large transfers, and what the second endpoint has.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/endpoint.hpp"

namespace farside {

// The address of a process's second endpoint, or none, at the handler of its first one, under an id.
class PublishedAddress {
 public:
  PublishedAddress(Endpoint& first, std::uint64_t id, const FabricAddress& second);
  PublishedAddress(const PublishedAddress&) = delete;
  PublishedAddress& operator=(const PublishedAddress&) = delete;
  ~PublishedAddress();
  // Asks the handler of a peer that has published its address under this id. An address that is empty stands for none.
  // Errors: kPeer. Waits without a limit for a peer that has published nothing.
  static Result<FabricAddress> ask(Endpoint& first, Peer peer, std::uint64_t id, Progress& waiting,
                                   WakeEvent& wake_event);

 private:
  Endpoint& first_;
  const std::uint64_t id_;
  const bool published_;
};

class SecondRail {
 public:
  // Transfers of so many bytes are split. With 100 Gb/s they take 20 us by one device.
  static constexpr std::size_t kSplitFrom = std::size_t{256} << 10;
  // Returns how many of so many bytes go by the first device: half of them, in whole pages.
  static constexpr std::size_t first_part(std::size_t bytes) {
    constexpr std::size_t kPage = 4096;
    return bytes < kSplitFrom ? bytes : (bytes / 2 + kPage - 1) / kPage * kPage;
  }

  // Both outlive this object. `network`: what the second devices of processes must have in common to reach each other,
  // 0 if that is not known. `reads_back`: reads_back().
  SecondRail(Endpoint& first, Endpoint& second, std::uint32_t network = 0, bool reads_back = false);
  SecondRail(const SecondRail&) = delete;
  SecondRail& operator=(const SecondRail&) = delete;

  Endpoint& endpoint() const { return second_; }
  std::uint32_t network() const { return network_; }
  // Returns the peer of the first endpoint as one of the second. Precondition: the peer has a second rail. Errors:
  // kPeer.
  Result<Peer> find(Peer peer, Progress& waiting, WakeEvent& wake_event);
  // Returns whether a thread must read a word back by the second device before it notifies other processes of its
  // writes. An adapter acknowledges a write when it has received the data; only a later operation of the same adapter
  // follows the data on the way to memory.
  bool reads_back() const { return reads_back_; }

  // The result of the trials with other processes (space/provider_agreement.cpp). Windows use the rail only if one has
  // succeeded and none has failed.
  enum class State : std::uint8_t { kUntried, kPassed, kFailed };
  State state() const { return state_.load(std::memory_order_relaxed); }
  bool usable() const { return state() == State::kPassed; }
  void passed() {
    State untried = State::kUntried;
    state_.compare_exchange_strong(untried, State::kPassed, std::memory_order_relaxed);
  }
  void failed() { state_.store(State::kFailed, std::memory_order_relaxed); }

 private:
  Endpoint& first_;
  Endpoint& second_;
  const PublishedAddress published_;
  const std::uint32_t network_;
  const bool reads_back_;
  std::atomic<State> state_{State::kUntried};
  std::mutex mutex_;
  std::unordered_map<Peer, Peer> peers_;
};

}  // namespace farside

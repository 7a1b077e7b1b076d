// SPDX-License-Identifier: BSD-3-Clause
// SecondRail: a second network device of this process (a rail), over which half of each large put and get goes. All
// else stays with the first device: small operations, messages, control words and all atomics, so that one adapter
// executes all atomics on a process's memory.
//
// Each device has an endpoint of its own, with its own connections, progress thread and registrations of memory. The
// handler of the first one tells the address of the second one; an origin asks for it at its first large transfer to a
// peer. Which windows use second rails is agreed when they are made (ProviderAgreement).
//
// Nothing orders the two rails: what must take effect behind a large put waits until both halves are complete.
//
// Thread safety: any thread. Cost: find() is one round trip at the first call for a peer, then a look-up under a mutex.
// Memory: some 50 bytes per peer with large transfers, and what the second endpoint has.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/endpoint.hpp"

namespace farside {

class SecondRail {
 public:
  // Transfers of so many bytes are split. With 100 Gb/s they take 20 us by one device.
  static constexpr std::size_t kSplitFrom = std::size_t{256} << 10;
  // Returns how many of so many bytes go by the first device: half of them, in whole pages.
  static constexpr std::size_t first_part(std::size_t bytes) {
    constexpr std::size_t kPage = 4096;
    return bytes < kSplitFrom ? bytes : (bytes / 2 + kPage - 1) / kPage * kPage;
  }

  // Has the handler of a process's first endpoint answer for its second one; an empty address says that there is none.
  static void publish(Endpoint& first, const FabricAddress& second);

  // Both outlive this object.
  SecondRail(Endpoint& first, Endpoint& second) : first_(first), second_(second) {}
  SecondRail(const SecondRail&) = delete;
  SecondRail& operator=(const SecondRail&) = delete;

  Endpoint& endpoint() const { return second_; }
  // Returns the peer of the first endpoint as one of the second. Errors: kRange if the peer has no second rail, kPeer.
  Result<Peer> find(Peer peer, Progress& waiting, WakeEvent& wake_event);
  // Returns the peer's address at the second rail, without keeping it. Errors and cost: as find() at its first call.
  Result<FabricAddress> ask(Peer peer, Progress& waiting, WakeEvent& wake_event) const;

  // Later windows of this process do not use it: a trial with another process has failed.
  void abandon() { usable_.store(false, std::memory_order_relaxed); }
  bool usable() const { return usable_.load(std::memory_order_relaxed); }

 private:
  Endpoint& first_;
  Endpoint& second_;
  std::atomic<bool> usable_{true};
  std::mutex mutex_;
  std::unordered_map<Peer, Peer> peers_;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// A space of two ranks over the provider in memory. Both ranks are in this process: rank 0 is the origin, and rank 1
// has the data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/fake_process.hpp"
#include "transport/node/node_group.hpp"
#include "transport/routes/fabric/fabric_route.hpp"

namespace farside::testing {

class FakeSpace {
 public:
  static constexpr int kTarget = 1;
  // `words`: the number of 64-bit words at the target. `by_nic`: the space has the atomicity domain nic, for puts and
  // gets (the provider has no atomics).
  explicit FakeSpace(std::size_t words, bool by_nic = false, InfoHandle of_origin = fake_provider())
      : origin({}, std::move(of_origin)), data(words) {
    FabricRoute::Agreed agreed;
    const std::vector<FabricAddress> addresses = {origin.fabric->address(), target.fabric->address()};
    agreed.addresses = PeerAddresses::share(*NodeGroup::alone(0), addresses, origin.progress);
    agreed.rules.by_nic = by_nic;
    expose(own, {});
    expose(there, data);
    own.agree(agreed);
    there.agree(agreed);
  }
  FakeProcess origin, target;
  std::vector<std::uint64_t> data;  // of the target

  Status put(std::size_t word, const void* from, std::size_t bytes) {
    return own.operate(kTarget, DataOperation::put(8 * word, from, bytes), nullptr);
  }
  Status get(std::size_t word, void* into, std::size_t bytes) {
    return own.operate(kTarget, DataOperation::get(8 * word, into, bytes), nullptr);
  }
  // A sum, which fetches the previous values unless `fetched` is null.
  Status add(std::size_t word, const std::uint64_t* operands, std::uint64_t* fetched, std::size_t count) {
    return own.operate(
        kTarget, DataOperation::accumulate(8 * word, ReduceOp::kSum, BasicType::kUint64, operands, fetched, count),
        nullptr);
  }
  Status flush() { return own.flush(kTarget); }

 private:
  void expose(FabricRoute& route, std::span<std::uint64_t> words) {
    MessageHandler::ServedSpace space;
    space.base = reinterpret_cast<std::byte*>(words.data());
    space.bytes = words.size_bytes();
    space.lock = &lock_;
    space.ranks = 2;
    space.control = control_.data();
    space.control_bytes = control_.size();
    REQUIRE(route.register_memory(space, words.size_bytes(), 1).ok());
  }

  static constexpr std::uint64_t kId = 0x5eed'0000'd00d;

  alignas(64) std::array<std::byte, 4096> control_{};
  AccumulateLockWord lock_;
  WakeEvent wake_event_;

 public:
  FabricRoute own{FabricRoute::Setup{*origin.fabric, *origin.fabric, wake_event_, 0, kId}};
  FabricRoute there{FabricRoute::Setup{*target.fabric, *target.fabric, wake_event_, 1, kId}};
};

}  // namespace farside::testing

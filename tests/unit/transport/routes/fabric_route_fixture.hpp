// SPDX-License-Identifier: BSD-3-Clause
// Rank 0's route to the other ranks of a space, over an endpoint without a network.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fake_endpoint.hpp"
#include "transport/routes/fabric/fabric_route.hpp"

namespace farside::testing {

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

  explicit RouteFixture(int ranks = 1000) {
    std::vector<FabricAddress> addresses;
    for (int rank = 0; rank < ranks; ++rank) addresses.push_back(FakeEndpoint::address_of(rank));
    agreed.addresses = PeerAddresses::share(*NodeGroup::alone(0), addresses, waiting);
    agreed.same_bytes = agreed.same_units = true;
    for (int rank = 0; rank < ranks; ++rank) endpoint.descriptions[rank] = description_of(rank);
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

  alignas(64) std::array<std::byte, kBytes> data{};
  std::array<std::byte, 4096> control{};
  AccumulateLockWord lock;
  CompletesWhileWaiting waiting{endpoint};
  WakeEvent wake_event;
  std::unique_ptr<FabricRoute> route =
      std::make_unique<FabricRoute>(FabricRoute::Setup{endpoint, waiting, wake_event, 0, kRegion});
};

}  // namespace farside::testing

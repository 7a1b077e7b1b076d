// SPDX-License-Identifier: BSD-3-Clause
// The data that processes exchange to reach each other over the fabric. Plain bytes, without libfabric's headers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farside {

// The address of an endpoint (fi_getname(3)): 16 bytes for tcp over IPv4, 48 for verbs over IPv6.
struct FabricAddress {
  std::array<std::byte, 120> bytes{};
  std::uint64_t size = 0;
  std::uint64_t identity = 0;  // of the process
  std::uint64_t secret = 0;    // a peer must present it to connect
};

// The key of exposed memory (fi_mr(3)). `base` is its virtual address with FI_MR_VIRT_ADDR, else 0.
struct RemoteKey {
  std::uint64_t base = 0;
  std::uint64_t key = 0;
};

using Peer = std::uint64_t;

// A set of libfabric's providers, one bit each (provider_choice.hpp).
using Providers = unsigned;
constexpr Providers kAnyProvider = ~0U;

// A region of a peer's handler (MessageHandler::publish), and this process's index among its permitted senders.
struct HandlerPlace {
  Peer peer;
  std::uint64_t region;
  std::uint32_t sender;
};

}  // namespace farside

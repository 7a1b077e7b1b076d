// SPDX-License-Identifier: BSD-3-Clause
// What processes exchange to reach each other over the fabric. Plain bytes; no libfabric header needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farside {

// fi_getname(3). 16 bytes for tcp over IPv4, 48 for verbs over IPv6.
struct FabricAddress {
  std::array<std::byte, 120> bytes{};
  std::uint64_t size = 0;
  // What this process is known by, and what a peer must know to be let in.
  std::uint64_t identity = 0;
  std::uint64_t secret = 0;
};

// How a peer names exposed memory (fi_mr(3)): `base` is its virtual address with FI_MR_VIRT_ADDR, else 0.
struct RemoteKey {
  std::uint64_t base = 0;
  std::uint64_t key = 0;
};

using Peer = std::uint64_t;

// Some of libfabric's providers, a bit each (provider_choice.hpp).
using Providers = unsigned;
constexpr Providers kAnyProvider = ~0U;

// Which region of a peer a request is about (Handler::publish), and this process's index among those who may ask.
struct HandlerPlace {
  Peer peer;
  std::uint64_t region;
  std::uint32_t sender;
};

}  // namespace farside

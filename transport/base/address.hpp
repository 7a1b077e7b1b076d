// SPDX-License-Identifier: BSD-3-Clause
// How a rank's memory is reached: the register of routes, which settings, statistics and tools iterate
// (routes/route.hpp), and the data that processes exchange to reach each other over the fabric. Plain bytes, without
// libfabric's headers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farside {

enum class RouteKind : std::uint8_t { kSelf, kMapped, kCma, kFabric };

struct RouteInfo {
  const char* name;
  bool allowed_by_name;  // in FARSIDE_ROUTES
  bool immediate;        // operations, but for queued puts, are complete when they return
  bool by_thread;        // a thread of the target may have to execute operations
  const char* how;
};
// By RouteKind.
inline constexpr RouteInfo kRoutes[] = {
    {"self", false, true, false, "the rank's own memory"},
    {"mapped", true, true, false, "shared memory: a memfd that the on-node peers map (no file in /dev/shm)"},
    {"cma", true, true, true,
     "process_vm_readv and process_vm_writev, for memory that the program allocated by itself"},
    {"fabric", true, false, true, "libfabric, between nodes, and inside one where nothing else reaches"},
};
// Of FARSIDE_ROUTES.
inline constexpr const char* kDefaultRoutes = "mapped,cma,fabric";
inline constexpr const char* kAllowedRoutes = "one or more of mapped, cma, fabric, separated by commas";
inline constexpr std::size_t kRouteKinds = sizeof kRoutes / sizeof *kRoutes;

// A set of routes, one bit for each.
using RouteSet = std::uint8_t;
inline constexpr RouteSet bit(RouteKind kind) { return static_cast<RouteSet>(1U << static_cast<unsigned>(kind)); }
inline constexpr RouteSet kAllRoutes = (1U << kRouteKinds) - 1;

inline constexpr const RouteInfo& info(RouteKind kind) { return kRoutes[static_cast<std::size_t>(kind)]; }

// An IPv4 or IPv6 address and a port, in network order and without the gaps of sockaddr (fabric/sockets.hpp).
struct SocketAddress {
  std::array<std::uint8_t, 16> host{};  // of IPv4 the first 4 bytes
  std::uint32_t scope = 0;              // the interface of a link-local address of IPv6
  std::uint16_t port = 0;
  std::uint16_t family = 0;  // AF_INET or AF_INET6; 0: no address
  bool operator==(const SocketAddress&) const = default;
};

// The address of an endpoint. Each process keeps those of all its peers.
struct FabricAddress {
  SocketAddress socket;        // on which the endpoint listens (fi_getname(3))
  std::uint64_t identity = 0;  // of the process
  std::uint64_t secret = 0;    // a peer must present it to connect
  bool operator==(const FabricAddress&) const = default;
};
static_assert(sizeof(FabricAddress) == 40);

// The key of exposed memory (fi_mr(3)). `base` is its virtual address with FI_MR_VIRT_ADDR, else 0.
struct RemoteKey {
  std::uint64_t base = 0;
  std::uint64_t key = 0;
};

using Peer = std::uint64_t;

// A set of libfabric's providers, one bit each (ProviderChoice).
using Providers = unsigned;

}  // namespace farside

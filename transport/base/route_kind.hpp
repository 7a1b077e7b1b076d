// SPDX-License-Identifier: BSD-3-Clause
// The register of routes to a rank's data (routes/route.hpp): settings, statistics and tools iterate it.
#pragma once

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
inline constexpr std::size_t kRouteKinds = sizeof kRoutes / sizeof *kRoutes;

// A set of routes, one bit for each.
using RouteSet = std::uint8_t;
inline constexpr RouteSet bit(RouteKind kind) { return static_cast<RouteSet>(1U << static_cast<unsigned>(kind)); }
inline constexpr RouteSet kAllRoutes = (1U << kRouteKinds) - 1;

inline constexpr const RouteInfo& info(RouteKind kind) { return kRoutes[static_cast<std::size_t>(kind)]; }

}  // namespace farside

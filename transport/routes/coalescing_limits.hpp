// SPDX-License-Identifier: BSD-3-Clause
// The sizes up to which operations travel in lists to a handler.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/handler/operation_list.hpp"

namespace farside {

// Operations of more bytes are not coalesced: RDMA moves them in parallel. Before a release a larger operation pays as
// well, since coalescing saves a round trip.
inline constexpr std::size_t kMostCoalesced = 2048;
inline constexpr std::size_t kMostBeforeRelease = 4096;
static_assert(kMostCoalesced <= OperationList::kMostInOne && kMostBeforeRelease <= OperationList::kMostInOne);
// The most lists under way towards one target: lists hold copies.
inline constexpr std::uint32_t kMostLists = 64;

}  // namespace farside

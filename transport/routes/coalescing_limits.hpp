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
// Messages to a handler that polls, two of which are under way at once, move so many bytes of a put or get in less time
// than a system call. Accumulates go by messages whatever their size.
inline constexpr std::size_t kMostByMessage = 2 * OperationList::kMostInOne;
// The sizes up to which a put and a get take less time as a message through a ring (fabric/message_ring.hpp) than by
// RDMA over TCP: 20.5 us in place of 21.9. Several larger puts in a row, which are not coalesced, are slower as
// messages. The provider copies replies of up to 96 bytes of data, which then need no completion.
inline constexpr std::size_t kMostPutInRing = kMostCoalesced;
inline constexpr std::size_t kMostGetInRing = 96;
static_assert(kMostPutInRing <= OperationList::kMostInOne && kMostGetInRing <= OperationList::kMostInOne);
// Up to so many blocks, one process_vm_writev(2) (2 us, and 0.4 us per block) is faster than a list to an on-node
// peer's handler, whose thread takes 10 to 20 us to wake.
inline constexpr std::size_t kFewForOneCall = 24;
// The most lists under way towards one target: lists hold copies.
inline constexpr std::uint32_t kMostLists = 64;

}  // namespace farside

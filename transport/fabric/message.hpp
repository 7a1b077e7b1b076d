// SPDX-License-Identifier: BSD-3-Clause
// What an origin says to a target's agent, and what the agent answers. Both ends run the same farside on the same
// architecture (checked when windows are created), so the structs travel as they are.
//
//   request: RequestHeader, then
//              accumulate        count elements of origin data (none for MPI_NO_OP), `extent` apart, without a gap at the end
//              compare_and_swap  the compare element, then the origin element
//              regions           nothing: `count` bytes are asked for, a page of the table of attached regions from the
//                                `offset`-th on (regions/attached_regions.hpp)
//              put_and_add       `count` bytes to put, then a ControlAdd to do when they are there; fetches the word
//   reply:   ReplyHeader, then the fetched elements if the request asked for them
//   probe:   ReplyHeader; dropped. What counts is whether it can be sent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/data/basic_type.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside {

enum class MessageKind : std::uint8_t {
  kAccumulate = 1, kCompareAndSwap = 2, kReply = 3, kProbe = 4, kPutAndAdd = 5, kRegions = 6
};


// To a control word, of the region's own control block.
struct ControlAdd {
  std::uint64_t word;   // bytes from the start of the control block
  std::uint64_t value;
};

struct RequestHeader {
  MessageKind kind;
  ReduceOp op;
  BasicType type;
  std::uint8_t fetch;          // 1: the reply carries the elements as they were before
  std::uint32_t sender;        // index of the origin in the region's list of peers
  std::uint64_t region;        // which of the target's regions (Agent::publish)
  std::uint64_t offset;        // bytes from the start of the region
  std::uint32_t count;         // elements
  std::uint32_t generation;    // of the origin's operation: both come back in the reply
  std::uint64_t operation;
};
static_assert(sizeof(RequestHeader) == 40);

enum class ReplyStatus : std::uint8_t { kDone = 0, kRefused = 1 };

struct ReplyHeader {
  MessageKind kind;
  ReplyStatus status;
  std::uint16_t unused;
  std::uint32_t generation;
  std::uint64_t operation;
};
static_assert(sizeof(ReplyHeader) == 16);

// The longest payload of one message in bytes; longer accumulates are sent in several. With its header it stays
// below the eager limit of rxm (16 KiB), so that no rendezvous is needed.
inline constexpr std::size_t kMaxPayload = 8192;
inline constexpr std::size_t kMaxPutAndAdd = kMaxPayload - sizeof(ControlAdd);
inline constexpr std::size_t kMaxMessage = sizeof(RequestHeader) + kMaxPayload;

}  // namespace farside

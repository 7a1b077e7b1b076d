// SPDX-License-Identifier: BSD-3-Clause
// What an origin says to a target's handler, and what the handler answers. Both ends run the same farside on the same
// architecture (checked when windows are created), so the structs travel as they are.
//
//   operations: RequestHeader, then a list of operations (operation_list.hpp), then up to two ControlSteps. The last
//   one is
//               done when the operations are. Where there are two, the other one, the acquire step, is done before
//               them: a fetch-add, and if its word held one of the bits in `compare`, all that follows is left undone
//   regions:    RequestHeader; `count` bytes are asked for, a page of the table of attached regions from the
//               `offset`-th on (handler/attached_regions.hpp)
//   reply:      ReplyHeader, then what was fetched, last the control words as they were; of what was left undone only
//               the opening's
//   probe:      ReplyHeader; dropped. What counts is whether it can be sent.
//   part:       ReplyHeader, `operation` is the number of a connection (Endpoints): the sender would like to close it,
//               and has nothing under way by it
#pragma once

#include <cstddef>
#include <cstdint>

namespace farside {

enum class MessageKind : std::uint8_t { kOperations = 1, kRegions = 2, kReply = 3, kProbe = 4, kDisconnect = 5 };

// One atomic step on a control word of 64 bits (remote_memory.hpp), in the region's own control block.
enum class ControlCall : std::uint8_t { kFetchAdd, kCompareAndSwap, kRead, kWrite };
struct ControlStep {
  ControlCall call;
  std::uint8_t unused[3];
  std::uint32_t word;    // bytes from the start of the control block
  std::uint64_t operand; // what is added, or written
  std::uint64_t compare;
};
static_assert(sizeof(ControlStep) == 24);
inline constexpr std::size_t kMostControls = 2;

struct RequestHeader {
  MessageKind kind;
  std::uint8_t controls;       // operations: so many ControlSteps follow
  std::uint16_t unused;
  std::uint32_t sender;        // index of the origin in the region's list of peers
  std::uint64_t region;        // which of the target's regions (Handler::publish)
  std::uint64_t offset;        // regions: of the first one asked for
  std::uint32_t count;         // regions: bytes of the answer
  std::uint32_t generation;    // of the origin's operation: both come back in the reply
  std::uint64_t operation;
};
static_assert(sizeof(RequestHeader) == 40);

enum class ReplyStatus : std::uint8_t { kDone = 0, kRefused = 1, kStopped = 2 };  // by the acquire step

struct ReplyHeader {
  MessageKind kind;
  ReplyStatus status;
  std::uint16_t unused;
  std::uint32_t generation;
  std::uint64_t operation;
};
static_assert(sizeof(ReplyHeader) == 16);

// The most that a message carries behind its header, in bytes. With headers it fits into a slot of registered memory
// (local_memory.hpp).
inline constexpr std::size_t kMaxPayload = 6912;
inline constexpr std::size_t kMaxMessage = sizeof(RequestHeader) + kMaxPayload;

}  // namespace farside

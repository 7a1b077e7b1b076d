// SPDX-License-Identifier: BSD-3-Clause
// The messages between an origin and a target's active-message handler. Both ends run the same farside on the same
// architecture, so the structs travel as they are in memory.
//
//   kOperations  RequestHeader, a list of operations (operation_list.hpp), up to two ControlSteps. The handler executes
//                the last step after the list. The first of two steps is the acquire step: the handler executes it, a
//                fetch-add, before the list. If its word held one of the bits in `compare`, the handler executes
//                neither the list nor the release step. With kNoReply it is a notification: there is no reply.
//   kRegions     RequestHeader. It asks for the attached regions around address `offset`, in `count` bytes, which end
//                with zeros if there are fewer.
//   kDescribe    RequestHeader. It asks for `count` bytes, the description of the space (ServedSpace).
//   kReply       ReplyHeader, the fetched data, the former values of the control words. If the acquire step stopped
//                the list, only the former value of its word follows the header; after a refusal, nothing does. If only
//                the list ended early, the last step was executed all the same.
//   kProbe       ReplyHeader. The receiver drops it: its only purpose is to test whether the provider can send it.
//   kDisconnect  ReplyHeader; `operation` is the number of a connection (Connections::number). The sender has nothing
//                under way on the connection and wants to close it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/remote_memory.hpp"
#include "transport/base/result.hpp"

namespace farside {

enum class MessageKind : std::uint8_t {
  kOperations = 1,
  kRegions = 2,
  kReply = 3,
  kProbe = 4,
  kDisconnect = 5,
  kDescribe = 6
};

// One atomic step on a control word of 64 bits (remote_memory.hpp), in the control block of that space; or a read of
// consecutive words.
enum class ControlCall : std::uint8_t { kFetchAdd, kCompareAndSwap, kRead, kWrite };
struct ControlStep {
  ControlCall call;
  std::uint8_t unused[3];
  std::uint32_t word;     // bytes from the start of the control block
  std::uint64_t operand;  // the addend, the value to write, or the number of words to read
  std::uint64_t compare;

  std::size_t words() const { return call == ControlCall::kRead ? static_cast<std::size_t>(operand) : 1; }
};
static_assert(sizeof(ControlStep) == 24);
inline constexpr std::size_t kMostControls = 2;

struct RequestHeader {
  static constexpr std::uint16_t kNoReply = 1;
  MessageKind kind;
  std::uint8_t controls;     // kOperations: the number of ControlSteps
  std::uint16_t flags;       // kNoReply, or 0
  std::uint32_t sender;      // rank of the origin in the space
  std::uint64_t identity;    // of the origin's process (FabricAddress); 0 between on-node peers
  std::uint64_t space;       // its id at the target (MessageHandler::publish)
  std::uint64_t offset;      // kRegions: an address
  std::uint32_t count;       // kRegions, kDescribe: bytes of the answer
  std::uint32_t generation;  // of the origin's operation; copied into the reply
  std::uint64_t operation;   // the origin's operation; copied into the reply
};
static_assert(sizeof(RequestHeader) == 48);

// kStopped: by the acquire step. kInaccessible: memory of the target that the application has unmapped or truncated.
// kNoMemory: nothing was executed.
enum class ReplyStatus : std::uint8_t { kDone = 0, kRefused = 1, kStopped = 2, kInaccessible = 3, kNoMemory = 4 };
// The error at the origin.
inline Error refusal(ReplyStatus status) {
  if (status == ReplyStatus::kNoMemory) return {ErrorKind::kNoMemory, "the target's process lacks memory for it"};
  return {ErrorKind::kRange, status == ReplyStatus::kInaccessible
                                 ? "the target cannot access its own memory there: it is not mapped, not writable, or "
                                   "beyond the end of a file"
                                 : "the target's handler refused the request"};
}

struct ReplyHeader {
  MessageKind kind;
  ReplyStatus status;
  std::uint16_t unused;
  std::uint32_t generation;
  std::uint64_t operation;
};
static_assert(sizeof(ReplyHeader) == 16);

// The maximum of bytes behind the header of a message: 8 KiB of data, and what describes them. A header and this
// payload fit into a slot of registered memory (LocalMemory), and into the buffer of 9,000 bytes into which
// libfabric's tcp provider reads ahead: a larger message takes two system calls.
inline constexpr std::size_t kMaxPayload = 8192 + 256;
inline constexpr std::size_t kMaxMessage = sizeof(RequestHeader) + kMaxPayload;

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The messages between an origin and a target's active-message handler. Both ends run the same farside on the same
// architecture, so the structs travel as they are in memory.
//
//   kOperations  RequestHeader, a list of operations (OperationList), up to two ControlSteps. The handler executes
//                the last step after the list. The first of two steps is the acquire step: the handler executes it, a
//                fetch-add, before the list. If its word held one of the bits in `compare`, the handler executes
//                neither the list nor the release step. With kNoReply it is a notification: there is no reply.
//   kRegions     RequestHeader. It asks for the attached regions around address `offset`, in `count` bytes, which end
//                with zeros if there are fewer.
//   kDescribe    RequestHeader. It asks for `count` bytes, the description of the space (ServedSpace).
//   kReply       ReplyHeader, the fetched data, the former values of the control words. If the acquire step stopped
//                the list, only the former value of its word follows the header; after a refusal, nothing does. If only
//                the list ended early, the last step was executed anyway.
//   kProbe       ReplyHeader, to test whether the provider can send it. `operation`: 0, or the identity of the sender
//                if `generation` is a number as those of notifications, some of which may have been lost before.
//   kDisconnect  ReplyHeader; `operation` is the number of a connection (Connections::number). The sender has nothing
//                under way on the connection and wants to close it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/remote_memory.hpp"
#include "transport/base/result.hpp"
#include "transport/base/statistics.hpp"
#include "transport/data/reduce_op.hpp"

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
  std::uint32_t generation;  // of the origin's operation; copied into the reply. kNoReply: number of the notification
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

// Lists of operations on one target's data. A list travels in one message to the target's handler, which executes its
// operations in their order. The origin writes an OperationList, and the handler reads it by OperationListReader.
//
//   list:   entries, each a ListEntry and its data, padded to a multiple of 8 bytes
//   data:   for each block `count` elements (or bytes), one extent apart. A get and MPI_NO_OP have no data. A
//           compare_and_swap has the element to compare with, then the new element.
//   reply:  for each block of each entry that fetches, `count` elements
//
// Not thread-safe.

enum class OperationKind : std::uint8_t { kPut, kGet, kAccumulate, kCompareAndSwap };

// One operation on a target's data, or its repetition on `blocks` of `count` elements each. Its buffers belong to the
// application.
struct DataOperation {
  OperationKind kind = OperationKind::kPut;
  ReduceOp op = ReduceOp::kReplace;   // of an accumulate
  BasicType type = BasicType::kByte;  // of an accumulate or compare_and_swap
  Access access = Access::kShared;    // of an accumulate
  std::uint64_t offset = 0;           // bytes in the target's data
  std::size_t count = 0;              // elements; for puts and gets bytes
  const void* origin = nullptr;       // null: no operands (get, MPI_NO_OP)
  void* fetched = nullptr;            // null: no result
  const void* compare = nullptr;
  std::size_t blocks = 1;            // 1 for a compare_and_swap
  std::ptrdiff_t stride = 0;         // bytes from one block to the next at the target,
  std::ptrdiff_t origin_stride = 0;  // and in the origin's buffers

  static DataOperation put(std::uint64_t offset, const void* origin, std::size_t bytes) {
    return {.offset = offset, .count = bytes, .origin = origin};
  }
  static DataOperation get(std::uint64_t offset, void* fetched, std::size_t bytes) {
    return {.kind = OperationKind::kGet, .op = ReduceOp::kNoOp, .offset = offset, .count = bytes, .fetched = fetched};
  }
  static DataOperation accumulate(std::uint64_t offset, ReduceOp op, BasicType type, const void* origin, void* fetched,
                                  std::size_t count, Access access = Access::kShared) {
    if (op == ReduceOp::kNoOp) origin = nullptr;
    return {OperationKind::kAccumulate, op, type, access, offset, count, origin, fetched};
  }
  static DataOperation compare_and_swap(std::uint64_t offset, BasicType type, const void* origin, const void* compare,
                                        void* fetched) {
    constexpr ReduceOp kOp = ReduceOp::kReplace;
    return {OperationKind::kCompareAndSwap, kOp, type, Access::kShared, offset, 1, origin, fetched, compare};
  }

  DataOperation repeated(std::size_t times, std::ptrdiff_t apart, std::ptrdiff_t origin_apart) const {
    DataOperation all = *this;
    all.blocks = times;
    all.stride = apart;
    all.origin_stride = origin_apart;
    return all;
  }
  // The operation without its first blocks.
  DataOperation behind(std::size_t first) const {
    const auto by = static_cast<std::ptrdiff_t>(first);
    DataOperation rest = *this;
    rest.blocks -= first;
    rest.offset += static_cast<std::uint64_t>(by * stride);
    if (origin != nullptr) rest.origin = static_cast<const std::byte*>(origin) + by * origin_stride;
    if (fetched != nullptr) rest.fetched = static_cast<std::byte*>(fetched) + by * origin_stride;
    return rest;
  }

  bool atomic() const { return kind == OperationKind::kAccumulate || kind == OperationKind::kCompareAndSwap; }
  std::size_t bytes() const { return count * traits(type).extent; }  // of a block
  // Whether it neither changes nor fetches anything.
  bool is_nothing() const { return op == ReduceOp::kNoOp && fetched == nullptr; }
  Counted counted() const {
    constexpr std::array kCounted = {Counted::kPut, Counted::kGet, Counted::kAccumulate, Counted::kCompareAndSwap};
    const bool fetches = kind == OperationKind::kAccumulate && fetched != nullptr;
    return fetches ? Counted::kFetch : kCounted[static_cast<std::size_t>(kind)];
  }
};

// Operands of at most this many bytes are copied before the call returns. MPI does not require a copy, but the runtimes
// make one, and programs rely on it. Adapters hold about as many bytes in a work request. The copy takes some 5 ns; an
// operation over TCP takes 5 to 10 us.
inline constexpr std::size_t kCopiedAtCall = 256;

// How a DataOperation travels in a list: block i begins at offset + i * stride.
struct ListEntry {
  OperationKind kind;
  ReduceOp op;
  BasicType type;
  std::uint8_t fetch;   // 1: the reply contains the former elements
  std::uint32_t count;  // elements (bytes) in a block
  std::uint64_t offset;
  std::int64_t stride;
  std::uint32_t blocks;
  std::uint32_t unused;

  std::size_t block_bytes() const { return std::size_t{count} * traits(type).extent; }
  std::size_t data_bytes() const {
    if (kind == OperationKind::kCompareAndSwap) return 2 * block_bytes();
    return op == ReduceOp::kNoOp ? 0 : block_bytes() * blocks;
  }
  std::size_t fetched_bytes() const { return fetch != 0 ? block_bytes() * blocks : 0; }
};
static_assert(sizeof(ListEntry) == 32);

class OperationList;

// The result of a list between an acquire step and a release step (message.hpp).
struct LockedResult {
  bool stopped = false;                              // true: the handler executed only the acquire step
  std::array<std::uint64_t, kMostControls> words{};  // the former values of those of the steps
  std::unique_ptr<OperationList> list;               // if `stopped`: the list that was not executed
};

class OperationList {
 public:
  // A list fits into a message with two ControlSteps, and the fetched data into a reply with two control words.
  static constexpr std::size_t kMostBytes = kMaxPayload - kMostControls * sizeof(ControlStep);
  static constexpr std::size_t kMostFetched = kMaxPayload - kMostControls * sizeof(std::uint64_t);
  // An operation of this many bytes fits into an empty list.
  static constexpr std::size_t kMostInOne = kMostBytes - sizeof(ListEntry);

  // Each thread keeps the memory of one list. The allocations take a good part of the time of a message to an on-node
  // peer that polls. take_spare() returns an empty list, and keep_spare() takes any list that is no longer used.
  static std::unique_ptr<OperationList> take_spare();
  static void keep_spare(std::unique_ptr<OperationList> list);

  // Adds an operation and a copy of its data, and returns the number of blocks that fit.
  std::size_t add(const DataOperation& operation);
  bool empty() const { return bytes_.empty(); }
  // Makes the list empty, and keeps its memory.
  void clear() {
    bytes_.clear();
    fetching_.clear();
    fetched_bytes_ = 0;
    has_atomics_ = false;
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  bool has_atomics() const { return has_atomics_; }
  std::size_t fetched_bytes() const { return fetched_bytes_; }
  bool fetches() const { return fetched_bytes_ > 0; }
  // Copies the fetched data of the reply to the buffers of the operations. Precondition: `fetched` has fetched_bytes().
  void deliver(std::span<const std::byte> fetched) const;

 private:
  static std::unique_ptr<OperationList>& spare();
  bool extends_last(const ListEntry& entry);

  std::vector<std::byte> bytes_;
  std::vector<DataOperation> fetching_;  // those that fetch
  std::size_t last_at_ = 0;              // of the last entry
  ListEntry last_{};
  std::size_t fetched_bytes_ = 0;
  bool has_atomics_ = false;
};

// A request to the handler of a peer, without its list. What identifies the operation is filled in where it is issued.
struct HandlerRequest {
  RequestHeader header{};
  std::array<ControlStep, kMostControls> steps{};
  std::span<std::byte> fetched{};  // receives the data that follow those of the list
  LockedResult* locked = nullptr;  // of a list between two steps, whose words are `fetched`
  // Fails, and does not leave by a newer connection, if this is not the last interruption (PeerLosses) any more.
  std::optional<std::uint32_t> last_interruption{};

  static HandlerRequest operations(std::uint8_t steps = 0) {
    HandlerRequest made;
    made.header.kind = MessageKind::kOperations;
    made.header.controls = steps;
    return made;
  }
  // With a step on a control word behind the operations; `fetched` receives its former value (ControlStep::words()), if
  // the handler replies: a notification has no reply.
  static HandlerRequest with(const ControlStep& step, std::uint64_t* fetched, bool replies = true) {
    HandlerRequest made = operations(1);
    made.steps = {step};
    made.fetched = std::as_writable_bytes(std::span(fetched, step.words()));
    made.header.flags = replies ? 0 : RequestHeader::kNoReply;
    return made;
  }
  // Between an acquire step, which may stop the operations, and a release step.
  static HandlerRequest between(const ControlStep& acquire, const ControlStep& release, LockedResult& result) {
    HandlerRequest made = operations(kMostControls);
    made.steps = {acquire, release};
    made.fetched = std::as_writable_bytes(std::span(result.words));
    made.locked = &result;
    return made;
  }
  // For a page of the table of attached regions behind `address` (AttachedRegions::Page), or for the description of a
  // space (MessageHandler::ServedSpace).
  static HandlerRequest question(MessageKind kind, std::span<std::byte> answer, std::uint64_t address = 0) {
    HandlerRequest made;
    made.header.kind = kind;
    made.header.offset = address;
    made.header.count = static_cast<std::uint32_t>(answer.size());
    made.fetched = answer;
    return made;
  }
  // The request for a space that the peer's handler serves (MessageHandler::publish), in which this process is
  // `sender`.
  HandlerRequest to(std::uint64_t space, int sender) && {
    header.space = space;
    header.sender = static_cast<std::uint32_t>(sender);
    return std::move(*this);
  }

  // Stores the data of the reply: those of `list`, which may be null, then those of the request. Between two steps
  // these are the former values of the acquire step's word and, unless the list was stopped, of the release step's.
  // Errors: those of refusal(); kPeer.
  Status deliver(ReplyStatus status, std::span<const std::byte> data, const OperationList* list) const;
};

// Takes the first part, of at most so many bytes, off an operation, and returns it.
DataOperation take_part(DataOperation& rest, std::size_t most_bytes = OperationList::kMostInOne);

// Reads a list that comes from another process. The reader checks everything except the offsets and strides at the
// target, which the handler compares with the region.
class OperationListReader {
 public:
  // To check a list, and to find what it fetches: `fetched` of the operations is null.
  explicit OperationListReader(std::span<const std::byte> list) : rest_(list) {}
  // To execute it. `fetched` becomes the data of the reply.
  OperationListReader(std::span<const std::byte> list, std::span<std::byte> fetched)
      : rest_(list), fetched_(fetched.data()), most_fetched_(fetched.size()) {}
  // Returns the next operation, whose operands are in the list; false at the end of the list or at a fault.
  bool next(DataOperation& operation) { return !rest_.empty() && read(operation); }
  const char* fault() const { return fault_; }
  // Of the operations so far.
  std::size_t fetched_bytes() const { return fetched_bytes_; }

 private:
  bool read(DataOperation& operation);

  std::span<const std::byte> rest_;
  std::byte* fetched_ = nullptr;
  std::size_t most_fetched_ = OperationList::kMostFetched;
  std::size_t fetched_bytes_ = 0;
  const char* fault_ = nullptr;
};

}  // namespace farside

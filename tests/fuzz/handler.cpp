// SPDX-License-Identifier: BSD-3-Clause
// A target's handler gets hostile messages. They must not access memory outside of the space that they name, and a
// refused message must change nothing.
//
//   input:  flags, then the message
#include <algorithm>
#include <initializer_list>
#include <memory>

#include "tests/fuzz/fuzz.hpp"
#include "transport/base/log.hpp"
#include "transport/handler/attached_regions.hpp"
#include "transport/handler/message.hpp"
#include "transport/handler/message_handler.hpp"
#include "transport/space/regions.hpp"

namespace farside::fuzz {
namespace {

enum Flags : std::uint8_t {
  kRightSpace = 1,    // the message names the space, whose random id it could not guess
  kRightOffsets = 2,  // offsets count from the start of the attached memory
  kDynamic = 4,       // in a dynamic space
  kLocked = 8,        // every accumulate takes the lock
};

constexpr std::size_t kBytes = 4096, kGuard = 65536, kWords = 16, kRanks = 3, kDescription = 40;
constexpr std::byte kFilling{0x5A};

struct Memory {
  Memory() : all(kBytes + 2 * kGuard, kFilling) {}
  std::byte* data() { return all.data() + kGuard; }
  bool guards_hold() const {
    static const std::vector<std::byte> kWhole(kGuard, kFilling);
    return std::memcmp(all.data(), kWhole.data(), kGuard) == 0 &&
           std::memcmp(all.data() + kGuard + kBytes, kWhole.data(), kGuard) == 0;
  }
  std::vector<std::byte> all;
};

// Moves the offsets of the list into the attached memory, up to the first malformed entry.
void move_offsets(Bytes& message, const std::byte* to) {
  const std::span<std::byte> all = std::as_writable_bytes(std::span(message));
  if (all.size() < sizeof(RequestHeader)) return;
  const std::span<std::byte> list = all.subspan(sizeof(RequestHeader));
  OperationListReader reader(list);
  std::size_t at = 0;
  for (DataOperation operation; reader.next(operation);) {
    ListEntry entry;
    std::memcpy(&entry, list.data() + at, sizeof entry);
    entry.offset += reinterpret_cast<std::uint64_t>(to) - Regions::kFirst;
    std::memcpy(list.data() + at, &entry, sizeof entry);
    at += sizeof entry + (entry.data_bytes() + 7) / 8 * 8;
  }
}

Bytes request(std::uint8_t flags, const OperationList* list, std::initializer_list<ControlStep> steps,
              MessageKind kind = MessageKind::kOperations) {
  Bytes input{flags};
  RequestHeader header{};
  header.kind = kind;
  header.controls = static_cast<std::uint8_t>(steps.size());
  header.sender = 1;
  header.identity = 7;
  if (kind == MessageKind::kRegions) header.count = 1024;
  if (kind == MessageKind::kDescribe) header.count = kDescription;
  append(input, header);
  if (list != nullptr) {
    for (const std::byte b : list->bytes()) input.push_back(static_cast<std::uint8_t>(b));
  }
  for (const ControlStep& step : steps) append(input, step);
  return input;
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  const std::vector<std::byte> data(2048, std::byte{3});
  std::vector<std::byte> fetched(2048);
  OperationList many, strided, fetches;
  many.add(DataOperation::put(64, data.data(), 100));
  many.add(DataOperation::get(512, fetched.data(), 300));
  many.add(DataOperation::accumulate(1024, ReduceOp::kSum, BasicType::kDouble, data.data(), nullptr, 20));
  many.add(DataOperation::accumulate(2048, ReduceOp::kMaxloc, BasicType::kDoubleInt, data.data(), fetched.data(), 5));
  many.add(DataOperation::compare_and_swap(8, BasicType::kInt32, data.data(), data.data(), fetched.data()));
  for (std::uint64_t i = 0; i < 40; ++i) strided.add(DataOperation::put(24 * i, data.data(), 8));
  for (std::uint64_t i = 0; i < 40; ++i)
    fetches.add(
        DataOperation::accumulate(48 * i, ReduceOp::kNoOp, BasicType::kComplexDouble, nullptr, fetched.data(), 2));
  const ControlStep add{ControlCall::kFetchAdd, {}, 24, 5, 0};
  for (const unsigned base :
       {unsigned{kRightSpace}, unsigned{kRightSpace | kLocked}, unsigned{kRightSpace | kRightOffsets | kDynamic}}) {
    const auto flags = static_cast<std::uint8_t>(base);
    for (const OperationList* list : {&many, &strided, &fetches}) {
      all.push_back(request(flags, list, {}));
      all.push_back(request(flags, list, {add}));
      all.push_back(request(flags, list, {add, add}));
    }
    all.push_back(request(flags, nullptr, {add}));
    all.push_back(request(flags, nullptr, {add, add}));
    all.push_back(request(flags, nullptr, {}, MessageKind::kRegions));
    all.push_back(request(flags, nullptr, {}, MessageKind::kDescribe));
  }
  all.push_back(request(0, &many, {add}));
  return all;
}

}  // namespace farside::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farside;
  using namespace farside::fuzz;
  if (size == 0) return 0;
  Log::set_level(LogLevel::kError);  // refusals are logged
  const std::uint8_t flags = data[0];
  Bytes message(data + 1, data + size);

  static Memory memory, control;
  std::fill_n(memory.data(), kBytes, kFilling);
  std::fill_n(control.data(), kBytes, std::byte{0});
  AccumulateLockWord lock;
  const bool dynamic = (flags & kDynamic) != 0;
  AttachedRegions attached(kRanks);
  if (dynamic) {
    // Two that touch, and a hole before the third.
    const auto at = reinterpret_cast<std::uint64_t>(memory.data());
    for (const auto& [from, to] : {std::pair{0, 1024}, {1024, 2048}, {3072, 4096}}) {
      require(attached.attach({at + static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to - from), {}}).ok(),
              "memory is attached");
    }
  }
  MessageHandler::ServedSpace space;
  space.base =
      dynamic ? reinterpret_cast<std::byte*>(Regions::kFirst) : memory.data();  // NOLINT(performance-no-int-to-ptr)
  space.bytes = dynamic ? Regions::kBytes : kBytes;
  space.lock = &lock;
  space.control = control.data();
  space.control_bytes = kWords * 8;
  space.attached = dynamic ? &attached : nullptr;
  space.always_locked = (flags & kLocked) != 0;
  space.ranks = kRanks;
  for (std::size_t i = 0; i < kDescription; ++i) space.description[i] = std::byte(0xD0 + i);
  space.description_bytes = kDescription;
  MessageHandler handler;
  constexpr std::uint64_t id = 0x8c6a3e9d27f1b054;
  require(handler.publish(id, space), "the space is published");

  if ((flags & kRightSpace) != 0 && message.size() >= sizeof(RequestHeader)) {
    std::memcpy(message.data() + offsetof(RequestHeader, space), &id, sizeof id);
  }
  if ((flags & kRightOffsets) != 0) move_offsets(message, memory.data());
  message.shrink_to_fit();
  // At most as long as a receive buffer, since the provider truncates longer messages.
  if (message.size() > kMaxMessage) message.resize(kMaxMessage);

  const MessageHandler::Answer answer = handler.execute(std::as_bytes(std::span(message)));
  require(memory.guards_hold() && control.guards_hold(), "nothing is written beyond the space");
  const std::byte* hole = memory.data() + 2048;
  require(!dynamic || std::all_of(hole, hole + 1024, [](std::byte b) { return b == kFilling; }),
          "nothing is written to what is not attached");
  require(answer.fetched.size() <= kMaxPayload, "an answer fits into a message");
  require(answer.known_sender || answer.refused != nullptr, "only who is known is answered");
  if (message.size() >= sizeof(RequestHeader) && message[0] == static_cast<std::uint8_t>(MessageKind::kDescribe)) {
    const bool described = answer.refused == nullptr;
    require(!described || (message.size() == sizeof(RequestHeader) && answer.fetched.size() == kDescription &&
                           std::memcmp(answer.fetched.data(), space.description.data(), kDescription) == 0),
            "a description is all of the space's, and nothing else");
  }
  const bool refused = answer.refused != nullptr;
  require(refused == (answer.header.status == ReplyStatus::kRefused) || !answer.known_sender, "a refusal is told");
  if (refused) {
    require(answer.fetched.empty(), "a refusal has no data");
    const bool halfway = dynamic && std::string_view(answer.refused) == "not attached";
    require(halfway || std::all_of(memory.data(), memory.data() + kBytes, [](std::byte b) { return b == kFilling; }),
            "what is refused changes nothing");
    const auto zero = [](std::byte b) { return b == std::byte{0}; };
    require(halfway || std::all_of(control.data(), control.data() + kWords * 8, zero),
            "what is refused changes no control word");
  }
  { const AccumulateLock free(lock); }  // hangs if it was kept
  return 0;
}

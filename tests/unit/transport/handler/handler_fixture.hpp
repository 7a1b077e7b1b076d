// SPDX-License-Identifier: BSD-3-Clause
// A handler with one space, messages for it, and the check of a refusal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/data/elements.hpp"
#include "transport/base/log.hpp"
#include "transport/handler/message.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside::testing {

inline constexpr std::size_t kSpaceBytes = 4096;
inline constexpr std::uint64_t kOrigin = 77;  // identity of sender 1

// A handler with one space in its own heap block, so that a sanitizer reports accesses beyond it. For builds without a
// sanitizer there are guards on both sides.
struct HandlerFixture {
  explicit HandlerFixture(bool always_locked = false, std::size_t space_bytes = kSpaceBytes,
                          IntegerMethod* integers = nullptr)
      : bytes(space_bytes) {
    Log::set_level(LogLevel::kError);  // refusals are logged
    memory = std::make_unique<std::byte[]>(bytes + 2 * kGuard);
    std::fill_n(memory.get(), bytes + 2 * kGuard, kFilling);
    MessageHandler::ServedSpace made;
    made.base = base();
    made.bytes = bytes;
    made.lock = &lock;
    made.always_locked = always_locked;
    made.integers = integers;
    made.ranks = 3;
    made.control = reinterpret_cast<std::byte*>(words.get());
    made.control_bytes = kWords * 8;
    for (std::size_t i = 0; i < kDescription; ++i) made.description[i] = std::byte(i + 1);
    made.description_bytes = kDescription;
    CHECK(handler.publish(space, made));
  }
  ~HandlerFixture() { Log::set_level(LogLevel::kWarn); }
  std::byte* base() const { return memory.get() + kGuard; }
  bool guards_hold() const {
    const auto holds = [](std::byte b) { return b == kFilling; };
    return std::all_of(memory.get(), base(), holds) && std::all_of(base() + bytes, base() + bytes + kGuard, holds);
  }
  RequestHeader header(MessageKind kind = MessageKind::kOperations) const {
    return {kind, 0, 0, 1, kOrigin, space, 0, 0, 5, 42};
  }

#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kGuard = 0;
#else
  static constexpr std::size_t kGuard = 65536;
#endif
  std::size_t bytes;
  std::unique_ptr<std::byte[]> memory;
  static constexpr std::size_t kWords = 16;
  std::unique_ptr<std::uint64_t[]> words = std::make_unique<std::uint64_t[]>(kWords);  // the control block
  AccumulateLockWord lock;
  MessageHandler handler;
  static constexpr std::uint32_t kDescription = 40;
  std::uint64_t space = 0x5eed0000d00d;
};

using Bytes = std::vector<std::byte>;

template <class T>
void append(Bytes& message, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  message.insert(message.end(), bytes, bytes + sizeof value);
}

inline Bytes message_of(const RequestHeader& header, const Bytes& payload = {}) {
  Bytes message;
  append(message, header);
  message.insert(message.end(), payload.begin(), payload.end());
  return message;
}

inline ListEntry accumulate(ReduceOp op, BasicType type, std::uint64_t offset, std::uint32_t count, bool fetch = true) {
  return {OperationKind::kAccumulate, op, type, std::uint8_t{fetch}, count, offset, 0, 1, 0};
}
inline ListEntry compare_and_swap(BasicType type, std::uint64_t offset, std::uint32_t count = 1) {
  return {OperationKind::kCompareAndSwap, ReduceOp::kReplace, type, 1, count, offset, 0, 1, 0};
}
inline ListEntry put(std::uint64_t offset, std::uint32_t bytes, std::uint32_t blocks = 1, std::int64_t stride = 0) {
  return {OperationKind::kPut, ReduceOp::kReplace, BasicType::kByte, 0, bytes, offset, stride, blocks, 0};
}
inline ListEntry get(std::uint64_t offset, std::uint32_t bytes, std::uint32_t blocks = 1, std::int64_t stride = 0) {
  return {OperationKind::kGet, ReduceOp::kNoOp, BasicType::kByte, 1, bytes, offset, stride, blocks, 0};
}

// Returns an entry with its data, padded as in a list.
inline Bytes listed(const ListEntry& entry, const Bytes& data = {}) {
  Bytes list;
  append(list, entry);
  list.insert(list.end(), data.begin(), data.end());
  list.resize((list.size() + 7) / 8 * 8);
  return list;
}

// Returns the bytes of data in a request. The last element has no gap behind it.
inline std::size_t payload_bytes(BasicType type, std::size_t count) {
  return (count - 1) * traits(type).extent + end_of_data(type);
}

inline Bytes elements(BasicType type, std::size_t count, unsigned seed) {
  Bytes buffer(count * traits(type).extent, kFilling);
  fill_elements(type, buffer.data(), count, seed);
  buffer.resize(payload_bytes(type, count));
  buffer.shrink_to_fit();
  return buffer;
}

// Types with padding in their values. Another type at the same place would see these undefined bytes.
inline bool has_padding(BasicType type) {
  return type == BasicType::kLongDouble || type == BasicType::kComplexLongDouble || type == BasicType::kLongDoubleInt;
}

// Checks that the answer is a refusal and that the memory is unchanged.
inline void check_refused(HandlerFixture& on, const Bytes& message, bool known_sender = true) {
  const Bytes before(on.base(), on.base() + on.bytes);
  const MessageHandler::Answer answer = on.handler.execute(message);
  CHECK(answer.refused != nullptr);
  CHECK(answer.known_sender == known_sender);
  CHECK(answer.fetched.empty());
  if (known_sender) CHECK(answer.header.status == ReplyStatus::kRefused);
  CHECK(std::equal(before.begin(), before.end(), on.base()));
  CHECK(on.guards_hold());
  CHECK(on.lock.state.load() == AccumulateLockWord::kFree);
}

}  // namespace farside::testing

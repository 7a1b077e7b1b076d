// SPDX-License-Identifier: BSD-3-Clause
// A process that has sent requests to the handlers of targets gets hostile answers. An answer may write only the
// buffers of the operation that it names, only once, and only if it has the right length. The process drops all other
// answers.
//
//   input:  the operation that the answer names, flags for its number and generation, then the answer
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "tests/fuzz/fuzz.hpp"
#include "transport/fabric/peers.hpp"

namespace farside::fuzz {
namespace {

// The operations: one that fetches by a list; one that fetches by a list and a word after it; one that fetches by a
// list between two control steps; one that only waits for its completion; one that awaits no answer.
enum Index : std::size_t { kList, kListAndWord, kLocked, kNothing, kWithoutReply, kOperations };
constexpr Peer kPeer = 3;
enum Flags : std::uint8_t { kRightNumber = 1, kRightGeneration = 2, kTwice = 4 };
constexpr std::size_t kElements = 5, kGuard = 4096;
constexpr std::size_t kListed = 24 + 16 * kElements + 8,
                      kBytes = kListed + 8;  // of the buffers: a list's, and a word behind them
constexpr std::byte kFilling{0x5A};

struct Buffers {
  Buffers() : all(kGuard + kOperations * (kBytes + kGuard), kFilling) {}
  std::byte* of(std::size_t operation) { return all.data() + kGuard + operation * (kBytes + kGuard); }
  // Returns whether no byte has changed except, perhaps, the first `bytes` bytes of this operation's buffer.
  bool only(std::size_t operation, std::size_t bytes) {
    const std::byte* const begin = operation < kOperations ? of(operation) : all.data();
    const std::byte* const end = operation < kOperations ? begin + bytes : begin;
    const auto filling = [](std::byte b) { return b == kFilling; };
    return std::all_of(static_cast<const std::byte*>(all.data()), begin, filling) &&
           std::all_of(end, static_cast<const std::byte*>(all.data() + all.size()), filling);
  }
  std::vector<std::byte> all;
};

std::unique_ptr<OperationList> list_into(std::byte* buffer) {
  auto list = std::make_unique<OperationList>();
  const std::array<std::byte, 64> data{};
  require(list->add(DataOperation::get(0, buffer, 24)), "a get");
  require(list->add(DataOperation::put(24, data.data(), 64)), "a put");
  require(list->add(DataOperation::accumulate(64, ReduceOp::kMaxloc, BasicType::kDoubleInt, data.data(), nullptr, 1)),
          "an accumulate");
  require(
      list->add(DataOperation::accumulate(96, ReduceOp::kNoOp, BasicType::kDoubleInt, nullptr, buffer + 24, kElements)),
      "a fetch");
  require(list->add(DataOperation::compare_and_swap(8, BasicType::kInt64, data.data(), data.data(),
                                                    buffer + 24 + kElements * 16)),
          "a swap");
  return list;
}

Bytes answer(std::size_t operation, std::uint8_t flags, std::size_t bytes, ReplyStatus status = ReplyStatus::kDone) {
  Bytes input;
  input.reserve(2 + sizeof(ReplyHeader) + bytes);
  input.push_back(static_cast<std::uint8_t>(operation));
  input.push_back(flags);
  append(input, ReplyHeader{MessageKind::kReply, status, 0, 0, operation});
  input.resize(input.size() + bytes, 0xEE);
  return input;
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  Buffers buffers;
  const std::size_t listed = list_into(buffers.of(0))->fetched_bytes();
  for (std::size_t operation = 0; operation < kOperations; ++operation) {
    const std::size_t bytes = (operation <= kLocked ? listed : 0) + (operation == kListAndWord ? 8
                                                                     : operation == kLocked    ? 16
                                                                                               : 0);
    for (const unsigned flags : {0U, unsigned{kRightNumber}, unsigned{kRightNumber | kRightGeneration},
                                 unsigned{kRightNumber | kRightGeneration | kTwice}}) {
      all.push_back(answer(operation, static_cast<std::uint8_t>(flags), bytes));
    }
    all.push_back(answer(operation, kRightNumber | kRightGeneration, 0, ReplyStatus::kRefused));
    all.push_back(answer(operation, kRightNumber | kRightGeneration, 8, ReplyStatus::kStopped));
    all.push_back(answer(operation, kRightNumber | kRightGeneration, bytes + 1));
  }
  return all;
}

}  // namespace farside::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farside;
  using namespace farside::fuzz;
  if (size < 2) return 0;
  const std::size_t named = data[0] % kOperations;
  const std::uint8_t flags = data[1];
  Bytes message(data + 2, data + size);
  Buffers buffers;
  std::array<Pending, kOperations> pending;
  LockedResult locked_result;
  Peers in_flight;
  PeerState& peer = in_flight.know(kPeer);
  std::array<FabricOperation*, kOperations> operations{};
  for (std::size_t i = 0; i < kOperations; ++i) {
    FabricOperation& operation = *(operations[i] = &peer.begin());
    operation.await_reply();  // its completion never comes, so it does not end
    peer.issued(operation, pending[i], Pending::kMessages);
    operation.generation = 0x5EED0000U + static_cast<std::uint32_t>(i);
    operation.awaits_reply = i != kWithoutReply;
    if (i <= kLocked) operation.list = list_into(buffers.of(i));
    if (i == kLocked) operation.message.locked = &locked_result;
    if (i == kLocked) operation.message.fetched = std::as_writable_bytes(std::span(locked_result.words));
    if (i == kListAndWord) {
      operation.message.fetched = {buffers.of(i) + kListed, kBytes - kListed};
    }
  }
  ReplyHeader header{};
  if (message.size() >= sizeof header) {
    std::memcpy(&header, message.data(), sizeof header);
    if ((flags & kRightNumber) != 0) header.operation = in_flight.number(*operations[named]);
    if ((flags & kRightGeneration) != 0) header.generation = operations[named]->generation;
    std::memcpy(message.data(), &header, sizeof header);
  }
  message.shrink_to_fit();  // the address sanitizer reports reads beyond its end

  const std::size_t listed = operations[kList]->list->fetched_bytes();
  const std::span<const std::byte> bytes = std::as_bytes(std::span(message));
  const FabricOperation& of = *operations[named];
  const bool right = bytes.size() >= sizeof header && (flags & kRightNumber) != 0 &&
                     header.generation == of.generation && named != kWithoutReply;
  require(in_flight.take_reply(bytes) == right,
          "the operation that an answer names has it, if it waits for one, and no other");
  require(!of.awaits_reply || !right, "it waits no more");
  for (std::size_t i = 0; i < kOperations; ++i) {
    require(operations[i]->awaits_reply == (i != kWithoutReply && !(right && i == named)), "the others wait as before");
    require(right && i == named ? true : !pending[i].has_error(), "the others have no error");
  }
  const std::size_t expected = (named <= kLocked ? listed : 0) + (named == kLocked ? 16 : of.message.fetched.size());
  const bool good = right && header.status == ReplyStatus::kDone && bytes.size() == sizeof header + expected;
  const bool stopped =
      right && named == kLocked && header.status == ReplyStatus::kStopped && bytes.size() == sizeof header + 8;
  require(pending[named].has_error() == (right && !good && !stopped),
          "an answer that is not of the right length, or a refusal, is an error");
  require(good ? buffers.only(named, kBytes) : buffers.only(kOperations, 0),
          "only the buffers that were asked for are written");
  require(locked_result.stopped == stopped && (locked_result.list != nullptr) == stopped,
          "a list that was stopped is given back, and no other");
  if ((flags & kTwice) != 0) {
    require(!in_flight.take_reply(bytes), "no operation is answered twice");
    require(good ? buffers.only(named, kBytes) : buffers.only(kOperations, 0), "nor written to");
  }
  return 0;
}

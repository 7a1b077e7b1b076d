// SPDX-License-Identifier: BSD-3-Clause
// Messages that the handler must refuse. (tests/fuzz/handler.cpp mutates messages.)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include <catch2/catch.hpp>

#include "tests/unit/transport/handler/handler_fixture.hpp"
#include "transport/handler/message.hpp"
#include "transport/handler/message_handler.hpp"

namespace farside::message_checks_test {

using namespace farside::testing;

TEST_CASE("a message shorter than its header is dropped") {
  HandlerFixture on;
  const Bytes whole = message_of(on.header(), listed(put(0, 4), Bytes(4)));
  for (std::size_t bytes = 0; bytes < sizeof(RequestHeader); ++bytes) {
    check_refused(on, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)), false);
  }
}

TEST_CASE("data of a wrong length are refused, and so is an entry that is cut off") {
  HandlerFixture on;
  const auto check_all = [&](const ListEntry& entry, std::size_t right) {
    for (std::size_t bytes = 0; bytes <= 64; bytes += 8) {
      if (bytes == right) continue;
      // The handler reads surplus data as the next entry, which is malformed.
      check_refused(on, message_of(on.header(), listed(entry, Bytes(bytes))));
    }
  };
  check_all(accumulate(ReduceOp::kSum, BasicType::kInt32, 0, 3), 16);
  check_all(compare_and_swap(BasicType::kInt64, 0), 16);
  check_all(put(0, 24), 24);
  check_all(put(0, 3, 3, 8), 16);
  check_all(get(0, 24), 0);
  check_all(accumulate(ReduceOp::kNoOp, BasicType::kInt32, 0, 1), 0);
  const Bytes good = listed(put(0, 8), Bytes(8));
  for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {
    check_refused(on, message_of(on.header(), Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes))));
  }
  // The length of the data without their padding.
  Bytes unpadded = listed(put(0, 13), Bytes(13));
  unpadded.resize(sizeof(ListEntry) + 13);
  check_refused(on, message_of(on.header(), unpadded));
}

TEST_CASE("of a list of which one operation is refused none is carried out") {
  HandlerFixture on;
  for (const ListEntry& bad :
       {put(on.bytes, 1), put(0, 0), get(on.bytes - 1, 2), accumulate(ReduceOp::kMaxloc, BasicType::kInt32, 0, 1)}) {
    Bytes list = listed(put(0, 8), Bytes(8, std::byte{1}));
    const Bytes behind = listed(bad, Bytes(bad.kind == OperationKind::kGet ? 0 : 8));
    list.insert(list.end(), behind.begin(), behind.end());
    check_refused(on, message_of(on.header(), list));
  }
}

TEST_CASE("an operation that leaves its space after the check of its list is refused") {
  // The message lies in the space, and its first operation overwrites the offset of its second one.
  constexpr std::size_t kAt = 1024;
  HandlerFixture on;
  for (const std::uint64_t offset : {std::uint64_t{on.bytes}, UINT64_MAX - 7}) {
    Bytes first(sizeof offset);
    std::memcpy(first.data(), &offset, sizeof offset);
    const std::size_t second = kAt + sizeof(RequestHeader) + sizeof(ListEntry) + first.size();
    Bytes list = listed(put(second + offsetof(ListEntry, offset), 8), first);
    const Bytes behind = listed(put(0, 8), Bytes(8, std::byte{1}));
    list.insert(list.end(), behind.begin(), behind.end());
    const Bytes message = message_of(on.header(), list);
    std::copy(message.begin(), message.end(), on.base() + kAt);
    const MessageHandler::Answer answer = on.handler.execute({on.base() + kAt, message.size()});
    REQUIRE(answer.refused != nullptr);
    CHECK(std::string(answer.refused) == "changed while it was executed");
    CHECK(answer.header.status == ReplyStatus::kRefused);
    CHECK(on.guards_hold());
  }
}

TEST_CASE("an operation beyond its space is refused, overflow or not") {
  HandlerFixture on;
  const std::uint64_t offsets[] = {
      kSpaceBytes - 7,         kSpaceBytes, kSpaceBytes + 1, UINT64_MAX, UINT64_MAX - 7, std::uint64_t{1} << 63,
      UINT64_MAX - kSpaceBytes};
  for (const std::uint64_t offset : offsets) {
    INFO(offset);
    check_refused(on,
                  message_of(on.header(), listed(accumulate(ReduceOp::kSum, BasicType::kInt64, offset, 1), Bytes(8))));
    check_refused(on, message_of(on.header(), listed(accumulate(ReduceOp::kNoOp, BasicType::kInt64, offset, 1))));
    check_refused(on, message_of(on.header(), listed(compare_and_swap(BasicType::kInt64, offset), Bytes(16))));
    check_refused(on, message_of(on.header(), listed(put(offset, 8), Bytes(8))));
    check_refused(on, message_of(on.header(), listed(get(offset, 8))));
  }
  for (const std::uint32_t count : {0U, 513U, 865U, 1537U, 0x20000000U, 0x20000001U, 0x80000000U, UINT32_MAX}) {
    INFO(count);
    check_refused(on, message_of(on.header(), listed(accumulate(ReduceOp::kNoOp, BasicType::kInt64, 0, count))));
    check_refused(on,
                  message_of(on.header(), listed(accumulate(ReduceOp::kSum, BasicType::kInt64, 0, count), Bytes(8))));
    check_refused(on, message_of(on.header(), listed(compare_and_swap(BasicType::kInt64, 0, count), Bytes(16))));
  }
  // Blocks: the last block behind the space, before it or far away; no block; more than the maximum.
  constexpr auto kFar = std::numeric_limits<std::int64_t>::max();
  for (const ListEntry& bad :
       {get(0, 8, 3, kSpaceBytes / 2), get(0, 8, 2, -8), get(16, 8, 4, -8), get(0, 8, 2, kFar), get(0, 8, 2, -kFar - 1),
        get(0, 8, 1000, kFar), get(0, 8, 0, 8), get(0, 1, UINT32_MAX, 1), get(0, 8, UINT32_MAX, 0)}) {
    check_refused(on, message_of(on.header(), listed(bad)));
  }
  CHECK(on.handler.execute(message_of(on.header(), listed(get(kSpaceBytes - 8, 8, 512, -8)))).refused == nullptr);
  CHECK(on.handler.execute(message_of(on.header(), listed(get(0, 8, 512, 8)))).refused == nullptr);
  // A single block does not use its stride (the undefined-behaviour sanitizer would report a use).
  for (const std::int64_t stride :
       {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    CHECK(on.handler.execute(message_of(on.header(), listed(get(8, 8, 1, stride)))).refused == nullptr);
  }
}

TEST_CASE("no request makes the handler answer with more than a message holds") {
  HandlerFixture on(false, 16 * kMaxPayload);
  const auto most = static_cast<std::uint32_t>(OperationList::kMostFetched / 8);
  const auto fetch = [](std::uint32_t count) {
    return listed(accumulate(ReduceOp::kNoOp, BasicType::kInt64, 0, count));
  };
  CHECK(on.handler.execute(message_of(on.header(), fetch(most))).fetched.size() == OperationList::kMostFetched);
  check_refused(on, message_of(on.header(), fetch(most + 1)));
  check_refused(on, message_of(on.header(), fetch(16 * most)));
  Bytes several;
  for (int i = 0; i < 3; ++i) {
    const Bytes one = fetch(most / 2);
    several.insert(several.end(), one.begin(), one.end());
    if (i < 2) CHECK(on.handler.execute(message_of(on.header(), several)).refused == nullptr);
  }
  check_refused(on, message_of(on.header(), several));
}

TEST_CASE("unknown kinds, operations, types, spaces and senders are refused") {
  HandlerFixture on;
  const ListEntry good = accumulate(ReduceOp::kSum, BasicType::kInt32, 0, 1);
  for (const std::size_t number : {kReduceOps, std::size_t{200}, std::size_t{255}}) {
    ListEntry bad = good;
    bad.op = static_cast<ReduceOp>(number);
    check_refused(on, message_of(on.header(), listed(bad, Bytes(4))));
  }
  for (const std::size_t number : {kBasicTypes, std::size_t{200}, std::size_t{255}}) {
    ListEntry bad = good;
    bad.type = static_cast<BasicType>(number);
    check_refused(on, message_of(on.header(), listed(bad, Bytes(4))));
  }
  for (const int number : {4, 200, 255}) {
    ListEntry bad = good;
    bad.kind = static_cast<OperationKind>(number);
    check_refused(on, message_of(on.header(), listed(bad, Bytes(4))));
  }
  // Puts and gets with the fields of other operations.
  ListEntry fetching_put = put(0, 8), sending_get = get(0, 8), typed_put = put(0, 8), silent = good;
  fetching_put.fetch = 1;
  sending_get.op = ReduceOp::kReplace;
  typed_put.type = BasicType::kInt64;
  silent.op = ReduceOp::kNoOp;
  silent.fetch = 0;
  for (const ListEntry& bad : {fetching_put, sending_get, typed_put})
    check_refused(on, message_of(on.header(), listed(bad, Bytes(8))));
  check_refused(on, message_of(on.header(), listed(silent)));
  const Bytes list = listed(good, Bytes(4));
  for (const std::uint32_t sender : {3U, 1000U, UINT32_MAX}) {
    RequestHeader bad = on.header();
    bad.sender = sender;
    check_refused(on, message_of(bad, list), false);
  }
  RequestHeader bad = on.header();
  bad.space = on.space + 1;
  check_refused(on, message_of(bad, list), false);
  bad.space = 0;
  check_refused(on, message_of(bad, list), false);
}

TEST_CASE("an operation that MPI does not define for the type is refused") {
  HandlerFixture on;
  for (const BasicType type : all_types()) {
    for (const ReduceOp op : all_ops()) {
      if (allowed(op, type)) continue;
      INFO(traits(type).name << " " << name(op));
      check_refused(on, message_of(on.header(), listed(accumulate(op, type, 0, 1), Bytes(traits(type).extent))));
    }
    if (!has_gap(type)) continue;
    INFO(traits(type).name << " compare_and_swap");
    check_refused(
        on, message_of(on.header(), listed(compare_and_swap(type, 0), Bytes(2 * std::size_t{traits(type).extent}))));
  }
}

TEST_CASE("a space is served from its publication to its withdrawal, and not replaced meanwhile") {
  HandlerFixture on;
  std::byte other[8] = {};
  MessageHandler::ServedSpace space;
  space.base = other;
  space.bytes = sizeof other;
  space.lock = &on.lock;
  const Bytes list = listed(put(0, 4), Bytes(4, std::byte{9}));
  RequestHeader unborn = on.header();
  ++unborn.space;
  check_refused(on, message_of(unborn, list), false);
  CHECK(on.handler.publish(unborn.space, space));
  check_refused(on, message_of(unborn, list), false);  // a space of no ranks
  space.ranks = 3;
  const Bytes message = message_of(on.header(), list);
  CHECK_FALSE(on.handler.publish(on.space, space));
  CHECK(on.handler.execute(message).refused == nullptr);
  CHECK((on.base()[0] == std::byte{9} && other[0] == std::byte{0}));
  for (int times = 0; times < 2; ++times) {
    on.handler.withdraw(on.space);
    check_refused(on, message, false);
  }
  CHECK(on.handler.publish(on.space, space));
  CHECK(on.handler.execute(message).refused == nullptr);
  CHECK(other[0] == std::byte{9});
}

}  // namespace farside::message_checks_test

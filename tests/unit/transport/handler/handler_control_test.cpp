// SPDX-License-Identifier: BSD-3-Clause
// The handler's steps on control words: alone, after a list of operations, and before and after it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/handler/handler_fixture.hpp"

namespace farside::handler_control_test {

using namespace farside::testing;

namespace {

using Words = std::vector<std::uint64_t>;

Words words_of(const MessageHandler::Answer& answer) {
  Words words(answer.fetched.size() / 8);
  std::memcpy(words.data(), answer.fetched.data(), words.size() * 8);
  return words;
}

// Returns a request with these operations and steps.
Bytes request_of(const HandlerFixture& on, const Bytes& list, const std::vector<ControlStep>& steps) {
  RequestHeader header = on.header();
  header.controls = static_cast<std::uint8_t>(steps.size());
  Bytes payload = list;
  for (const ControlStep& step : steps) append(payload, step);
  return message_of(header, payload);
}

Bytes put_of(std::uint64_t offset, std::size_t bytes) {
  if (bytes == 0) return {};
  return listed(put(offset, static_cast<std::uint32_t>(bytes)), Bytes(bytes, std::byte{0x21}));
}

}  // namespace

TEST_CASE("operations with a control step are carried out, then it is taken and fetches; or nothing is done") {
  HandlerFixture on;
  const auto add = [](std::uint32_t word) { return ControlStep{ControlCall::kFetchAdd, {}, word, 7, 0}; };
  std::uint64_t sum = 0;
  for (const std::size_t bytes : {0UL, 1UL, 13UL, kSpaceBytes}) {
    std::fill_n(on.base(), on.bytes, kFilling);
    const std::uint64_t offset = (kSpaceBytes - bytes) / 2;
    const MessageHandler::Answer answer = on.handler.execute(request_of(on, put_of(offset, bytes), {add(8 * 15)}));
    CHECK((answer.refused == nullptr && answer.header.status == ReplyStatus::kDone));
    CHECK(words_of(answer) == Words{sum});
    CHECK(on.words[15] == (sum += 7));
    for (std::size_t i = 0; i < on.bytes; ++i) {
      if (on.base()[i] != (i >= offset && i < offset + bytes ? std::byte{0x21} : kFilling)) FAIL("byte " << i);
    }
  }
  check_refused(on, request_of(on, put_of(kSpaceBytes, 1), {add(0)}));
  check_refused(on, request_of(on, put_of(UINT64_MAX, 8), {add(0)}));
  for (const std::uint32_t word : {1U, 124U, 128U, UINT32_MAX - 7})
    check_refused(on, request_of(on, put_of(0, 8), {add(word)}));
  RequestHeader header = on.header();
  header.controls = 1;
  check_refused(on, message_of(header, Bytes(8)));
  CHECK(std::count(on.words.get(), on.words.get() + on.kWords, 0U) == 15);
}

TEST_CASE("between two steps operations are carried out, unless the first one stops them") {
  HandlerFixture on;
  const ControlStep draws{ControlCall::kFetchAdd, {}, 24, 0x101, 0xF0};
  const ControlStep leaves{ControlCall::kFetchAdd, {}, 24, 0x10, 0};
  const MessageHandler::Answer done = on.handler.execute(request_of(on, put_of(16, 8), {draws, leaves}));
  CHECK(done.header.status == ReplyStatus::kDone);
  CHECK(words_of(done) == Words{0, 0x101});
  CHECK(on.words[3] == 0x111);
  CHECK(on.base()[16] == std::byte{0x21});
  // Bit 0x10 now stops the acquire step.
  const MessageHandler::Answer stopped = on.handler.execute(request_of(on, put_of(32, 8), {draws, leaves}));
  CHECK((stopped.refused == nullptr && stopped.header.status == ReplyStatus::kStopped));
  CHECK(words_of(stopped) == Words{0x111});
  CHECK(on.words[3] == 0x212);
  CHECK(on.base()[32] == kFilling);
  // The handler executes no part of a refused request.
  std::fill_n(on.base(), on.bytes, kFilling);
  on.words[3] = 0;
  check_refused(on, request_of(on, put_of(kSpaceBytes, 8), {draws, leaves}));
  check_refused(on, request_of(on, put_of(0, 8), {{ControlCall::kFetchAdd, {}, 128, 1, 0}, leaves}));
  check_refused(on, request_of(on, put_of(0, 8), {draws, {ControlCall::kFetchAdd, {}, 4, 1, 0}}));
  for (const ControlCall call : {ControlCall::kRead, ControlCall::kWrite, ControlCall::kCompareAndSwap})
    check_refused(on, request_of(on, put_of(0, 8), {{call, {}, 24, 1, 0}, leaves}));
  check_refused(on, request_of(on, {}, {draws, draws, draws}));
  RequestHeader header = on.header();
  header.controls = 2;
  Bytes one_only;
  append(one_only, draws);
  check_refused(on, message_of(header, one_only));
  CHECK(on.words[3] == 0);
}

TEST_CASE("steps on control words do what they say and fetch what was there") {
  HandlerFixture on;
  const auto take = [&](ControlCall call, std::uint64_t operand, std::uint64_t compare) {
    return words_of(on.handler.execute(request_of(on, {}, {{call, {}, 24, operand, compare}})));
  };
  CHECK(take(ControlCall::kWrite, 5, 0) == Words{0});
  CHECK(take(ControlCall::kFetchAdd, UINT64_MAX, 0) == Words{5});
  CHECK(take(ControlCall::kCompareAndSwap, 9, 5) == Words{4});
  CHECK(take(ControlCall::kCompareAndSwap, 9, 4) == Words{4});
  CHECK(take(ControlCall::kRead, 1, 77) == Words{9});
  CHECK(on.words[3] == 9);
  check_refused(on, request_of(on, {}, {{static_cast<ControlCall>(4), {}, 24, 1, 0}}));
  CHECK(on.words[3] == 9);
}

TEST_CASE("consecutive control words are read in one step, and none outside the block") {
  HandlerFixture on;
  const auto read = [&](std::uint32_t word, std::uint64_t count) {
    return request_of(on, {}, {{ControlCall::kRead, {}, word, count, 0}});
  };
  constexpr std::size_t kLast = HandlerFixture::kWords - 1;
  for (std::size_t i = 0; i <= kLast; ++i) on.words[i] = 100 + i;
  CHECK(words_of(on.handler.execute(read(8, 3))) == Words{101, 102, 103});
  CHECK(words_of(on.handler.execute(read(8 * kLast, 1))) == Words{100 + kLast});
  check_refused(on, read(8 * kLast, 2));
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{kMostWordsRead + 1}, UINT64_MAX})
    check_refused(on, read(0, count));
}

TEST_CASE("a space's description is answered to those who ask for its length, and for nothing else") {
  HandlerFixture on;
  const auto ask = [&](std::uint32_t count, const Bytes& payload = {}) {
    RequestHeader header = on.header(MessageKind::kDescribe);
    header.count = count;
    return message_of(header, payload);
  };
  const MessageHandler::Answer answer = on.handler.execute(ask(HandlerFixture::kDescription));
  CHECK(answer.refused == nullptr);
  CHECK(answer.known_sender);
  CHECK((answer.header.kind == MessageKind::kReply && answer.header.status == ReplyStatus::kDone));
  CHECK((answer.header.operation == 42 && answer.header.generation == 5));
  REQUIRE(answer.fetched.size() == HandlerFixture::kDescription);
  for (std::size_t i = 0; i < answer.fetched.size(); ++i) CHECK(answer.fetched[i] == std::byte(i + 1));

  for (const std::uint32_t count : {0U, HandlerFixture::kDescription - 1, HandlerFixture::kDescription + 1, 64U, 65U,
                                    static_cast<std::uint32_t>(kMaxPayload), UINT32_MAX})
    check_refused(on, ask(count));
  for (const std::size_t bytes : {1, 8, 4096}) check_refused(on, ask(HandlerFixture::kDescription, Bytes(bytes)));
  RequestHeader other = on.header(MessageKind::kDescribe);
  other.count = HandlerFixture::kDescription;
  other.sender = 3;
  check_refused(on, message_of(other), false);
  other.sender = 1;
  other.space = on.space + 1;
  check_refused(on, message_of(other), false);
  on.handler.withdraw(on.space);
  check_refused(on, ask(HandlerFixture::kDescription), false);
  // A space without a description has one of no bytes.
  MessageHandler::ServedSpace plain;
  plain.ranks = 3;
  REQUIRE(on.handler.publish(on.space, plain));
  check_refused(on, ask(HandlerFixture::kDescription));
  const MessageHandler::Answer none = on.handler.execute(ask(0));
  CHECK((none.refused == nullptr && none.fetched.empty()));
}

}  // namespace farside::handler_control_test

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

std::vector<std::uint64_t> words_of(const MessageHandler::Answer& answer) {
  std::vector<std::uint64_t> words(answer.fetched.size() / 8);
  std::memcpy(words.data(), answer.fetched.data(), words.size() * 8);
  return words;
}

}  // namespace

TEST_CASE("operations with a control step are carried out, then it is taken and fetches; or nothing is done") {
  HandlerFixture on;
  const auto message = [&](std::uint64_t offset, std::size_t bytes, const ControlStep& step) {
    Bytes payload =
        bytes > 0 ? listed(put(offset, static_cast<std::uint32_t>(bytes)), Bytes(bytes, std::byte{0x21})) : Bytes();
    append(payload, step);
    RequestHeader header = on.header();
    header.controls = 1;
    return message_of(header, payload);
  };
  const auto add = [](std::uint32_t word) { return ControlStep{ControlCall::kFetchAdd, {}, word, 7, 0}; };
  std::uint64_t sum = 0;
  for (const std::size_t bytes : {0UL, 1UL, 13UL, kSpaceBytes}) {
    std::fill_n(on.base(), on.bytes, kFilling);
    const std::uint64_t offset = (kSpaceBytes - bytes) / 2;
    const MessageHandler::Answer answer = on.handler.execute(message(offset, bytes, add(8 * 15)));
    CHECK(answer.refused == nullptr);
    CHECK(answer.header.status == ReplyStatus::kDone);
    std::uint64_t before = 1;
    REQUIRE(answer.fetched.size() == sizeof before);
    std::memcpy(&before, answer.fetched.data(), sizeof before);
    CHECK(before == sum);
    CHECK(on.words[15] == (sum += 7));
    for (std::size_t i = 0; i < on.bytes; ++i) {
      if (on.base()[i] != (i >= offset && i < offset + bytes ? std::byte{0x21} : kFilling)) FAIL("byte " << i);
    }
  }
  check_refused(on, message(kSpaceBytes, 1, add(0)));
  check_refused(on, message(UINT64_MAX, 8, add(0)));
  for (const std::uint32_t word : {1U, 124U, 128U, UINT32_MAX - 7}) {
    check_refused(on, message(0, 8, add(word)));
  }
  RequestHeader header = on.header();
  header.controls = 1;
  check_refused(on, message_of(header, Bytes(8)));
  CHECK(std::count(on.words.get(), on.words.get() + on.kWords, 0U) == 15);
}

TEST_CASE("between two steps operations are carried out, unless the first one stops them") {
  HandlerFixture on;
  const auto message = [&](std::uint64_t offset, const ControlStep& acquire_step, const ControlStep& release_step) {
    Bytes payload = listed(put(offset, 8), Bytes(8, std::byte{0x21}));
    append(payload, acquire_step);
    append(payload, release_step);
    RequestHeader header = on.header();
    header.controls = 2;
    return message_of(header, payload);
  };
  const ControlStep draws{ControlCall::kFetchAdd, {}, 24, 0x101, 0xF0};
  const ControlStep leaves{ControlCall::kFetchAdd, {}, 24, 0x10, 0};
  const MessageHandler::Answer done = on.handler.execute(message(16, draws, leaves));
  CHECK(done.header.status == ReplyStatus::kDone);
  CHECK(words_of(done) == std::vector<std::uint64_t>{0, 0x101});
  CHECK(on.words[3] == 0x111);
  CHECK(on.base()[16] == std::byte{0x21});
  // Bit 0x10 now stops the acquire step.
  const MessageHandler::Answer stopped = on.handler.execute(message(32, draws, leaves));
  CHECK(stopped.refused == nullptr);
  CHECK(stopped.header.status == ReplyStatus::kStopped);
  CHECK(words_of(stopped) == std::vector<std::uint64_t>{0x111});
  CHECK(on.words[3] == 0x212);
  CHECK(on.base()[32] == kFilling);
  // The handler executes no part of a refused request.
  std::fill_n(on.base(), on.bytes, kFilling);
  on.words[3] = 0;
  check_refused(on, message(kSpaceBytes, draws, leaves));
  check_refused(on, message(0, {ControlCall::kFetchAdd, {}, 128, 1, 0}, leaves));
  check_refused(on, message(0, draws, {ControlCall::kFetchAdd, {}, 4, 1, 0}));
  for (const ControlCall call : {ControlCall::kRead, ControlCall::kWrite, ControlCall::kCompareAndSwap}) {
    check_refused(on, message(0, {call, {}, 24, 1, 0}, leaves));
  }
  RequestHeader header = on.header();
  header.controls = 2;
  Bytes one_only;
  append(one_only, draws);
  check_refused(on, message_of(header, one_only));
  header.controls = 3;
  check_refused(on, message_of(header, Bytes(3 * sizeof(ControlStep))));
  CHECK(on.words[3] == 0);
}

TEST_CASE("steps on control words do what they say and fetch what was there") {
  HandlerFixture on;
  const auto take = [&](ControlCall call, std::uint64_t operand, std::uint64_t compare) {
    RequestHeader header = on.header();
    header.controls = 1;
    Bytes payload;
    append(payload, ControlStep{call, {}, 24, operand, compare});
    const MessageHandler::Answer answer = on.handler.execute(message_of(header, payload));
    std::uint64_t before = 0;
    REQUIRE(answer.fetched.size() == sizeof before);
    std::memcpy(&before, answer.fetched.data(), sizeof before);
    return before;
  };
  CHECK(take(ControlCall::kWrite, 5, 0) == 0);
  CHECK(take(ControlCall::kFetchAdd, UINT64_MAX, 0) == 5);
  CHECK(take(ControlCall::kCompareAndSwap, 9, 5) == 4);
  CHECK(take(ControlCall::kCompareAndSwap, 9, 4) == 4);
  CHECK(take(ControlCall::kRead, 1, 77) == 9);
  CHECK(on.words[3] == 9);
  RequestHeader header = on.header();
  header.controls = 1;
  Bytes payload;
  append(payload, ControlStep{static_cast<ControlCall>(4), {}, 24, 1, 0});
  check_refused(on, message_of(header, payload));
  CHECK(on.words[3] == 9);
}

TEST_CASE("consecutive control words are read in one step, and none outside the block") {
  HandlerFixture on;
  RequestHeader header = on.header();
  header.controls = 1;
  const auto read = [&](std::uint32_t word, std::uint64_t count) {
    Bytes payload;
    append(payload, ControlStep{ControlCall::kRead, {}, word, count, 0});
    return message_of(header, payload);
  };
  constexpr std::size_t kLast = HandlerFixture::kWords - 1;
  for (std::size_t i = 0; i <= kLast; ++i) on.words[i] = 100 + i;
  CHECK(words_of(on.handler.execute(read(8, 3))) == std::vector<std::uint64_t>{101, 102, 103});
  CHECK(words_of(on.handler.execute(read(8 * kLast, 1))) == std::vector<std::uint64_t>{100 + kLast});
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
}

TEST_CASE("a space without a description has one of no bytes") {
  HandlerFixture on;
  MessageHandler::ServedSpace plain;
  plain.ranks = 3;
  REQUIRE(on.handler.publish(on.space + 1, plain));
  RequestHeader header = on.header(MessageKind::kDescribe);
  header.space = on.space + 1;
  const MessageHandler::Answer answer = on.handler.execute(message_of(header));
  CHECK((answer.refused == nullptr && answer.fetched.empty()));
  header.count = HandlerFixture::kDescription;
  check_refused(on, message_of(header));
}

}  // namespace farside::handler_control_test

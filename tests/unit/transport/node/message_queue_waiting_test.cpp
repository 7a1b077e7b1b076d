// SPDX-License-Identifier: BSD-3-Clause
// Threads that sleep at a message queue are woken: the owner by a message, a sender by its answer, and a sender without
// a slot by a slot that becomes free. The sleeps here are long, so that no thread wakes by itself in time, as waiters
// that poll an MPI runtime do.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/node/message_queue.hpp"

namespace farside::message_queue_waiting_test {

using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

// Counts the threads that sleep or are about to.
struct LongSleep : Progress {
  virtual ~LongSleep() = default;
  void poll() override {}
  void poll_runtime() override {}
  void listen(WakeEvent&) override { ++asleep; }
  void stop_listening(WakeEvent&) override { --asleep; }
  std::chrono::microseconds longest_sleep() const override { return 20s; }
  std::atomic<int> asleep{0};
};

struct ShortSleep final : LongSleep {
  std::chrono::microseconds longest_sleep() const override { return 1ms; }
};

class Box {
 public:
  Box() : memory_(sizeof(MessageQueue) + alignof(MessageQueue)) {
    void* at = memory_.data();
    std::size_t room = memory_.size();
    message_queue_ =
        &MessageQueue::at(static_cast<std::byte*>(std::align(alignof(MessageQueue), sizeof(MessageQueue), at, room)));
  }
  MessageQueue& operator*() const { return *message_queue_; }
  MessageQueue* operator->() const { return message_queue_; }

 private:
  std::vector<std::byte> memory_;
  MessageQueue* message_queue_;
};

const std::function<bool()> kLives = [] { return true; };
const std::array kMessage{std::byte{7}};
const std::array<std::span<const std::byte>, 1> kParts{kMessage};

std::optional<std::size_t> echo(std::span<const std::byte> message, std::span<std::byte> room) {
  std::memcpy(room.data(), message.data(), message.size());
  return message.size();
}

void await_asleep(const LongSleep& progress) {
  while (progress.asleep.load() == 0) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a sender that sleeps is woken by its answer") {
  const Box box;
  LongSleep progress;
  const auto begun = Clock::now();
  std::thread owner([&] {
    await_asleep(progress);
    while (!box->answer_all(echo)) std::this_thread::yield();
  });
  const auto message = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives});
  REQUIRE(message.ok());
  const auto answer = box->wait_for_answer(progress, *message.value(), {kLives});
  owner.join();
  REQUIRE(answer.ok());
  CHECK(std::ranges::equal(answer.value()->bytes, kMessage));
  CHECK(Clock::now() - begun < 10s);
}

TEST_CASE("a sender that waits for a free slot is woken when another sender has read its answer") {
  const Box box;
  LongSleep progress;
  std::vector<MessageQueue::Message> messages;
  for (std::size_t i = 0; i < MessageQueue::kSlots; ++i) {
    const std::optional<MessageQueue::Message> message = box->enqueue(ProcessIdentity::own(), kParts);
    REQUIRE(message);
    messages.push_back(*message);
  }
  CHECK_FALSE(box->enqueue(ProcessIdentity::own(), kParts));
  REQUIRE(box->answer_all(echo));
  const auto begun = Clock::now();
  std::thread reader([&] {
    await_asleep(progress);
    LongSleep own;
    (void)box->wait_for_answer(own, messages.front(), {kLives});
  });
  const auto one_more = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives});
  reader.join();
  CHECK(one_more.ok());
  CHECK(Clock::now() - begun < 10s);
}

TEST_CASE("an owner that sleeps is woken by a message whose answer is waited for") {
  const Box box;
  LongSleep progress;
  std::atomic<bool> armed{false};
  const auto begun = Clock::now();
  std::thread owner([&] {
    for (bool done = false; !done;) {
      const std::uint32_t seen = box->wake_event().arm();
      done = box->answer_all(echo);
      armed = true;
      if (!done) box->wake_event().sleep(seen, 20s);
      box->wake_event().disarm();
    }
  });
  while (!armed) std::this_thread::yield();
  const auto message = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives});
  REQUIRE(message.ok());
  CHECK(box->wait_for_answer(progress, *message.value(), {kLives}).ok());
  owner.join();
  CHECK(Clock::now() - begun < 10s);
}

TEST_CASE("an answer says whether the owner polls, and a poller need not be woken") {
  const Box box;
  LongSleep progress;
  const auto answered_by_poller = [&](bool polls) {
    const auto message = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives});
    REQUIRE(message.ok());
    const auto answer = box->wait_for_answer(progress, *message.value(), {kLives, polls});
    REQUIRE(answer.ok());
    REQUIRE(std::ranges::equal(answer.value()->bytes, kMessage));
    return answer.value()->by_poller;
  };
  std::atomic<bool> stop{false};
  std::thread poller([&] {
    for (std::uint32_t seen = 0; !stop;) {
      const std::optional<std::uint32_t> sent = box->any_since(seen);
      if (!sent) continue;
      seen = *sent;
      box->answer_all(echo, true);
    }
  });
  for (const bool polls : {false, true}) CHECK(answered_by_poller(polls));
  stop = true;
  poller.join();

  // The owner sleeps until it is woken, also if the sender takes it for a poller.
  for (const bool polls : {false, true}) {
    const std::uint32_t armed = box->wake_event().arm();
    std::thread sleeper([&] {
      box->wake_event().sleep(armed, 20s);
      box->wake_event().disarm();
      while (!box->answer_all(echo)) std::this_thread::yield();
    });
    CHECK_FALSE(answered_by_poller(polls));
    sleeper.join();
  }
}

TEST_CASE("a sender polls while it waits, since the owner may wait for it, and wakes no owner that polls") {
  const Box box;
  // The sender's poll is the owner's, too, and answers the message.
  struct Answering final : Progress {
    explicit Answering(const Box& of) : box(of) {}
    const Box& box;
    void poll() override {
      box->any_since(0);
      box->answer_all(echo, true);
    }
    void poll_runtime() override {}
    void listen(WakeEvent&) override {}
    void stop_listening(WakeEvent&) override {}
  } progress(box);
  // A thread that loses its core for long takes the owner for one that does not poll.
  bool woken = true;
  for (int i = 0; i < 100 && woken; ++i) {
    const std::uint32_t before = box->wake_event().arm();
    box->any_since(0);
    const auto message = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives});
    REQUIRE(message.ok());
    CHECK(box->wait_for_answer(progress, *message.value(), {kLives, true}).ok());
    woken = box->wake_event().arm() != before;
    box->wake_event().disarm();
    box->wake_event().disarm();
  }
#ifndef __SANITIZE_THREAD__  // this sanitizer makes 64 probes last longer than the limit of the time since a poll
  CHECK_FALSE(woken);
#endif
}

TEST_CASE("a poller sees a message in the first slot until it is answered, and others until it has seen them") {
  const Box box;
  std::uint32_t seen = 0;
  const auto any = [&] {
    const std::optional<std::uint32_t> sent = box->any_since(seen);
    if (sent) seen = *sent;
    return sent.has_value();
  };
  CHECK_FALSE(any());
  const auto first = box->enqueue(ProcessIdentity::own(), kParts);
  REQUIRE(first);
  CHECK(any());
  CHECK(any());
  const auto second = box->enqueue(ProcessIdentity::own(), kParts);
  REQUIRE(second);
  CHECK(box->answer_all(echo));
  CHECK(box->any_since(seen));
  CHECK(any());
  CHECK_FALSE(any());
  // The first slot is not free before the sender has read its answer.
  const auto third = box->enqueue(ProcessIdentity::own(), kParts);
  REQUIRE(third);
  CHECK(any());
  CHECK_FALSE(any());
  CHECK(box->answer_all(echo));
  // A posted message counts in any slot.
  LongSleep progress;
  for (const auto& message : {*first, *second, *third}) {
    CHECK(box->wait_for_answer(progress, message, {kLives}).ok());
  }
  CHECK(box->post(ProcessIdentity::own(), kParts));
  CHECK(any());
  CHECK(box->answer_all(echo));
  CHECK_FALSE(any());
}

TEST_CASE("a posted message is executed when the owner reads the queue, and its slot is free then") {
  const Box box;
  for (std::size_t i = 0; i < MessageQueue::kSlots; ++i) CHECK(box->post(ProcessIdentity::own(), kParts));
  CHECK_FALSE(box->post(ProcessIdentity::own(), kParts));
  CHECK_FALSE(box->has_executed_posted());
  std::size_t executed = 0;
  const auto execute = [&](std::span<const std::byte> message, std::span<std::byte>) {
    const std::span<const std::byte> sent = kParts.front();
    if (std::equal(message.begin(), message.end(), sent.begin(), sent.end())) ++executed;
    return std::size_t{0};
  };
  CHECK(box->answer_all(execute));
  CHECK(box->has_executed_posted());
  CHECK(executed == MessageQueue::kSlots);
  CHECK_FALSE(box->answer_all(execute));
  CHECK(box->post(ProcessIdentity::own(), kParts));
}

TEST_CASE("a sender that finds the queue full of posted messages wakes the owner") {
  const Box box;
  LongSleep progress;
  for (std::size_t i = 0; i < MessageQueue::kSlots; ++i) REQUIRE(box->post(ProcessIdentity::own(), kParts));
  std::atomic<bool> stop{false};
  const auto begun = Clock::now();
  const std::uint32_t seen = box->wake_event().arm();
  std::thread owner([&] {
    box->wake_event().sleep(seen, 20s);
    while (!stop) box->answer_all(echo);
    box->wake_event().disarm();
  });
  const auto message = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives});
  CHECK(message.ok());
  CHECK((message.ok() && box->wait_for_answer(progress, *message.value(), {kLives}).ok()));
  CHECK(Clock::now() - begun < 10s);
  stop = true;
  owner.join();
}

TEST_CASE("a message that the owner leaves in the queue is withdrawn, and is not executed any more") {
  const Box box;
  ShortSleep progress;
  int executed = 0;
  const auto execute = [&](std::span<const std::byte> message, std::span<std::byte> room) {
    ++executed;
    return echo(message, room);
  };
  const auto message = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives, false, 1ms});
  REQUIRE((message.ok() && message.value()));
  SECTION("unless it is posted, or behind a posted one") {
    const auto second = box->enqueue(ProcessIdentity::own(), kParts);
    REQUIRE(second);
    const auto answer = box->wait_for_answer(progress, *message.value(), {kLives, false, 1ms});
    REQUIRE(answer.ok());
    CHECK_FALSE(answer.value());
    CHECK(box->answer_all(execute));
    CHECK(executed == 1);
    CHECK(box->wait_for_answer(progress, *second, {kLives, false, 1ms}).value());
    CHECK(box->post(ProcessIdentity::own(), kParts));
    const auto behind = box->enqueue(ProcessIdentity::own(), kParts);
    REQUIRE(behind);
    std::thread owner([&] {
      await_asleep(progress);
      std::this_thread::sleep_for(5ms);  // longer than the timeout
      while (!box->answer_all(execute)) std::this_thread::yield();
    });
    CHECK(box->wait_for_answer(progress, *behind, {kLives, false, 1ms}).value());
    owner.join();
    CHECK(executed == 3);
  }
  SECTION("unless the owner has taken it") {
    std::atomic<bool> taken{false};
    std::thread owner([&] {
      box->answer_all([&](std::span<const std::byte> text, std::span<std::byte> room) {
        taken = true;
        await_asleep(progress);
        std::this_thread::sleep_for(5ms);
        return execute(text, room);
      });
    });
    while (!taken) std::this_thread::yield();
    const auto answer = box->wait_for_answer(progress, *message.value(), {kLives, false, 1ms});
    owner.join();
    CHECK((answer.ok() && answer.value()));
    CHECK(executed == 1);
  }
  SECTION("a message waits for a slot no longer than that") {
    for (std::size_t i = 1; i < MessageQueue::kSlots; ++i) CHECK(box->enqueue(ProcessIdentity::own(), kParts));
    const auto one_more = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives, false, 1ms});
    CHECK((one_more.ok() && !one_more.value()));
    CHECK(box->answer_all(execute));
  }
  SECTION("one that cannot be executed yet stays in the queue, and can be withdrawn") {
    const auto later = [](std::span<const std::byte>, std::span<std::byte>) { return std::optional<std::size_t>(); };
    CHECK_FALSE(box->answer_all(later));
    const auto second = box->enqueue(ProcessIdentity::own(), kParts);
    REQUIRE(second);
    CHECK_FALSE(box->wait_for_answer(progress, *message.value(), {kLives, false, 1ms}).value());
    CHECK(box->answer_all(execute));
    CHECK(executed == 1);
    CHECK(box->wait_for_answer(progress, *second, {kLives}).value());
  }
  CHECK_FALSE(box->answer_all(execute));
}

TEST_CASE("a message that is withdrawn when the owner begins it is executed or withdrawn, never both or neither") {
  constexpr int kMessages = 3'000;
  const Box box;
  std::atomic<int> executed{0};
  std::atomic<bool> stop{false};
  std::thread owner([&] {
    for (std::uint32_t round = 0; !stop; ++round) {
      box->answer_all([&](std::span<const std::byte> message, std::span<std::byte> room) {
        executed.fetch_add(1);
        return echo(message, room);
      });
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(round * 7 % 60);
      while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    }
  });
  ShortSleep progress;
  int answered = 0, withdrawn = 0;
  for (int i = 0; i < kMessages; ++i) {
    const auto message = box->enqueue(progress, ProcessIdentity::own(), kParts, {kLives});
    const auto answer = box->wait_for_answer(progress, *message.value(), {kLives, false, 0ns});
    ++(answer.value() ? answered : withdrawn);
    if (executed != answered) break;
  }
  stop = true;
  owner.join();
  CHECK(executed == answered);
  CHECK(answered + withdrawn == kMessages);  // how many of each depends on the load
}

}  // namespace farside::message_queue_waiting_test

// SPDX-License-Identifier: BSD-3-Clause
// A message queue whose senders are killed: other senders take over their slots.
#include "transport/node/message_queue.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "transport/base/waiter.hpp"

namespace farside::message_queue_test {

using namespace farside::testing;

namespace {

bool is_alive() { return true; }

// A message queue in memory that is shared with processes forked later.
class SharedMessageQueue {
 public:
  SharedMessageQueue()
      : memory_(mmap(nullptr, sizeof(MessageQueue), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        message_queue_(MessageQueue::at(static_cast<std::byte*>(memory_))) {
    message_queue_.open(1);
  }
  SharedMessageQueue(const SharedMessageQueue&) = delete;
  SharedMessageQueue& operator=(const SharedMessageQueue&) = delete;
  ~SharedMessageQueue() { munmap(memory_, sizeof(MessageQueue)); }
  MessageQueue* operator->() { return &message_queue_; }

  // Answers each message with a copy of it, and returns the number of messages.
  int answer() {
    int messages = 0;
    message_queue_.answer_all([&](std::span<const std::byte> message, std::span<std::byte> room) {
      ++messages;
      std::copy(message.begin(), message.end(), room.begin());
      return message.size();
    });
    return messages;
  }
  // Sends one message to a thread that acts as the owner, and awaits the answer. Returns null, or what failed.
  const char* echo(int value) {
    NoProgress quiet;
    std::atomic<bool> stop{false};
    std::thread owner([&] {
      while (!stop) {
        answer();
        std::this_thread::yield();
      }
    });
    const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(&value, 1))};
    const ProcessIdentity sender = ProcessIdentity::own();
    const char* wrong = nullptr;
    const auto message = message_queue_.enqueue(quiet, sender, parts, {is_alive});
    if (message) {
      const auto answer = message_queue_.wait_for_answer(quiet, *message.value(), {is_alive});
      int back = 0;
      if (answer && answer.value()->bytes.size() == sizeof back)
        std::memcpy(&back, answer.value()->bytes.data(), sizeof back);
      if (back != value) wrong = "the answer is another";
    } else {
      wrong = "no message could be left";
    }
    stop = true;
    owner.join();
    return wrong;
  }

 private:
  void* memory_;
  MessageQueue& message_queue_;
};

enum class Killed { kWhileItWrites, kBeforeTheAnswer };

// Forks a process that is killed while it has a slot. The process is a zombie when the function returns.
pid_t kill_a_sender(SharedMessageQueue& message_queue, Killed when) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    const ProcessIdentity sender = ProcessIdentity::own();
    // A message in unreadable memory ends the process during enqueue().
    void* const nothing = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const std::array<std::byte, 8> something{};
    const std::array<std::span<const std::byte>, 1> parts{
        when == Killed::kWhileItWrites ? std::span<const std::byte>(static_cast<std::byte*>(nothing), 8)
                                       : std::span<const std::byte>(something)};
    (void)message_queue->enqueue(sender, parts);
    raise(SIGKILL);
  }
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  return child;
}

void reap(pid_t child) { waitpid(child, nullptr, 0); }

}  // namespace

TEST_CASE("slots of senders that were killed are used again") {
  for (const Killed when : {Killed::kWhileItWrites, Killed::kBeforeTheAnswer}) {
    for (const bool reaped : {true, false}) {
      const std::string failures = run_processes(
          1,
          [&](Ranks& ranks) {
            SharedMessageQueue message_queue;
            std::vector<pid_t> zombies;
            for (int round = 0; round < 2; ++round) {
              for (std::size_t i = 0; i < MessageQueue::kSlots; ++i) {
                const pid_t child = kill_a_sender(message_queue, when);
                if (reaped) reap(child);
                if (!reaped) zombies.push_back(child);
              }
              const char* const wrong = message_queue.echo(100 + round);
              ranks.check(wrong == nullptr, wrong == nullptr ? "" : wrong);
            }
            for (const pid_t zombie : zombies) reap(zombie);
          },
          20);
      CHECK(failures.empty());
    }
  }
}

TEST_CASE("a message of a sender that was killed is answered all the same, and a living sender keeps its slot") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    SharedMessageQueue message_queue;
    NoProgress quiet;
    const ProcessIdentity own = ProcessIdentity::own();
    ranks.check(own.known() && !own.is_dead(), "this process lives, and knows who it is");
    const int value = 5;
    const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(&value, 1))};
    const auto first = message_queue->enqueue(own, parts);
    for (std::size_t i = 1; i < MessageQueue::kSlots; ++i) reap(kill_a_sender(message_queue, Killed::kBeforeTheAnswer));
    ranks.check(!message_queue->enqueue(own, parts), "all slots are taken");
    ranks.check(message_queue.answer() == MessageQueue::kSlots, "all messages are answered");
    ranks.check(!message_queue->enqueue(own, parts), "nobody has taken the answers");
    // Each of these messages takes over a slot of a dead sender, and keeps it.
    std::vector<MessageQueue::Message> messages;
    for (std::size_t i = 1; i < MessageQueue::kSlots; ++i) {
      const auto message = message_queue->enqueue(quiet, own, parts, {is_alive});
      ranks.check(message.ok(), "a slot is taken over");
      if (message) messages.push_back(*message.value());
    }
    const auto none = message_queue->enqueue(quiet, own, parts, {[] { return false; }});
    ranks.check(!none.ok() && none.error().kind == ErrorKind::kPeer, "no slot of a living process is taken over");
    {
      const auto answer = message_queue->wait_for_answer(quiet, *first, {is_alive});
      ranks.check(answer.ok() && answer.value()->bytes.size() == sizeof value,
                  "the first message's answer is still there");
    }
    ranks.check(message_queue.answer() == static_cast<int>(messages.size()), "all messages are there");
    for (const MessageQueue::Message& message : messages)
      ranks.check(message_queue->wait_for_answer(quiet, message, {is_alive}).ok(), "and answered");
    ranks.check(message_queue->enqueue(own, parts).has_value(), "and their slots are free");
  }));
}

TEST_CASE("the slot of a message whose owner seemed to be dead is free again when it is answered") {
  SharedMessageQueue message_queue;
  NoProgress quiet;
  const int value = 5;
  const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(&value, 1))};
  for (std::size_t i = 0; i < MessageQueue::kSlots; ++i) {
    const auto message = message_queue->enqueue(ProcessIdentity::own(), parts);
    REQUIRE(message.has_value());
    CHECK_FALSE(message_queue->wait_for_answer(quiet, *message, {[] { return false; }}).ok());
  }
  CHECK_FALSE(message_queue->enqueue(ProcessIdentity::own(), parts).has_value());
  CHECK(message_queue.answer() == MessageQueue::kSlots);
  for (std::size_t i = 0; i < MessageQueue::kSlots; ++i)
    CHECK(message_queue->enqueue(ProcessIdentity::own(), parts).has_value());
}

TEST_CASE("senders are killed at any time while others send") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    SharedMessageQueue message_queue;
    constexpr int kSenders = 4, kMessages = 200, kKilled = 40;
    const auto send = [&](int sender, int messages) {
      NoProgress quiet;
      const ProcessIdentity own = ProcessIdentity::own();
      for (int i = 0; i < messages; ++i) {
        std::array<int, 500> text{};
        text.fill(1000 * sender + i);
        const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(text))};
        if (sender >= kSenders && i % 2 == 0) (void)message_queue->post(own, parts);
        const auto message = message_queue->enqueue(quiet, own, parts, {is_alive});
        if (!message) _exit(1);
        const auto answer = message_queue->wait_for_answer(quiet, *message.value(), {is_alive});
        if (!answer || answer.value()->bytes.size() != sizeof text) _exit(2);
        if (std::memcmp(answer.value()->bytes.data(), text.data(), sizeof text) != 0) _exit(3);
      }
      _exit(0);
    };
    std::atomic<bool> stop{false};
    std::vector<pid_t> senders;
    for (int sender = 0; sender < kSenders; ++sender) {
      senders.push_back(fork());
      if (senders.back() == 0) send(sender, kMessages);
    }
    std::vector<pid_t> victims;
    for (int i = 0; i < kKilled; ++i) {
      victims.push_back(fork());
      if (victims.back() == 0) send(kSenders + i, 1 << 30);
      // The child runs until 20 messages have been answered, and is then killed at any place.
      for (int answered = 0; answered < 20;) answered += message_queue.answer();
      kill(victims.back(), SIGKILL);
      if (i % 2 == 0) reap(victims.back());
    }
    std::thread owner([&] {
      while (!stop) {
        message_queue.answer();
        std::this_thread::yield();
      }
    });
    for (const pid_t sender : senders) {
      int status = -1;
      waitpid(sender, &status, 0);
      ranks.check(status == 0, fmt::format("a sender has had all its messages answered ({:#x})", status));
    }
    stop = true;
    owner.join();
    for (const pid_t victim : victims) waitpid(victim, nullptr, 0);
  }));
}

}  // namespace farside::message_queue_test

// SPDX-License-Identifier: BSD-3-Clause
// A mailbox whose senders are killed: what they had of it goes to others.
#include "transport/node/mailbox.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/transport/processes.hpp"

using namespace farside;
using namespace farside::testing;

namespace {

struct Quiet final : Progress {
  void poll() override {}
  void poll_runtime() override {}
  void listen(Doorbell& /*bell*/) override {}
  void stop_listening(Doorbell& /*bell*/) override {}
};

bool lives() { return true; }

// Shared with processes that are forked later.
class SharedMailbox {
 public:
  SharedMailbox()
      : memory_(mmap(nullptr, sizeof(Mailbox), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        mailbox_(Mailbox::at(static_cast<std::byte*>(memory_))) {
    mailbox_.open(1);
  }
  SharedMailbox(const SharedMailbox&) = delete;
  SharedMailbox& operator=(const SharedMailbox&) = delete;
  ~SharedMailbox() { munmap(memory_, sizeof(Mailbox)); }
  Mailbox* operator->() { return &mailbox_; }

  // As an owner would: each letter comes back. How many there were.
  int answer() {
    int letters = 0;
    mailbox_.answer_all([&](std::span<const std::byte> letter, std::span<std::byte> room) {
      ++letters;
      std::copy(letter.begin(), letter.end(), room.begin());
      return letter.size();
    });
    return letters;
  }
  // One letter there and back, while a thread plays the owner. Null if all went well.
  const char* echo(int value) {
    Quiet quiet;
    std::atomic<bool> stop{false};
    std::thread owner([&] {
      while (!stop) {
        answer();
        std::this_thread::yield();
      }
    });
    const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(&value, 1))};
    const ProcessIdentity sender = mailbox_.sender();
    const char* wrong = nullptr;
    const Result<Mailbox::Letter> letter = mailbox_.leave(quiet, sender, parts, lives);
    if (letter) {
      const Result<Mailbox::Answer> answer = mailbox_.wait_for_answer(quiet, letter.value(), lives);
      int back = 0;
      if (answer && answer.value().bytes().size() == sizeof back) std::memcpy(&back, answer.value().bytes().data(), sizeof back);
      if (back != value) wrong = "the answer is another";
    } else {
      wrong = "no letter could be left";
    }
    stop = true;
    owner.join();
    return wrong;
  }

 private:
  void* memory_;
  Mailbox& mailbox_;
};

enum class Killed { kWhileItWrites, kBeforeTheAnswer };

// A process that is killed with a letter; a zombie when this returns.
pid_t kill_a_sender(SharedMailbox& mailbox, Killed when) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    const ProcessIdentity sender = mailbox->sender();
    // A letter in memory that may not be read ends the process in the midst of leave().
    void* const nothing = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const std::array<std::byte, 8> something{};
    const std::array<std::span<const std::byte>, 1> parts{
        when == Killed::kWhileItWrites ? std::span<const std::byte>(static_cast<std::byte*>(nothing), 8) : std::span<const std::byte>(something)};
    (void)mailbox->leave(sender, parts);
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
      const std::string failures = run_processes(1, [&](Ranks& ranks) {
        SharedMailbox mailbox;
        std::vector<pid_t> zombies;
        for (int round = 0; round < 2; ++round) {
          for (std::size_t i = 0; i < Mailbox::kSlots; ++i) {
            const pid_t child = kill_a_sender(mailbox, when);
            if (reaped) reap(child);
            if (!reaped) zombies.push_back(child);
          }
          const char* const wrong = mailbox.echo(100 + round);
          ranks.check(wrong == nullptr, wrong == nullptr ? "" : wrong);
        }
        for (const pid_t zombie : zombies) reap(zombie);
      }, 20);
      CHECK(failures.empty());
    }
  }
}

TEST_CASE("a letter of a sender that was killed is answered all the same, and a living sender keeps its slot") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    SharedMailbox mailbox;
    Quiet quiet;
    const ProcessIdentity own = mailbox->sender();
    ranks.check(own.known() && !own.is_dead(), "this process lives, and knows who it is");
    const int value = 5;
    const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(&value, 1))};
    const auto first = mailbox->leave(own, parts);
    for (std::size_t i = 1; i < Mailbox::kSlots; ++i) reap(kill_a_sender(mailbox, Killed::kBeforeTheAnswer));
    ranks.check(!mailbox->leave(own, parts), "all slots are taken");
    ranks.check(mailbox.answer() == Mailbox::kSlots, "all letters are answered");
    ranks.check(!mailbox->leave(own, parts), "nobody has taken the answers");
    // Each of these needs a slot of the dead, and keeps it.
    std::vector<Mailbox::Letter> letters;
    for (std::size_t i = 1; i < Mailbox::kSlots; ++i) {
      const auto letter = mailbox->leave(quiet, own, parts, lives);
      ranks.check(letter.ok(), "a slot is taken over");
      if (letter) letters.push_back(letter.value());
    }
    const auto none = mailbox->leave(quiet, own, parts, [] { return false; });
    ranks.check(!none.ok() && none.error().kind == ErrorKind::kPeer, "no slot of a living process is taken over");
    {
      const auto answer = mailbox->wait_for_answer(quiet, *first, lives);
      ranks.check(answer.ok() && answer.value().bytes().size() == sizeof value, "the first letter's answer is still there");
    }
    ranks.check(mailbox.answer() == static_cast<int>(letters.size()), "all letters are there");
    for (const Mailbox::Letter& letter : letters) ranks.check(mailbox->wait_for_answer(quiet, letter, lives).ok(), "and answered");
    ranks.check(mailbox->leave(own, parts).has_value(), "and their slots are free");
  }));
}

TEST_CASE("senders are killed at any time while others send") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    SharedMailbox mailbox;
    constexpr int kSenders = 4, kLetters = 200, kKilled = 40;
    const auto send = [&](int sender, int letters) {
      Quiet quiet;
      const ProcessIdentity own = mailbox->sender();
      for (int i = 0; i < letters; ++i) {
        std::array<int, 500> text{};
        text.fill(1000 * sender + i);
        const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(text))};
        const auto letter = mailbox->leave(quiet, own, parts, lives);
        if (!letter) _exit(1);
        const auto answer = mailbox->wait_for_answer(quiet, letter.value(), lives);
        if (!answer || answer.value().bytes().size() != sizeof text) _exit(2);
        if (std::memcmp(answer.value().bytes().data(), text.data(), sizeof text) != 0) _exit(3);
      }
      _exit(0);
    };
    std::atomic<bool> stop{false};
    std::vector<pid_t> senders;
    for (int sender = 0; sender < kSenders; ++sender) {
      senders.push_back(fork());
      if (senders.back() == 0) send(sender, kLetters);
    }
    std::vector<pid_t> victims;
    for (int i = 0; i < kKilled; ++i) {
      victims.push_back(fork());
      if (victims.back() == 0) send(kSenders + i, 1 << 30);
      // What was forked has a while to come as far as it may; the letters that go through meanwhile are its time.
      for (int answered = 0; answered < 20;) answered += mailbox.answer();
      kill(victims.back(), SIGKILL);
      if (i % 2 == 0) reap(victims.back());
    }
    std::thread owner([&] {
      while (!stop) {
        mailbox.answer();
        std::this_thread::yield();
      }
    });
    for (const pid_t sender : senders) {
      int status = -1;
      waitpid(sender, &status, 0);
      ranks.check(status == 0, fmt::format("a sender has had all its letters answered ({:#x})", status));
    }
    stop = true;
    owner.join();
    for (const pid_t victim : victims) waitpid(victim, nullptr, 0);
  }));
}

// SPDX-License-Identifier: BSD-3-Clause
// A mailbox: shared memory in which processes of the node leave letters for its owner, who answers in their place. One per
// process; neighbours map it.
//
// A slot goes free -> taken (a sender writes) -> sent -> (the owner reads, carries out, writes) -> answered -> free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "transport/base/doorbell.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"

namespace farside {

class Mailbox {
  struct Slot;

 public:
  static constexpr std::size_t kMostBytes = 6'976;  // of a letter, and of an answer
  static constexpr std::size_t kSlots = 8;

  // Precondition: the memory is zeroed when it is made, of the size of this class, and mapped at a cache line.
  static Mailbox& at(std::byte* memory) { return *reinterpret_cast<Mailbox*>(memory); }
  void open(std::uint64_t nonce) { nonce_ = nonce; }
  std::uint64_t nonce() const { return nonce_; }

  // For senders. A letter that was left, and waits for its answer.
  class Letter {
   private:
    friend class Mailbox;
    explicit Letter(Slot& slot) : slot_(&slot) {}
    Slot* slot_;
  };
  // An answer; its slot is free again when this is gone.
  class Answer {
   public:
    Answer(Mailbox& mailbox, Slot& slot, std::span<const std::byte> bytes) : mailbox_(mailbox), slot_(&slot), bytes_(bytes) {}
    Answer(Answer&& other) noexcept : mailbox_(other.mailbox_), slot_(std::exchange(other.slot_, nullptr)), bytes_(other.bytes_) {}
    Answer& operator=(Answer&&) = delete;
    ~Answer();
    std::span<const std::byte> bytes() const { return bytes_; }

   private:
    Mailbox& mailbox_;
    Slot* slot_;
    std::span<const std::byte> bytes_;
  };
  // Leaves a letter, made of parts, if a slot is free. Its owner hears of it when an answer is waited for. Precondition: at most
  // kMostBytes.
  std::optional<Letter> leave(std::span<const std::span<const std::byte>> parts);
  // The same, as soon as one is. `lives`: whether the owner does, asked now and then. Errors: kPeer, if it does not.
  Result<Letter> leave(Progress& progress, std::span<const std::span<const std::byte>> parts, const std::function<bool()>& lives);
  Result<Answer> wait_for_answer(Progress& progress, Letter letter, const std::function<bool()>& lives);

  // For the owner: answers all letters that are there by answer(letter, room) -> bytes of the answer. The letter is a copy that
  // no sender changes any more. False if there was none.
  using Answering = std::function<std::size_t(std::span<const std::byte> letter, std::span<std::byte> room)>;
  bool answer_all(const Answering& answer);
  // Rung by senders.
  Doorbell& bell() { return bell_; }

 private:
  enum State : std::uint32_t { kFree, kTaken, kSent, kAnswered };
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> state;
    std::atomic<std::uint32_t> bytes;                    // read once: a hostile neighbour may change it
    Doorbell bell;                                       // of the sender
    alignas(64) std::array<std::byte, kMostBytes> text;
  };

  std::uint64_t nonce_;
  Doorbell bell_;
  Doorbell freed_;                 // of those who wait for a slot
  std::array<Slot, kSlots> slots_;
};

}  // namespace farside

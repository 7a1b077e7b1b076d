// SPDX-License-Identifier: BSD-3-Clause
// A message queue: shared memory in which processes of the node enqueue messages for its owner, who answers in their
// place. One per process; on-node peers map it.
//
// A slot goes free -> taken (a sender writes) -> sent -> (the owner reads, carries out, writes) -> answered -> free.
//
// The word that says so also says which process has the slot (process_identity.hpp), in one compare-and-swap. A sender
// that finds no slot free for some 0.1 s looks which of these processes have ended, and takes over a slot that one of
// them had taken, or in which an answer waits for it; what one had sent the owner still answers. No process that has
// ended takes a slot again, so a word that holds its identity comes back to no slot, and the compare-and-swap that
// takes the slot over succeeds for one sender only.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "transport/base/result.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/node/process_identity.hpp"

namespace farside {

class MessageQueue {
  struct Slot;

 public:
  static constexpr std::size_t kMostBytes = 6'976;  // of a message, and of an answer
  static constexpr std::size_t kSlots = 8;

  // Precondition: the memory is zeroed when it is made, of the size of this class, and mapped at a cache line.
  static MessageQueue& at(std::byte* memory) { return *reinterpret_cast<MessageQueue*>(memory); }
  void open(std::uint64_t nonce) {
    nonce_ = nonce;
    namespaces_ = process_namespaces();
  }
  std::uint64_t nonce() const { return nonce_; }

  // Who the calling process is to those that use this message queue: nobody, if its owner sees other process ids than
  // it does. Then its slots are not taken over, and it takes over none. Some 20 us; the same for all message queues of
  // one owner, and for as long as the process lives.
  ProcessIdentity sender() const {
    return namespaces_ == process_namespaces() ? ProcessIdentity::own() : ProcessIdentity();
  }

  // For senders. A message that was left, and waits for its answer.
  class Message {
   private:
    friend class MessageQueue;
    explicit Message(Slot& slot) : slot_(&slot) {}
    Slot* slot_;
  };
  // An answer; its slot is free again when this is gone.
  class Answer {
   public:
    Answer(MessageQueue& message_queue, Slot& slot, std::span<const std::byte> bytes)
        : message_queue_(message_queue), slot_(&slot), bytes_(bytes) {}
    Answer(Answer&& other) noexcept
        : message_queue_(other.message_queue_), slot_(std::exchange(other.slot_, nullptr)), bytes_(other.bytes_) {}
    Answer& operator=(Answer&&) = delete;
    ~Answer();
    std::span<const std::byte> bytes() const { return bytes_; }

   private:
    MessageQueue& message_queue_;
    Slot* slot_;
    std::span<const std::byte> bytes_;
  };
  // Leaves a message, made of parts, if a slot is free. Its owner hears of it when an answer is waited for. `sender`:
  // the calling process, as sender() says. Precondition: at most kMostBytes.
  std::optional<Message> enqueue(ProcessIdentity sender, std::span<const std::span<const std::byte>> parts);
  // The same, as soon as a slot is free, or one can be taken over. `lives`: whether the owner does, asked now and then.
  // Errors: kPeer, if it does not.
  Result<Message> enqueue(Progress& progress, ProcessIdentity sender, std::span<const std::span<const std::byte>> parts,
                          const std::function<bool()>& lives);
  Result<Answer> wait_for_answer(Progress& progress, Message message, const std::function<bool()>& lives);

  // Whether the owner has looked just now without being woken, and so will soon again: one of its threads waits and
  // polls, and a message is answered in less than a microsecond.
  bool is_polled() const {
    // It may have looked again since the time was taken, and counters of two cores may differ a little.
    return ticks() - polled_at_.load(std::memory_order_relaxed) + kJustNow < 2 * kJustNow;
  }

  // For the owner, who looks without being woken: whether messages were left since `seen`, which is what it was then.
  bool any_since(std::atomic<std::uint32_t>& seen) {
    polled_at_.store(ticks(), std::memory_order_relaxed);
    const std::uint32_t sent = sent_.load(std::memory_order_acquire);
    if (sent == seen.load(std::memory_order_relaxed)) [[likely]] return false;
    seen.store(sent, std::memory_order_relaxed);
    return true;
  }
  // For the owner: answers all messages that are there by answer(message, room) -> bytes of the answer. The message is
  // a copy that no sender changes any more. False if there was none.
  using Handling = std::function<std::size_t(std::span<const std::byte> message, std::span<std::byte> room)>;
  bool answer_all(const Handling& answer);
  // Signalled by senders.
  WakeEvent& wake_event() { return wake_event_; }

 private:
  // 2 to 8 us of counters of 4 to 1 GHz, 8 us without one (base/ticks.hpp): several rounds of a runtime's progress
  // engine.
  static constexpr Ticks kJustNow = 8'000;

  enum State : std::uint64_t { kFree, kTaken, kSent, kAnswered };
  // A slot's word: its state, and whose it is (0 if it is free).
  static constexpr std::uint64_t word(State state, ProcessIdentity of) { return of.bits() << 2 | state; }
  static State state_of(std::uint64_t word) { return static_cast<State>(word & 3); }
  static ProcessIdentity sender_of(std::uint64_t word) { return ProcessIdentity::of_bits(word >> 2); }
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> word;
    std::atomic<std::uint32_t> bytes;  // read once: a hostile on-node peer may change it
    WakeEvent wake_event;              // of the sender
    alignas(64) std::array<std::byte, kMostBytes> text;
  };

  Message fill(Slot& slot, ProcessIdentity sender, std::span<const std::span<const std::byte>> parts);
  Slot* take_over(ProcessIdentity sender);

  std::uint64_t nonce_;
  std::uint64_t namespaces_;       // of the owner
  WakeEvent wake_event_;
  WakeEvent freed_;                              // of those who wait for a slot
  alignas(64) std::atomic<std::uint32_t> sent_;  // messages, ever
  alignas(64) std::atomic<Ticks> polled_at_;     // the owner, without being woken
  std::array<Slot, kSlots> slots_;
};

}  // namespace farside

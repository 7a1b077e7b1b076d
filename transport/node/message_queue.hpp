// SPDX-License-Identifier: BSD-3-Clause
// A message queue: shared memory of one process, the owner, in which other processes of the node enqueue messages. The
// owner writes each answer into the slot of its message. Each process has one queue, and on-node peers map it.
//
// A slot has a holder, the sender that uses it (identity.hpp), and a state: idle -> sent (the owner executes
// and writes) -> answered. A sender takes a slot that has no holder and is not sent, writes a message, sets the state,
// reads the answer and releases the slot. The state is then still "answered". A message may also be posted: its sender
// neither wakes the owner nor awaits an answer and releases the slot at once, and the owner makes it idle.
//
// A sender whose message the owner does not begin (a stopped process) withdraws it: it makes the slot idle, and then
// reads which slot is in execution. The owner sets this word and then reads the state again, so one of the two sees the
// other: the sender executes the memory barriers of both (base/threads.hpp). A message that the owner cannot execute
// yet stays sent.
//
// Holder, state and the slot in execution are in different cache lines: a sender that takes the first slot again and
// again changes the line of the state once per message, the owner once per answer, and the other two lines stay in
// their cores. (With a state "taken" that the owner set first, a put between near cores took 85 ns more.)
//
// A sender that finds no free slot for some 0.1 s takes over a slot whose holder has ended. The owner still answers a
// slot that is sent. The identity of an ended process does not return to a slot, so the compare-and-swap that takes a
// slot over succeeds for one sender only.
//
// Thread safety: any, except that one thread at a time calls answer_all(). Memory: 69 KiB, for any number of peers.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "transport/base/result.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/ticks.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/node/identity.hpp"

namespace farside {

class MessageQueue {
  struct Slot;

 public:
  static constexpr std::size_t kMostBytes = 8'512;  // of a message or an answer
  static constexpr std::size_t kSlots = 8;

  // Precondition: the memory has the size and the alignment of this class, and was zero at first.
  static MessageQueue& at(std::byte* memory) { return *reinterpret_cast<MessageQueue*>(memory); }
  void open(std::uint64_t nonce) {
    nonce_ = nonce;
    has_membarrier_ = supports_global_membarrier();
  }
  std::uint64_t nonce() const { return nonce_; }

  // For senders: a message in the queue that awaits its answer.
  using Message = Slot*;
  struct Release {
    MessageQueue* message_queue;
    void operator()(Slot* slot) const { message_queue->release(*slot); }
  };
  // An answer. Its destructor frees the slot.
  struct Answer {
    std::unique_ptr<Slot, Release> slot;
    std::span<const std::byte> bytes;
    bool by_poller;  // a thread of the owner that polls the queue has answered, and not the handler's thread
  };
  // Enqueues a message made of parts; returns nothing if no slot is free. wait_for_answer() wakes the owner. `sender`:
  // the calling process's identity; if it is unknown, no process takes over its slots, and it takes over none.
  // Precondition: the parts have at most kMostBytes together.
  std::optional<Message> enqueue(ProcessIdentity sender, std::span<const std::span<const std::byte>> parts);
  // The same for a message that needs no answer. Returns false if no slot is free. The owner executes it when it next
  // reads the queue. This call does not wake the owner.
  bool post(ProcessIdentity sender, std::span<const std::span<const std::byte>> parts);
  // The sender's view of the owner. `is_alive` says whether it lives; it is called every 100 ms. `polls`: it polls, or
  // has polled a moment ago. `timeout`: how long it may leave the message in the queue.
  struct Owner {
    const std::function<bool()>& is_alive;
    bool polls = false;
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
  };
  // Waits until a slot is free or can be taken over, and enqueues the message. Returns nothing at the timeout.
  // Errors: kPeer, if the owner has ended.
  Result<std::optional<Message>> enqueue(Progress& progress, ProcessIdentity sender,
                                         std::span<const std::span<const std::byte>> parts, const Owner& owner);
  // Waits for the answer, and wakes the owner if it has not polled for kInterrupt ticks, or does not answer for long.
  // Returns nothing if the owner has not begun the message at the timeout, and withdraws it, unless there are posted
  // messages before it. Errors: kPeer, if the owner has ended.
  Result<std::optional<Answer>> wait_for_answer(Progress& progress, Message message, const Owner& owner);

  // Returns whether an application thread of the owner has polled the queue within the last kJustNow ticks. The thread
  // then waits, will poll again soon, and answers a message in less than a microsecond. Cost: a transfer of a cache
  // line from the owner's core, which writes it at each poll.
  bool is_polled() const { return is_just_now(polled_at_.load(std::memory_order_relaxed)); }
  // Returns whether at most `within` ticks have passed since then (base/ticks.hpp).
  static bool is_just_now(Ticks then, Ticks within = Timing::kJustNow) {
    // The difference may be negative: the owner may poll after the call of ticks(), and the counters of two cores may
    // differ a little.
    return ticks() - then + Timing::kJustNow < within + Timing::kJustNow;
  }

  // For an application thread of the owner that polls: returns the present count of messages if the first slot has a
  // message, or one was enqueued in another slot since the count was `seen`.
  std::optional<std::uint32_t> any_since(std::uint32_t seen) {
    polled_at_.store(ticks(), std::memory_order_relaxed);
    const std::uint32_t sent = sent_.load(std::memory_order_acquire);
    if (sent != seen || slots_.front().state.load(std::memory_order_acquire) == kSent) return sent;
    return std::nullopt;
  }
  // For the owner: answers all messages in the queue, and returns whether there were any. Posted messages come first: a
  // message follows those that were posted before it was enqueued. answer(message, room) writes an answer into `room`
  // and returns its bytes, or nothing if the message stays in the queue. `room` begins where `message` does. A faulty
  // sender may change `message` meanwhile. `polls`: the calling thread polls the queue.
  using Handling =
      std::function<std::optional<std::size_t>(std::span<const std::byte> message, std::span<std::byte> room)>;
  bool answer_all(const Handling& answer, bool polls = false);
  // For all processes: returns whether the owner has executed all messages that were posted before the call, including
  // those that the caller knows of only because their senders have changed another word since. False for ever if a
  // sender was killed between two instructions.
  bool has_executed_posted() const {
    // In this order: whatever was posted before the second load had been executed at the first one if they are equal.
    const std::uint32_t executed = executed_.load(std::memory_order_acquire);
    return posted_.load(std::memory_order_acquire) == executed;
  }
  // The owner's; signalled by senders.
  WakeEvent& wake_event() { return wake_event_; }

 private:
  enum State : std::uint32_t { kIdle, kSent, kAnswered };
  static constexpr std::uint32_t kNoSlot = 0;
  // A holder: | 0 | sender (62 bits) | 1 |, or kNone.
  static constexpr std::uint64_t kNone = 0;
  static constexpr std::uint64_t holder(ProcessIdentity of) { return of.bits() << 1 | 1; }
  static ProcessIdentity process_of(std::uint64_t holder) { return ProcessIdentity::of_bits(holder >> 1); }
  // A message of one small operation and its answer lie in the first two cache lines, of which the processor fetches
  // the second one together with the first one.
  struct alignas(128) Slot {
    std::atomic<State> state;
    // And kPosted or kByPoller. The number is to be read once: a hostile on-node peer may change it.
    std::atomic<std::uint32_t> bytes;
    WakeEvent wake_event;  // of the sender
    std::array<std::byte, kMostBytes> text;
    alignas(128) std::atomic<std::uint64_t> holder;
  };

  // In Slot::bytes: of a message, and of an answer.
  static constexpr std::uint32_t kPosted = std::uint32_t{1} << 31;
  static constexpr std::uint32_t kByPoller = std::uint32_t{1} << 30;

  bool answer_one(Slot& slot, const Handling& answer, bool polls);
  bool withdraw(Slot& slot);
  // Returns whether the owner executes the message of this slot, or may do so. The caller has just changed its state.
  bool in_execution(const Slot& slot) const;
  std::uint32_t number(const Slot& slot) const { return static_cast<std::uint32_t>(&slot - slots_.data()) + 1; }
  Slot* take(ProcessIdentity sender);
  Slot* take_over(ProcessIdentity sender);
  // Makes the sender the holder if the holder is `before` and the slot is not sent. Returns whether it has.
  bool become_holder(Slot& slot, std::uint64_t before, ProcessIdentity sender);
  void release(Slot& slot) {
    // Sequentially consistent, as the wake event requires.
    slot.holder.exchange(kNone, std::memory_order_seq_cst);
    freed_.wake_if_armed();
  }
  Message fill(Slot& slot, std::span<const std::span<const std::byte>> parts, std::uint32_t posted = 0);

  std::uint64_t nonce_;
  WakeEvent wake_event_;
  WakeEvent freed_;  // of the senders that wait for a slot
  // Counts the messages once they are in their slots, except those that await an answer in the first slot. A poller
  // reads that slot itself, since each further cache line that the sender changes costs a transfer between two cores.
  alignas(64) std::atomic<std::uint32_t> sent_;
  // Of posted messages: counted before they are in their slots, and after they were executed.
  alignas(64) std::atomic<std::uint32_t> posted_;
  std::atomic<std::uint32_t> executed_;
  alignas(64) std::atomic<Ticks> polled_at_;  // the last poll by an application thread of the owner
  // Of the owner, which accesses both with each message.
  alignas(64) std::atomic<std::uint32_t> in_execution_;  // kNoSlot or 1 + the index of the slot
  bool has_membarrier_;                                  // takes part in global_membarrier()
  std::array<Slot, kSlots> slots_;
};

}  // namespace farside

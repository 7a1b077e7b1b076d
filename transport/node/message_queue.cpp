// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/message_queue.hpp"

#include <algorithm>
#include <cstring>

namespace farside {
namespace {

// A sender's looks at the owner, from when it may sleep: each reads the clock, and one every 100 ms asks whether the
// owner lives.
class OwnerCheck {
 public:
  explicit OwnerCheck(const MessageQueue::Owner& owner) : owner_(owner) {}
  // Returns whether the owner is to be asked.
  bool is_due() {
    now_ = Clock::now();
    if (begin_ == Clock::time_point()) begin_ = asked_ = now_;
    if (now_ - asked_ < Timing::kOwnerCheck) return false;
    asked_ = now_;
    return true;
  }
  // Whether the owner had left the message for too long at the last look.
  bool timed_out() const { return now_ - begin_ >= owner_.timeout; }

 private:
  const MessageQueue::Owner& owner_;
  Clock::time_point begin_, now_, asked_;
};

// Fetches all cache lines of a message or an answer at once, from the core that has written them. A reader that takes
// small elements from one line after another would wait for each line. (Put of 1,024 strided words between cores that
// share no cache: 4.1 us without, 3.5 with.)
void prefetch(std::span<const std::byte> bytes) {
  constexpr std::size_t kLine = 64;
  for (std::size_t at = kLine; at < bytes.size(); at += kLine) __builtin_prefetch(&bytes[at]);
}

Error dead() { return Error{ErrorKind::kPeer, "the target's process is gone"}; }

}  // namespace

// Precondition: the caller is the holder of the slot.
MessageQueue::Message MessageQueue::fill(Slot& slot, std::span<const std::span<const std::byte>> parts,
                                         std::uint32_t posted) {
  std::size_t bytes = 0;
  for (const std::span<const std::byte> part : parts) {
    if (!part.empty()) std::memcpy(slot.text.data() + bytes, part.data(), part.size());
    bytes += part.size();
  }
  slot.bytes.store(static_cast<std::uint32_t>(bytes) | posted, std::memory_order_relaxed);
  // Sequentially consistent, as the wake event requires.
  slot.state.exchange(kSent, std::memory_order_seq_cst);
  if (&slot != &slots_.front() || posted != 0) sent_.fetch_add(1, std::memory_order_release);
  return &slot;
}

bool MessageQueue::become_holder(Slot& slot, std::uint64_t before, ProcessIdentity sender) {
  // Acquire: follows the last accesses of a holder that has released the slot.
  if (!slot.holder.compare_exchange_strong(before, holder(sender), std::memory_order_acquire)) return false;
  // Only a holder sends, so a slot that is not sent now stays so. Acquire: follows the owner's accesses to it.
  if (slot.state.load(std::memory_order_acquire) != kSent) return true;
  release(slot);
  return false;
}

// Takes a free slot, and returns it, or null.
MessageQueue::Slot* MessageQueue::take(ProcessIdentity sender) {
  for (Slot& slot : slots_) {
    if (slot.holder.load(std::memory_order_relaxed) != kNone) continue;
    if (slot.state.load(std::memory_order_relaxed) == kSent) continue;  // it is posted
    if (become_holder(slot, kNone, sender)) return &slot;
  }
  return nullptr;
}

std::optional<MessageQueue::Message> MessageQueue::enqueue(ProcessIdentity sender,
                                                           std::span<const std::span<const std::byte>> parts) {
  Slot* const slot = take(sender);
  return slot != nullptr ? std::optional(fill(*slot, parts)) : std::nullopt;
}

bool MessageQueue::post(ProcessIdentity sender, std::span<const std::span<const std::byte>> parts) {
  Slot* const slot = take(sender);
  if (slot == nullptr) return false;
  posted_.fetch_add(1, std::memory_order_relaxed);
  fill(*slot, parts, kPosted);
  release(*slot);
  return true;
}

// Takes over a slot of a process that has ended, and returns it, or null. If that process slept, the slot's wake event
// still counts it as a sleeper, so each later answer in the slot costs the owner one more system call.
MessageQueue::Slot* MessageQueue::take_over(ProcessIdentity sender) {
  if (!sender.known()) return nullptr;
  for (Slot& slot : slots_) {
    const std::uint64_t found = slot.holder.load(std::memory_order_relaxed);
    // The state is read after the end of the holder, which orders the holder's last stores before this. A message that
    // the holder was withdrawing may be in execution.
    if (found == kNone || !process_of(found).is_dead() || slot.state.load() == kSent) continue;
    if (in_execution(slot)) continue;
    if (become_holder(slot, found, sender)) return &slot;
  }
  return nullptr;
}

Result<std::optional<MessageQueue::Message>> MessageQueue::enqueue(Progress& progress, ProcessIdentity sender,
                                                                   std::span<const std::span<const std::byte>> parts,
                                                                   const Owner& owner) {
  OwnerCheck owner_check(owner);
  unsigned probes = 0;
  for (Waiter waiter(progress, freed_);; waiter.pause()) {
    if (std::optional<Message> left = enqueue(sender, parts)) return left;
    // Posted messages may fill the queue, and a sender may have been killed before it woke the owner.
    if (probes++ % 64 == 0) wake_event_.wake_if_armed();
    if (!waiter.may_sleep()) continue;
    if (owner_check.is_due()) {
      if (Slot* slot = take_over(sender)) return std::optional(fill(*slot, parts));
      if (!owner.is_alive()) return dead();
    }
    if (owner_check.timed_out() && has_executed_posted()) return std::optional<Message>();
  }
}

Result<std::optional<MessageQueue::Answer>> MessageQueue::wait_for_answer(Progress& progress, Message message,
                                                                          const Owner& owner) {
  Slot& slot = *message;
  // An owner that polls need not be woken, nor one that has lost its core to an interrupt: the thread would take the
  // core from the poller again. The spins are limited, because something may keep the poller from answering, for an
  // unknown time. The owner may itself be waiting for an answer of this process, which therefore polls as well.
  const auto answered_yet = [&] { return slot.state.load(std::memory_order_acquire) == kAnswered; };
  for (int spins = owner.polls ? 1 : 0; !answered_yet() && spins < Timing::kSpinsForPoller; ++spins) {
    // The owner writes this word at each poll. Read while a reply is on its way, it costs one more transfer of a cache
    // line (0.9 in place of 0.6 us between far cores, after 64 spins).
    if (spins % (8 * Timing::kSpins) == 0 &&
        !is_just_now(polled_at_.load(std::memory_order_relaxed), Timing::kInterrupt))
      break;
    if (spins > 0 && spins % Timing::kSpins == 0) progress.poll();
    relax();
  }
  if (!answered_yet()) wake_event_.wake_if_armed();
  OwnerCheck owner_check(owner);
  for (Waiter waiter(progress, slot.wake_event); !answered_yet(); waiter.pause()) {
    if (!waiter.may_sleep()) continue;
    if (owner_check.is_due() && !owner.is_alive()) {
      // The owner may live, and answer later. Until then the slot is like that of a posted message.
      release(slot);
      return dead();
    }
    // Posted messages must take effect before the sender's substitute for this one.
    if (owner_check.timed_out() && has_executed_posted() && withdraw(slot)) {
      release(slot);
      return std::optional<Answer>();
    }
  }
  const std::uint32_t length = slot.bytes.load(std::memory_order_relaxed);
  const std::size_t answered = std::min<std::size_t>(length & ~kByPoller, kMostBytes);
  const auto bytes = std::span<const std::byte>(slot.text).first(answered);
  prefetch(bytes);
  return std::optional(Answer{{message, {this}}, bytes, (length & kByPoller) != 0});
}

// Returns whether the owner will not execute the message of this slot.
bool MessageQueue::withdraw(Slot& slot) {
  State state = kSent;
  if (!slot.state.compare_exchange_strong(state, kIdle)) return false;
  if (!in_execution(slot)) return true;
  // The owner executes the message and will answer, or finds the slot idle, and the message at its next look.
  state = kIdle;
  slot.state.compare_exchange_strong(state, kSent);
  wake_event_.wake_if_armed();
  return false;
}

bool MessageQueue::in_execution(const Slot& slot) const {
  return (has_membarrier_ && !global_membarrier()) || in_execution_.load() == number(slot);
}

bool MessageQueue::answer_all(const Handling& answer, bool polls) {
  const auto is_posted = [](const Slot& slot) { return (slot.bytes.load(std::memory_order_relaxed) & kPosted) != 0; };
  const auto is_sent = [](const Slot& slot) { return slot.state.load(std::memory_order_acquire) == kSent; };
  // A message that was posted before one of these was enqueued is in its slot by now.
  std::array<Slot*, kSlots> enqueued;
  std::size_t count = 0;
  bool posted = false;
  for (Slot& slot : slots_) {
    if (!is_sent(slot)) continue;
    if (is_posted(slot)) {
      posted = true;
    } else {
      enqueued[count++] = &slot;
    }
  }
  bool any = false;
  if (posted || posted_.load(std::memory_order_relaxed) != executed_.load(std::memory_order_relaxed)) {
    for (Slot& slot : slots_) {
      if (is_sent(slot) && is_posted(slot)) any = answer_one(slot, answer, polls) || any;
    }
  }
  for (std::size_t i = 0; i < count; ++i) any = answer_one(*enqueued[i], answer, polls) || any;
  return any;
}

// Returns false if the message was withdrawn, or stays in the queue.
bool MessageQueue::answer_one(Slot& slot, const Handling& answer, bool polls) {
  in_execution_.store(number(slot), std::memory_order_relaxed);
  // Before the load of the state; see in_execution().
  has_membarrier_ ? std::atomic_signal_fence(std::memory_order_seq_cst)
                  : std::atomic_thread_fence(std::memory_order_seq_cst);
  struct End {
    std::atomic<std::uint32_t>& in_execution;
    ~End() { in_execution.store(kNoSlot, std::memory_order_release); }
  } const end{in_execution_};
  if (slot.state.load() != kSent) return false;  // another message may be in the slot by now
  const std::uint32_t length = slot.bytes.load(std::memory_order_relaxed);
  const auto message =
      std::span<const std::byte>(slot.text).first(std::min<std::size_t>(length & ~kPosted, kMostBytes));
  prefetch(message);
  const std::optional<std::size_t> answered = answer(message, slot.text);
  if (!answered) return false;
  if ((length & kPosted) != 0) {
    slot.state.exchange(kIdle, std::memory_order_seq_cst);
    freed_.wake_if_armed();
    executed_.fetch_add(1, std::memory_order_release);
    return true;
  }
  slot.bytes.store(static_cast<std::uint32_t>(*answered) | (polls ? kByPoller : 0), std::memory_order_relaxed);
  slot.state.exchange(kAnswered, std::memory_order_seq_cst);
  slot.wake_event.wake_if_armed();
  return true;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/message_queue.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "transport/base/relax.hpp"

namespace farside {
namespace {

// Limits how often a sender asks whether the owner lives: every 64th probe, and every 100 ms. The first 63 probes read
// no clock.
class OwnerCheck {
 public:
  explicit OwnerCheck(const std::function<bool()>& is_alive) : is_alive_(is_alive) {}
  bool is_due() {
    if (++probes_ % 64 != 0) return false;
    const Clock::time_point now = Clock::now();
    const bool first = probes_ == 64;
    if (!first && now < next_check_) return false;
    next_check_ = now + std::chrono::milliseconds(100);
    return !first;
  }
  bool owner_has_ended() const { return !is_alive_(); }

 private:
  using Clock = std::chrono::steady_clock;
  const std::function<bool()>& is_alive_;
  std::uint32_t probes_ = 0;
  Clock::time_point next_check_;
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

MessageQueue::Answer::~Answer() {
  if (slot_ != nullptr) message_queue_.release(*slot_);
}

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
  return Message(slot);
}

void MessageQueue::release(Slot& slot) {
  // Sequentially consistent, as the wake event requires.
  slot.holder.exchange(kNone, std::memory_order_seq_cst);
  freed_.wake_if_armed();
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
    // The state is read after the end of the holder, which orders the holder's last stores before this.
    if (found == kNone || !process_of(found).is_dead() || slot.state.load(std::memory_order_acquire) == kSent) continue;
    if (become_holder(slot, found, sender)) return &slot;
  }
  return nullptr;
}

Result<MessageQueue::Message> MessageQueue::enqueue(Progress& progress, ProcessIdentity sender,
                                                    std::span<const std::span<const std::byte>> parts,
                                                    const std::function<bool()>& is_alive) {
  OwnerCheck owner_check(is_alive);
  unsigned probes = 0;
  for (Waiter waiter(progress, freed_);; waiter.pause()) {
    if (const std::optional<Message> left = enqueue(sender, parts)) return *left;
    // Posted messages may fill the queue, and a sender may have been killed before it woke the owner.
    if (probes++ % 64 == 0) wake_event_.wake_if_armed();
    if (!owner_check.is_due()) continue;
    if (Slot* slot = take_over(sender)) return fill(*slot, parts);
    if (owner_check.owner_has_ended()) return dead();
  }
}

Result<MessageQueue::Answer> MessageQueue::wait_for_answer(Progress& progress, Message message,
                                                           const std::function<bool()>& is_alive, bool polls) {
  Slot& slot = *message.slot_;
  // An owner that polls need not be woken, nor one that has lost its core to an interrupt: the thread would take the
  // core from the poller again. The spins are limited, because something may keep the poller from answering, for an
  // unknown time. The owner may itself be waiting for an answer of this process, which therefore polls as well.
  constexpr int kMostSpins = 4'096;
  constexpr int kSpinsPerLook = 64;
  const auto answered_yet = [&] { return slot.state.load(std::memory_order_acquire) == kAnswered; };
  for (int spins = polls ? 1 : 0; !answered_yet() && spins < kMostSpins; ++spins) {
    if (spins % kSpinsPerLook == 0) {
      if (!is_just_now(polled_at_.load(std::memory_order_relaxed), kInterrupt)) break;
      if (spins > 0) progress.poll();
    }
    relax();
  }
  if (!answered_yet()) wake_event_.wake_if_armed();
  OwnerCheck owner_check(is_alive);
  for (Waiter waiter(progress, slot.wake_event); !answered_yet(); waiter.pause()) {
    if (owner_check.is_due() && owner_check.owner_has_ended()) return dead();
  }
  const std::uint32_t length = slot.bytes.load(std::memory_order_relaxed);
  const std::size_t answered = std::min<std::size_t>(length & ~kByPoller, kMostBytes);
  const auto bytes = std::span<const std::byte>(slot.text).first(answered);
  prefetch(bytes);
  return Answer(*this, slot, bytes, (length & kByPoller) != 0);
}

bool MessageQueue::answer_all(const Handling& answer, bool polls) {
  const auto is_posted = [](const Slot& slot) { return (slot.bytes.load(std::memory_order_relaxed) & kPosted) != 0; };
  const auto is_sent = [](const Slot& slot) { return slot.state.load(std::memory_order_acquire) == kSent; };
  // A message that was posted before one of these was enqueued is in its slot by now.
  std::array<Slot*, kSlots> enqueued;
  std::size_t count = 0;
  for (Slot& slot : slots_) {
    if (is_sent(slot) && !is_posted(slot)) enqueued[count++] = &slot;
  }
  bool any = count > 0;
  for (Slot& slot : slots_) {
    if (!is_sent(slot) || !is_posted(slot)) continue;
    any = true;
    answer_one(slot, answer, polls);
    executed_.fetch_add(1, std::memory_order_release);
  }
  for (std::size_t i = 0; i < count; ++i) answer_one(*enqueued[i], answer, polls);
  return any;
}

// Precondition: the slot is sent.
void MessageQueue::answer_one(Slot& slot, const Handling& answer, bool polls) {
  const std::uint32_t length = slot.bytes.load(std::memory_order_relaxed);
  const auto message =
      std::span<const std::byte>(slot.text).first(std::min<std::size_t>(length & ~kPosted, kMostBytes));
  prefetch(message);
  const std::size_t answered = answer(message, slot.text);
  if ((length & kPosted) != 0) {
    slot.state.exchange(kIdle, std::memory_order_seq_cst);
    freed_.wake_if_armed();
    return;
  }
  slot.bytes.store(static_cast<std::uint32_t>(answered) | (polls ? kByPoller : 0), std::memory_order_relaxed);
  slot.state.exchange(kAnswered, std::memory_order_seq_cst);
  slot.wake_event.wake_if_armed();
}

}  // namespace farside

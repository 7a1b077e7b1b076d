// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/mailbox.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "transport/base/relax.hpp"

namespace farside {
namespace {

// Asks whether the owner lives, but not often.
class Patience {
 public:
  explicit Patience(const std::function<bool()>& lives) : lives_(lives) {}
  bool is_due() {
    if (++looks_ % 64 != 0) return false;
    const Clock::time_point now = Clock::now();
    if (now < ask_at_) return false;
    ask_at_ = now + std::chrono::milliseconds(100);
    return true;
  }
  bool ends() const { return !lives_(); }

 private:
  using Clock = std::chrono::steady_clock;
  const std::function<bool()>& lives_;
  std::uint32_t looks_ = 0;
  Clock::time_point ask_at_ = Clock::now() + std::chrono::milliseconds(100);
};

Error dead() { return Error{ErrorKind::kPeer, "the target's process is gone"}; }

}  // namespace

Mailbox::Answer::~Answer() {
  if (slot_ == nullptr) return;
  slot_->word.exchange(kFree, std::memory_order_seq_cst);
  mailbox_.freed_.ring_if_armed();
}

// The slot is the caller's.
Mailbox::Letter Mailbox::fill(Slot& slot, ProcessIdentity sender, std::span<const std::span<const std::byte>> parts) {
  std::size_t bytes = 0;
  for (const std::span<const std::byte> part : parts) {
    if (!part.empty()) std::memcpy(slot.text.data() + bytes, part.data(), part.size());
    bytes += part.size();
  }
  slot.bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
  // Sequentially consistent, as the bell asks for.
  slot.word.exchange(word(kSent, sender), std::memory_order_seq_cst);
  sent_.fetch_add(1, std::memory_order_release);
  return Letter(slot);
}

std::optional<Mailbox::Letter> Mailbox::leave(ProcessIdentity sender, std::span<const std::span<const std::byte>> parts) {
  for (Slot& slot : slots_) {
    std::uint64_t free = kFree;
    // Acquire: the reader of the last answer is done with it.
    if (slot.word.load(std::memory_order_relaxed) == kFree &&
        slot.word.compare_exchange_strong(free, word(kTaken, sender), std::memory_order_acquire)) {
      return fill(slot, sender, parts);
    }
  }
  return std::nullopt;
}

// A slot of a process that has ended, now the caller's, or null. The bell of a slot goes on to count a sleeper that is gone, and so each answer in it
// costs the owner a system call more.
Mailbox::Slot* Mailbox::take_over(ProcessIdentity sender) {
  if (!sender.known()) return nullptr;
  for (Slot& slot : slots_) {
    // Acquire: what the owner wrote there, if it has answered.
    std::uint64_t found = slot.word.load(std::memory_order_acquire);
    if (state_of(found) != kTaken && state_of(found) != kAnswered) continue;
    if (!sender_of(found).is_dead()) continue;
    if (slot.word.compare_exchange_strong(found, word(kTaken, sender), std::memory_order_acquire)) return &slot;
  }
  return nullptr;
}

Result<Mailbox::Letter> Mailbox::leave(Progress& progress, ProcessIdentity sender, std::span<const std::span<const std::byte>> parts,
                                       const std::function<bool()>& lives) {
  Patience patience(lives);
  for (Waiter waiter(progress, freed_);; waiter.pause()) {
    if (const std::optional<Letter> left = leave(sender, parts)) return *left;
    if (!patience.is_due()) continue;
    if (Slot* slot = take_over(sender)) return fill(*slot, sender, parts);
    // A sender may have been killed before it woke the owner.
    bell_.ring_if_armed();
    if (patience.ends()) return dead();
  }
}

Result<Mailbox::Answer> Mailbox::wait_for_answer(Progress& progress, Letter letter, const std::function<bool()>& lives) {
  Slot& slot = *letter.slot_;
  // Who watches need not be woken. (It may watch and be kept from answering, for a time that is not known here.)
  constexpr int kMostSpins = 4'096;
  const auto answered_yet = [&] { return state_of(slot.word.load(std::memory_order_acquire)) == kAnswered; };
  for (int spins = 0; !answered_yet() && spins < kMostSpins && is_watched(); ++spins) relax();
  if (!answered_yet()) bell_.ring_if_armed();
  Patience patience(lives);
  for (Waiter waiter(progress, slot.bell); !answered_yet(); waiter.pause()) {
    if (patience.is_due() && patience.ends()) return dead();
  }
  const std::size_t answered = std::min<std::size_t>(slot.bytes.load(std::memory_order_relaxed), kMostBytes);
  return Answer(*this, slot, std::span<const std::byte>(slot.text).first(answered));
}

bool Mailbox::answer_all(const Answering& answer) {
  bool any = false;
  std::array<std::byte, kMostBytes> letter;
  for (Slot& slot : slots_) {
    const std::uint64_t found = slot.word.load(std::memory_order_acquire);
    if (state_of(found) != kSent) continue;
    any = true;
    const std::size_t bytes = std::min<std::size_t>(slot.bytes.load(std::memory_order_relaxed), kMostBytes);
    std::memcpy(letter.data(), slot.text.data(), bytes);
    const std::size_t answered = answer(std::span<const std::byte>(letter).first(bytes), slot.text);
    slot.bytes.store(static_cast<std::uint32_t>(answered), std::memory_order_relaxed);
    slot.word.exchange(word(kAnswered, sender_of(found)), std::memory_order_seq_cst);
    slot.bell.ring_if_armed();
  }
  return any;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// A hostile on-node peer has written into a message queue. The owner must read messages whose lengths are within the
// limits, from its private memory. Nothing outside of the queue may be written. A sender must get an answer whose
// length is within the limit.
//
//   input:  flags, then pieces of the message queue's memory: offset (2 bytes), length, bytes
#include "transport/node/message_queue.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tests/fuzz/fuzz.hpp"

namespace farside::fuzz {
namespace {

constexpr std::size_t kGuard = 8192;
constexpr std::byte kFilling{0x5A};
enum Flags : std::uint8_t {
  kOwner = 1
};  // the owner is tested; otherwise a sender, whose message the hostile peer answers

// The layout and states of the slots at the end of MessageQueue (message_queue.hpp). The first input checks them.
constexpr std::size_t kAlignment = 128, kBytesAt = 4, kTextAt = 16,
                      kHolderAt = (kTextAt + MessageQueue::kMostBytes + kAlignment - 1) / kAlignment * kAlignment,
                      kSlot = kHolderAt + kAlignment, kFirst = sizeof(MessageQueue) - MessageQueue::kSlots * kSlot;
enum State : std::uint32_t { kIdle, kSent, kAnswered };

struct alignas(kAlignment) Memory {
  std::array<std::byte, kGuard> before;
  std::array<std::byte, sizeof(MessageQueue)> message_queue;
  std::array<std::byte, kGuard> behind;

  void clear() {
    before.fill(kFilling);
    message_queue.fill(std::byte{0});
    behind.fill(kFilling);
  }
  bool guards_hold() const {
    const auto filling = [](std::byte b) { return b == kFilling; };
    return std::all_of(before.begin(), before.end(), filling) && std::all_of(behind.begin(), behind.end(), filling);
  }
  template <class T>
  T at(std::size_t offset) const {
    T value;
    std::memcpy(&value, message_queue.data() + offset, sizeof value);
    return value;
  }
  std::uint32_t state(std::size_t slot) const { return at<std::uint32_t>(kFirst + slot * kSlot); }
  std::uint64_t holder(std::size_t slot) const { return at<std::uint64_t>(kFirst + slot * kSlot + kHolderAt); }
  // Whether the message in the slot needs no answer.
  bool posted(std::size_t slot) const { return at<std::uint32_t>(kFirst + slot * kSlot + kBytesAt) >> 31 != 0; }
};
static_assert(kGuard % kAlignment == 0);

// Whether a message is where the constants above say.
bool layout_is_known(Memory& memory) {
  memory.clear();
  const std::array<std::byte, 3> message{std::byte{1}, std::byte{2}, std::byte{3}};
  const std::array<std::span<const std::byte>, 1> parts{message};
  if (!MessageQueue::at(memory.message_queue.data()).enqueue(ProcessIdentity::own(), parts)) return false;
  return memory.state(0) == kSent && memory.at<std::uint32_t>(kFirst + kBytesAt) == message.size() &&
         memory.at<std::array<std::byte, 3>>(kFirst + kTextAt) == message && memory.holder(0) != 0;
}

void write_pieces(Memory& memory, Reader& input) {
  while (!input.empty()) {
    const std::size_t offset = (input.byte() + 256U * input.byte()) % sizeof(MessageQueue);
    const std::size_t bytes = std::min({std::size_t{input.byte()}, input.left(), sizeof(MessageQueue) - offset});
    for (std::size_t i = 0; i < bytes; ++i) memory.message_queue[offset + i] = std::byte{input.byte()};
  }
}

// Acts as the hostile owner while a sender waits: writes its fragments of the queue again and again.
class Hostile final : public Progress {
 public:
  Hostile(Memory& memory, const std::uint8_t* data, std::size_t size) : memory_(memory), data_(data), size_(size) {}
  void poll() override {
    Reader input(data_, size_);
    write_pieces(memory_, input);
    for (std::size_t slot = 0; slot < MessageQueue::kSlots; ++slot) {
      const std::uint32_t answered = kAnswered;
      if (memory_.state(slot) == kSent)
        std::memcpy(memory_.message_queue.data() + kFirst + slot * kSlot, &answered, sizeof answered);
    }
  }
  void poll_runtime() override {}
  void listen(WakeEvent& /*wake event*/) override {}
  void stop_listening(WakeEvent& /*wake event*/) override {}

 private:
  Memory& memory_;
  const std::uint8_t* data_;
  std::size_t size_;
};

template <class T>
void fragment(Bytes& input, std::size_t offset, const T& value) {
  input.push_back(static_cast<std::uint8_t>(offset));
  input.push_back(static_cast<std::uint8_t>(offset / 256));
  input.push_back(sizeof value);
  append(input, value);
}

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const std::uint32_t bytes : {0U, 40U, static_cast<std::uint32_t>(MessageQueue::kMostBytes),
                                    static_cast<std::uint32_t>(MessageQueue::kMostBytes) + 1, 0xffffffffU}) {
    for (const unsigned flags : {0U, unsigned{kOwner}}) {
      Bytes input{static_cast<std::uint8_t>(flags)};
      for (const std::size_t slot : {std::size_t{0}, MessageQueue::kSlots - 1}) {
        if (flags == kOwner) fragment(input, kFirst + slot * kSlot, std::uint32_t{kSent});
        fragment(input, kFirst + slot * kSlot + kBytesAt, bytes);
        fragment(input, kFirst + slot * kSlot + kTextAt, std::uint64_t{0x0102030405060708});
        if (slot == 0) fragment(input, kFirst + kHolderAt, std::uint64_t{0x7fffffff00000001});
      }
      all.push_back(input);
    }
  }
  return all;
}

}  // namespace farside::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farside;
  using namespace farside::fuzz;
  if (size == 0) return 0;
  static const auto memory = std::make_unique<Memory>();
  static const bool known = layout_is_known(*memory);
  require(known, "the layout of the slots is as this test assumes");
  memory->clear();
  MessageQueue& message_queue = MessageQueue::at(memory->message_queue.data());
  const std::byte* const begin = memory->message_queue.data();
  const std::byte* const end = begin + memory->message_queue.size();
  if ((data[0] & kOwner) != 0) {
    Reader input(data + 1, size - 1);
    write_pieces(*memory, input);
    std::array<std::uint32_t, MessageQueue::kSlots> states{};
    std::array<std::uint64_t, MessageQueue::kSlots> holders{};
    std::array<bool, MessageQueue::kSlots> posted{};
    for (std::size_t slot = 0; slot < states.size(); ++slot) {
      states[slot] = memory->state(slot);
      holders[slot] = memory->holder(slot);
      posted[slot] = memory->posted(slot);
    }
    std::ptrdiff_t messages = 0;
    message_queue.answer_all([&](std::span<const std::byte> message, std::span<std::byte> room) {
      ++messages;
      require(message.size() <= MessageQueue::kMostBytes, "a message is no longer than a message");
      require(message.data() >= begin && message.data() + message.size() <= end, "a message is in its slot");
      require(room.data() >= begin && room.data() + room.size() <= end && room.size() == MessageQueue::kMostBytes,
              "there is room for any answer");
      std::fill(room.begin(), room.end(), std::byte{0xEE});
      return room.size();
    });
    require(messages == std::count(states.begin(), states.end(), std::uint32_t{kSent}),
            "what was sent is answered, once");
    for (std::size_t slot = 0; slot < states.size(); ++slot) {
      const std::uint32_t answered = posted[slot] ? kIdle : kAnswered;
      const std::uint32_t expected = states[slot] == kSent ? answered : states[slot];
      require(memory->state(slot) == expected, "only slots that were sent change");
      require(memory->holder(slot) == holders[slot], "the owner changes no holder");
    }
  } else {
    Hostile hostile(*memory, data + 1, size - 1);
    const std::array<std::byte, 100> message{};
    const std::array<std::span<const std::byte>, 1> parts{message};
    // If the on-node peer leaves no slot free, or removes a message, the sender treats it as dead.
    const auto is_alive = [] { return false; };
    static const ProcessIdentity sender = ProcessIdentity::own();
    const auto left = message_queue.enqueue(hostile, sender, parts, {is_alive});
    const std::optional<MessageQueue::Message> another = message_queue.enqueue(sender, parts);
    for (const MessageQueue::Message* sent : {left ? &*left.value() : nullptr, another ? &*another : nullptr}) {
      if (sent == nullptr) continue;
      const auto answer = message_queue.wait_for_answer(hostile, *sent, {is_alive});
      if (!answer) continue;
      const std::span<const std::byte> bytes = answer.value()->bytes;
      require(bytes.data() >= begin && bytes.data() + bytes.size() <= end && bytes.size() <= MessageQueue::kMostBytes,
              "an answer is no longer than an answer");
    }
  }
  require(memory->guards_hold(), "nothing beyond the message queue is written");
  return 0;
}

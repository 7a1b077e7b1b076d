// SPDX-License-Identifier: BSD-3-Clause
// The RemoteMemory of the explorer: plain words, and operations whose effect and completion explorer.hpp triggers.
// All state is copied and hashed as bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "epochs/protocols/control_block.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::explore {

inline constexpr int kRanks = 4;
inline constexpr int kActors = 6;
inline constexpr int kSlots = 16;   // operations of one protocol object at most
inline constexpr int kFlights = 8;  // notifications and posts of one actor on their way at most
// Words for the data that protocols protect, behind the control block of so few ranks.
inline constexpr std::uint32_t kData = epochs::ControlBlock::kPosted + 8;

inline std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  std::uint64_t hash = (seed ^ value) * 0x9E3779B97F4A7C15ULL;
  hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93ULL;
  return hash ^ (hash >> 29);
}
// Hashes objects without padding: equal bytes must mean equal objects.
inline std::uint64_t hash_bytes(std::uint64_t seed, const void* bytes, std::size_t size) {
  const auto* at = static_cast<const std::byte*>(bytes);
  for (; size >= 8; at += 8, size -= 8) {
    std::uint64_t value;
    std::memcpy(&value, at, 8);
    seed = mix(seed, value);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, at, size);
  return mix(seed, rest ^ (std::uint64_t{size} << 56));
}

// kLocked: the acquire step and the release step of a message to the target, in one effect: `operand` is added and, if
// the word held none of the bits in `compare`, `release` as well.
// kStore: the second half of a torn notification.
enum class Kind : std::uint8_t {
  kFetchAdd,
  kCompareAndSwap,
  kRead,
  kWrite,
  kPause,
  kOwnRead,
  kOwnAdd,
  kLocked,
  kStore
};

// A request of an actor to the memory. A sabotage may change it.
struct Request {
  std::uint64_t operand = 0;  // kOwnRead: the value found
  std::uint64_t compare = 0;
  std::uint64_t release = 0;
  std::uint32_t word = 0;
  std::int8_t rank = 0;  // target
  std::int8_t actor = 0;
  Kind kind = Kind::kRead;
  bool dropped = false;     // has no effect
  bool torn = false;        // reads and writes in two effects instead of one; or reads its words in two effects
  std::uint8_t words = 1;   // kRead
  std::uint8_t behind = 0;  // notifications and posts of the actor to the rank that take effect before it
  std::uint8_t unused[5] = {};
};
static_assert(std::has_unique_object_representations_v<Request>);

// The words of all ranks, and the outstanding operations.
class MemoryState {
 public:
  enum class Phase : std::uint64_t { kFree, kIssued, kHalf, kEffected, kDone, kFailed };
  struct Slot {
    Request request;
    std::uint64_t value = 0;
    Phase phase = Phase::kFree;
    std::uint64_t* into = nullptr;  // where the words that are read go when the operation is done
    std::uint64_t count = 0;        // of these words
    std::array<std::uint64_t, kMostWordsRead> words{};
  };
  struct Change {
    std::uint32_t word;
    std::uint32_t unused = 0;
    std::uint64_t before;
  };
  struct Actor {
    std::array<Slot, kSlots> slots{};
    std::int8_t rank = 0;
    bool looked = false;   // its last advance() read own words
    bool stirred = false;  // own words have changed since, or the actor has not begun
    std::uint8_t used = 0;
    std::uint8_t flying = 0;
    std::uint8_t unused[3] = {};
    // Its notifications and posts that have not taken effect, in the order of their issue.
    std::array<Request, kFlights> flights{};

    void copy(const Actor& from) {
      std::copy_n(from.slots.begin(), from.used, slots.begin());
      std::copy_n(from.flights.begin(), from.flying, flights.begin());
      rank = from.rank;
      looked = from.looked;
      stirred = from.stirred;
      used = from.used;
      flying = from.flying;
    }
    // A notification is not overtaken by a later one to the same rank.
    bool may_arrive(std::size_t flight) const {
      for (std::size_t i = 0; i < flight; ++i) {
        if (flights[i].rank == flights[flight].rank) return false;
      }
      return true;
    }
    std::uint8_t flying_to(int to) const {
      return static_cast<std::uint8_t>(
          std::count_if(flights.begin(), flights.begin() + flying, [&](const Request& r) { return r.rank == to; }));
    }
    Request land(std::size_t flight) {
      const Request request = flights[flight];
      for (std::size_t i = flight + 1; i < flying; ++i) flights[i - 1] = flights[i];
      flights[--flying] = {};
      for (std::size_t s = 0; s < used; ++s) {
        if (slots[s].request.rank == request.rank && slots[s].request.behind > 0) --slots[s].request.behind;
      }
      return request;
    }
  };

  std::uint64_t at(int rank, std::uint32_t word) const { return words_[index(rank, word)]; }
  void store(int rank, std::uint32_t word, std::uint64_t value) {
    std::uint64_t& place = words_[index(rank, word)];
    hash_ ^= mix(index(rank, word) + 1, place) ^ mix(index(rank, word) + 1, value);
    place = value;
  }
  // The value that the owner sees.
  std::uint64_t own(int rank, std::uint32_t word) const {
    const auto& late = late_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < late.count; ++i) {
      if (late.changes[i].word == word) return late.changes[i].before;
    }
    return at(rank, word);
  }
  bool has_late(int rank) const { return late_[static_cast<std::size_t>(rank)].count != 0; }
  void push_late(int rank, std::uint32_t word, std::uint64_t before) {
    auto& late = late_[static_cast<std::size_t>(rank)];
    late.changes.at(late.count++) = Change{word, 0, before};
  }
  // Whether adapters may lose the request or another one: a write and an atomic on the same word overlap
  // (remote_memory.hpp).
  bool meets(const Request& request) const {
    const auto changes = [](Kind kind) {
      return kind == Kind::kFetchAdd || kind == Kind::kCompareAndSwap || kind == Kind::kOwnAdd;
    };
    if (request.kind != Kind::kWrite && !changes(request.kind)) return false;
    for (const Actor& each : actors) {
      for (std::size_t s = 0; s < each.used; ++s) {
        const Slot& other = each.slots[s];
        if (other.phase != Phase::kIssued && other.phase != Phase::kHalf) continue;
        if (other.request.rank != request.rank || other.request.word != request.word) continue;
        if (request.kind == Kind::kWrite ? changes(other.request.kind) : other.request.kind == Kind::kWrite)
          return true;
      }
      for (std::size_t i = 0; i < each.flying; ++i) {
        const Request& other = each.flights[i];
        if (other.rank != request.rank || other.word != request.word) continue;
        if (request.kind == Kind::kWrite ? changes(other.kind) : other.kind == Kind::kWrite) return true;
      }
    }
    return false;
  }
  // Makes the oldest late change visible.
  void appear(int rank) {
    stir(rank);
    auto& late = late_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 1; i < late.count; ++i) late.changes[i - 1] = late.changes[i];
    late.changes[--late.count] = Change{0, 0, 0};
  }
  // Own words of the rank have changed visibly: its actors that waited after reading own words step again.
  void stir(int rank) {
    for (Actor& actor : actors) actor.stirred = actor.stirred || (actor.rank == rank && actor.looked);
  }
  // Of so many actors, and what is in use. This makes a search thrice as fast.
  void copy(const MemoryState& from, int count) {
    words_ = from.words_;
    late_ = from.late_;
    hash_ = from.hash_;
    lost = from.lost;
    dead = from.dead;
    for (std::size_t a = 0; a < static_cast<std::size_t>(count); ++a) actors[a].copy(from.actors[a]);
  }
  std::uint64_t hash() const {
    std::uint64_t hash = hash_bytes(mix(mix(hash_, lost), dead), late_.data(), sizeof(late_));
    for (const Actor& actor : actors) {
      hash = hash_bytes(hash, actor.slots.data(), actor.used * sizeof(Slot));
      hash = hash_bytes(mix(hash, actor.flying), actor.flights.data(), actor.flying * sizeof(Request));
      hash = mix(hash, static_cast<std::uint64_t>(actor.looked) + 2U * actor.stirred + 4U * actor.used);
    }
    return hash;
  }

  std::array<Actor, kActors> actors{};
  std::uint64_t lost = 0;  // bits: ranks at which every operation fails
  bool is_lost(int rank) const { return (lost >> rank & 1) != 0; }
  std::uint64_t dead = 0;  // bits: ranks that have died
  bool is_dead(int rank) const { return (dead >> rank & 1) != 0; }
  // The actors of the rank take no further step. What they have issued takes effect all the same.
  void die(int rank) {
    dead |= 1U << rank;
    for (Actor& actor : actors) {
      if (actor.rank != rank) continue;
      for (std::size_t s = 0; s < actor.used; ++s) {
        Slot& slot = actor.slots[s];
        const bool changes = slot.request.kind != Kind::kRead && slot.request.kind != Kind::kPause;
        if (!changes || (slot.phase != Phase::kIssued && slot.phase != Phase::kHalf)) slot = {};
      }
    }
  }

 private:
  struct Late {
    std::array<Change, 8> changes{};
    std::uint64_t count = 0;
  };
  // A long ring has places for 16 slots, more than there are waiters.
  using Block = epochs::ControlBlock;
  static constexpr std::uint32_t kPlaces = std::min(Block::kRingSlots, 16U);
  static constexpr std::uint32_t kNoPlace = 8 * (Block::kRingSlots - kPlaces);  // bytes of a ring
  static constexpr std::size_t kWords = (kData - Block::kLock - 2 * kNoPlace) / 8 + 4;
  static std::size_t index(int rank, std::uint32_t word) {
    for (const std::uint32_t ring : {Block::kGlobalLockRing, Block::kRing}) {
      const std::uint32_t at = word - ring;
      if (word >= ring) word = at < 8 * Block::kRingSlots ? ring + at % (8 * kPlaces) : word - kNoPlace;
    }
    return static_cast<std::size_t>(rank) * kWords + (word - Block::kLock) / 8;
  }
  std::array<std::uint64_t, kRanks * kWords> words_{};
  std::array<Late, kRanks> late_{};
  std::uint64_t hash_ = 0;
};
static_assert(std::is_trivially_copyable_v<MemoryState>);

// Called with each request before its execution, to break a protocol on purpose. The search repeats steps, so the
// change may depend on the request only.
using Sabotage = std::function<void(Request&)>;

// The RemoteMemory of one actor.
class Memory {
 public:
  using Near = Memory;  // of the words of near locks
  Near& near() { return *this; }
  static constexpr const char* kMeets = "a write meets an atomic on the same word";

  // Copyable as bytes: names its slot in the memory state, which holds the operation.
  class Operation {
   public:
    bool done() const { return memory_ == nullptr || slot().phase == MemoryState::Phase::kDone; }
    std::uint64_t value() const {
      if (memory_ == nullptr) return 0;
      if (!done()) memory_->broken("the value of an operation is asked before it is done");
      return slot().value;
    }

    bool failed() const { return memory_ != nullptr && slot().phase == MemoryState::Phase::kFailed; }
    // As of the memories of a process: the operation is done then, and its value means nothing.
    bool take_error() {
      memory_->actor().slots[slot_].phase = MemoryState::Phase::kDone;
      return false;
    }

   private:
    friend class Memory;
    const MemoryState::Slot& slot() const { return memory_->actor().slots[slot_]; }
    Memory* memory_ = nullptr;
    std::uint64_t slot_ = 0;
  };

  Memory(MemoryState& memory_state, int actor, int rank, const Sabotage& sabotage, std::string& failure)
      : memory_state_(memory_state), actor_(actor), rank_(rank), sabotage_(sabotage), failure_(failure) {}

  void fetch_add(Operation& operation, int rank, std::uint32_t word, std::uint64_t value,
                 DataAccess = DataAccess::kGoesOn) {
    issue(operation, Kind::kFetchAdd, rank, word, value, 0);
  }
  void compare_and_swap(Operation& operation, int rank, std::uint32_t word, std::uint64_t expected,
                        std::uint64_t desired) {
    issue(operation, Kind::kCompareAndSwap, rank, word, desired, expected);
  }
  void read(Operation& operation, int rank, std::uint32_t word) { issue(operation, Kind::kRead, rank, word, 0, 0); }
  void read(Operation& operation, int rank, std::uint32_t word, std::span<std::uint64_t> values) {
    issue(operation, Kind::kRead, rank, word, 0, 0, 0, values);
  }
  void write(Operation& operation, int rank, std::uint32_t word, std::uint64_t value) {
    issue(operation, Kind::kWrite, rank, word, value, 0);
  }
  void locked(Operation& operation, int rank, std::uint32_t word, std::uint64_t acquire, std::uint64_t stops,
              std::uint64_t release) {
    issue(operation, Kind::kLocked, rank, word, acquire, stops, release);
  }
  void notify_add(Operation& operation, int rank, std::uint32_t word, std::uint64_t value, DataAccess) {
    notify(operation, Kind::kFetchAdd, rank, word, value);
  }
  void notify_write(Operation& operation, int rank, std::uint32_t word, std::uint64_t value, DataAccess) {
    notify(operation, Kind::kWrite, rank, word, value);
  }
  void add_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
    Operation unasked;
    notify(unasked, Kind::kFetchAdd, rank, word, value);
    release(unasked);
  }
  void write_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
    Operation unasked;
    notify(unasked, Kind::kWrite, rank, word, value);
    release(unasked);
  }
  static bool interrupted_since(int, std::uint32_t) { return false; }
  void pause(Operation& operation, std::uint64_t) { issue(operation, Kind::kPause, rank_, 0, 0, 0); }
  void learn_hand_off_time(std::uint64_t, std::uint64_t) {}
  std::uint64_t own(std::uint32_t word) const {
    memory_state_.actors[static_cast<std::size_t>(actor_)].looked = true;
    const std::uint64_t value = memory_state_.own(rank_, word);
    return sabotage_ ? sabotaged(Kind::kOwnRead, word, value).operand : value;
  }
  std::uint64_t own_fetch_add(std::uint32_t word, std::uint64_t value) {
    actor().looked = true;
    // An atomic on a word sees all that took effect on the word, and all earlier changes.
    while (memory_state_.has_late(rank_)) memory_state_.appear(rank_);
    const std::uint64_t before = memory_state_.at(rank_, word);
    Request request{.operand = value, .word = word, .rank = static_cast<std::int8_t>(rank_), .kind = Kind::kOwnAdd};
    if (sabotage_) request = sabotaged(Kind::kOwnAdd, word, value);
    if (!request.dropped) memory_state_.store(rank_, word, before + request.operand);
    return before;
  }

  int rank() const { return rank_; }
  int index() const { return actor_; }
  // Ends a protocol object. None of its operations may be outstanding, since they end with it. (After the loss or the
  // death of a rank they may be: a process waits for them when it destroys the object.)
  void retire_operations() {
    for (std::size_t i = 0; i < actor().used; ++i) {
      if (actor().slots[i].phase != MemoryState::Phase::kDone && memory_state_.lost + memory_state_.dead == 0)
        broken("a protocol is over while an operation is not done");
      actor().slots[i] = {};
    }
    actor().used = 0;
  }
  void broken(std::string what) const {
    if (failure_.empty()) failure_ = std::move(what);
  }
  MemoryState& memory_state() { return memory_state_; }

 private:
  MemoryState::Actor& actor() const { return memory_state_.actors[static_cast<std::size_t>(actor_)]; }
  Request sabotaged(Kind kind, std::uint32_t word, std::uint64_t operand) const {
    Request request{.operand = operand,
                    .word = word,
                    .rank = static_cast<std::int8_t>(rank_),
                    .actor = static_cast<std::int8_t>(actor_),
                    .kind = kind};
    sabotage_(request);
    return request;
  }
  // The operation is done at once.
  void notify(Operation& operation, Kind kind, int rank, std::uint32_t word, std::uint64_t operand) {
    issue(operation, kind, rank, word, operand, 0);
    if (actor().flying == kFlights) return broken("more notifications on their way than the explorer has room for");
    MemoryState::Slot& slot = actor().slots[operation.slot_];
    slot.request.behind = 0;
    actor().flights[actor().flying++] = slot.request;
    slot.phase = MemoryState::Phase::kDone;
    slot.request = {};
  }
  // The slot of an operation that ends with the call.
  void release(const Operation& operation) {
    if (operation.slot_ + 1 == actor().used) actor().slots[--actor().used] = {};
  }
  void issue(Operation& operation, Kind kind, int rank, std::uint32_t word, std::uint64_t operand,
             std::uint64_t compare, std::uint64_t release = 0, std::span<std::uint64_t> values = {}) {
    if (operation.memory_ == nullptr) {
      if (actor().used == kSlots) return broken("more operations in one protocol than the explorer has room for");
      operation.slot_ = actor().used++;
      operation.memory_ = this;
    } else if (!operation.done()) {
      return broken("an operation is used again before it is done");
    }
    MemoryState::Slot& slot = actor().slots[operation.slot_];
    slot = {};
    slot.into = values.data();
    slot.count = values.size();
    slot.request = {.operand = operand,
                    .compare = compare,
                    .release = release,
                    .word = word,
                    .rank = static_cast<std::int8_t>(rank),
                    .actor = static_cast<std::int8_t>(actor_),
                    .kind = kind,
                    .words = static_cast<std::uint8_t>(std::max<std::size_t>(values.size(), 1)),
                    .behind = actor().flying_to(rank)};
    if (sabotage_) sabotage_(slot.request);
    slot.phase = kind == Kind::kPause ? MemoryState::Phase::kEffected : MemoryState::Phase::kIssued;
  }

  MemoryState& memory_state_;
  int actor_;
  int rank_;
  const Sabotage& sabotage_;
  std::string& failure_;
};
static_assert(NotifyingMemory<Memory>);

// The protocol object that a Program runs, as bytes. It is built on zeroes, so that equal bytes are equal objects,
// and is copied with the Program.
template <class... Protocols>
class Running {
  // Not is_trivially_copyable: an optional of an object with a reference cannot be assigned, but can be copied as
  // bytes.
  static_assert(((std::is_trivially_copy_constructible_v<Protocols> &&
                  std::is_trivially_destructible_v<Protocols>)&&...),
                "copied and hashed as bytes");

 public:
  template <class P, class... Arguments>
  void begin(Arguments&&... arguments) {
    storage_.fill(std::byte{0});
    ::new (static_cast<void*>(storage_.data())) P(std::forward<Arguments>(arguments)...);
    size_ = sizeof(P);
  }
  template <class P>
  P& get() {
    return *std::launder(reinterpret_cast<P*>(storage_.data()));
  }
  template <class P>
  const P& get() const {
    return *std::launder(reinterpret_cast<const P*>(storage_.data()));
  }
  void end() { size_ = 0; }
  explicit operator bool() const { return size_ != 0; }
  std::uint64_t hash(std::uint64_t seed) const { return hash_bytes(seed, storage_.data(), size_); }

 private:
  alignas(std::max_align_t) std::array<std::byte, std::max({sizeof(Protocols)...})> storage_{};
  std::size_t size_ = 0;
};

}  // namespace farside::explore

// SPDX-License-Identifier: BSD-3-Clause
// The script of an actor of the explorer for locks and the global lock, and its properties: a writer of a rank is
// alone, readers exclude writers, lock_alls and exclusive locks exclude each other at the global lock. No actor
// overtakes an incompatible one that arrived earlier, and at the end the words hold no trace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "epochs/protocols/lock.hpp"
#include "epochs/protocols/lock_calls.hpp"
#include "tests/unit/epochs/explorer.hpp"

namespace farside::explore {

using epochs::ControlBlock;
using epochs::LockOf;
using epochs::LockType;
using epochs::LockWord;

inline constexpr int kHome = 0;             // rank of the global lock
inline constexpr int kGlobalLock = kRanks;  // as a place, behind the locks of the ranks

struct LockAction {
  enum class What : std::uint8_t { kAcquire, kAcquireWithGlobalLock, kRelease, kReleaseWithGlobalLock } what;
  int place;  // rank of the lock, or kGlobalLock
  LockType type;
};
using LockScript = std::vector<LockAction>;

class LockProgram {
  using What = LockAction::What;
  using Acquire = epochs::AcquireLock<Memory>;
  using Release = epochs::ReleaseLock<Memory>;
  using AcquireBoth = epochs::AcquireLocks<Memory>;
  using ReleaseBoth = epochs::ReleaseLocks<Memory, 2>;

 public:
  // An actor holds a lock from the step that ends the acquisition until its departure takes effect: the release
  // could have been issued as late as that.
  struct Shared {
    struct Place {
      std::int8_t inside[kActors] = {};   // 0, or 1 + the type
      std::int8_t arrived[kActors] = {};  // 1 + actors that arrived and do not hold yet, in order
      std::int8_t arrived_type[kActors] = {};
      std::int8_t arrivals = 0;
      std::uint8_t leaving = 0;  // bits: actors that release the lock by a post
      std::int8_t unused[4] = {};
    };
    Place places[kRanks + 1];
  };

  // Maxima over the search; not part of the state.
  struct Seen {
    int together[2] = {};        // actors that held one lock at the same time, by type
    int at_global_lock[2] = {};  // likewise at the global lock
  };

  LockProgram() = default;
  LockProgram(const LockScript* script, std::uint32_t wake_index, Seen* seen)
      : script_(script), seen_(seen), wake_index_(wake_index) {}

  bool over() const { return position_ == script_->size(); }

  void step(Memory& memory, Shared& shared) {
    const LockAction action = (*script_)[position_];
    if (!running_) {
      begin(memory, action);
      if (leaves_by_post(action)) shared.places[action.place].leaving |= bit_of(memory);
    }
    if (!advance(memory, shared, action)) return;
    running_.end();
    memory.retire_operations();
    ++position_;
  }

  void effect(const Request& request, Memory& memory, Shared& shared) {
    // A writer that wakes the next owner instead of a departure.
    const bool owes = request.kind == Kind::kWrite && own_word(request.word) &&
                      epochs::WakeValue::how(request.operand) == epochs::WakeValue::kOwed;
    if (owes) return left_by_post(memory, shared);
    if (request.kind != Kind::kFetchAdd || in_ring(request.word)) return;
    const bool at_global_lock = request.word >= ControlBlock::kGlobalLock;
    const bool drain = request.word == ControlBlock::kDrain || request.word == ControlBlock::kGlobalLockDrain ||
                       request.word == ControlBlock::kGlobalLockDrain + 8;
    if (drain && epochs::DrainWord::departed(request.operand) <= 0) return;  // an announcement or its end
    const LockAction action = (*script_)[position_];
    auto& place = shared.places[at_global_lock ? kGlobalLock : action.place];
    if (action.what == What::kRelease || action.what == What::kReleaseWithGlobalLock) {
      // The departure is in the lock word or, if the member is released by its successor, in the drain word. A member
      // that counts in both departs in the lock word first.
      place.inside[memory.index()] = 0;
    } else if (static_cast<std::int64_t>(request.operand) > 0) {
      place.arrived_type[place.arrivals] = static_cast<std::int8_t>(action.type);
      place.arrived[place.arrivals++] = static_cast<std::int8_t>(1 + memory.index());
    } else if (!at_global_lock) {
      // Held before the global lock and released: the actor arrives again. (At the global lock the add takes off
      // others.)
      forget_arrival(place, memory.index());
    }
  }

  bool begins() const { return !running_; }
  std::uint64_t hash(std::uint64_t seed) const {
    seed = running_.hash(mix(seed, position_));
    return hash_bytes(seed, tokens_, sizeof(tokens_));
  }
  static bool in_ring(std::uint32_t word) {
    return (word >= ControlBlock::kRing && word < ControlBlock::kGlobalLock) ||
           (word >= ControlBlock::kGlobalLockRing && word < ControlBlock::kPosted);
  }
  static bool own_word(std::uint32_t word) {
    return word >= ControlBlock::kWake && word < ControlBlock::kWake + 8 * ControlBlock::kWakeWords;
  }
  static void check_end(const MemoryState& memory_state, const Shared&, std::string& failure) {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const std::uint32_t word : {ControlBlock::kLock, ControlBlock::kGlobalLock}) {
        if (memory_state.at(rank, word) % LockWord::kTicket != 0) failure = "in the end someone is left in a lock word";
      }
      for (const std::uint32_t word :
           {ControlBlock::kDrain, ControlBlock::kGlobalLockDrain, ControlBlock::kGlobalLockDrain + 8}) {
        if (memory_state.at(rank, word) != 0) failure = "in the end something is left in a drain word";
      }
      for (std::uint32_t i = 0; i < ControlBlock::kRingSlots; ++i) {
        for (const std::uint32_t word : {ControlBlock::ring_word(i), ControlBlock::global_lock_ring_word(i)}) {
          if (memory_state.at(rank, word) != 0) failure = "in the end something is left in a slot";
        }
      }
      for (std::uint32_t i = 0; i < ControlBlock::kWakeWords; ++i) {
        if (memory_state.at(rank, ControlBlock::wake_word(i)) != 0)
          failure = "in the end something is left in a wake word";
      }
    }
  }

  std::string describe_position() const {
    if (over()) return "";
    const LockAction action = (*script_)[position_];
    return std::string(" (") + (running_ ? "in " : "begins ") +
           (action.what == What::kAcquire                 ? "acquire "
            : action.what == What::kAcquireWithGlobalLock ? "acquire with global lock "
            : action.what == What::kRelease               ? "release "
                                                          : "release with global lock ") +
           (action.type == LockType::kShared ? "shared " : "exclusive ") +
           (action.place == kGlobalLock ? "global lock" : std::to_string(action.place)) + ")";
  }
  std::string describe(int actor) const {
    return "then actor " + std::to_string(actor) + (over() ? " is done" : " is at" + describe_position());
  }

 private:
  static std::uint8_t bit_of(const Memory& memory) { return static_cast<std::uint8_t>(1U << memory.index()); }
  bool leaves_by_post(LockAction action) const {
    return (action.what == What::kRelease || action.what == What::kReleaseWithGlobalLock) &&
           action.place != kGlobalLock && action.type == LockType::kExclusive &&
           tokens_[action.place].how() == epochs::LockToken::kSuccessor;
  }
  // The post of a release has taken effect, perhaps while the actor is elsewhere; or that of a lock which is held
  // before the global lock.
  void left_by_post(Memory& memory, Shared& shared) const {
    for (auto& place : shared.places) {
      if ((place.leaving & bit_of(memory)) == 0) continue;
      place.leaving &= static_cast<std::uint8_t>(~bit_of(memory));
      place.inside[memory.index()] = 0;
      return;
    }
    forget_arrival(shared.places[(*script_)[position_].place], memory.index());
  }
  void begin(Memory& memory, LockAction action) {
    if (action.what == What::kAcquireWithGlobalLock) {
      running_.begin<AcquireBoth>(memory, memory.rank(), action.place, kHome,
                                  wake_index_ + ControlBlock::kWakeWords / 2, wake_index_);
    } else if (action.what == What::kReleaseWithGlobalLock) {
      running_.begin<ReleaseBoth>();
      running_.get<ReleaseBoth>().add(memory, action.place, LockType::kExclusive, tokens_[action.place]);
      running_.get<ReleaseBoth>().add(memory, kHome, LockType::kExclusive, tokens_[kGlobalLock], LockOf::kGlobal);
    } else {
      const bool global = action.place == kGlobalLock;
      const int rank = global ? kHome : action.place;
      const LockOf of = global ? LockOf::kGlobal : LockOf::kTarget;
      if (action.what == What::kAcquire) {
        running_.begin<Acquire>(memory, memory.rank(), rank, action.type, wake_index_, of);
      } else {
        running_.begin<Release>(memory, rank, action.type, tokens_[action.place], of);
      }
    }
  }
  bool advance(Memory& memory, Shared& shared, LockAction action) {
    if (action.what == What::kAcquireWithGlobalLock) {
      auto& both = running_.get<AcquireBoth>();
      if (!both.advance()) return false;
      tokens_[action.place] = both.token();
      tokens_[kGlobalLock] = both.global_lock_token();
      enter(shared.places[kGlobalLock], memory, {What::kAcquire, kGlobalLock, action.type});
      enter(shared.places[action.place], memory, action);
      return true;
    }
    if (action.what == What::kAcquire) {
      auto& acquire = running_.get<Acquire>();
      if (!acquire.advance()) return false;
      tokens_[action.place] = acquire.token();
      enter(shared.places[action.place], memory, action);
      return true;
    }
    const bool over = action.what == What::kReleaseWithGlobalLock ? running_.get<ReleaseBoth>().advance()
                                                                  : running_.get<Release>().advance();
    if (!over) return false;
    tokens_[action.place] = {};
    if (action.what == What::kReleaseWithGlobalLock) tokens_[kGlobalLock] = {};
    return true;
  }
  void enter(Shared::Place& target, Memory& memory, LockAction action) {
    const int self = memory.index();
    const LockType type = action.type;
    const auto contenders = [&](int other_type) {
      const auto other = static_cast<LockType>(other_type);
      if (action.place == kGlobalLock) return type != other;
      return type == LockType::kExclusive || other == LockType::kExclusive;
    };
    for (const std::int8_t other : target.inside) {
      if (other != 0 && contenders(other - 1)) memory.broken("two actors hold the lock that exclude each other");
    }
    const auto inside = static_cast<std::int8_t>(1 + static_cast<int>(type));
    target.inside[self] = inside;
    const auto together = static_cast<int>(std::count(std::begin(target.inside), std::end(target.inside), inside));
    int& most = (action.place == kGlobalLock ? seen_->at_global_lock : seen_->together)[static_cast<int>(type)];
    most = std::max(most, together);
    for (int i = 0; i < target.arrivals && target.arrived[i] != 1 + self; ++i) {
      if (contenders(target.arrived_type[i])) memory.broken("an actor overtook one that came before it");
    }
    if (!forget_arrival(target, self)) memory.broken("a lock is held before anything took effect");
  }
  static bool forget_arrival(Shared::Place& place, int actor) {
    int i = 0;
    while (i < place.arrivals && place.arrived[i] != 1 + actor) ++i;
    if (i == place.arrivals) return false;
    for (--place.arrivals; i < place.arrivals; ++i) {
      place.arrived[i] = place.arrived[i + 1];
      place.arrived_type[i] = place.arrived_type[i + 1];
    }
    place.arrived[place.arrivals] = 0;
    place.arrived_type[place.arrivals] = 0;
    return true;
  }

  const LockScript* script_ = nullptr;
  Seen* seen_ = nullptr;
  std::uint64_t position_ = 0;
  epochs::LockToken tokens_[kRanks + 1] = {};
  std::uint32_t wake_index_ = 0;
  Running<Acquire, Release, AcquireBoth, ReleaseBoth> running_;
};
static_assert(std::has_unique_object_representations_v<LockProgram::Shared>);

// "X0 S0": lock rank 0 exclusive, unlock, then shared. "S0(X1)": lock 1 within the lock of 0. "L", "E": acquire the
// global lock as a lock_all, as an exclusive lock. If `globally_locked`, the first X acquires the global lock and the
// last one releases it.
inline LockScript parse_script(const std::string& text, bool globally_locked = false) {
  using What = LockAction::What;
  LockScript script;
  std::vector<LockAction> open;
  const auto exclusive = [](const LockAction& action) { return action.type == LockType::kExclusive; };
  const auto needs_global_lock = [&](const LockAction& action) {
    return globally_locked && exclusive(action) && std::none_of(open.begin(), open.end(), exclusive);
  };
  const auto close = [&] {
    LockAction action = open.back();
    open.pop_back();
    action.what = needs_global_lock(action) ? What::kReleaseWithGlobalLock : What::kRelease;
    script.push_back(action);
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::string("SXLE").find(text[i]) != std::string::npos) {
      LockAction action{What::kAcquire, kGlobalLock, LockType::kShared};
      if (text[i] == 'X' || text[i] == 'E') action.type = LockType::kExclusive;
      if (text[i] == 'X' || text[i] == 'S') action.place = text[++i] - '0';
      if (needs_global_lock(action)) action.what = What::kAcquireWithGlobalLock;
      script.push_back(action);
      action.what = What::kAcquire;
      open.push_back(action);
      if (i + 1 == text.size() || text[i + 1] != '(') close();
    } else if (text[i] == ')') {
      close();
    }
  }
  return script;
}

struct LockCase {
  std::vector<std::string> scripts;  // one per actor
  std::vector<int> ranks = {};       // per actor; empty: actor i is rank i
  bool wraps = false;                // the tickets wrap
  bool globally_locked = false;      // exclusive locks acquire the global lock
};

inline Report explore_locks(const LockCase& each, const Options& options, LockProgram::Seen* seen = nullptr) {
  LockProgram::Seen unasked;
  std::vector<LockScript> scripts;
  for (const std::string& text : each.scripts) scripts.push_back(parse_script(text, each.globally_locked));
  std::vector<LockProgram> programs;
  std::vector<std::uint32_t> threads(kRanks);  // per rank, for one wake word per thread
  for (std::size_t i = 0; i < scripts.size(); ++i) {
    const std::size_t rank = each.ranks.empty() ? i : static_cast<std::size_t>(each.ranks[i]);
    programs.emplace_back(&scripts[i], threads[rank]++, seen != nullptr ? seen : &unasked);
  }
  Explorer<LockProgram> explorer(programs, options, each.ranks);
  for (int rank = 0; each.wraps && rank < kRanks; ++rank) {
    for (const std::uint32_t word : {ControlBlock::kLock, ControlBlock::kGlobalLock}) {
      explorer.memory_state().store(rank, word, (LockWord::kTickets - 1) * LockWord::kTicket);
    }
  }
  return explorer.run();
}

// Visits all 20 mixes of three ranks that take two locks each, each time one of two.
inline void each_mix_of_three(const std::function<void(const std::vector<std::string>&)>& visit,
                              const std::string& one = "S0", const std::string& other = "X0") {
  std::vector<std::string> rounds;
  for (const std::string& first : {one, other}) {
    for (const std::string& second : {one, other}) rounds.push_back(first + " " + second);
  }
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    for (std::size_t j = i; j < rounds.size(); ++j) {
      for (std::size_t k = j; k < rounds.size(); ++k) visit({rounds[i], rounds[j], rounds[k]});
    }
  }
}

}  // namespace farside::explore

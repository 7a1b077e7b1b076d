// SPDX-License-Identifier: BSD-3-Clause
// What an agent of the explorer does with locks, and what must hold: a writer is alone, readers are among
// themselves, nobody overtakes who came before and is in its way, and in the end nothing is left behind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "epochs/lock.hpp"
#include "tests/epochs/explorer.hpp"

namespace farside::explore {

using epochs::ControlBlock;
using epochs::LockType;
using epochs::LockWord;

struct LockAction {
  bool lock;  // else unlock
  int target;
  LockType type;
};
using LockScript = std::vector<LockAction>;

class LockProgram {
  using Acquire = epochs::AcquireLock<Memory>;
  using Release = epochs::ReleaseLock<Memory>;

 public:
  // An agent holds a lock from the step in which acquiring it ends to the first effect of releasing it: the release
  // could have been issued as late as that.
  struct Shared {
    struct Target {
      std::int8_t inside[kAgents] = {};    // 0, or 1 + the type
      std::int8_t arrived[kAgents] = {};  // 1 + agents that came and do not hold yet, in order
      std::int8_t arrived_type[kAgents] = {};
      std::int8_t arrivals = 0;
      std::int8_t unused[5] = {};
    };
    Target targets[kRanks];
  };

  // What the search has come across; no part of the state.
  struct Seen {
    int readers_together = 0;
  };

  LockProgram() = default;
  LockProgram(const LockScript* script, std::uint32_t node, Seen* seen) : script_(script), seen_(seen), node_(node) {}

  bool over() const { return position_ == script_->size(); }

  void step(Memory& memory, Shared& shared) {
    const LockAction action = (*script_)[position_];
    if (!running_) {
      took_effect_ = false;
      if (action.lock) {
        running_.begin<Acquire>(memory, memory.rank(), action.target, action.type, node_);
      } else {
        running_.begin<Release>(memory, action.target, action.type, tickets_[action.target]);
      }
    }
    if (action.lock) {
      auto& acquire = running_.get<Acquire>();
      if (!acquire.advance()) return;
      tickets_[action.target] = acquire.ticket();
      enter(shared.targets[action.target], memory, action.type);
    } else if (!running_.get<Release>().advance()) {
      return;
    } else {
      tickets_[action.target] = 0;
    }
    running_.end();
    memory.retire_operations();
    ++position_;
  }

  void effect(const Request&, Memory& memory, Shared& shared) {
    if (took_effect_) return;
    took_effect_ = true;
    const LockAction action = (*script_)[position_];
    auto& target = shared.targets[action.target];
    if (action.lock) {
      target.arrived_type[target.arrivals] = static_cast<std::int8_t>(action.type);
      target.arrived[target.arrivals++] = static_cast<std::int8_t>(1 + memory.index());
    } else {
      target.inside[memory.index()] = 0;
    }
  }

  bool begins() const { return !running_; }
  std::uint64_t hash(std::uint64_t seed) const {
    seed = running_.hash(mix(seed, position_ * 2 + static_cast<std::uint64_t>(took_effect_)));
    return hash_bytes(seed, tickets_, sizeof(tickets_));
  }
  static bool own_word(std::uint32_t word) {
    return word >= ControlBlock::kWake && word < ControlBlock::kWake + 8 * ControlBlock::kWakeWords;
  }
  static void check_end(const World& world, const Shared&, std::string& failure) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (world.at(rank, ControlBlock::kLock) % LockWord::kTicket != 0) failure = "in the end someone is left in a lock word";
      if (world.at(rank, ControlBlock::kDrain) != 0) failure = "in the end something is left in a drain word";
      for (std::uint32_t i = 0; i < ControlBlock::kRingSlots; ++i) {
        if (world.at(rank, ControlBlock::ring_word(i)) != 0) failure = "in the end something is left in a slot";
      }
      for (std::uint32_t i = 0; i < ControlBlock::kWakeWords; ++i) {
        if (world.at(rank, ControlBlock::wake_word(i)) != 0) failure = "in the end something is left in a wake word";
      }
    }
  }

  std::string describe_position() const {
    if (over()) return "";
    const LockAction action = (*script_)[position_];
    return std::string(" (") + (running_ ? "in " : "begins ") + (action.lock ? "lock " : "unlock ") +
           (action.type == LockType::kShared ? "shared " : "exclusive ") + std::to_string(action.target) + ")";
  }
  std::string describe(int agent) const {
    return "then agent " + std::to_string(agent) + (over() ? " is done" : " is at" + describe_position());
  }

 private:
  void enter(Shared::Target& target, Memory& memory, LockType type) {
    const int self = memory.index();
    const auto in_the_way = [&](int other_type) {
      return type == LockType::kExclusive || other_type == static_cast<int>(LockType::kExclusive);
    };
    for (const std::int8_t other : target.inside) {
      if (other != 0 && in_the_way(other - 1)) memory.broken("two agents hold the lock that exclude each other");
    }
    const auto inside = static_cast<std::int8_t>(1 + static_cast<int>(type));
    target.inside[self] = inside;
    if (type == LockType::kShared) {
      const auto readers = static_cast<int>(std::count(std::begin(target.inside), std::end(target.inside), inside));
      seen_->readers_together = std::max(seen_->readers_together, readers);
    }
    int i = 0;
    for (; i < target.arrivals && target.arrived[i] != 1 + self; ++i) {
      if (in_the_way(target.arrived_type[i])) memory.broken("an agent overtook one that came before it");
    }
    if (i == target.arrivals) return memory.broken("a lock is held before anything took effect");
    for (--target.arrivals; i < target.arrivals; ++i) {
      target.arrived[i] = target.arrived[i + 1];
      target.arrived_type[i] = target.arrived_type[i + 1];
    }
    target.arrived[target.arrivals] = 0;
    target.arrived_type[target.arrivals] = 0;
  }

  const LockScript* script_ = nullptr;
  Seen* seen_ = nullptr;
  std::uint64_t position_ = 0;
  std::uint64_t tickets_[kRanks] = {};
  std::uint32_t node_ = 0;
  bool took_effect_ = false;
  Running<Acquire, Release> running_;
};
static_assert(std::has_unique_object_representations_v<LockProgram::Shared>);

// "X0 S0": lock exclusive at rank 0, unlock, then shared. "S0(X1)": within the lock at 0, one at 1.
inline LockScript parse_script(const std::string& text) {
  LockScript script;
  std::vector<LockAction> open;
  const auto close = [&] {
    script.push_back({false, open.back().target, open.back().type});
    open.pop_back();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == 'S' || text[i] == 'X') {
      const LockType type = text[i] == 'X' ? LockType::kExclusive : LockType::kShared;
      const int target = text[++i] - '0';
      script.push_back({true, target, type});
      open.push_back({true, target, type});
      if (i + 1 == text.size() || text[i + 1] != '(') close();
    } else if (text[i] == ')') {
      close();
    }
  }
  return script;
}

struct LockCase {
  std::vector<std::string> scripts;  // one per agent
  std::vector<int> ranks = {};       // of the agents; none: agent i is rank i
  bool wraps = false;                // the tickets do
};

inline Report explore_locks(const LockCase& each, const Options& options, LockProgram::Seen* seen = nullptr) {
  LockProgram::Seen unasked;
  std::vector<LockScript> scripts;
  for (const std::string& text : each.scripts) scripts.push_back(parse_script(text));
  std::vector<LockProgram> programs;
  std::vector<std::uint32_t> threads(kRanks);  // of each rank: a wake word for each
  for (std::size_t i = 0; i < scripts.size(); ++i) {
    const std::size_t rank = each.ranks.empty() ? i : static_cast<std::size_t>(each.ranks[i]);
    programs.emplace_back(&scripts[i], threads[rank]++, seen != nullptr ? seen : &unasked);
  }
  Explorer<LockProgram> explorer(programs, options, each.ranks);
  for (int rank = 0; each.wraps && rank < kRanks; ++rank) {
    explorer.world().store(rank, ControlBlock::kLock, (LockWord::kTickets - 1) * LockWord::kTicket);
  }
  return explorer.run();
}

// Three ranks that lock rank 0 twice each, in all 20 mixes of shared and exclusive.
inline void each_mix_of_three(const std::function<void(const std::vector<std::string>&)>& visit) {
  const std::vector<std::string> rounds = {"S0 S0", "S0 X0", "X0 S0", "X0 X0"};
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    for (std::size_t j = i; j < rounds.size(); ++j) {
      for (std::size_t k = j; k < rounds.size(); ++k) visit({rounds[i], rounds[j], rounds[k]});
    }
  }
}

}  // namespace farside::explore

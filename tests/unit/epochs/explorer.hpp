// SPDX-License-Identifier: BSD-3-Clause
// An explorer of interleavings: a depth-first search over all orders of events on a RemoteMemory of plain words. The
// protocols of epochs/ run on it unchanged.
//
//   actor  a rank, or one of two threads of a rank, that runs a Program
//   Program  the script of an actor: its protocol objects, one after another, and the properties to be checked
//   effect   an operation changes, or reads, its word at the target; at any time after its issue, in any order
//   arrive   a notification changes its word at the target; likewise, but in the order of those to the same rank
//   step     some operations of the actor that took effect become done, or its own words have changed, and it calls
//            advance() once
//   lose     a rank is lost: operations on it fail from then on (Options::may_lose)
//   die      a rank takes no further step (Options::may_die)
//   give up  an actor finds that what it waits for is lost (Options::still)
//   appear   the oldest change of a rank's own words that own() did not show becomes visible (Options::late)
//
// Completion needs no event of its own. It makes no difference before the actor's next advance(), so each step
// chooses the set of operations that have become done by then. A step that reads no own word is invisible to all
// other actors, since issuing is not an effect. If the actor has no other event, such a step is taken at once and
// replaces all alternatives.
//
// States are told apart by a 64-bit hash of all that determines the future: the words, the operations, the bytes of
// the protocol objects (Running) and the state of the Program. With the 10^7 states of a large run the probability of
// a collision is below 10^-5.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/epochs/explored_memory.hpp"
#include "tests/unit/epochs/seen_states.hpp"

namespace farside::explore {

struct Options {
  // Changes of own words become visible to own() some time after they took effect, in their order.
  bool late = false;
  // Takes local steps (above) at once. If false, the search does not rely on the argument for this reduction.
  bool reduce = true;
  // Searches for a shorter trace after a failure.
  bool shorten = true;
  // A write that overlaps with an atomic on the same word is a failure (remote_memory.hpp).
  bool adapters = true;
  Sabotage sabotage = {};
  // Bits: one of these ranks may be lost, at any time. From then on operations on it fail instead of taking effect.
  std::uint64_t may_lose = 0;
  // Bits: these ranks may die, at any time; `dead_are_lost`: operations on them fail from then on.
  std::uint64_t may_die = 0;
  bool dead_are_lost = false;
  // An actor gives up only when nothing else can happen: long after all that others do.
  bool still = false;
  std::uint64_t max_states = 60'000'000;
};

struct Report {
  std::uint64_t states = 0;
  std::uint64_t events = 0;
  std::uint64_t ends = 0;  // states in which all programs are over
  int deepest = 0;
  double seconds = 0;
  std::string failure;             // empty if there is none
  std::vector<std::string> trace;  // of the failure, as short as possible
  bool complete = true;            // false if max_states was reached

  std::string text() const {
    std::string text = failure.empty() ? "no failure" : failure;
    for (const std::string& line : trace) text += "\n  " + line;
    return text;
  }
};

// A Program is copyable and has
//
//   Shared                           state common to the programs of all actors, trivially copyable without padding
//   bool over() const                whether nothing remains to be done
//   bool begins() const              whether the next step begins a protocol object
//   void step(Memory&, Shared&)      begins the next protocol object if none runs, else calls its advance() once
//   void effect(const Request&, Memory&, Shared&)   one of its operations has just taken effect
//   std::uint64_t hash(std::uint64_t seed) const
//   static bool own_word(std::uint32_t word)        whether own() is ever called for the word
//   static bool at_once(std::uint32_t word)         optional: whether operations on the word take effect in the step
//                                                   that issues them (CPU atomics); they are done in a later one
//   static void check_end(const MemoryState&, const Shared&, std::string& failure)
//   void die(const Memory&, Shared&), bool may_give_up(const MemoryState&, const Shared&) const, void give_up(Memory&,
//   Shared&)                         optional: the rank has died, and the program is over; an actor gives up
template <class Program>
class Explorer {
 public:
  using Shared = typename Program::Shared;

  // `programs`: one per actor. Actor i is a thread of rank i, or of ranks[i].
  Explorer(const std::vector<Program>& programs, Options options, std::vector<int> ranks = {})
      : options_(std::move(options)), actors_(static_cast<int>(programs.size())) {
    for (int a = 0; a < actors_; ++a) {
      const int rank = ranks.empty() ? a : ranks[static_cast<std::size_t>(a)];
      state_.memory_state.actors[static_cast<std::size_t>(a)].rank = static_cast<std::int8_t>(rank);
      state_.memory_state.actors[static_cast<std::size_t>(a)].stirred = true;
      memories_.push_back(std::make_unique<Memory>(state_.memory_state, a, rank, options_.sabotage, failure_));
      program(a) = programs[static_cast<std::size_t>(a)];
    }
  }
  MemoryState& memory_state() { return state_.memory_state; }
  Shared& shared() { return state_.shared; }

  Report run() {
    const auto begin = std::chrono::steady_clock::now();
    const State first = state_;
    search(kNoBound);
    report_.states = seen_.size();
    if (failure_.empty() && report_.complete) find_endless();
    const std::string failure = failure_;
    const bool endless = endless_ != 0;
    std::vector<Event> trace = trace_;
    if (endless) {
      restart(first);
      search(kNoBound);
      trace = trace_;
    }
    // The search goes deep first, so there may be shorter traces.
    while (options_.shorten && !failure.empty() && !endless && !trace.empty()) {
      restart(first);
      search(static_cast<int>(trace.size()) - 1);
      if (failure_.empty() || !report_.complete) break;
      report_.failure = failure_;
      trace = trace_;
    }
    if (!failure.empty()) {
      if (report_.failure.empty()) report_.failure = failure;
      restart(first);
      for (const Event& event : trace) {
        report_.trace.push_back(describe(event));
        apply(event);
      }
      for (int a = 0; a < actors_; ++a) report_.trace.push_back(program(a).describe(a));
    }
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report_;
  }

 private:
  static constexpr int kNoBound = 1'000'000;

  struct State {
    MemoryState memory_state;
    Shared shared{};
    std::array<Program, kActors> programs;

    void copy(const State& from, int actors) {
      memory_state.copy(from.memory_state, actors);
      shared = from.shared;
      std::copy_n(from.programs.begin(), actors, programs.begin());
    }
  };
  struct Event {
    enum class What : std::uint8_t { kEffect, kArrive, kStep, kGiveUp, kAppear, kLose, kDie } what;
    std::int8_t who;      // actor; kAppear, kLose, kDie: rank
    std::uint16_t which;  // kEffect: the slot; kArrive: the notification; kStep: the set of slots that become done
  };
  static constexpr std::size_t kMaxEvents = 64;
  struct Events {
    std::array<Event, kMaxEvents> list;
    std::size_t count = 0;
    void add(typename Event::What what, int who, unsigned which) {
      list.at(count++) = Event{what, static_cast<std::int8_t>(who), static_cast<std::uint16_t>(which)};
    }
  };

  Program& program(int actor) { return state_.programs[static_cast<std::size_t>(actor)]; }
  Memory& memory(int actor) { return *memories_[static_cast<std::size_t>(actor)]; }
  MemoryState::Actor& actor(int index) { return state_.memory_state.actors[static_cast<std::size_t>(index)]; }

  void restart(const State& first) {
    state_ = first;
    failure_.clear();
    trace_.clear();
    edges_.clear();
    seen_.clear();
    report_.complete = true;
  }

  std::uint64_t hash_now() const {
    std::uint64_t hash = hash_bytes(state_.memory_state.hash(), &state_.shared, sizeof(Shared));
    for (int a = 0; a < actors_; ++a) hash = state_.programs[static_cast<std::size_t>(a)].hash(hash);
    return hash == 0 ? 1 : hash;
  }

  // A state on the present path, with the events that remain to be tried.
  struct Frame {
    State saved;
    Events events;
    std::array<std::uint64_t, kMaxEvents> children;
    std::uint64_t hash;
    std::size_t next;
    bool ends;
  };

  void search(int bound) {
    bound_ = bound;
    std::size_t depth = 0;
    if (!enter(depth)) return;
    while (true) {
      Frame& frame = *frames_[depth];
      if (frame.next == frame.events.count) {
        if (frame.ends) {
          seen_.find(frame.hash).ends = true;
        } else {
          for (std::size_t i = 0; i < frame.events.count; ++i) edges_.emplace_back(frame.hash, frame.children[i]);
        }
        if (depth == 0) return;
        --depth;
        returned(*frames_[depth]);
        continue;
      }
      const Event event = frame.events.list[frame.next];
      trace_.push_back(event);
      apply(event);
      ++report_.events;
      if (!failure_.empty()) return;
      if (enter(depth + 1)) {
        ++depth;
        continue;
      }
      if (!failure_.empty()) return;
      returned(frame);
    }
  }
  // All states behind frame.next have been tried.
  void returned(Frame& frame) {
    frame.children[frame.next] = child_;
    frame.ends = frame.ends || seen_.find(child_).ends;
    ++frame.next;
    trace_.pop_back();
    state_.copy(frame.saved, actors_);
    child_ = frame.hash;
  }

  // Enters the present state, `depth` events from the first. Returns true if there are events to be tried from it.
  bool enter(std::size_t depth) {
    const std::uint64_t hash = child_ = hash_now();
    if (hash == endless_) {
      failure_ = "found";
      return false;
    }
    auto [entry, is_new] = seen_.insert(hash);
    if (!is_new && (bound_ == kNoBound || entry->depth <= depth)) return false;
    entry->depth = static_cast<std::uint32_t>(depth);
    if (seen_.size() >= options_.max_states) {
      report_.complete = false;
      return false;
    }
    report_.deepest = std::max(report_.deepest, static_cast<int>(depth));
    if (depth == frames_.size()) frames_.push_back(std::make_unique<Frame>());
    Frame& frame = *frames_[depth];
    frame.events.count = 0;
    list_events(frame.events);
    if (frame.events.count == 0) {
      finished(*entry);
      return false;
    }
    if (depth >= static_cast<std::size_t>(bound_)) return false;
    frame.saved.copy(state_, actors_);
    if (options_.reduce) take_local_step(frame);
    frame.hash = hash;
    frame.next = 0;
    frame.ends = false;
    return true;
  }
  void finished(SeenStates::Entry& entry) {
    for (int a = 0; a < actors_; ++a) {
      if (!program(a).over()) {
        failure_ = "deadlock: nothing can happen any more, and not all are done";
        return;
      }
    }
    Program::check_end(state_.memory_state, state_.shared, failure_);
    if (bound_ == kNoBound) ++report_.ends;
    entry.ends = true;
  }

  void list_events(Events& events) {
    for (int a = 0; a < actors_; ++a) {
      MemoryState::Actor& each = actor(a);
      unsigned effected = 0;
      for (std::size_t s = 0; s < each.used; ++s) {
        const MemoryState::Phase phase = each.slots[s].phase;
        if (each.slots[s].request.behind > 0) continue;
        if (phase == MemoryState::Phase::kIssued || phase == MemoryState::Phase::kHalf) {
          events.add(Event::What::kEffect, a, static_cast<unsigned>(s));
        } else if (phase == MemoryState::Phase::kEffected) {
          effected |= 1U << s;
        }
      }
      for (std::size_t i = 0; i < each.flying; ++i) {
        if (each.may_arrive(i)) events.add(Event::What::kArrive, a, static_cast<unsigned>(i));
      }
      if (program(a).over()) continue;
      if (each.stirred || program(a).begins()) events.add(Event::What::kStep, a, 0);
      for (unsigned set = effected; set != 0; set = (set - 1) & effected) events.add(Event::What::kStep, a, set);
      if (!options_.still) list_giving_up(events, a);
    }
    const bool still = events.count == 0 && options_.still;
    for (int a = 0; a < actors_ && still; ++a) list_giving_up(events, a);
    const bool all_over = events.count == 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (state_.memory_state.has_late(rank)) events.add(Event::What::kAppear, rank, 0);
      const bool may_be_lost = (options_.may_lose >> rank & 1) != 0 && state_.memory_state.lost == 0 && !all_over;
      if (may_be_lost) events.add(Event::What::kLose, rank, 0);
      if (may_die(rank) && !all_over) events.add(Event::What::kDie, rank, 0);
    }
  }
  void list_giving_up(Events& events, int who) {
    if constexpr (requires(Program p) { p.may_give_up(state_.memory_state, state_.shared); }) {
      // It has the answers to what it has issued.
      const MemoryState::Actor& each = actor(who);
      const bool waits = std::none_of(each.slots.begin(), each.slots.begin() + each.used, [](const auto& slot) {
        return slot.phase == MemoryState::Phase::kIssued || slot.phase == MemoryState::Phase::kHalf;
      });
      if (waits && !program(who).over() && program(who).may_give_up(state_.memory_state, state_.shared))
        events.add(Event::What::kGiveUp, who, 0);
    }
  }

  // If the only event of an actor is a step that no other actor can notice, keeps that event alone.
  void take_local_step(Frame& frame) {
    const Events& events = frame.events;
    const auto is_of_actor = [&](std::size_t i, int who) {
      return i < events.count && events.list[i].what <= Event::What::kGiveUp && events.list[i].who == who;
    };
    for (std::size_t i = 0; i < events.count; ++i) {
      const Event event = events.list[i];
      if (event.what != Event::What::kStep || is_of_actor(i - 1, event.who) || is_of_actor(i + 1, event.who)) continue;
      // Its death before the step is not that after it.
      if (may_die(actor(event.who).rank)) continue;
      apply(event);
      const bool local = !actor(event.who).looked && failure_.empty();
      failure_.clear();
      state_.copy(frame.saved, actors_);
      if (local) {
        frame.events.list[0] = event;
        frame.events.count = 1;
        return;
      }
    }
  }

  void apply(const Event& event) {
    switch (event.what) {
      case Event::What::kEffect: take_effect(event.who, actor(event.who).slots[event.which]); break;
      case Event::What::kArrive: arrive(event.who, event.which); break;
      case Event::What::kStep: step(event.who, event.which); break;
      case Event::What::kAppear: state_.memory_state.appear(event.who); break;
      case Event::What::kLose: state_.memory_state.lost = 1U << event.who; break;
      case Event::What::kGiveUp:
        if constexpr (requires(Program p) { p.give_up(memory(0), state_.shared); })
          program(event.who).give_up(memory(event.who), state_.shared);
        break;
      case Event::What::kDie: die(event.who); break;
    }
  }
  bool may_die(int rank) const { return (options_.may_die >> rank & 1) != 0 && !state_.memory_state.is_dead(rank); }
  void die(int rank) {
    if constexpr (requires(Program p) { p.die(memory(0), state_.shared); }) {
      for (int a = 0; a < actors_; ++a) {
        if (actor(a).rank == rank) program(a).die(memory(a), state_.shared);
      }
    }
    state_.memory_state.die(rank);
    if (options_.dead_are_lost) state_.memory_state.lost |= 1U << rank;
  }

  void take_effect(int who, MemoryState::Slot& slot) {
    const Request request = slot.request;
    if (state_.memory_state.is_lost(request.rank)) {
      slot.phase = MemoryState::Phase::kFailed;
      actor(who).stirred = true;
      if (state_.memory_state.is_dead(actor(who).rank)) slot = {};
      return;
    }
    if (options_.adapters && state_.memory_state.meets(request)) memory(who).broken(Memory::kMeets);
    const std::uint64_t before = state_.memory_state.at(request.rank, request.word);
    std::uint64_t after = before;
    if (slot.count > 0) {
      read_words(slot);
    } else if (slot.phase == MemoryState::Phase::kHalf) {
      after = changed(request, slot.value);
      slot.phase = MemoryState::Phase::kEffected;
    } else {
      slot.value = before;
      slot.phase = request.torn ? MemoryState::Phase::kHalf : MemoryState::Phase::kEffected;
      if (!request.torn && !request.dropped) after = changed(request, before);
    }
    store(request, before, after);
    if (slot.phase == MemoryState::Phase::kEffected) {
      slot.request = {};
      if (state_.memory_state.is_dead(actor(who).rank)) slot = {};
      program(who).effect(request, memory(who), state_.shared);
    }
  }
  // Reads all words, or half of them.
  void read_words(MemoryState::Slot& slot) {
    const Request& request = slot.request;
    const bool second = slot.phase == MemoryState::Phase::kHalf;
    const std::size_t half = request.torn ? slot.count / 2 : slot.count;
    for (std::size_t i = second ? half : 0; i < (second ? slot.count : half); ++i)
      slot.words[i] = state_.memory_state.at(request.rank, request.word + 8U * static_cast<std::uint32_t>(i));
    slot.phase = request.torn && !second ? MemoryState::Phase::kHalf : MemoryState::Phase::kEffected;
  }
  // What arrives at a lost rank is lost.
  void arrive(int who, std::size_t flight) {
    Request& flying = actor(who).flights[flight];
    if (flying.torn && !state_.memory_state.is_lost(flying.rank)) {
      flying.operand = changed(flying, state_.memory_state.at(flying.rank, flying.word));
      flying.kind = Kind::kStore;
      flying.torn = false;
      return;
    }
    const Request request = actor(who).land(flight);
    if (state_.memory_state.is_lost(request.rank)) return;
    if (options_.adapters && state_.memory_state.meets(request)) memory(who).broken(Memory::kMeets);
    const std::uint64_t before = state_.memory_state.at(request.rank, request.word);
    store(request, before, request.dropped ? before : changed(request, before));
    program(who).effect(request, memory(who), state_.shared);
  }
  // The request changes its word.
  void store(const Request& request, std::uint64_t before, std::uint64_t after) {
    if (after == before) return;
    state_.memory_state.store(request.rank, request.word, after);
    if (!Program::own_word(request.word)) return;
    if (options_.late) {
      state_.memory_state.push_late(request.rank, request.word, before);
    } else {
      state_.memory_state.stir(request.rank);
    }
  }
  static std::uint64_t changed(const Request& request, std::uint64_t before) {
    switch (request.kind) {
      case Kind::kFetchAdd: return before + request.operand;
      case Kind::kCompareAndSwap: return before == request.compare ? request.operand : before;
      case Kind::kWrite:
      case Kind::kStore: return request.operand;
      case Kind::kLocked: return before + request.operand + ((before & request.compare) == 0 ? request.release : 0);
      default: return before;
    }
  }

  void step(int who, unsigned set) {
    MemoryState::Actor& each = actor(who);
    for (std::size_t s = 0; s < each.used; ++s) {
      if ((set >> s & 1) != 0) {
        MemoryState::Slot& slot = each.slots[s];
        slot.phase = MemoryState::Phase::kDone;
        slot.request = {};
        std::copy_n(slot.words.begin(), slot.count, slot.into);
        slot.into = nullptr;
        slot.count = 0;
        slot.words = {};
      }
    }
    each.looked = false;
    each.stirred = false;
    program(who).step(memory(who), state_.shared);
    if constexpr (requires { Program::at_once(std::uint32_t{}); }) take_effects_at_once(who);
  }
  void take_effects_at_once(int who) {
    MemoryState::Actor& each = actor(who);
    for (std::size_t s = 0; s < each.used; ++s) {
      if (each.slots[s].phase != MemoryState::Phase::kIssued || !Program::at_once(each.slots[s].request.word)) continue;
      take_effect(who, each.slots[s]);
      each.looked = true;
    }
    for (std::size_t i = 0; i < each.flying;) {
      if (Program::at_once(each.flights[i].word)) {
        arrive(who, i);
        each.looked = true;
      } else {
        ++i;
      }
    }
  }

  // Finds states from which events are always possible but the end cannot be reached.
  void find_endless() {
    for (bool more = true; more;) {
      more = false;
      for (auto edge = edges_.rbegin(); edge != edges_.rend(); ++edge) {
        auto& from = seen_.find(edge->first);
        if (!from.ends && seen_.find(edge->second).ends) {
          from.ends = true;
          more = true;
        }
      }
    }
    std::uint32_t nearest = UINT32_MAX;
    seen_.each([&](const SeenStates::Entry& entry) {
      if (entry.ends || entry.depth >= nearest) return;
      nearest = entry.depth;
      endless_ = entry.hash;
    });
    if (endless_ != 0) failure_ = "endless: the last state of this trace can go on for ever, but never to the end";
  }

  static std::string hex(std::uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof(text), "%#llx", static_cast<unsigned long long>(value));
    return text;
  }
  std::string describe(const Event& event) {
    const std::string who = "actor " + std::to_string(event.who);
    if (event.what == Event::What::kLose) return "rank " + std::to_string(event.who) + " is lost";
    if (event.what == Event::What::kDie) return "rank " + std::to_string(event.who) + " dies";
    if (event.what == Event::What::kGiveUp) return who + " gives up" + program(event.who).describe_position();
    if (event.what == Event::What::kAppear)
      return "rank " + std::to_string(event.who) + " sees a change of its own words";
    if (event.what == Event::What::kStep) {
      std::string text = who + " steps";
      for (std::size_t s = 0; s < kSlots; ++s) {
        if ((event.which >> s & 1) != 0) {
          text += ", operation " + std::to_string(s) + " done with " + hex(actor(event.who).slots[s].value);
        }
      }
      return text + program(event.who).describe_position();
    }
    static constexpr const char* kNames[] = {
        "fetch_add",      "compare_and_swap",          "read", "write", "pause", "", "",
        "locked message", "second half of an addition"};
    const auto of = [&](const Request& request) {
      return std::string(kNames[static_cast<int>(request.kind)]) + " of word " + std::to_string(request.word) +
             " at rank " + std::to_string(request.rank);
    };
    if (event.what == Event::What::kArrive)
      return who + ": a notification arrives, " + of(actor(event.who).flights[event.which]);
    const MemoryState::Slot& slot = actor(event.who).slots[event.which];
    const Request& request = slot.request;
    if (state_.memory_state.is_lost(request.rank))
      return who + ": an operation on rank " + std::to_string(request.rank) + " fails";
    const std::uint64_t before = state_.memory_state.at(request.rank, request.word);
    std::string text = who + " effect: " + of(request) + ", " + hex(before);
    if (slot.phase == MemoryState::Phase::kHalf) return text + " overwritten by the second half";
    if (request.torn) return text + " read by the first half";
    if (request.dropped) return text + ", dropped";
    return text + " -> " + hex(changed(request, before));
  }

  Options options_;
  int actors_;
  State state_{};
  std::vector<std::unique_ptr<Memory>> memories_;
  std::string failure_;
  SeenStates seen_;
  std::vector<Event> trace_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> edges_;
  std::uint64_t endless_ = 0;
  int bound_ = kNoBound;
  std::uint64_t child_ = 0;  // hash of the state entered last
  std::vector<std::unique_ptr<Frame>> frames_;
  Report report_;
};

}  // namespace farside::explore

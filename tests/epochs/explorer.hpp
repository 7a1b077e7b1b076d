// SPDX-License-Identifier: BSD-3-Clause
// An explorer of interleavings: RemoteMemory over plain words, and a depth-first search over everything that may
// happen in whatever order. The protocols of epochs/ run on it unchanged.
//
//   agent    what makes progress by itself: a rank (or one of two threads of a rank) that runs a Program
//   Program  its script: which protocol objects it runs one after another, and what must be true meanwhile
//   effect   an operation changes, or reads, its word at the target; any time after it was issued, in any order
//   step     some of the agent's operations that took effect become done, or its own words have changed, and it
//            calls advance() once
//   appear   the oldest change of a rank's own words that its own() did not show becomes visible (Options::late)
//
// Completion needs no event of its own: until the agent's next advance() it makes no difference, so each step
// chooses the set of operations that have become done by then. A step that looks at no own word is invisible to
// all others (issuing is not an effect), so if nothing else of that agent is under way it is taken at once and
// nothing else is tried instead.
//
// States are told apart by a 64-bit hash of all that determines the future: the words, the operations, the
// bytes of the protocol objects (Running) and what the Program says. With the 10^7 states of a large run the
// chance that two of them ever collide is below 10^-5.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "epochs/control_block.hpp"
#include "transport/remote_memory.hpp"

namespace farside::explore {

inline constexpr int kRanks = 4;
inline constexpr int kAgents = 6;
inline constexpr int kSlots = 4;  // operations of one protocol object
// Behind the control block of so few ranks: words for the data that protocols protect.
inline constexpr std::uint32_t kData = epochs::ControlBlock::kPosted + 8;
inline constexpr std::uint32_t kWords = kData / 8 + 4;

inline std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  std::uint64_t hash = (seed ^ value) * 0x9E3779B97F4A7C15ULL;
  hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93ULL;
  return hash ^ (hash >> 29);
}
// Of objects that are nothing but bytes; the same bytes mean the same object.
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

enum class Kind : std::uint8_t { kFetchAdd, kCompareAndSwap, kRead, kWrite, kPause, kOwnRead, kOwnAdd };

// What an agent asks of the memory. A sabotage may change it on the way.
struct Request {
  std::uint64_t operand = 0;  // of kOwnRead: the value found
  std::uint64_t compare = 0;
  std::uint32_t word = 0;
  std::int8_t rank = 0;  // the target
  std::int8_t agent = 0;
  Kind kind = Kind::kRead;
  bool dropped = false;  // it has no effect
  bool torn = false;     // it reads and writes in two effects instead of one
  std::uint8_t unused[7] = {};
};
static_assert(std::has_unique_object_representations_v<Request>);

// The words of all ranks, and all operations under way.
class World {
 public:
  enum class Phase : std::uint64_t { kFree, kIssued, kHalf, kEffected, kDone };
  struct Slot {
    Request request;
    std::uint64_t value = 0;
    Phase phase = Phase::kFree;
  };
  struct Change {
    std::uint32_t word;
    std::uint32_t unused = 0;
    std::uint64_t before;
  };
  struct Agent {
    std::array<Slot, kSlots> slots{};
    std::int8_t rank = 0;
    bool looked = false;   // its last advance() looked at own words
    bool stirred = false;  // they have changed since, or it has not begun
    std::uint8_t used = 0;
    std::uint8_t unused[4] = {};
  };

  std::uint64_t at(int rank, std::uint32_t word) const { return words_[index(rank, word)]; }
  void store(int rank, std::uint32_t word, std::uint64_t value) {
    std::uint64_t& place = words_[index(rank, word)];
    hash_ ^= mix(index(rank, word) + 1, place) ^ mix(index(rank, word) + 1, value);
    place = value;
  }
  // What the owner sees.
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
  void appear(int rank) {
    auto& late = late_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 1; i < late.count; ++i) late.changes[i - 1] = late.changes[i];
    late.changes[--late.count] = Change{0, 0, 0};
  }
  std::uint64_t hash() const {
    std::uint64_t hash = hash_bytes(hash_, late_.data(), sizeof(late_));
    for (const Agent& agent : agents) {
      hash = hash_bytes(hash, agent.slots.data(), agent.used * sizeof(Slot));
      hash = mix(hash, static_cast<std::uint64_t>(agent.looked) + 2U * agent.stirred + 4U * agent.used);
    }
    return hash;
  }

  std::array<Agent, kAgents> agents{};

 private:
  struct Late {
    std::array<Change, 6> changes{};
    std::uint64_t count = 0;
  };
  static std::size_t index(int rank, std::uint32_t word) {
    return static_cast<std::size_t>(rank) * kWords + word / 8;
  }
  std::array<std::uint64_t, std::size_t{kRanks} * kWords> words_{};
  std::array<Late, kRanks> late_{};
  std::uint64_t hash_ = 0;
};
static_assert(std::is_trivially_copyable_v<World>);

struct Options {
  // Changes of own words become visible to own() some time after they took effect, in their order.
  bool late = false;
  // Takes local steps (above) at once; without it the search does not rely on the argument that it may.
  bool reduce = true;
  // Called with each request before it is carried out; to break a protocol on purpose.
  std::function<void(Request&)> sabotage;
  std::uint64_t max_states = 60'000'000;
};

// The RemoteMemory of one agent.
class Memory {
 public:
  // Bytes that can be copied: it names its slot in the world, which keeps what it is about.
  class Operation {
   public:
    bool done() const { return memory_ == nullptr || slot().phase == World::Phase::kDone; }
    std::uint64_t value() const {
      if (memory_ == nullptr) return 0;
      if (!done()) memory_->broken("the value of an operation is asked before it is done");
      return slot().value;
    }

   private:
    friend class Memory;
    const World::Slot& slot() const { return memory_->agent().slots[slot_]; }
    Memory* memory_ = nullptr;
    std::uint64_t slot_ = 0;
  };

  Memory(World& world, int agent, int rank, const Options& options, std::string& failure)
      : world_(world), agent_(agent), rank_(rank), options_(options), failure_(failure) {}

  void fetch_add(Operation& operation, int rank, std::uint32_t word, std::uint64_t value) {
    issue(operation, Kind::kFetchAdd, rank, word, value, 0);
  }
  void compare_and_swap(Operation& operation, int rank, std::uint32_t word, std::uint64_t expected,
                        std::uint64_t desired) {
    issue(operation, Kind::kCompareAndSwap, rank, word, desired, expected);
  }
  void read(Operation& operation, int rank, std::uint32_t word) { issue(operation, Kind::kRead, rank, word, 0, 0); }
  void write(Operation& operation, int rank, std::uint32_t word, std::uint64_t value) {
    issue(operation, Kind::kWrite, rank, word, value, 0);
  }
  void pause(Operation& operation, std::uint64_t) { issue(operation, Kind::kPause, rank_, 0, 0, 0); }
  std::uint64_t own(std::uint32_t word) const {
    world_.agents[static_cast<std::size_t>(agent_)].looked = true;
    const std::uint64_t value = world_.own(rank_, word);
    return options_.sabotage ? sabotaged(Kind::kOwnRead, word, value).operand : value;
  }
  std::uint64_t own_fetch_add(std::uint32_t word, std::uint64_t value) {
    agent().looked = true;
    // An atomic on a word sees all that took effect on it, and what came before that.
    while (world_.has_late(rank_)) world_.appear(rank_);
    const std::uint64_t before = world_.at(rank_, word);
    Request request{.operand = value};
    if (options_.sabotage) request = sabotaged(Kind::kOwnAdd, word, value);
    if (!request.dropped) world_.store(rank_, word, before + request.operand);
    return before;
  }

  int rank() const { return rank_; }
  int index() const { return agent_; }
  // A protocol object is over: none of its operations may still be under way, as they die with it.
  void retire_operations() {
    for (std::size_t i = 0; i < agent().used; ++i) {
      if (agent().slots[i].phase != World::Phase::kDone) broken("a protocol is over while an operation is not done");
      agent().slots[i] = {};
    }
    agent().used = 0;
  }
  void broken(std::string what) const {
    if (failure_.empty()) failure_ = std::move(what);
  }
  World& world() { return world_; }

 private:
  World::Agent& agent() const { return world_.agents[static_cast<std::size_t>(agent_)]; }
  Request sabotaged(Kind kind, std::uint32_t word, std::uint64_t operand) const {
    Request request{.operand = operand, .word = word, .rank = static_cast<std::int8_t>(rank_),
                    .agent = static_cast<std::int8_t>(agent_), .kind = kind};
    options_.sabotage(request);
    return request;
  }
  void issue(Operation& operation, Kind kind, int rank, std::uint32_t word, std::uint64_t operand,
             std::uint64_t compare) {
    if (operation.memory_ == nullptr) {
      if (agent().used == kSlots) return broken("more operations in one protocol than the explorer has room for");
      operation.slot_ = agent().used++;
      operation.memory_ = this;
    } else if (!operation.done()) {
      return broken("an operation is used again before it is done");
    }
    World::Slot& slot = agent().slots[operation.slot_];
    slot.value = 0;
    slot.request = {.operand = operand, .compare = compare, .word = word, .rank = static_cast<std::int8_t>(rank),
                    .agent = static_cast<std::int8_t>(agent_), .kind = kind};
    if (options_.sabotage) options_.sabotage(slot.request);
    slot.phase = kind == Kind::kPause ? World::Phase::kEffected : World::Phase::kIssued;
  }

  World& world_;
  int agent_;
  int rank_;
  const Options& options_;
  std::string& failure_;
};
static_assert(RemoteMemory<Memory>);

// The protocol object that a Program runs at present, as bytes: built on zeroes, so that equal bytes are equal
// objects, and copied with the Program.
template <class... Protocols>
class Running {
  // Not is_trivially_copyable: an optional of something with a reference cannot be assigned, but it is copied as bytes.
  static_assert(((std::is_trivially_copy_constructible_v<Protocols> && std::is_trivially_destructible_v<Protocols>)&&...),
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
  void end() { size_ = 0; }
  explicit operator bool() const { return size_ != 0; }
  std::uint64_t hash(std::uint64_t seed) const { return hash_bytes(seed, storage_.data(), size_); }

 private:
  alignas(std::max_align_t) std::array<std::byte, std::max({sizeof(Protocols)...})> storage_{};
  std::size_t size_ = 0;
};

struct Report {
  std::uint64_t states = 0;
  std::uint64_t events = 0;
  std::uint64_t ends = 0;  // states in which all is done
  int deepest = 0;
  double seconds = 0;
  std::string failure;             // empty: none
  std::vector<std::string> trace;  // how it came to that, as short as possible
  bool complete = true;            // false: max_states was not enough

  std::string text() const {
    std::string text = failure.empty() ? "no failure" : failure;
    for (const std::string& line : trace) text += "\n  " + line;
    return text;
  }
};

// Program: copyable, with
//   Shared                           what all agents' programs know together, trivially copyable without padding
//   bool over() const                nothing left to do
//   bool begins() const              its next step begins a protocol object
//   void step(Memory&, Shared&)      begins the next protocol object if none runs, else calls its advance() once
//   void effect(const Request&, Memory&, Shared&)   one of its operations has just taken effect
//   std::uint64_t hash(std::uint64_t seed) const
//   static bool own_word(std::uint32_t word)        whether own() is ever asked for the word
//   static void check_end(const World&, const Shared&, std::string& failure)
template <class Program>
class Explorer {
 public:
  using Shared = typename Program::Shared;

  // One program per agent; agent i is rank i, or ranks[i].
  Explorer(const std::vector<Program>& programs, Options options, std::vector<int> ranks = {})
      : options_(std::move(options)), agents_(static_cast<int>(programs.size())) {
    for (int a = 0; a < agents_; ++a) {
      const int rank = ranks.empty() ? a : ranks[static_cast<std::size_t>(a)];
      state_.world.agents[static_cast<std::size_t>(a)].rank = static_cast<std::int8_t>(rank);
      state_.world.agents[static_cast<std::size_t>(a)].stirred = true;
      memories_.push_back(std::make_unique<Memory>(state_.world, a, rank, options_, failure_));
      program(a) = programs[static_cast<std::size_t>(a)];
    }
  }
  World& world() { return state_.world; }
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
    // The search goes deep first: look for shorter ways to fail.
    while (!failure.empty() && !endless && !trace.empty()) {
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
      for (int a = 0; a < agents_; ++a) report_.trace.push_back(program(a).describe(a));
    }
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report_;
  }

 private:
  static constexpr int kNoBound = 1'000'000;

  struct State {
    World world;
    Shared shared{};
    std::array<Program, kAgents> programs;
  };
  struct Event {
    enum class What : std::uint8_t { kEffect, kStep, kAppear } what;
    std::int8_t who;      // agent; of kAppear the rank
    std::uint8_t which;   // kEffect: the slot; kStep: the set of slots that become done
  };
  static constexpr std::size_t kMaxEvents = 64;
  struct Events {
    std::array<Event, kMaxEvents> list;
    std::size_t count = 0;
    void add(typename Event::What what, int who, unsigned which) {
      list.at(count++) = Event{what, static_cast<std::int8_t>(who), static_cast<std::uint8_t>(which)};
    }
  };

  // States by hash: the depth of the last visit, and whether all can be done from there.
  class Seen {
   public:
    struct Entry {
      std::uint64_t hash = 0;
      std::uint32_t depth = 0;
      bool ends = false;
    };
    // The entry, and whether it is new.
    std::pair<Entry*, bool> insert(std::uint64_t hash) {
      if (2 * (count_ + 1) > entries_.size()) grow();
      Entry& entry = find(hash);
      if (entry.hash == hash) return {&entry, false};
      entry.hash = hash;
      ++count_;
      return {&entry, true};
    }
    Entry& find(std::uint64_t hash) {
      std::size_t at = hash & (entries_.size() - 1);
      while (entries_[at].hash != 0 && entries_[at].hash != hash) at = (at + 1) & (entries_.size() - 1);
      return entries_[at];
    }
    std::uint64_t size() const { return count_; }
    template <class F>
    void each(F&& visit) {
      for (Entry& entry : entries_) {
        if (entry.hash != 0) visit(entry);
      }
    }
    void clear() {
      entries_.assign(1024, Entry{});
      count_ = 0;
    }

   private:
    void grow() {
      std::vector<Entry> old(entries_.size() * 2);
      old.swap(entries_);
      for (const Entry& entry : old) {
        if (entry.hash != 0) find(entry.hash) = entry;
      }
    }
    std::vector<Entry> entries_ = std::vector<Entry>(1024);
    std::uint64_t count_ = 0;
  };

  Program& program(int agent) { return state_.programs[static_cast<std::size_t>(agent)]; }
  Memory& memory(int agent) { return *memories_[static_cast<std::size_t>(agent)]; }
  World::Agent& agent(int index) { return state_.world.agents[static_cast<std::size_t>(index)]; }

  void restart(const State& first) {
    state_ = first;
    failure_.clear();
    trace_.clear();
    edges_.clear();
    seen_.clear();
    report_.complete = true;
  }

  std::uint64_t hash_now() const {
    std::uint64_t hash = hash_bytes(state_.world.hash(), &state_.shared, sizeof(Shared));
    for (int a = 0; a < agents_; ++a) hash = state_.programs[static_cast<std::size_t>(a)].hash(hash);
    return hash == 0 ? 1 : hash;
  }

  // A state on the way, with what is still to be tried there.
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
  // What was to be tried from the state after frame.next is done.
  void returned(Frame& frame) {
    frame.children[frame.next] = child_;
    frame.ends = frame.ends || seen_.find(child_).ends;
    ++frame.next;
    trace_.pop_back();
    state_ = frame.saved;
    child_ = frame.hash;
  }

  // Looks at the present state, which `depth` events led to; true if something is to be tried from it.
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
    frame.saved = state_;
    if (options_.reduce) take_local_step(frame);
    frame.hash = hash;
    frame.next = 0;
    frame.ends = false;
    return true;
  }
  void finished(typename Seen::Entry& entry) {
    for (int a = 0; a < agents_; ++a) {
      if (!program(a).over()) {
        failure_ = "deadlock: nothing can happen any more, and not all are done";
        return;
      }
    }
    Program::check_end(state_.world, state_.shared, failure_);
    if (bound_ == kNoBound) ++report_.ends;
    entry.ends = true;
  }

  void list_events(Events& events) {
    for (int a = 0; a < agents_; ++a) {
      World::Agent& each = agent(a);
      unsigned effected = 0;
      for (std::size_t s = 0; s < each.used; ++s) {
        const World::Phase phase = each.slots[s].phase;
        if (phase == World::Phase::kIssued || phase == World::Phase::kHalf) {
          events.add(Event::What::kEffect, a, static_cast<unsigned>(s));
        } else if (phase == World::Phase::kEffected) {
          effected |= 1U << s;
        }
      }
      if (program(a).over()) continue;
      if (each.stirred || program(a).begins()) events.add(Event::What::kStep, a, 0);
      for (unsigned set = effected; set != 0; set = (set - 1) & effected) events.add(Event::What::kStep, a, set);
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      if (state_.world.has_late(rank)) events.add(Event::What::kAppear, rank, 0);
    }
  }

  // If an agent has nothing to do but a step that nobody else can notice, leaves that alone to be tried.
  void take_local_step(Frame& frame) {
    const Events& events = frame.events;
    const auto is_of_agent = [&](std::size_t i, int who) {
      return i < events.count && events.list[i].what != Event::What::kAppear && events.list[i].who == who;
    };
    for (std::size_t i = 0; i < events.count; ++i) {
      const Event event = events.list[i];
      if (event.what != Event::What::kStep || is_of_agent(i - 1, event.who) || is_of_agent(i + 1, event.who)) continue;
      apply(event);
      const bool local = !agent(event.who).looked && failure_.empty();
      failure_.clear();
      state_ = frame.saved;
      if (local) {
        frame.events.list[0] = event;
        frame.events.count = 1;
        return;
      }
    }
  }

  void apply(const Event& event) {
    switch (event.what) {
      case Event::What::kEffect: take_effect(event.who, agent(event.who).slots[event.which]); break;
      case Event::What::kStep: step(event.who, event.which); break;
      case Event::What::kAppear:
        state_.world.appear(event.who);
        stir(event.who);
        break;
    }
  }

  void stir(int rank) {
    for (int a = 0; a < agents_; ++a) {
      if (agent(a).rank == rank && agent(a).looked) agent(a).stirred = true;
    }
  }

  void take_effect(int who, World::Slot& slot) {
    const Request request = slot.request;
    const std::uint64_t before = state_.world.at(request.rank, request.word);
    std::uint64_t after = before;
    if (slot.phase == World::Phase::kHalf) {
      after = changed(request, slot.value);
      slot.phase = World::Phase::kEffected;
    } else {
      slot.value = before;
      slot.phase = request.torn ? World::Phase::kHalf : World::Phase::kEffected;
      if (!request.torn && !request.dropped) after = changed(request, before);
    }
    if (after != before) {
      state_.world.store(request.rank, request.word, after);
      if (Program::own_word(request.word)) {
        if (options_.late) {
          state_.world.push_late(request.rank, request.word, before);
        } else {
          stir(request.rank);
        }
      }
    }
    if (slot.phase == World::Phase::kEffected) {
      slot.request = {};
      program(who).effect(request, memory(who), state_.shared);
    }
  }
  static std::uint64_t changed(const Request& request, std::uint64_t before) {
    switch (request.kind) {
      case Kind::kFetchAdd: return before + request.operand;
      case Kind::kCompareAndSwap: return before == request.compare ? request.operand : before;
      case Kind::kWrite: return request.operand;
      default: return before;
    }
  }

  void step(int who, unsigned set) {
    World::Agent& each = agent(who);
    for (std::size_t s = 0; s < each.used; ++s) {
      if ((set >> s & 1) != 0) {
        each.slots[s].phase = World::Phase::kDone;
        each.slots[s].request = {};
      }
    }
    each.looked = false;
    each.stirred = false;
    program(who).step(memory(who), state_.shared);
  }

  // States from which the end cannot be reached although something can always happen.
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
    seen_.each([&](const typename Seen::Entry& entry) {
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
    const std::string who = "agent " + std::to_string(event.who);
    if (event.what == Event::What::kAppear) return "rank " + std::to_string(event.who) + " sees a change of its own words";
    if (event.what == Event::What::kStep) {
      std::string text = who + " steps";
      for (std::size_t s = 0; s < kSlots; ++s) {
        if ((event.which >> s & 1) != 0) {
          text += ", operation " + std::to_string(s) + " done with " + hex(agent(event.who).slots[s].value);
        }
      }
      return text + program(event.who).describe_position();
    }
    const World::Slot& slot = agent(event.who).slots[event.which];
    const Request& request = slot.request;
    const std::uint64_t before = state_.world.at(request.rank, request.word);
    static constexpr const char* kNames[] = {"fetch_add", "compare_and_swap", "read", "write", "pause", "", ""};
    std::string text = who + " effect: " + kNames[static_cast<int>(request.kind)] + " of word " +
                       std::to_string(request.word) + " at rank " + std::to_string(request.rank) + ", " + hex(before);
    if (slot.phase == World::Phase::kHalf) return text + " overwritten by the second half";
    if (request.torn) return text + " read by the first half";
    if (request.dropped) return text + ", dropped";
    return text + " -> " + hex(changed(request, before));
  }

  Options options_;
  int agents_;
  State state_{};
  std::vector<std::unique_ptr<Memory>> memories_;
  std::string failure_;
  Seen seen_;
  std::vector<Event> trace_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> edges_;
  std::uint64_t endless_ = 0;
  int bound_ = kNoBound;
  std::uint64_t child_ = 0;  // hash of the state entered last
  std::vector<std::unique_ptr<Frame>> frames_;
  Report report_;
};

}  // namespace farside::explore

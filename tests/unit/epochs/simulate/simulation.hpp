// SPDX-License-Identifier: BSD-3-Clause
// Ranks that lock, hold the lock for a while and unlock, over the simulated network; and the figures of such a run.
//
//     Settings settings;
//     settings.ranks = 1024;
//     const Figures figures = simulate<FarsideLock>(settings);
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tests/unit/epochs/simulate/network.hpp"
#include "tests/unit/epochs/simulate/protocols.hpp"

namespace farside::simulate {

enum class Arrival : std::uint8_t {
  kOnce,    // all at time 0, and again as soon as they have unlocked
  kSteady,  // each rank pauses for a random time before each lock
};

struct Settings {
  NetworkSettings network;
  int ranks = 1024;
  int targets = 1;        // lock words; each lock picks one of them at random
  int readers = 50;       // per cent of the locks that are shared; with lock_all: per cent that are lock_alls
  bool lock_all = false;  // the rest are exclusive locks of any rank
  int rounds = 1;         // locks per rank
  Arrival arrival = Arrival::kOnce;
  Time section = 1000;  // nanoseconds for which the lock is held
  double load = 0.9;    // kSteady: demand, as a share of what the lock could serve without loss
  std::uint64_t seed = 1;
  // 0: no limit. Polling costs the square of the number of ranks and would take too long.
  std::uint64_t most_operations = 0;
  bool operator==(const Settings&) const = default;
};
inline constexpr int kMostParts = 2;

struct Figures {
  struct Spread {
    double mean = 0;
    double p99 = 0;
    double max = 0;
    bool operator==(const Spread&) const = default;
  };
  std::uint64_t acquisitions = 0;  // completed
  std::uint64_t asked = 0;         // more than acquisitions if the run was stopped, or is stuck
  bool stuck = false;              // no event is left, but some ranks wait
  std::uint64_t locks = 0;         // counts words: with lock_all, an exclusive lock takes two of farside's
  std::uint64_t contended = 0;     // locks that were not held after the least number of operations
  Spread operations;               // remote operations per acquisition, lock and unlock together
  double contended_mean = 0;  // operations per contended lock, plus those of other locks beyond the uncontended number
  std::uint64_t contended_at_global_lock = 0;
  double contended_mean_at_global_lock = 0;  // likewise, of the global lock alone
  Spread round_trips;                        // per acquisition: operations waited for one after another
  Spread probes;                             // per acquisition: reads of the lock word
  Spread waiting;  // microseconds from the request to holding the lock; to the end of the run if it was never held
  std::uint64_t overtaken = 0;       // maximum over waiters: overtaken by later incompatible ones
  std::uint64_t most_overtaken = 0;  // the bound on it (epochs/lock.md); of farside's lock
  double slowest_to_fastest = 0;     // rank, by its time in lock, section and unlock over all rounds
  std::uint64_t hot_spot = 0;        // operations at the busiest rank
  std::uint64_t bytes_per_rank = 0;
  std::uint64_t bytes_of_queue = 0;  // maximum at the busiest target
  double seconds = 0;                // simulated time
  std::uint64_t violations = 0;      // of mutual exclusion
  bool operator==(const Figures&) const = default;
};

// The order of arrivals and of service at one lock.
class Order {
 public:
  std::uint32_t arrive() { return ++arrived_; }
  // The number of locks of the type that arrived after `number` and have been served.
  std::uint64_t overtakers(std::uint32_t number, LockType type) const {
    const Numbers& served = served_[static_cast<std::size_t>(type)];
    return served.size() - served.order_of_key(number + 1);
  }
  void serve(std::uint32_t number, LockType type) { served_[static_cast<std::size_t>(type)].insert(number); }

 private:
  // A set that counts how many of its numbers are less than one (of libstdc++, whatever the compiler).
  using Numbers = __gnu_pbds::tree<std::uint32_t, __gnu_pbds::null_type, std::less<std::uint32_t>,
                                   __gnu_pbds::rb_tree_tag, __gnu_pbds::tree_order_statistics_node_update>;
  std::array<Numbers, 2> served_;  // by type
  std::uint32_t arrived_ = 0;
};

template <class Protocol>
class Simulation final : public Actor {
 public:
  explicit Simulation(const Settings& settings)
      : settings_(settings),
        network_(settings.network, settings.seed, settings.ranks, *this),
        ranks_(static_cast<std::size_t>(settings.ranks)),
        locks_(static_cast<std::size_t>(settings.lock_all ? settings.ranks : settings.targets) + 1) {
    total_ = static_cast<std::uint64_t>(settings.ranks) * static_cast<std::uint64_t>(settings.rounds);
    for (int r = 0; r < settings.ranks; ++r) {
      rank(r).memory = Memory(network_, r);
      think(r);
    }
  }

  Figures run() {
    bool more = true;
    while (more && finished_ < settings_.ranks &&
           (settings_.most_operations == 0 || network_.operations() < settings_.most_operations)) {
      more = network_.step();
    }
    figures_.stuck = !more;
    return sum_up();
  }

  void advance(int handler) override {
    Rank& at = rank(handler);
    switch (at.state) {
      case State::kThinking:
        if (network_.now() < at.until) return;
        begin_acquire(handler, at);
        [[fallthrough]];
      case State::kAcquiring:
        if (!(at.parts == kMostParts ? at.acquire_both->advance() : at.acquire->advance())) return;
        acquired(at);
        waiting_.add(static_cast<double>(network_.now() - at.began) / 1000);
        pause(handler, State::kInside, settings_.section);
        return;
      case State::kInside:
        if (network_.now() < at.until) return;
        begin_release(at);
        [[fallthrough]];
      case State::kReleasing: {
        bool done = true;
        for (auto& release : first(at.releases, at.parts)) done = release->advance() && done;
        if (!done) return;
        released(at);
        end_section(handler, at);
        return;
      }
      case State::kFinished: return;
    }
  }
  void issued(const Operation& operation) override {
    if constexpr (requires { Protocol::in_node(operation); }) {
      if (Protocol::in_node(operation)) return;
    }
    Rank& at = rank(operation.handler);
    const bool message = operation.kind == Operation::Kind::kMessage;
    part_of(at, operation).operations += message ? 2 : 1;  // includes the reply
    if (operation.kind == Operation::Kind::kRead && operation.values.empty()) ++at.probes;
    // An operation that is issued later than the last one waited for it.
    if (at.last_issue != network_.now() || at.round_trips == 0) ++at.round_trips;
    at.last_issue = network_.now();
  }
  void took_effect(const Operation& operation) override {
    Rank& at = rank(operation.handler);
    Part& part = part_of(at, operation);
    if (at.state != State::kAcquiring) return;
    Lock& of = lock(part.target);
    // Also the places of ranks that have come to their node's queue before.
    if constexpr (requires { Protocol::places_in_front(operation); })
      most_in_front_ = std::max(most_in_front_, Protocol::places_in_front(operation));
    if (part.number == 0) {
      if (!Protocol::comes(operation)) return;
      part.number = of.order.arrive();
      of.most_waiting = std::max(of.most_waiting, ++of.waiting);
    } else if (at.parts == kMostParts && Protocol::releases(operation)) {
      part.number = 0;
      --of.waiting;
    }
  }
  void handle(Operation& message) override { protocol_.handle(network_, message); }

 private:
  enum class State : std::uint8_t { kThinking, kAcquiring, kInside, kReleasing, kFinished };
  // A lock of one word: of a target, or of all targets (kAll).
  struct Part {
    int target = 0;
    std::uint32_t number = 0;  // in order of arrival at the target; 0 before the arrival
    LockToken token{};
    std::uint32_t operations = 0;
    bool contended = false;
  };
  struct Rank {
    Memory memory;
    std::optional<typename Protocol::Acquire> acquire;
    // Acquires the global lock (taken[0]) and a target's lock (taken[1]).
    std::optional<typename Protocol::AcquireBoth> acquire_both;
    std::array<Part, kMostParts> taken{};
    std::array<std::optional<typename Protocol::Release>, kMostParts> releases;
    Time until = 0;
    Time began = 0;
    Time in_sections = 0;
    Time last_issue = 0;
    std::uint32_t round_trips = 0;  // of this acquisition
    std::uint32_t probes = 0;
    int round = 0;
    int parts = 0;
    LockType type = LockType::kShared;
    State state = State::kThinking;
  };
  template <class T>
  static std::span<T> first(std::array<T, kMostParts>& of, int parts) {
    return std::span(of).first(static_cast<std::size_t>(parts));
  }
  static std::span<Part> parts_of(Rank& at) { return first(at.taken, at.parts); }
  // The lock to which the operation belongs.
  static Part& part_of(Rank& at, const Operation& operation) {
    return at.taken[at.parts == kMostParts && !Protocol::at_global_lock(operation) ? 1 : 0];
  }
  struct Lock {
    Order order;
    std::array<int, 2> inside{};  // by type
    std::uint64_t waiting = 0;
    std::uint64_t most_waiting = 0;
  };
  struct Sum {
    double total = 0;
    double max = 0;
    std::vector<float> all;
    void add(double value) {
      total += value;
      max = std::max(max, value);
      all.push_back(static_cast<float>(value));
    }
    Figures::Spread spread() {
      if (all.empty()) return {};
      const auto at = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) * 99 / 100);
      std::nth_element(all.begin(), at, all.end());
      return {total / static_cast<double>(all.size()), static_cast<double>(*at), max};
    }
  };

  Rank& rank(int index) { return ranks_[static_cast<std::size_t>(index)]; }
  Lock& lock(int target) {
    if (target == kAll) return locks_.back();
    return locks_[static_cast<std::size_t>(settings_.lock_all ? target : target * settings_.targets / settings_.ranks)];
  }
  // Whether two locks exclude each other.
  static bool in_conflict(int target, LockType one, LockType other) {
    return one != other || (target != kAll && one == LockType::kExclusive);
  }
  std::uint64_t overtakers(const Part& part, LockType type) {
    std::uint64_t count = 0;
    for (const LockType other : {LockType::kShared, LockType::kExclusive}) {
      if (in_conflict(part.target, type, other)) count += lock(part.target).order.overtakers(part.number, other);
    }
    return count;
  }

  void pause(int handler, State state, Time duration) {
    rank(handler).state = state;
    rank(handler).until = network_.now() + duration;
    network_.wake(handler, duration);
  }
  // The pause before a lock is exponential, so that arrivals are independent of one another.
  void think(int handler) {
    double time = 0;
    if (settings_.arrival == Arrival::kSteady) {
      const double mean = settings_.ranks * cost() / (settings_.load * (settings_.lock_all ? 1 : settings_.targets));
      time = -mean * std::log1p(-network_.random().fraction());
    }
    pause(handler, State::kThinking, static_cast<Time>(time));
  }
  // The least time for which an acquisition occupies a word.
  double cost() const {
    const double readers = settings_.readers / 100.0;
    const double writers = 1 - readers;
    const auto turn = static_cast<double>(settings_.network.hand_off + settings_.section);
    // None waits: the NIC is the limit.
    if (writers == 0 || (settings_.lock_all && readers == 0))
      return 4.0 * static_cast<double>(settings_.network.service);
    // Of lock_alls and exclusive locks in random order, groups alternate; within a group the members are let in one
    // by one.
    if (settings_.lock_all) return 2 * readers * writers * turn + 2 * static_cast<double>(settings_.network.latency);
    // There is one group of readers between two writers.
    return writers * turn * (readers > 0 ? 2 : 1);
  }

  void begin_acquire(int handler, Rank& at) {
    const bool shared = static_cast<int>(network_.random().below(100)) < settings_.readers;
    at.type = shared ? LockType::kShared : LockType::kExclusive;
    at.parts = 0;
    const auto take = [&](int target) { at.taken[static_cast<std::size_t>(at.parts++)] = Part{.target = target}; };
    if (settings_.lock_all && (shared || Protocol::kGlobalLock)) take(kAll);
    if (!settings_.lock_all || !shared) take(some_target());
    at.round_trips = 0;
    at.probes = 0;
    at.began = network_.now();
    at.state = State::kAcquiring;
    if (at.parts == kMostParts) {
      at.acquire_both.emplace(at.memory, handler, at.taken[1].target);
    } else {
      at.acquire.emplace(at.memory, handler, at.taken[0].target, at.type);
    }
  }
  int some_target() {
    Random& random = network_.random();
    if (settings_.lock_all) return static_cast<int>(random.below(static_cast<std::uint64_t>(settings_.ranks)));
    // In the middle of its share of the ranks, and not rank 0, which has the global word of the polling lock.
    const auto index = random.below(static_cast<std::uint64_t>(settings_.targets));
    return static_cast<int>((2 * index + 1) * static_cast<std::uint64_t>(settings_.ranks) /
                            (2 * static_cast<std::uint64_t>(settings_.targets)));
  }
  void acquired(Rank& at) {
    if (at.parts == kMostParts) {
      at.taken[0].token = at.acquire_both->global_lock_token();
      at.taken[1].token = at.acquire_both->token();
    } else {
      at.taken[0].token = at.acquire->token();
    }
    for (Part& part : parts_of(at)) enter(at, part);
  }
  void enter(Rank& at, Part& part) {
    if constexpr (requires { at.acquire->waited(); }) {
      part.contended = at.acquire->waited();
    } else {
      part.contended = part.operations > Protocol::uncontended(at.type, network_) / 2;
    }
    Lock& of = lock(part.target);
    figures_.overtaken = std::max(figures_.overtaken, overtakers(part, at.type));
    of.order.serve(part.number, at.type);
    --of.waiting;
    for (const LockType other : {LockType::kShared, LockType::kExclusive}) {
      if (of.inside[static_cast<std::size_t>(other)] > 0 && in_conflict(part.target, at.type, other))
        ++figures_.violations;
    }
    ++of.inside[static_cast<std::size_t>(at.type)];
  }
  void begin_release(Rank& at) {
    at.state = State::kReleasing;
    for (std::size_t i = static_cast<std::size_t>(at.parts); i-- > 0;) {
      const Part& part = at.taken[i];
      --lock(part.target).inside[static_cast<std::size_t>(at.type)];
      at.releases[i].emplace(at.memory, part.target, at.type, part.token);
    }
  }
  void released(Rank& at) {
    ++figures_.acquisitions;
    std::uint32_t operations = 0;
    for (const Part& part : parts_of(at)) {
      operations += part.operations;
      ++figures_.locks;
      // What an uncontended lock costs beyond its own calls is a hand-off, and belongs to the locks that received it.
      const std::uint32_t own =
          part.contended ? 0 : std::min(part.operations, Protocol::uncontended(at.type, network_));
      const std::uint32_t of_contended = part.operations - own;
      figures_.contended += part.contended ? 1 : 0;
      contended_operations_ += of_contended;
      if (settings_.lock_all && part.target == kAll) {
        figures_.contended_at_global_lock += part.contended ? 1 : 0;
        global_lock_operations_ += of_contended;
      }
    }
    operations_.add(operations);
    round_trips_.add(at.round_trips);
    probes_.add(at.probes);
  }
  void end_section(int handler, Rank& at) {
    at.in_sections += network_.now() - at.began;
    ++sections_;
    if (++at.round == settings_.rounds) {
      at.state = State::kFinished;
      ++finished_;
    } else {
      think(handler);
    }
  }

  Figures sum_up() {
    Time fastest = ~Time{0};
    Time slowest = 0;
    std::uint64_t most_waiting = 0;
    for (Rank& at : ranks_) {
      if (at.state == State::kAcquiring) {
        waiting_.add(static_cast<double>(network_.now() - at.began) / 1000);
        for (const Part& part : parts_of(at)) {
          if (part.number != 0) figures_.overtaken = std::max(figures_.overtaken, overtakers(part, at.type));
        }
      }
      fastest = std::min(fastest, at.in_sections);
      slowest = std::max(slowest, at.in_sections);
    }
    for (const Lock& each : locks_) most_waiting = std::max(most_waiting, each.most_waiting);
    if constexpr (requires { Protocol::most_overtaken(network_, most_in_front_); })
      figures_.most_overtaken = settings_.lock_all ? 0 : Protocol::most_overtaken(network_, most_in_front_);
    figures_.asked = figures_.acquisitions + (total_ - sections_);
    figures_.operations = operations_.spread();
    figures_.contended_mean =
        contended_operations_ / static_cast<double>(std::max<std::uint64_t>(figures_.contended, 1));
    figures_.contended_mean_at_global_lock =
        global_lock_operations_ / static_cast<double>(std::max<std::uint64_t>(figures_.contended_at_global_lock, 1));
    figures_.round_trips = round_trips_.spread();
    figures_.probes = probes_.spread();
    figures_.waiting = waiting_.spread();
    if (finished_ == settings_.ranks && settings_.rounds > 1) {
      figures_.slowest_to_fastest = static_cast<double>(slowest) / static_cast<double>(fastest);
    }
    figures_.hot_spot = network_.busiest();
    figures_.bytes_per_rank = Protocol::bytes_per_rank(network_);
    figures_.bytes_of_queue = Protocol::kBytesPerWaiter * most_waiting;
    figures_.seconds = static_cast<double>(network_.now()) / 1e9;
    return figures_;
  }

  Settings settings_;
  Network network_;
  Protocol protocol_;
  std::vector<Rank> ranks_;
  std::vector<Lock> locks_;
  std::uint64_t total_ = 0;
  std::uint64_t sections_ = 0;
  std::uint64_t most_in_front_ = 0;  // places in the queue of a target, when one was taken
  int finished_ = 0;
  Figures figures_;
  double contended_operations_ = 0;
  double global_lock_operations_ = 0;
  Sum operations_, round_trips_, probes_, waiting_;
};

template <class Protocol>
Figures simulate(const Settings& settings) {
  Simulation<Protocol> simulation(settings);
  return simulation.run();
}

}  // namespace farside::simulate

// SPDX-License-Identifier: BSD-3-Clause
// A simulated network: RemoteMemory in simulated time. Nothing runs in parallel and no clock is read, so a run
// depends on its settings and seed only.
//
//   operation  travels to the target (latency), waits for the target's NIC, occupies it (service), takes effect,
//              travels back (latency), is done
//   message    likewise, but waits for the CPU of the target, and is done only when the target replies
//   handler    a rank; advanced when something that it can observe has changed
//   node       so many ranks in a row (NetworkSettings::ranks_per_node). What travels between them takes the latency of
//              the node; it passes the target's NIC all the same, as it is atomic with operations of other nodes
//
//     Network network(settings, seed, ranks, actor);
//     Memory memory(network, rank);
//     memory.fetch_add(operation, target, word, 1);
//     while (network.step()) {}
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "epochs/protocols/control_block.hpp"
#include "transport/base/remote_memory.hpp"

namespace farside::simulate {

using Time = std::uint64_t;  // nanoseconds

struct NetworkSettings {
  Time latency = 1000;      // one way
  double jitter = 0.2;      // latency is longer by up to this share
  Time service = 50;        // of the target's NIC, per operation
  Time hand_off = 2500;     // unit of RemoteMemory::pause: a round trip and a quarter
  Time message_cpu = 300;   // of the target's CPU, per message
  double busy = 0.5;        // share of the time in which a target computes and handles no message
  Time busy_for = 100'000;  // length of one such interval
  int ranks_per_node = 1;   // 1: no two ranks share a node, and a rank's own NIC is as far as others
  Time node_latency = 100;  // one way, between ranks of one node
  int near_hand_offs = 7;   // farside's near lock: in a row; none without nodes
  bool operator==(const NetworkSettings&) const = default;
};

// splitmix64: the same on every platform, unlike the distributions of <random>.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double fraction() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

struct Operation {
  enum class Kind : std::uint8_t {
    kFetchAdd,
    kCompareAndSwap,
    kRead,
    kWrite,
    kPause,
    kMessage,
    kSwap,  // of models only: libfabric has it (FI_ATOMIC_WRITE of fi_fetch_atomic), verbs have not
    kAwait  // of models only: loads of a word of the node, until it is at least `operand` and less than `compare`
  };

  bool done() const { return is_done; }
  std::uint64_t value() const { return result; }

  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  std::uint64_t result = 0;
  std::span<std::uint64_t> values;  // kRead: of several words
  std::uint32_t word = 0;
  int target = 0;
  int handler = 0;
  Kind kind = Kind::kRead;
  bool is_done = true;
  bool posted = false;  // no handler awaits it
};

// The program that runs on the network.
class Actor {
 public:
  // Something that `handler` may be waiting for has changed.
  virtual void advance(int handler) = 0;
  virtual void issued(const Operation& operation) = 0;
  virtual void took_effect(const Operation& operation) = 0;
  // The target's CPU handles the message. The actor calls Network::reply() then or later.
  virtual void handle(Operation& message) = 0;

 protected:
  ~Actor() = default;
};

class Network {
 public:
  Network(const NetworkSettings& settings, std::uint64_t seed, int ranks, Actor& actor)
      : settings_(settings),
        random_(seed),
        actor_(actor),
        ranks_(static_cast<std::size_t>(ranks)),
        words_(ranks_.size() * kWords) {}

  Time now() const { return now_; }
  int ranks() const { return static_cast<int>(ranks_.size()); }
  // The first rank of the rank's node.
  int leader(int rank) const { return rank - rank % settings_.ranks_per_node; }
  bool on_one_node(int one, int other) const { return leader(one) == leader(other); }
  const NetworkSettings& settings() const { return settings_; }
  Random& random() { return random_; }
  // All operations that took effect; those at the busiest rank.
  std::uint64_t operations() const { return operations_; }
  std::uint64_t busiest() const { return std::ranges::max(ranks_, {}, &Rank::operations).operations; }

  void issue(Operation& operation) {
    operation.is_done = false;
    if (operation.kind != Operation::Kind::kPause) actor_.issued(operation);
    schedule(now_ + travel(operation), What::kArrive, &operation, operation.handler);
  }
  // An operation that no handler awaits.
  Operation& posted() {
    if (free_.empty()) {
      operations_posted_.emplace_back().posted = true;
      return operations_posted_.back();
    }
    Operation& operation = *free_.back();
    free_.pop_back();
    return operation;
  }
  void pause(Operation& operation, Time duration) {
    operation.is_done = false;
    operation.kind = Operation::Kind::kPause;
    schedule(now_ + duration, What::kDone, &operation, operation.handler);
  }
  // Spins on a word of the node (kAwait).
  void await(Operation& operation) {
    operation.is_done = false;
    operation.kind = Operation::Kind::kAwait;
    if (!end_load(operation)) awaiting_[key(operation.target, operation.word)].push_back(&operation);
  }
  // Advances the handler after `duration`.
  void wake(int handler, Time duration) { schedule(now_ + duration, What::kAdvance, nullptr, handler); }
  void reply(Operation& message) { schedule(now_ + travel(message), What::kReplied, &message, message.handler); }

  // Models of other locks have words behind the control block, too.
  std::uint64_t& word(int rank, std::uint32_t offset) {
    if (offset >= ControlBlock::kPosted) return beyond_[key(rank, offset)];
    return words_[static_cast<std::size_t>(rank) * kWords + offset / 8];
  }

  // Executes the next event; false if there is none.
  bool step() {
    if (events_.empty()) return false;
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    switch (event.what) {
      case What::kArrive:
        schedule(served(event.operation->target), What::kEffect, event.operation, event.handler);
        break;
      case What::kEffect: effect(*event.operation); break;
      case What::kHandle: actor_.handle(*event.operation); break;
      case What::kReplied: schedule(served(event.handler), What::kDone, event.operation, event.handler); break;
      case What::kDone: event.operation->is_done = true; [[fallthrough]];
      case What::kAdvance: actor_.advance(event.handler); break;
    }
    return true;
  }

 private:
  using ControlBlock = epochs::ControlBlock;
  static constexpr std::uint32_t kWords = ControlBlock::kPosted / 8;
  enum class What : std::uint8_t { kArrive, kEffect, kHandle, kReplied, kDone, kAdvance };
  struct Event {
    Time time;
    std::uint64_t number;  // orders events of the same time
    Operation* operation;
    int handler;
    What what;
    bool operator>(const Event& other) const { return std::pair(time, number) > std::pair(other.time, other.number); }
  };
  struct Rank {
    Time nic_free = 0;
    Time cpu_free = 0;
    std::uint64_t operations = 0;
  };

  // To the operation's target, or back.
  Time travel(const Operation& operation) {
    const bool in_node = settings_.ranks_per_node > 1 && on_one_node(operation.handler, operation.target);
    const Time latency = in_node ? settings_.node_latency : settings_.latency;
    return latency + static_cast<Time>(static_cast<double>(latency) * settings_.jitter * random_.fraction());
  }
  void schedule(Time time, What what, Operation* operation, int handler) {
    events_.push({time, ++scheduled_, operation, handler, what});
  }
  // The time when the rank's NIC has served an operation that arrives now.
  Time served(int rank) {
    Rank& at = ranks_[static_cast<std::size_t>(rank)];
    ++at.operations;
    ++operations_;
    return at.nic_free = std::max(at.nic_free, now_) + settings_.service;
  }
  Time handled(int rank) {
    Rank& at = ranks_[static_cast<std::size_t>(rank)];
    Time begin = std::max(at.cpu_free, now_);
    if (settings_.busy > 0) {
      const auto cycle = static_cast<Time>(static_cast<double>(settings_.busy_for) / settings_.busy);
      if (begin % cycle < settings_.busy_for) begin += settings_.busy_for - begin % cycle;
    }
    return at.cpu_free = begin + settings_.message_cpu;
  }

  void effect(Operation& operation) {
    if (operation.kind == Operation::Kind::kMessage) {
      actor_.took_effect(operation);
      schedule(handled(operation.target), What::kHandle, &operation, operation.handler);
      return;
    }
    std::uint64_t& place = word(operation.target, operation.word);
    operation.result = place;
    switch (operation.kind) {
      case Operation::Kind::kFetchAdd: place += operation.operand; break;
      case Operation::Kind::kCompareAndSwap:
        if (place == operation.compare) place = operation.operand;
        break;
      case Operation::Kind::kSwap:
      case Operation::Kind::kWrite: place = operation.operand; break;
      case Operation::Kind::kRead: {
        std::uint32_t offset = operation.word;
        for (std::uint64_t& value : operation.values) {
          value = word(operation.target, offset);
          offset += 8;
        }
        break;
      }
      default: break;
    }
    const bool changed = place != operation.result;
    if (!operation.posted) schedule(now_ + travel(operation), What::kDone, &operation, operation.handler);
    if (changed && !awaiting_.empty()) end_loads(operation.target, operation.word);
    actor_.took_effect(operation);
    if (operation.posted) free_.push_back(&operation);
    if (changed && is_wake_word(operation.word)) actor_.advance(operation.target);
  }
  // The node sees a change of a word.
  void end_loads(int rank, std::uint32_t word) {
    const auto found = awaiting_.find(key(rank, word));
    if (found == awaiting_.end()) return;
    std::erase_if(found->second, [this](Operation* each) { return end_load(*each); });
    if (found->second.empty()) awaiting_.erase(found);
  }
  bool end_load(Operation& operation) {
    operation.result = word(operation.target, operation.word);
    if (operation.result < operation.operand || operation.result >= operation.compare) return false;
    schedule(now_ + settings_.node_latency, What::kDone, &operation, operation.handler);
    return true;
  }
  static std::uint64_t key(int rank, std::uint32_t word) { return static_cast<std::uint64_t>(rank) << 32 | word; }
  static bool is_wake_word(std::uint32_t word) {
    return (word >= ControlBlock::kWake && word < ControlBlock::wake_word(ControlBlock::kWakeWords)) ||
           word == ControlBlock::kNearWake;
  }

  NetworkSettings settings_;
  Random random_;
  Actor& actor_;
  std::vector<Rank> ranks_;
  std::vector<std::uint64_t> words_;
  std::unordered_map<std::uint64_t, std::uint64_t> beyond_;              // by key()
  std::unordered_map<std::uint64_t, std::vector<Operation*>> awaiting_;  // by key()
  std::deque<Operation> operations_posted_;
  std::vector<Operation*> free_;                                           // of these
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;  // the next one on top
  Time now_ = 0;
  std::uint64_t scheduled_ = 0;
  std::uint64_t operations_ = 0;
};

// The remote memory of one handler.
class Memory {
 public:
  using Operation = simulate::Operation;
  using Near = Memory;

  Near& near() { return *this; }
  Memory() = default;
  Memory(Network& network, int self) : network_(&network), self_(self) {}

  void fetch_add(Operation& operation, int rank, std::uint32_t word, std::uint64_t value,
                 DataAccess = DataAccess::kGoesOn) {
    issue(operation, Operation::Kind::kFetchAdd, rank, word, value);
  }
  void compare_and_swap(Operation& operation, int rank, std::uint32_t word, std::uint64_t compare,
                        std::uint64_t value) {
    operation.compare = compare;
    issue(operation, Operation::Kind::kCompareAndSwap, rank, word, value);
  }
  void read(Operation& operation, int rank, std::uint32_t word, std::span<std::uint64_t> values = {}) {
    operation.values = values;
    issue(operation, Operation::Kind::kRead, rank, word, 0);
  }
  void add_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
    issue(network_->posted(), Operation::Kind::kFetchAdd, rank, word, value);
  }
  void write_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
    issue(network_->posted(), Operation::Kind::kWrite, rank, word, value);
  }
  void pause(Operation& operation, std::uint64_t hand_offs) {
    operation.handler = self_;
    network_->pause(operation, hand_offs * network_->settings().hand_off);
  }
  // Ignores the observation: the simulation is about ranks that have not waited at the lock before.
  void learn_hand_off_time(std::uint64_t, std::uint64_t) {}
  std::uint64_t own(std::uint32_t word) const { return network_->word(self_, word); }
  std::uint64_t own_fetch_add(std::uint32_t word, std::uint64_t value) {
    const std::uint64_t before = own(word);
    network_->word(self_, word) += value;
    return before;
  }

  // For the models of other locks.
  Network& network() const { return *network_; }
  int self() const { return self_; }
  void swap(Operation& operation, int rank, std::uint32_t word, std::uint64_t value) {
    issue(operation, Operation::Kind::kSwap, rank, word, value);
  }
  // A word of the same node, by CPU: a load, a store that nobody awaits, and loads until it is in [least, below).
  std::uint64_t load(int rank, std::uint32_t word) const { return network_->word(rank, word); }
  void store(int rank, std::uint32_t word, std::uint64_t value) { network_->word(rank, word) = value; }
  void await(Operation& operation, int rank, std::uint32_t word, std::uint64_t least, std::uint64_t below) {
    operation.target = rank;
    operation.word = word;
    operation.operand = least;
    operation.compare = below;
    operation.handler = self_;
    network_->await(operation);
  }
  void message(Operation& operation, int rank, std::uint64_t what) {
    issue(operation, Operation::Kind::kMessage, rank, 0, what);
  }
  void back_off(Operation& operation, std::uint64_t round_trips) {
    operation.handler = self_;
    const double share = 0.5 + network_->random().fraction();
    const auto round_trip = static_cast<double>(2 * network_->settings().latency);
    network_->pause(operation, static_cast<Time>(share * round_trip * static_cast<double>(round_trips)));
  }

 private:
  void issue(Operation& operation, Operation::Kind kind, int rank, std::uint32_t word, std::uint64_t operand) {
    operation.kind = kind;
    operation.target = rank;
    operation.word = word;
    operation.operand = operand;
    operation.handler = self_;
    network_->issue(operation);
  }

  Network* network_ = nullptr;
  int self_ = 0;
};
static_assert(RemoteMemory<Memory>);

}  // namespace farside::simulate

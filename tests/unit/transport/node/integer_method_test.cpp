// SPDX-License-Identifier: BSD-3-Clause
// The change of a space's ranks from CPU atomics on integers to the accumulate lock: the shared words, and all
// interleavings of a model of the protocol on processors with store buffers.
#include "transport/node/integer_method.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <unordered_set>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "transport/base/threads.hpp"

namespace farside::integer_method_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kLong = IntegerMethod::kLongRow;

struct TwoRanks {
  explicit TwoRanks(bool threaded = false) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].announce_in(words[rank]);
      ranks[rank].allow_lock({reinterpret_cast<std::byte*>(words.data()), sizeof words[0], words.size()}, threaded);
    }
  }
  // By all threads of rank 1.
  std::uint32_t announced() const {
    std::uint32_t sum = 0;
    for (const IntegerWords::OfThread& each : words[1].by_slot) sum += each.announced;
    return sum;
  }
  std::array<IntegerWords, 2> words;
  std::array<IntegerMethod, 2> ranks;
};

// Threads beyond kOwnSlots have common words.
constexpr int kManyThreads = kOwnSlots + 3;

}  // namespace

TEST_CASE("atomics on integers are announced while they last, and a long row finds none") {
  REQUIRE(supports_global_membarrier());
  for (const bool threaded : {false, true}) {
    TwoRanks of(threaded);
    CHECK(of.ranks[1].begin(kLong - 1) == IntegerPhase::kAtomics);
    CHECK(of.announced() == 1);
    of.ranks[1].end(IntegerPhase::kAtomics);
    CHECK(of.announced() == 0);
    CHECK(of.ranks[0].begin(kLong) == IntegerPhase::kLock);
    CHECK(of.ranks[1].begin(1) == IntegerPhase::kLock);
    CHECK(of.announced() == 0);
  }
}

TEST_CASE(
    "while another rank is in the midst of atomics, a long row takes atomics under the lock, and later plain loops") {
  for (const bool threaded : {false, true}) {
    TwoRanks of(threaded);
    const IntegerPhase first = of.ranks[1].begin(1);
    CHECK(of.ranks[0].begin(kLong) == IntegerPhase::kBoth);
    CHECK(of.ranks[0].begin(1) == IntegerPhase::kBoth);
    CHECK(of.ranks[0].begin(kLong) == IntegerPhase::kBoth);
    of.ranks[1].end(first);
    CHECK(of.ranks[1].begin(1) == IntegerPhase::kBoth);
    CHECK(of.announced() == 0);
    CHECK(of.ranks[0].begin(kLong) == IntegerPhase::kLock);
    CHECK(of.ranks[1].begin(1) == IntegerPhase::kLock);
  }
}

TEST_CASE("several threads of a rank are in the midst of atomics until the last is done") {
  TwoRanks of(true);
  std::barrier all(kManyThreads + 1);
  std::atomic<int> in_the_midst = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kManyThreads; ++i) {
    threads.emplace_back([&, i] {
      const IntegerPhase phase = of.ranks[1].begin(1);
      in_the_midst += phase == IntegerPhase::kAtomics ? 1 : 0;
      all.arrive_and_wait();
      // They end one after the other; the last one ends when the long row was tried.
      if (i == 0) all.arrive_and_wait();
      of.ranks[1].end(phase);
    });
  }
  all.arrive_and_wait();
  CHECK(in_the_midst == kManyThreads);
  for (std::size_t i = 1; i < threads.size(); ++i) {
    threads[i].join();
    all.arrive_and_drop();
  }
  CHECK(of.announced() == 1);
  CHECK(of.ranks[0].begin(kLong) == IntegerPhase::kBoth);
  all.arrive_and_wait();
  threads[0].join();
  CHECK(of.announced() == 0);
  CHECK(of.ranks[0].begin(kLong) == IntegerPhase::kLock);
}

// qemu-user does not support filters of system calls.
TEST_CASE("where the kernel refuses the barrier long rows stay with atomics under the lock", "[native]") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    std::array<sock_filter, 4> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_membarrier, 0, 1),
                                       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    ranks.check(
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
        "the kernel takes the filter");
    TwoRanks of;
    for (int times = 0; times < 2; ++times) {
      ranks.check(of.ranks[0].begin(kLong) == IntegerPhase::kBoth, "a long row");
      ranks.check(of.ranks[1].begin(1) == IntegerPhase::kBoth, "a single element");
    }
  }));
}

TEST_CASE("a space that has not started to announce stays with atomics") {
  IntegerMethod alone;
  CHECK(alone.begin(1 << 20) == IntegerPhase::kAtomics);
  alone.end(IntegerPhase::kAtomics);
}

// ---- the model ------------------------------------------------------------------------------------------------------
// Each rank executes some operations on one counter, by the steps of integer_method.hpp. Each access to shared memory
// is a step. A store waits in its rank's buffer and reaches memory at any later time. Stores to different places may
// change their order, but a release follows all earlier stores. A load sees the stores of its own rank. Atomics access
// memory at once and leave the buffer unchanged. So stores are ordered as weakly as on ARMv8. Loads need only acquire
// order.
namespace {

constexpr std::size_t kRanks = 3;

struct Broken {
  bool barrier = false;      // no rank executes a barrier
  bool own_barrier = false;  // only a rank that reads kAtomics executes a barrier
  bool look = false;         // no rank reads `announced`
  bool both = false;         // the phase changes from kAtomics to kLock at once
  bool unlock = false;       // a plain store releases the lock
};

// S: one element. L: a long row, which has one element in the model. K: one element, but its rank is killed before the
// atomic.
using Script = std::string_view;

class Model {
  enum Place : std::uint8_t { kCounter, kLockWord, kAnnounced, kBy = kAnnounced + kRanks, kPlaces = kBy + kRanks };
  enum At : std::uint8_t {
    kStart,
    kLookAtBy,
    kAtomic,
    kEnd,
    kTakeLock,
    kUnderLock,
    kStorePlain,
    kGiveLock,
    kTellBoth,
    kBarrier,
    kLookAtAll,
    kTellLock,
  };
  static constexpr std::size_t kBuffer = 8;
  struct Store {
    std::uint8_t place, value, release;
  };
  struct Rank {
    std::uint8_t operation, at, by, index, loaded, awaited, all_know, stores;
    std::array<Store, kBuffer> buffer;
  };
  struct State {
    std::array<std::uint8_t, kPlaces> memory;
    std::array<Rank, kRanks> ranks;
  };

 public:
  Model(std::array<Script, kRanks> scripts, Broken broken) : scripts_(scripts), broken_(broken) {
    for (const Script& script : scripts_)
      expected_ += static_cast<std::uint8_t>(std::ranges::count_if(script, [](char c) { return c != 'K'; }));
  }

  // Returns "" or the fault that was found.
  std::string explore() {
    State first;
    std::memset(&first, 0, sizeof first);
    std::vector<State> open{first};
    while (!open.empty() && fault_.empty()) {
      const State state = open.back();
      open.pop_back();
      const std::string key(reinterpret_cast<const char*>(&state), sizeof state);
      if (!seen_.insert(key).second) continue;
      const std::size_t before = open.size();
      for (std::size_t r = 0; r < kRanks; ++r) {
        State next = state;
        if (step(next, r)) open.push_back(next);
        for (std::size_t i = 0; i < state.ranks[r].stores; ++i) {
          next = state;
          if (drain(next, r, i)) open.push_back(next);
        }
        // The barrier of r reaches the other ranks one by one.
        for (std::size_t other = 0; other < kRanks && state.ranks[r].at == kBarrier; ++other) {
          if ((state.ranks[r].awaited >> other & 1) == 0) continue;
          next = state;
          while (drain(next, other, 0)) {
          }
          next.ranks[r].awaited = static_cast<std::uint8_t>(state.ranks[r].awaited & ~(1U << other));
          open.push_back(next);
        }
      }
      if (open.size() == before) check_end(state);
    }
    return fault_;
  }
  std::size_t states() const { return seen_.size(); }
  // Returns whether any rank executed a plain loop.
  bool plain() const { return plain_; }

 private:
  void check_end(const State& state) {
    for (std::size_t r = 0; r < kRanks; ++r) {
      if (state.ranks[r].operation != scripts_[r].size()) fault_ = "somebody waits for ever";
    }
    if (fault_.empty() && state.memory[kCounter] != expected_) fault_ = "an addition is lost";
  }

  static bool holds_back(const Rank& rank, std::uint8_t place) {
    return std::any_of(rank.buffer.begin(), rank.buffer.begin() + rank.stores,
                       [&](Store s) { return s.place == place; });
  }
  static void store(Rank& rank, std::size_t place, std::uint8_t value, bool release = false) {
    rank.buffer.at(rank.stores++) = {static_cast<std::uint8_t>(place), value,
                                     static_cast<std::uint8_t>(release ? 1 : 0)};
  }
  static std::uint8_t load(const State& state, std::size_t r, std::size_t place) {
    const Rank& rank = state.ranks[r];
    for (std::size_t i = rank.stores; i-- > 0;) {
      if (rank.buffer[i].place == place) return rank.buffer[i].value;
    }
    return state.memory[place];
  }
  // Moves the store at `index` of the buffer to memory, if the order permits it.
  static bool drain(State& state, std::size_t r, std::size_t index) {
    Rank& rank = state.ranks[r];
    if (index >= rank.stores) return false;
    const Store store = rank.buffer[index];
    const auto begin = rank.buffer.begin(), at = begin + static_cast<std::ptrdiff_t>(index);
    if (index > 0 && (store.release != 0 || std::any_of(begin, at, [&](Store s) { return s.place == store.place; })))
      return false;
    state.memory[store.place] = store.value;
    std::copy(at + 1, rank.buffer.end(), at);
    rank.buffer.back() = {};
    --rank.stores;
    return true;
  }

  static constexpr std::uint8_t kAtomics = 0, kBoth = 1, kPlain = 2;

  void next_operation(Rank& rank) {
    ++rank.operation;
    rank.at = kStart;
    rank.by = rank.index = rank.loaded = rank.awaited = 0;
  }
  static void take_lock(Rank& rank, std::uint8_t by) {
    rank.by = by;
    rank.at = kTakeLock;
    rank.index = 0;
  }

  // Executes the next step of a rank. Returns false if it has none or must wait.
  bool step(State& state, std::size_t r) {
    Rank& rank = state.ranks[r];
    if (rank.operation == scripts_[r].size() || rank.stores + kRanks > kBuffer) return false;
    const char operation = scripts_[r][rank.operation];
    const std::size_t own_by = kBy + r;
    switch (rank.at) {
      case kStart:
        if (operation != 'L') {
          store(rank, kAnnounced + r, 1);
          rank.at = kLookAtBy;
        } else if (load(state, r, own_by) == kPlain) {
          take_lock(rank, kPlain);
        } else {
          rank.at = rank.all_know != 0 ? kLookAtAll : kTellBoth;
        }
        return true;
      case kLookAtBy: {
        const std::uint8_t by = load(state, r, own_by);
        rank.at = kAtomic;
        if (by != kAtomics) {
          store(rank, kAnnounced + r, 0, true);
          take_lock(rank, by);
        }
        return true;
      }
      case kAtomic:
        if (operation == 'K') {
          next_operation(rank);
          return true;
        }
        if (holds_back(rank, kCounter)) return false;
        ++state.memory[kCounter];
        rank.at = kEnd;
        return true;
      case kEnd:
        store(rank, kAnnounced + r, 0, true);
        next_operation(rank);
        return true;
      case kTakeLock:
        if (state.memory[kLockWord] != 0 || holds_back(rank, kLockWord)) return false;
        state.memory[kLockWord] = 1;
        rank.at = kUnderLock;
        return true;
      case kUnderLock:
        if (rank.by == kBoth) {
          if (holds_back(rank, kCounter)) return false;
          if (operation != 'K') ++state.memory[kCounter];
          rank.at = kGiveLock;
        } else {
          plain_ = true;
          rank.loaded = load(state, r, kCounter);
          rank.at = kStorePlain;
        }
        return true;
      case kStorePlain:
        if (operation != 'K') store(rank, kCounter, static_cast<std::uint8_t>(rank.loaded + 1));
        rank.at = kGiveLock;
        return true;
      case kGiveLock:
        store(rank, kLockWord, 0, !broken_.unlock);
        next_operation(rank);
        return true;
      case kTellBoth: {
        const std::size_t place = kBy + rank.index;
        if (holds_back(rank, static_cast<std::uint8_t>(place))) return false;
        if (state.memory[place] == kAtomics) {
          state.memory[place] = broken_.both ? kPlain : kBoth;
          rank.awaited = (1U << kRanks) - 1;
        }
        if (++rank.index < kRanks) return true;
        if (!broken_.own_barrier) rank.awaited = (1U << kRanks) - 1;
        if (broken_.barrier) rank.awaited = 0;
        rank.index = 0;
        rank.at = kBarrier;
        return true;
      }
      case kBarrier:
        if (rank.awaited != 0) return false;
        rank.all_know = 1;
        rank.at = kLookAtAll;
        return true;
      case kLookAtAll:
        if (!broken_.look && load(state, r, kAnnounced + rank.index) != 0) {
          take_lock(rank, kBoth);
        } else if (++rank.index == kRanks) {
          rank.index = 0;
          rank.at = kTellLock;
        }
        return true;
      default:
        store(rank, kBy + rank.index, kPlain, true);
        if (++rank.index == kRanks) take_lock(rank, kPlain);
        return true;
    }
  }

  std::array<Script, kRanks> scripts_;
  Broken broken_;
  std::uint8_t expected_ = 0;
  std::unordered_set<std::string> seen_;
  std::string fault_;
  bool plain_ = false;
};

const std::array<Script, kRanks> kMixes[] = {
    {"SS", "S", "L"}, {"S", "LS", "L"},   {"SS", "LL", ""}, {"L", "L", "S"},
    {"SL", "LS", ""}, {"SLS", "SLS", ""}, {"K", "L", "S"},  {"K", "LL", "L"},
};

bool caught(Broken broken) {
  return std::ranges::any_of(kMixes, [&](const auto& mix) { return !Model(mix, broken).explore().empty(); });
}

}  // namespace

TEST_CASE(
    "in no order of events is an addition lost while ranks change from atomics to the lock, and no rank waits for "
    "ever") {
  std::size_t states = 0;
  bool plain = false;
  for (const auto& mix : kMixes) {
    Model model(mix, {});
    INFO(mix[0] << " | " << mix[1] << " | " << mix[2]);
    CHECK(model.explore() == "");
    states += model.states();
    plain = plain || model.plain();
  }
  CHECK(plain);
  CHECK(states > 100'000);
}

TEST_CASE("without its parts the change from atomics to the lock loses additions, and the model shows it") {
  CHECK(caught({.barrier = true}));
  CHECK(caught({.own_barrier = true}));
  CHECK(caught({.look = true}));
  CHECK(caught({.both = true}));
  CHECK(caught({.unlock = true}));
}

}  // namespace farside::integer_method_test

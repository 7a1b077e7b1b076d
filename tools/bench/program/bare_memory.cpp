// SPDX-License-Identifier: BSD-3-Clause
// The cost of the node's memory itself, to compare with MPI calls on the mapped route. Both ranks must be on one node.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <sched.h>

#include "tools/bench/program/measuring.hpp"
#include "transport/base/pause.hpp"

namespace farside::bench {
namespace {

constexpr int kLinePair = 128;                 // processors fetch cache lines in pairs
constexpr std::size_t kWords = 2 * kLinePair;  // before the data

// Zeroed memory that both ranks of the pair map. Construction and destruction are collective.
class SharedMemory {
 public:
  SharedMemory(const Pair& pair, std::size_t bytes) {
    MPI_Aint size = pair.origin ? static_cast<MPI_Aint>(bytes) : 0;
    int unit = 0;
    MPI_Win_allocate_shared(size, 1, MPI_INFO_NULL, pair.comm, &memory_, &window_);
    MPI_Win_shared_query(window_, 0, &size, &unit, &memory_);
    if (pair.origin) std::memset(memory_, 0, bytes);
    MPI_Barrier(pair.comm);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { MPI_Win_free(&window_); }
  void* get() const { return memory_; }
  // One of two words.
  std::atomic_ref<std::uint64_t> word(int n) const {
    return std::atomic_ref(static_cast<std::uint64_t*>(memory_)[n * kLinePair / 8]);
  }

 private:
  void* memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

// Returns the next value of the word, for which it polls.
std::uint64_t wait_for_more(std::atomic_ref<std::uint64_t> word, std::uint64_t seen) {
  constexpr int kSpins = 1000;
  for (int round = 0;; ++round) {
    const std::uint64_t now = word.load(std::memory_order_acquire);
    if (now != seen) return now;
    if (round < kSpins)
      relax();
    else
      sched_yield();
  }
}

// Each returns the origin's values. `bytes`: of the memory.
using Values = std::vector<double>;

// A fetch-add, a store and a fetch-add on the peer's memory, without contention. An uncontended lock-put-unlock that
// other ranks could contend for needs at least these.
Values measure_lock(const SharedMemory& shared, std::size_t, const Pair& pair, double seconds) {
  std::uint64_t done = 0;
  const auto lock = shared.word(0), data = shared.word(1);
  const auto operation = [&] {
    lock.fetch_add(1);
    data.store(++done, std::memory_order_relaxed);
    lock.fetch_sub(1);
  };
  return pair.origin ? sample(seconds, operation) : Values();
}

// A word that the peer polls, and its answer: fetch-adds, of which a post-start-complete-wait needs at least these two,
// or, with data, stores behind a memcpy(3) of all bytes there, and of 8 back.
template <bool with_data>
Values measure_exchange(const SharedMemory& shared, std::size_t bytes, const Pair& pair, double seconds) {
  constexpr std::uint64_t kEnd = ~std::uint64_t{0};
  const std::vector<char> here(bytes, 'x');
  const auto own = shared.word(pair.origin ? 0 : 1), theirs = shared.word(pair.origin ? 1 : 0);
  std::uint64_t seen = 0;
  const auto give = [&](std::size_t size, std::uint64_t turn) {
    if (!with_data) return void(own.fetch_add(1));
    std::memcpy(static_cast<char*>(shared.get()) + kWords, here.data(), size);
    own.store(turn, std::memory_order_release);
  };
  if (!pair.origin) {
    while ((seen = wait_for_more(theirs, seen)) != kEnd) give(8, seen);
    return {};
  }
  Values values = sample(seconds, [&] {
    give(bytes, seen + 1);
    seen = wait_for_more(theirs, seen);
  });
  own.store(kEnd);
  return values;
}

// memcpy(3) to memory that both map.
Values measure_copy(const SharedMemory& shared, std::size_t bytes, const Pair& pair, double seconds) {
  const std::vector<char> here(bytes, 'x');
  const auto operation = [&] {
    std::memcpy(shared.get(), here.data(), bytes);
    asm volatile("" ::: "memory");  // keeps the compiler from removing a copy
  };
  return pair.origin ? sample(seconds, operation) : Values();
}

template <Values (*measure)(const SharedMemory&, std::size_t, const Pair&, double)>
Outcome measure_bare_memory(const MeasureInfo& info, const Pair& pair, const Options& options) {
  Outcome outcome;
  if (tools::ranks_of_node(pair.comm).all == 2) {
    const SharedMemory shared(pair, bytes_of(info) + kWords);
    outcome.values = in_unit(info, bytes_of(info), measure(shared, bytes_of(info), pair, options.sample_seconds));
    MPI_Barrier(pair.comm);
  } else {
    outcome.wrong = "the two ranks share no memory";
  }
  return outcome;
}

const Registered kMeasures[] = {{"bare_lock", measure_bare_memory<measure_lock>},
                                {"bare_exchange", measure_bare_memory<measure_exchange<false>>},
                                {"bare_flag", measure_bare_memory<measure_exchange<true>>},
                                {"bare_copy_size", measure_bare_memory<measure_copy>}};

}  // namespace
}  // namespace farside::bench

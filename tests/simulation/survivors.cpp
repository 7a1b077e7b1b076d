// SPDX-License-Identifier: BSD-3-Clause
// A program for faults, which goes on after errors. Each rank puts to, adds to and locks random targets, and knows what
// it has attempted (each word it writes is written by no other rank) and what was confirmed. A read shows at least
// what was confirmed, and at most what was attempted; whatever the faults. At the end each two living ranks reach each
// other again.
//
//   survivors [create] [unlocked] [seed S] [rounds N]
//
// unlocked: all locks have MPI_MODE_NOCHECK. After a connection has broken in a lock's protocol, later locks may wait
// for ever (epochs/lock.md).
#include "tests/simulation/survivors.hpp"

#include <cstdint>
#include <cstdlib>

#include "../programs/check.hpp"

namespace {

using Word = std::int64_t;

// On the board, for each origin and target. A put leaves the number of the attempt.
struct Record {
  Word puts, confirmed_puts, sums, confirmed_sums;
};

#define EXPECT(condition, ...)                                           \
  do {                                                                   \
    if (condition) break;                                                \
    std::fprintf(stderr, "survivors: rank %d: %s: ", rank_, #condition); \
    std::fprintf(stderr, __VA_ARGS__);                                   \
    std::abort();                                                        \
  } while (false)

class Survivor {
 public:
  explicit Survivor(const check::Program& program)
      : rank_(check::rank()),
        size_(check::size()),
        random_(static_cast<unsigned>(program.number("seed", 1)) * 64U + static_cast<unsigned>(rank_)),
        assert_(program.has("unlocked") ? MPI_MODE_NOCHECK : 0),
        words_(static_cast<std::size_t>(2 * size_ + 3)) {
    const auto bytes = static_cast<MPI_Aint>(words_.size() * sizeof(Word));
    Word* memory = words_.data();
    if (program.has("create"))
      MPI_Win_create(memory, bytes, sizeof(Word), MPI_INFO_NULL, MPI_COMM_WORLD, &window_);
    else
      MPI_Win_allocate(bytes, sizeof(Word), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window_);
    memory_ = memory;
    std::fill(memory_, memory_ + words_.size(), Word{0});
    MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const int target = static_cast<int>(random_() % static_cast<unsigned>(size_));
      switch (random_() % 5) {
        case 0: put_and_get(target); break;
        case 1: add_and_get(target); break;
        case 2: count(target); break;
        case 3: both_words(target); break;
        default: put_to_all(); break;
      }
    }
    simulation_end_faults();
    simulation_meet();
    for (int target = 0; target < size_; ++target) reach(target);
    simulation_meet();
    for (int origin = 0; origin < size_; ++origin) {
      check(record(origin, rank_), memory_[origin], memory_[size_ + origin], origin, rank_);
    }
  }

 private:
  Record& record(int origin, int target) const {
    return static_cast<Record*>(simulation_board())[origin * size_ + target];
  }
  void check(const Record& known, Word put, Word sum, int origin, int target) const {
    EXPECT(known.confirmed_puts <= put && put <= known.puts, "%d to %d: %lld, confirmed %lld, attempted %lld\n", origin,
           target, (long long)put, (long long)known.confirmed_puts, (long long)known.puts);
    EXPECT(known.confirmed_sums <= sum && sum <= known.sums, "%d to %d: %lld, confirmed %lld, attempted %lld\n", origin,
           target, (long long)sum, (long long)known.confirmed_sums, (long long)known.sums);
  }
  // Whether the lock and all that is done under it has succeeded.
  template <class Act>
  bool locked(int type, int target, Act&& act) {
    if (MPI_Win_lock(type, target, assert_, window_) != MPI_SUCCESS) return false;
    const bool done = act();
    const int unlocked = MPI_Win_unlock(target, window_);
    EXPECT(unlocked != MPI_ERR_RMA_SYNC, "the lock of %d has been dropped without its unlock\n", target);
    return unlocked == MPI_SUCCESS && done;
  }
  bool flushed(int target) { return MPI_Win_flush(target, window_) == MPI_SUCCESS; }
  bool put(const Word& value, int target, int at) {
    return MPI_Put(&value, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, window_) == MPI_SUCCESS;
  }
  bool get(Word* value, int count, int target, int at) {
    return MPI_Get(value, count, MPI_INT64_T, target, at, count, MPI_INT64_T, window_) == MPI_SUCCESS;
  }
  void read_own(int target) {
    Word put_there = -1, sum_there = -1;
    const bool done = locked(MPI_LOCK_SHARED, target, [&] {
      return get(&put_there, 1, target, rank_) && get(&sum_there, 1, target, size_ + rank_) && flushed(target);
    });
    if (done) check(record(rank_, target), put_there, sum_there, rank_, target);
  }

  void put_and_get(int target) {
    Record& own = record(rank_, target);
    const Word value = ++own.puts;
    const bool early = random_() % 2 == 0;
    const bool done =
        locked(MPI_LOCK_SHARED, target, [&] { return put(value, target, rank_) && (!early || flushed(target)); });
    if (done) own.confirmed_puts = value;
    read_own(target);
  }
  void add_and_get(int target) {
    Record& own = record(rank_, target);
    const Word one = 1;
    ++own.sums;
    const bool done = locked(MPI_LOCK_SHARED, target, [&] {
      return MPI_Accumulate(&one, 1, MPI_INT64_T, target, size_ + rank_, 1, MPI_INT64_T, MPI_SUM, window_) ==
             MPI_SUCCESS;
    });
    if (done) ++own.confirmed_sums;
    read_own(target);
  }
  // A counter of all ranks only grows.
  void count(int target) {
    const Word one = 1;
    Word before = -1, after = -1;
    const bool done = locked(MPI_LOCK_SHARED, target, [&] {
      const auto fetch = [&](Word* result) {
        return MPI_Fetch_and_op(&one, result, MPI_INT64_T, target, 2 * size_, MPI_SUM, window_) == MPI_SUCCESS &&
               flushed(target);
      };
      return fetch(&before) && fetch(&after);
    });
    EXPECT(!done || (before >= 0 && before < after), "target %d: %lld, %lld\n", target, (long long)before,
           (long long)after);
  }
  // Only a holder that has met a fault leaves two words that differ, and puts after a fault may be lost.
  void both_words(int target) {
    if (assert_ != 0) return;
    Word both[2] = {-1, -1};
    (void)locked(MPI_LOCK_EXCLUSIVE, target, [&] {
      if (!get(both, 2, target, 2 * size_ + 1) || !flushed(target)) return false;
      EXPECT(both[0] == both[1] || simulation_has_met_a_fault(target), "target %d: %lld, %lld\n", target,
             (long long)both[0], (long long)both[1]);
      ++both[0];
      both[1] = both[0];
      return put(both[0], target, 2 * size_ + 1) && put(both[1], target, 2 * size_ + 2);
    });
  }
  void put_to_all() {
    if (MPI_Win_lock_all(assert_, window_) != MPI_SUCCESS) return;
    std::vector<Word> values;
    std::vector<bool> done;
    for (int target = 0; target < size_; ++target) values.push_back(++record(rank_, target).puts);
    for (int target = 0; target < size_; ++target)
      done.push_back(put(values[static_cast<std::size_t>(target)], target, rank_));
    for (int target = 0; target < size_; ++target) {
      const auto at = static_cast<std::size_t>(target);
      if (flushed(target) && done[at]) record(rank_, target).confirmed_puts = values[at];
    }
    (void)MPI_Win_unlock_all(window_);
  }
  // Only the lock of a target may be lost for ever.
  void reach(int target) {
    constexpr int kTries = 20;
    for (int i = 0; i < kTries && simulation_lives(target); ++i) {
      Word seen = -1;
      if (MPI_Win_lock(MPI_LOCK_SHARED, target, MPI_MODE_NOCHECK, window_) == MPI_SUCCESS) {
        const bool done = get(&seen, 1, target, rank_) && flushed(target);
        if (MPI_Win_unlock(target, window_) == MPI_SUCCESS && done) return;
      }
      simulation_sleep();
    }
    EXPECT(!simulation_lives(target), "rank %d is out of reach, after the faults\n", target);
  }

  const int rank_, size_;
  std::minstd_rand random_;
  const int assert_;
  std::vector<Word> words_;
  Word* memory_ = nullptr;  // this rank's: puts of each rank, sums of each rank, a counter, two words
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  // They stay: MPI cannot end where a rank is dead.
  const auto& program = *new check::Program(argc, argv);
  auto& survivor = *new Survivor(program);
  survivor.run(program.number("rounds", 30));
  return 0;
}

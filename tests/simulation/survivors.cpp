// SPDX-License-Identifier: BSD-3-Clause
// A program for faults, which goes on after errors. Each rank puts to, adds to and locks random targets, and knows what
// it has attempted (each word it writes is written by no other rank) and what was confirmed. A read shows at least
// what was confirmed, and at most what was attempted; whatever the faults. At the end each two living ranks reach each
// other again.
//
//   survivors [create] [unlocked | active] [seed S] [rounds N]
//
// unlocked: all locks have MPI_MODE_NOCHECK. After a connection has broken in a lock's protocol, later locks may wait
// for ever (epochs/lock.md). active: fences, and post, start, complete and wait with one rank. A target that gets no
// error has all data that origins have put. All ranks must live.
#include "tests/simulation/survivors.hpp"

#include <cstdint>
#include <cstdlib>
#include <deque>

#include "../programs/check.hpp"
#include "../programs/notified_calls.hpp"

namespace {

using Word = std::int64_t;

constexpr int kAll = -1;  // in the place of a lock type: lock_all
constexpr int kRow = 8;
constexpr int kBlock = 188 * kRow;                // words: more than travel in one message, even without one in kRow
constexpr int kRows[] = {1, 3, 40, 600, kBlock};  // words of an operation on a block

// On the board, for each origin and target. What is written is the number of the attempt, or of the sum.
struct Record {
  Word puts, confirmed_puts, sums, confirmed_sums, blocks, confirmed_blocks;
  Word put_now, words_now;  // active: into the block, in this epoch
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
        words_(static_cast<std::size_t>(place_of_block(size_ + 1))),
        counted_(static_cast<std::size_t>(size_)) {
    const auto bytes = static_cast<MPI_Aint>(words_.size() * sizeof(Word));
    memory_ = words_.data();
    if (program.has("create"))
      MPI_Win_create(memory_, bytes, sizeof(Word), MPI_INFO_NULL, MPI_COMM_WORLD, &window_);
    else
      MPI_Win_allocate(bytes, sizeof(Word), MPI_INFO_NULL, MPI_COMM_WORLD, &memory_, &window_);
    std::fill(memory_, memory_ + words_.size(), Word{0});
    MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
    if (!program.has("active")) MPIX_Win_set_num_notify(window_, MPI_INFO_NULL, 1);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      const int target = draw(size_);
      if (round % 8 == 7) simulation_sleep();  // connections are closed meanwhile
      switch (draw(7)) {
        case 0: put_and_get(target); break;
        case 1: add_and_get(target); break;
        case 2: count(target); break;
        case 3:
        case 4: all_or_nothing(draw(2)); break;
        case 5: write_block(target); break;
        default: put_to_all(); break;
      }
    }
    finish();
  }

  void run_active(int rounds) {
    const auto fence = [&](int assert) { return MPI_Win_fence(assert, window_) == MPI_SUCCESS; };
    bool posts = true;
    fence(0);
    for (int round = 0; round < rounds; ++round) {
      simulation_meet();
      const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
      for (int target = 0; target < size_; ++target) record(rank_, target).words_now = 0;
      // All draw the same. After a failure there may be no further posts in the window.
      if (posts && round % 3 == 2) {
        const check::Group from({before}), to({next});
        bool done = MPI_Win_post(from, 0, window_) == MPI_SUCCESS;
        bool started = false;
        for (int i = 0; i < 3 && !started; ++i)  // the post may be late
          started = MPI_Win_start(to, 0, window_) == MPI_SUCCESS;
        if (started) {
          put_block(next);
          confirm_blocks(MPI_Win_complete(window_) == MPI_SUCCESS);
        } else {
          done = false;
        }
        done = MPI_Win_wait(window_) == MPI_SUCCESS && done;
        if (done) check_block(before);
        if (!done) *posts_failed() = 1;
        simulation_meet();
        posts = *posts_failed() == 0;
        fence(0);
        continue;
      }
      for (int i = draw(3); i > 0; --i) put_block(draw(size_));
      const bool done = fence(round % 3 == 1 && posts ? MPI_MODE_NOSUCCEED : 0);
      confirm_blocks(done);
      for (int origin = 0; done && origin < size_; ++origin) check_block(origin);
    }
    fence(MPI_MODE_NOSUCCEED);
    finish();
  }

 private:
  Record& record(int origin, int target) const {
    return static_cast<Record*>(simulation_board())[origin * size_ + target];
  }
  Word* posts_failed() const { return &record(size_, 0).puts; }
  int place_of_block(int origin) const { return 2 * size_ + 1 + origin * kBlock; }  // that of size_: of all origins
  int draw(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  void finish() {
    simulation_end_faults();
    simulation_meet();
    for (int target = 0; target < size_; ++target) reach(target);
    simulation_meet();
    for (int origin = 0; origin < size_; ++origin) {
      const Record& known = record(origin, rank_);
      check(known.confirmed_puts, memory_[origin], known.puts, "puts", origin, rank_);
      check(known.confirmed_sums, memory_[size_ + origin], known.sums, "sums", origin, rank_);
      for (int i = 0; i < kBlock; ++i)
        check(i == 0 ? known.confirmed_blocks : 0, memory_[place_of_block(origin) + i], known.blocks, "block", origin,
              rank_);
    }
  }
  void check(Word confirmed, Word value, Word attempted, const char* what, int origin, int target) const {
    EXPECT(confirmed <= value && value <= attempted, "%s, %d to %d: %lld, confirmed %lld, attempted %lld\n", what,
           origin, target, (long long)value, (long long)confirmed, (long long)attempted);
  }
  int any_lock() { return draw(2) == 0 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE; }
  // Whether the lock and all that is done under it has succeeded.
  template <class Act>
  bool locked(int type, int target, Act&& act) {
    const bool all = type == kAll;
    if ((all ? MPI_Win_lock_all(assert_, window_) : MPI_Win_lock(type, target, assert_, window_)) != MPI_SUCCESS)
      return false;
    const bool done = act();
    const int unlocked = all ? MPI_Win_unlock_all(window_) : MPI_Win_unlock(target, window_);
    EXPECT(unlocked != MPI_ERR_RMA_SYNC, "the lock of %d has been dropped without its unlock\n", target);
    return unlocked == MPI_SUCCESS && done;
  }
  bool flushed(int target) { return MPI_Win_flush(target, window_) == MPI_SUCCESS; }
  bool put(const Word* values, int count, int target, int at) {
    return MPI_Put(values, count, MPI_INT64_T, target, at, count, MPI_INT64_T, window_) == MPI_SUCCESS;
  }
  bool get(Word* value, int count, int target, int at) {
    return MPI_Get(value, count, MPI_INT64_T, target, at, count, MPI_INT64_T, window_) == MPI_SUCCESS;
  }
  void read_own(int target) {
    Word put_there = -1, sum_there = -1;
    const bool done = locked(MPI_LOCK_SHARED, target, [&] {
      return get(&put_there, 1, target, rank_) && get(&sum_there, 1, target, size_ + rank_) && flushed(target);
    });
    if (!done) return;
    const Record& known = record(rank_, target);
    check(known.confirmed_puts, put_there, known.puts, "puts", rank_, target);
    check(known.confirmed_sums, sum_there, known.sums, "sums", rank_, target);
  }

  void put_and_get(int target) {
    Record& own = record(rank_, target);
    const Word value = ++own.puts;
    const bool early = draw(2) == 0;
    const bool done =
        locked(any_lock(), target, [&] { return put(&value, 1, target, rank_) && (!early || flushed(target)); });
    if (done) own.confirmed_puts = value;
    read_own(target);
  }
  void add_and_get(int target) {
    Record& own = record(rank_, target);
    const Word one = 1;
    ++own.sums;
    const bool done = locked(any_lock(), target, [&] {
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
    Word& last = counted_[static_cast<std::size_t>(target)];
    const int at = 2 * size_;
    const bool excludes = assert_ == 0 && draw(2) == 0;
    const bool done = locked(excludes ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, [&] {
      if (excludes) {
        if (!get(&before, 1, target, at) || !flushed(target)) return false;
        return after = before + 1, put(&after, 1, target, at);
      }
      const auto fetch = [&](Word* result) {
        return MPI_Fetch_and_op(&one, result, MPI_INT64_T, target, at, MPI_SUM, window_) == MPI_SUCCESS &&
               flushed(target);
      };
      return fetch(&before) && fetch(&after);
    });
    if (!done) return;
    EXPECT(before < after && (before >= last || simulation_has_met_a_fault(target)), "target %d: %lld, %lld, %lld\n",
           target, (long long)last, (long long)before, (long long)after);
    last = after;
  }
  // Only a holder that has met a fault leaves words of the block that differ, and puts after a fault may be lost.
  // Before the unlock no operation is complete.
  void all_or_nothing(int target) {
    if (assert_ != 0) return;
    const int at = place_of_block(size_);
    std::vector<Word> values(kBlock, -1), again(kBlock, -1);
    const auto read = [&](std::vector<Word>& into) { return get(into.data(), kBlock, target, at); };
    const auto check_equal = [&] {
      const bool equal = std::all_of(values.begin(), values.end(), [&](Word each) { return each == values[0]; });
      EXPECT(equal || simulation_has_met_a_fault(target), "target %d: %lld, %lld\n", target, (long long)values[0],
             (long long)values[kBlock - 1]);
    };
    const int way = draw(7);
    if (way > 4) {
      const auto read_twice = [&] { return read(values) && flushed(target) && read(again); };
      if (!locked(MPI_LOCK_SHARED, target, read_twice)) return;
      check_equal();
      EXPECT(again == values || simulation_has_met_a_fault(target), "target %d: %lld, then %lld\n", target,
             (long long)values[0], (long long)again[0]);
      return;
    }
    (void)locked(MPI_LOCK_EXCLUSIVE, target, [&] {
      if (way > 2) {
        if (!read(values) || !flushed(target)) return false;
        check_equal();
      }
      std::fill(values.begin(), values.end(), Word{size_} * ++blocks_ + rank_);
      if (way % 2 == 0) return put_words(target, at, kRow - 1, 0, values) && put_words(target, at, 1, kRow - 1, values);
      bool done = true;
      int counters = 0;  // a fault may have been early
      MPIX_Win_get_num_notify(window_, target, &counters);
      for (int row = 0, from = 0; from < kBlock && done; from += row) {
        row = std::min(kBlock - from, kRows[draw(5)]);
        const Word* const words = &values[static_cast<std::size_t>(from)];
        done = draw(2) >= counters ? put(words, row, target, at + from)
                                   : MPIX_Put_notify(words, row, MPI_INT64_T, target, at + from, row, MPI_INT64_T, 0,
                                                     window_) == MPI_SUCCESS;
      }
      return done;
    });
  }
  // So many words of each row, from the one with that number on.
  bool put_words(int target, int at, int count, int first, const std::vector<Word>& values) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_vector(kBlock / kRow, count, kRow, MPI_INT64_T, &type);
    MPI_Type_commit(&type);
    const bool done =
        MPI_Put(values.data(), count * kBlock / kRow, MPI_INT64_T, target, at + first, 1, type, window_) == MPI_SUCCESS;
    MPI_Type_free(&type);
    return done;
  }
  // Accumulates take effect in their order, whatever their sizes.
  void write_block(int target) {
    Record& own = record(rank_, target);
    std::vector<Word> wanted(kBlock), seen(kBlock, -1);
    std::vector<std::vector<Word>> rows;
    const Word first = own.blocks + 1;
    const bool done = locked(draw(2) == 0 ? MPI_LOCK_SHARED : kAll, target, [&] {
      for (int i = 2 + draw(6); i > 0; --i) {
        const auto words = static_cast<std::size_t>(rows.empty() ? kBlock : kRows[draw(5)]);
        rows.emplace_back(words, ++own.blocks);
        std::fill_n(wanted.begin(), words, own.blocks);
        const int count = static_cast<int>(words);
        const auto replace = [&](auto call, auto... request) {
          return call(rows.back().data(), count, MPI_INT64_T, target, place_of_block(rank_), count, MPI_INT64_T,
                      MPI_REPLACE, window_, request...) == MPI_SUCCESS;
        };
        MPI_Request request = MPI_REQUEST_NULL;
        if (!(draw(3) == 0 ? replace(MPI_Raccumulate, &request) : replace(MPI_Accumulate)) ||
            MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS)
          return false;
      }
      return flushed(target) && get(seen.data(), kBlock, target, place_of_block(rank_)) && flushed(target);
    });
    if (done) own.confirmed_blocks = first;
    const auto differs = std::mismatch(wanted.begin(), wanted.end(), seen.begin());
    EXPECT(!done || seen == wanted, "target %d: %lld in place of %lld\n", target, (long long)*differs.second,
           (long long)*differs.first);
  }
  void put_to_all() {
    if (MPI_Win_lock_all(assert_, window_) != MPI_SUCCESS) return;
    std::vector<Word> values;
    std::vector<bool> done;
    for (int target = 0; target < size_; ++target) values.push_back(++record(rank_, target).puts);
    for (int target = 0; target < size_; ++target)
      done.push_back(put(&values[static_cast<std::size_t>(target)], 1, target, rank_));
    for (int target = 0; target < size_; ++target) {
      const auto at = static_cast<std::size_t>(target);
      if (flushed(target) && done[at]) record(rank_, target).confirmed_puts = values[at];
    }
    (void)MPI_Win_unlock_all(window_);
  }

  // ---- active target

  void put_block(int target) {
    Record& own = record(rank_, target);
    if (own.words_now != 0) return;
    const int words = kRows[draw(5)];
    auto& values = epoch_.emplace_back(words, ++own.blocks);
    if (!put(values.data(), words, target, place_of_block(rank_))) return;
    own.put_now = own.blocks;
    own.words_now = words;
  }
  void confirm_blocks(bool done) {
    for (int target = 0; done && target < size_; ++target)
      if (Record& own = record(rank_, target); own.words_now != 0) own.confirmed_blocks = own.put_now;
    epoch_.clear();
  }
  void check_block(int origin) const {
    const Record& known = record(origin, rank_);
    for (int i = 0; i < known.words_now; ++i)
      EXPECT(memory_[place_of_block(origin) + i] == known.put_now, "no error, but rank %d has put %lld, here is %lld\n",
             origin, (long long)known.put_now, (long long)memory_[place_of_block(origin) + i]);
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
  // This rank's: puts of each rank, sums of each rank, a counter, a block of each rank, and one of all.
  Word* memory_ = nullptr;
  Word blocks_ = 0;                      // of all, that this rank has written
  std::vector<Word> counted_;            // the counters of all ranks, as last seen
  std::deque<std::vector<Word>> epoch_;  // what was put in it
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  // They stay: MPI cannot end where a rank is dead.
  const auto& program = *new check::Program(argc, argv);
  auto& survivor = *new Survivor(program);
  const int rounds = program.number("rounds", 30);
  if (program.has("active"))
    survivor.run_active(rounds);
  else
    survivor.run(rounds);
  return 0;
}

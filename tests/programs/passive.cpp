// SPDX-License-Identifier: BSD-3-Clause
// Passive target: exclusive locks exclude, shared ones share, lock_all meets both; flushes complete at the
// target, local flushes free the buffer; locks on many targets at once.
#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>

#include "check.hpp"

namespace {

int rank;
int size;

void barrier() { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

std::int64_t read_own(MPI_Win window, const std::int64_t* at) {
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  const std::int64_t value = *at;
  CHECK_MPI(MPI_Win_unlock(rank, window));
  return value;
}

// Get, add, put: safe only if the lock excludes everybody else, and if unlock has made the put visible.
void add_one(MPI_Win window, int target, MPI_Aint at) {
  std::int64_t value = -1;
  CHECK_MPI(MPI_Get(&value, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  ++value;
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, at, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush_local(target, window));  // `value` goes
}

void put_and_get(check::Memory memory) {
  constexpr int kInts = 2048;
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * kInts * size, sizeof(int));
  std::vector<int> out(kInts);
  std::vector<int> in(kInts);
  for (int kind : {MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE}) {
    for (int target = 0; target < size; ++target) {
      for (int i = 0; i < kInts; ++i) out[static_cast<std::size_t>(i)] = kind * 7 + target * kInts + i + rank;
      CHECK_MPI(MPI_Win_lock(kind, target, 0, window));
      CHECK_MPI(MPI_Put(out.data(), kInts, MPI_INT, target, kInts * rank, kInts, MPI_INT, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
      CHECK_MPI(MPI_Win_lock(kind, target, 0, window));
      CHECK_MPI(MPI_Get(in.data(), kInts, MPI_INT, target, kInts * rank, kInts, MPI_INT, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
      CHECK(in == out);
    }
  }
}

// The lock of a rank's own window orders its loads and stores with everybody's puts.
void own_window(check::Memory memory) {
  constexpr int kRounds = 100;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const int target = (rank + 1) % size;
  for (int round = 0; round < kRounds; ++round) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window));
    ++*window.as<std::int64_t>();
    CHECK_MPI(MPI_Win_unlock(rank, window));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    add_one(window, target, 0);
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{2 * kRounds});
}

void mutual_exclusion(check::Memory memory) {
  constexpr int kRounds = 250;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  // All at one target, then everybody at every target in turn.
  for (int round = 0; round < kRounds; ++round) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
    add_one(window, 0, 0);
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  for (int round = 0; round < kRounds; ++round) {
    const int target = (rank + round) % size;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    add_one(window, target, 0);
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  const std::int64_t mine = read_own(window, window.as<std::int64_t>());
  std::int64_t all = 0;
  CHECK_MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  CHECK_EQ(all, std::int64_t{2} * kRounds * size);
}

// A writer sets all words to one value; a reader must never see two. Rank 0 writes half the time, the others
// read.
// Where nothing is flushed before the unlock, lock, operations and release may be one message. What an exclusive epoch
// puts is seen as a whole by shared ones, by its owner under a lock, and by other exclusive ones.
void epochs_as_a_whole(check::Memory memory) {
  constexpr int kRounds = 300;
  constexpr MPI_Aint kFar = 40;
  check::Window window(memory, (kFar + 1) * static_cast<MPI_Aint>(sizeof(std::int64_t)), sizeof(std::int64_t));
  const std::int64_t one = 1;
  for (int round = 0; round < kRounds; ++round) {
    const int target = round % 3 == 2 ? (rank + 1) % size : 0;
    const int kind = (round + rank) % 2 == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED;
    std::int64_t first = -1;
    std::int64_t last = -2;
    CHECK_MPI(MPI_Win_lock(kind, target, 0, window));
    CHECK_MPI(MPI_Get(&first, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
    if (kind == MPI_LOCK_EXCLUSIVE) {
      const std::int64_t mark = std::int64_t{rank} * kRounds + round + 1;
      CHECK_MPI(MPI_Get(&last, 1, MPI_INT64_T, target, kFar, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(target, window));
      CHECK_MPI(MPI_Put(&mark, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Put(&mark, 1, MPI_INT64_T, target, kFar, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
    } else {
      CHECK_MPI(MPI_Get(&last, 1, MPI_INT64_T, target, kFar, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_unlock(target, window));
    }
    CHECK_EQ(first, last);
    CHECK_MPI(MPI_Win_lock(round % 2 == 0 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, rank, 0, window));
    CHECK_EQ(window.as<std::int64_t>()[0], window.as<std::int64_t>()[kFar]);
    CHECK_MPI(MPI_Win_unlock(rank, window));
    // Only puts, and only then somebody looks.
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, target, kFar, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  std::int64_t counted = read_own(window, window.as<std::int64_t>() + 1);
  CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &counted, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  CHECK_EQ(counted, std::int64_t{kRounds} * size);
}

// Who takes two locks in one order everywhere may use them in any: no two ranks wait for each other.
void two_locks_in_one_order(check::Memory memory) {
  constexpr int kRounds = 60;
  if (size == 1) return;
  check::Window one(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  check::Window other(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  for (int round = 0; round < kRounds; ++round) {
    const MPI_Win second = round % 2 == 0 ? one : other;
    const int kind = round % 4 < 2 || rank == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED;
    barrier();
    CHECK_MPI(MPI_Win_lock(kind, 0, 0, one));
    CHECK_MPI(MPI_Win_lock(kind, 1, 0, second));
    const auto use = [&](MPI_Win window, int target) {
      const std::int64_t step = 1;
      CHECK_MPI(MPI_Accumulate(&step, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_flush(target, window));
    };
    if (rank % 2 == 0) use(one, 0);
    use(second, 1);
    if (rank % 2 != 0) use(one, 0);
    if (round % 3 == 0) {
      CHECK_MPI(MPI_Win_unlock(0, one));
      CHECK_MPI(MPI_Win_unlock(1, second));
    } else {
      CHECK_MPI(MPI_Win_unlock(1, second));
      CHECK_MPI(MPI_Win_unlock(0, one));
    }
  }
  barrier();
  if (rank == 0) CHECK_EQ(read_own(one, one.as<std::int64_t>()), std::int64_t{kRounds} * size);
  if (rank == 1) CHECK_EQ(read_own(one, one.as<std::int64_t>()), std::int64_t{kRounds / 2} * size);
  if (rank == 1) CHECK_EQ(read_own(other, other.as<std::int64_t>()), std::int64_t{kRounds / 2} * size);
}

// What is done under a lock waits for the lock, and a notice that is said meanwhile (post) takes nothing of it along, where the lock call
// itself does not wait.
void notice_beside_a_lock(check::Memory memory) {
  constexpr int kRounds = 6;
  if (size == 1) return;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  check::Window other(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const check::Group zero({0});
  const check::Group one({1});
  CHECK_MPI(MPI_Win_lock_all(0, other));
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    if (rank == 1) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
    barrier();
    if (rank == 0) {
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
      CHECK_MPI(MPI_Put(&round, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_post(one, 0, window));
      // When this has arrived the notice has, too.
      CHECK_MPI(MPI_Put(&round, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, other));
      CHECK_MPI(MPI_Win_flush(1, other));
      CHECK_MPI(MPI_Send(&round, 1, MPI_INT64_T, 1, 0, MPI_COMM_WORLD));
      CHECK_MPI(MPI_Win_unlock(1, window));
      CHECK_MPI(MPI_Win_wait(window));
    } else if (rank == 1) {
      const auto begun = std::chrono::steady_clock::now();
      for (int posted = 0; posted == 0 && std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(20);) {
        CHECK_MPI(MPI_Iprobe(0, 0, MPI_COMM_WORLD, &posted, MPI_STATUS_IGNORE));
        CHECK_EQ(std::atomic_ref(*window.as<std::int64_t>()).load(), round - 1);
      }
      CHECK_EQ(std::atomic_ref(*window.as<std::int64_t>()).load(), round - 1);
      CHECK_MPI(MPI_Win_unlock(1, window));
      std::int64_t said = 0;
      CHECK_MPI(MPI_Recv(&said, 1, MPI_INT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK_MPI(MPI_Win_start(zero, 0, window));
      CHECK_MPI(MPI_Win_complete(window));
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(other));
  barrier();
  if (rank == 1) CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds});
}

void readers_and_writers(check::Memory memory) {
  constexpr int kWords = 512;
  constexpr int kRounds = 120;
  check::Window window(memory, kWords * sizeof(std::int64_t), sizeof(std::int64_t));
  std::vector<std::int64_t> words(kWords);
  std::int64_t last = 0;
  const int target = size - 1;
  for (int round = 1; round <= kRounds; ++round) {
    const bool writes = rank == round % size;
    CHECK_MPI(MPI_Win_lock(writes ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, window));
    CHECK_MPI(MPI_Get(words.data(), kWords, MPI_INT64_T, target, 0, kWords, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    for (std::int64_t word : words) CHECK_EQ(word, words[0]);
    CHECK(words[0] >= last);
    if (writes) {
      std::fill(words.begin(), words.end(), words[0] + 1);
      // In two halves, the second first: a reader in between would see it.
      CHECK_MPI(MPI_Put(words.data() + kWords / 2, kWords / 2, MPI_INT64_T, target, kWords / 2, kWords / 2,
                        MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(target, window));
      sched_yield();
      CHECK_MPI(MPI_Put(words.data(), kWords / 2, MPI_INT64_T, target, 0, kWords / 2, MPI_INT64_T, window));
    }
    last = words[0];
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  barrier();
  if (rank == target) CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds});
}

// All ranks hold a shared lock on rank 0 at the same time: each waits in a barrier for the others to have
// theirs.
void shared_locks_share(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(std::int64_t)) * size, sizeof(std::int64_t));
  for (int round = 0; round < 20; ++round) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
    const std::int64_t value = round * 10 + rank;
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, 0, rank, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(0, window));
    barrier();
    std::vector<std::int64_t> seen(static_cast<std::size_t>(size));
    CHECK_MPI(MPI_Get(seen.data(), size, MPI_INT64_T, 0, 0, size, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_unlock(0, window));
    for (int i = 0; i < size; ++i) CHECK_EQ(seen[static_cast<std::size_t>(i)], std::int64_t{round * 10 + i});
    barrier();
  }
}

// The same for lock_all, then exclusive lockers against it: an accumulate under lock_all and a get-add-put
// under an exclusive lock must not meet.
void lock_all_and_exclusive(check::Memory memory) {
  constexpr int kRounds = 100;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  barrier();
  CHECK_MPI(MPI_Win_unlock_all(window));
  const std::int64_t one = 1;
  for (int round = 0; round < kRounds; ++round) {
    if ((round + rank) % 2 == 0) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      for (int target = 0; target < size; ++target) {
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
      }
      CHECK_MPI(MPI_Win_unlock_all(window));
    } else {
      for (int target = 0; target < size; ++target) {
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
        add_one(window, target, 0);
        CHECK_MPI(MPI_Win_unlock(target, window));
      }
    }
  }
  barrier();
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * size);
}

// A rank under lock_all loads and stores its own window without any call: a peer's exclusive lock waits for
// it.
void lock_all_and_own_stores(check::Memory memory) {
  constexpr int kRounds = 4;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  volatile std::int64_t* mine = window.as<std::int64_t>();
  const int locker = size - 1;
  for (int round = 0; round < kRounds && size > 1; ++round) {
    if (rank == 0) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      const std::int64_t before = *mine;
      CHECK_MPI(MPI_Send(nullptr, 0, MPI_BYTE, locker, 5, MPI_COMM_WORLD));
      const timespec time{0, 50'000'000};  // enough for a lock that does not wait
      nanosleep(&time, nullptr);
      *mine = before + 1;
      CHECK_MPI(MPI_Win_unlock_all(window));
    } else if (rank == locker) {
      CHECK_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
      add_one(window, 0, 0);
      CHECK_MPI(MPI_Win_unlock(0, window));
    }
    barrier();
    if (rank == 0) CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{2} * (round + 1));
  }
}

// Half the ranks use all targets under lock_all, each in another order; the others lock one each,
// exclusively. Were the targets locked in the order of use, two of the first could wait for each other behind
// writers.
void lock_all_in_different_orders(check::Memory memory) {
  constexpr int kRounds = 60;
  check::Window window(memory, 2 * sizeof(std::int64_t), sizeof(std::int64_t));
  const std::int64_t one = 1;
  for (int round = 0; round < kRounds; ++round) {
    if (rank < (size + 1) / 2) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      for (int i = 0; i < size; ++i) {
        const int target = rank % 2 == 0 ? i : size - 1 - i;
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
        CHECK_MPI(MPI_Win_flush(target, window));
        sched_yield();
      }
      CHECK_MPI(MPI_Win_unlock_all(window));
    } else {
      const int target = size - 1 - rank;
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
      add_one(window, target, 1);
      CHECK_MPI(MPI_Win_unlock(target, window));
    }
  }
  barrier();
  const int writers = rank < size / 2 ? 1 : 0;
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * ((size + 1) / 2));
  CHECK_EQ(read_own(window, window.as<std::int64_t>() + 1), std::int64_t{kRounds} * writers);
}

// All kinds of locks among each other. Each word is a pair that only exclusive locks change, one half after the other,
// and that all others must find equal, whatever kind of lock they have; and every lock_all and shared lock counts itself.
void locks_of_all_kinds(check::Memory memory) {
  constexpr int kRounds = 60;
  check::Window window(memory, 3 * sizeof(std::int64_t), sizeof(std::int64_t));
  const std::int64_t one = 1;
  std::int64_t pair[2] = {};
  const auto look = [&](int target) {
    CHECK_MPI(MPI_Get(pair, 2, MPI_INT64_T, target, 0, 2, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    CHECK_EQ(pair[0], pair[1]);
  };
  const auto count = [&](int target) {
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 2, 1, MPI_INT64_T, MPI_SUM, window));
  };
  std::int64_t changes = 0;  // by this rank, of all targets
  std::int64_t counts = 0;
  unsigned random = 17U + static_cast<unsigned>(rank);
  for (int round = 0; round < kRounds; ++round) {
    random = random * 1664525U + 1013904223U;
    const int target = static_cast<int>((random >> 8) % static_cast<unsigned>(size));
    switch ((random >> 24) % 4) {
      case 0:
        CHECK_MPI(MPI_Win_lock_all(0, window));
        for (int each = 0; each < size; ++each) {
          look(each);
          count(each);
          ++counts;
        }
        look(target);
        CHECK_MPI(MPI_Win_unlock_all(window));
        break;
      case 1:
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
        look(target);
        count(target);
        ++counts;
        sched_yield();
        look(target);
        CHECK_MPI(MPI_Win_unlock(target, window));
        break;
      case 2:
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
        add_one(window, target, 0);
        CHECK_MPI(MPI_Win_flush(target, window));
        sched_yield();
        add_one(window, target, 1);
        CHECK_MPI(MPI_Win_unlock(target, window));
        ++changes;
        break;
      default:
        // Within one another, the outer one given back first; in the order of ranks, or two could wait for each other.
        for (int each = target; each < size && each < target + 2; ++each) {
          CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, each, 0, window));
        }
        for (int each = target; each < size && each < target + 2; ++each) {
          add_one(window, each, 0);
          CHECK_MPI(MPI_Win_flush(each, window));
          add_one(window, each, 1);
          ++changes;
          CHECK_MPI(MPI_Win_unlock(each, window));
          sched_yield();
        }
    }
  }
  barrier();
  const std::int64_t mine[3] = {read_own(window, window.as<std::int64_t>()),
                                read_own(window, window.as<std::int64_t>() + 1),
                                read_own(window, window.as<std::int64_t>() + 2)};
  CHECK_EQ(mine[0], mine[1]);
  const std::int64_t own[4] = {changes, counts, mine[0], mine[2]};
  std::int64_t all[4] = {};
  CHECK_MPI(MPI_Allreduce(own, all, 4, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  CHECK_EQ(all[0], all[2]);
  CHECK_EQ(all[1], all[3]);
}

// Every rank takes exclusive locks on all targets, in one order, and holds them together.
void locks_on_all_targets(check::Memory memory) {
  constexpr int kRounds = 60;
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  for (int round = 0; round < kRounds; ++round) {
    for (int target = 0; target < size; ++target)
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    std::int64_t first = -1;
    for (int target = 0; target < size; ++target) {
      std::int64_t value = -1;
      CHECK_MPI(MPI_Get(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(target, window));
      if (target == 0) first = value;
      CHECK_EQ(value, first);
      add_one(window, target, 0);
    }
    // Unlocked in another order than locked.
    for (int i = 0; i < size; ++i) CHECK_MPI(MPI_Win_unlock((rank + i) % size, window));
  }
  barrier();
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{kRounds} * size);
}

// Locks of different kinds on different targets in one epoch each, side by side.
void mixed_locks(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(std::int64_t)) * size, sizeof(std::int64_t));
  const std::int64_t value = 40 + rank;
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Win_lock(target == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, window));
  }
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, rank, 1, MPI_INT64_T, window));
  }
  for (int target = size - 1; target >= 0; --target) CHECK_MPI(MPI_Win_unlock(target, window));
  barrier();
  for (int origin = 0; origin < size; ++origin) {
    CHECK_EQ(read_own(window, window.as<std::int64_t>() + origin), std::int64_t{40 + origin});
  }
}

// After a flush the data is at the target, for others to see within the same epoch; after a local flush the
// buffer may be used again.
void flushes(check::Memory memory) {
  constexpr int kRounds = 50;
  check::Window window(memory, 3 * static_cast<MPI_Aint>(sizeof(std::int64_t)) * size, sizeof(std::int64_t));
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    std::int64_t value = round * 10 + rank;
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, next, rank, 1, MPI_INT64_T, window));
    if (round % 2 == 0)
      CHECK_MPI(MPI_Win_flush(next, window));
    else
      CHECK_MPI(MPI_Win_flush_all(window));
    barrier();
    std::int64_t seen = 0;
    CHECK_MPI(MPI_Get(&seen, 1, MPI_INT64_T, rank, previous, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush_local(rank, window));
    CHECK_EQ(seen, round * 10 + previous);
    CHECK_MPI(MPI_Get(&seen, 1, MPI_INT64_T, next, rank, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush_local_all(window));
    CHECK_EQ(seen, value);
    barrier();
  }
  // One buffer for many puts, each to its own place.
  std::int64_t buffer = 0;
  for (int target = 0; target < size; ++target) {
    buffer = 7000 + 10 * rank + target;
    CHECK_MPI(MPI_Put(&buffer, 1, MPI_INT64_T, target, size + rank, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush_local(target, window));
    buffer = 8000 + 10 * rank + target;
    CHECK_MPI(MPI_Put(&buffer, 1, MPI_INT64_T, target, 2 * size + rank, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush_local_all(window));
    buffer = -1;
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  barrier();
  for (int origin = 0; origin < size; ++origin) {
    CHECK_EQ(read_own(window, window.as<std::int64_t>() + size + origin),
             std::int64_t{7000 + 10 * origin + rank});
    CHECK_EQ(read_own(window, window.as<std::int64_t>() + 2 * size + origin),
             std::int64_t{8000 + 10 * origin + rank});
  }
}

// A token goes round by a put; who waits for it only loads its own memory and calls MPI_Win_sync. The data
// that was put and flushed before the token is there when the token is.
void passed_on_by_memory(check::Memory memory) {
  constexpr int kRounds = 20;
  check::Window window(memory, 16 * sizeof(std::int64_t), sizeof(std::int64_t));
  volatile std::int64_t* mine = window.as<std::int64_t>();
  const int next = (rank + 1) % size;
  CHECK_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window));
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    const auto pass_on = [&] {
      const std::int64_t data = round * 1000 + rank;
      CHECK_MPI(MPI_Put(&data, 1, MPI_INT64_T, next, 8, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(next, window));
      CHECK_MPI(MPI_Accumulate(&round, 1, MPI_INT64_T, next, 0, 1, MPI_INT64_T, MPI_REPLACE, window));
      CHECK_MPI(MPI_Win_flush(next, window));
    };
    if (rank == 0) pass_on();
    while (mine[0] != round) {
      CHECK_MPI(MPI_Win_sync(window));
      // Runtimes without progress of their own need a call now and then; farside does not.
      int flag = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
      sched_yield();
    }
    CHECK_MPI(MPI_Win_sync(window));
    CHECK_EQ(std::int64_t{mine[8]}, round * 1000 + (rank + size - 1) % size);
    if (rank != 0) pass_on();
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// NOCHECK promises that no conflicting lock is held: a ring, and a lock_all of everybody.
void without_check(check::Memory memory) {
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const int target = (rank + 1) % size;
  for (int round = 0; round < 50; ++round) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, MPI_MODE_NOCHECK, window));
    add_one(window, target, 0);
    CHECK_MPI(MPI_Win_unlock(target, window));
    barrier();
    const std::int64_t one = 1;
    CHECK_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
    CHECK_MPI(MPI_Win_unlock_all(window));
    barrier();
  }
  CHECK_EQ(read_own(window, window.as<std::int64_t>()), std::int64_t{100});
}

// Thousands of epochs, most of them empty.
void empty_epochs(check::Memory memory) {
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  for (int round = 0; round < 500; ++round) {
    const int target = (rank + round) % size;
    CHECK_MPI(MPI_Win_lock(round % 3 == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
    if (round % 10 != 0) continue;
    CHECK_MPI(MPI_Win_lock_all(0, window));
    CHECK_MPI(MPI_Win_flush_all(window));
    CHECK_MPI(MPI_Win_unlock_all(window));
  }
}

// Two windows, locked crosswise: locks belong to a window.
void two_windows(check::Memory memory) {
  check::Window one(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  check::Window other(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  const int target = (rank + 1) % size;
  if (rank == 0) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, one));
  barrier();
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, other));
  add_one(other, target, 0);
  CHECK_MPI(MPI_Win_unlock(target, other));
  barrier();
  if (rank == 0) CHECK_MPI(MPI_Win_unlock(target, one));
  CHECK_EQ(read_own(other, other.as<std::int64_t>()), std::int64_t{1});
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Section<check::Memory> sections[] = {
      {"put and get under either lock", put_and_get},
      {"the lock of one's own window", own_window},
      {"mutual exclusion", mutual_exclusion},
      {"epochs as a whole", epochs_as_a_whole},
      {"two locks in one order", two_locks_in_one_order},
      {"a notice beside a lock", notice_beside_a_lock},
      {"readers and writers", readers_and_writers},
      {"shared locks share", shared_locks_share},
      {"lock_all against exclusive locks", lock_all_and_exclusive},
      {"lock_all against an exclusive lock: loads and stores of the owner", lock_all_and_own_stores},
      {"lock_all in different orders among writers", lock_all_in_different_orders},
      {"locks of all kinds among each other", locks_of_all_kinds},
      {"exclusive locks on all targets at once", locks_on_all_targets},
      {"locks of both kinds side by side", mixed_locks},
      {"flushes", flushes},
      {"a token passed on by memory", passed_on_by_memory},
      {"MPI_MODE_NOCHECK", without_check},
      {"many empty epochs", empty_epochs},
      {"two windows", two_windows},
  };
  check::run(sections, program.memory());
  return 0;
}

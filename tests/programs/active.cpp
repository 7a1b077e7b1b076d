// SPDX-License-Identifier: BSD-3-Clause
// Active target: fence with its assertions, and post/start/complete/wait with groups of all kinds.
//
//   fences N   nothing but N fences: statistics tell how many messages they took
#include <sched.h>
#include <time.h>

#include "check.hpp"

namespace {

int rank;
int size;

int next() { return (rank + 1) % size; }
int previous() { return (rank + size - 1) % size; }

void put(MPI_Win window, const int& value, int target, MPI_Aint at) {
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, target, at, 1, MPI_INT, window));
}

void nap() {
  const timespec time{0, 5000000};
  nanosleep(&time, nullptr);
}

void fence_asserts(check::Memory memory) {
  constexpr int kMany = 4096;
  check::Window window(memory, kMany * sizeof(int), sizeof(int));
  std::vector<int> all(kMany);
  for (int round = 0; round < 50; ++round) {
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
    const int value = round * 10 + rank;
    put(window, value, next(), 0);
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSTORE, window));
    // A large get, which takes another way, finds what was put.
    CHECK_MPI(MPI_Get(all.data(), kMany, MPI_INT, next(), 0, kMany, MPI_INT, window));
    CHECK_EQ(window.as<int>()[0], round * 10 + previous());
    // This epoch only reads the window.
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPUT | MPI_MODE_NOSTORE, window));
    CHECK_EQ(all[0], value);
    int seen = -1;
    CHECK_MPI(MPI_Get(&seen, 1, MPI_INT, next(), 0, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED, window));
    CHECK_EQ(seen, value);
  }
}

// Fences at unequal speed: each rank is late once in a while.
void late_fences(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * size, sizeof(int));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int round = 0; round < 12; ++round) {
    if (round % size == rank) nap();
    const int value = round + 100 * rank;
    for (int target = 0; target < size; ++target) put(window, value, target, rank);
    CHECK_MPI(MPI_Win_fence(0, window));
    for (int origin = 0; origin < size; ++origin) CHECK_EQ(window.as<int>()[origin], round + 100 * origin);
    CHECK_MPI(MPI_Win_fence(0, window));
  }
}

// A thousand epochs in a ring, each with a check of the value; half of them end in loops of MPI_Win_test.
void ring(check::Memory memory) {
  check::Window window(memory, sizeof(int), sizeof(int));
  const check::Group to({next()});
  const check::Group from({previous()});
  for (int round = 0; round < 1000; ++round) {
    const int value = round * 10 + rank;
    CHECK_MPI(MPI_Win_post(from, 0, window));
    CHECK_MPI(MPI_Win_start(to, 0, window));
    put(window, value, next(), 0);
    CHECK_MPI(MPI_Win_complete(window));
    if (round % 2 == 0) {
      CHECK_MPI(MPI_Win_wait(window));
    } else {
      int done = 0;
      while (!done) {
        CHECK_MPI(MPI_Win_test(window, &done));
        if (!done) sched_yield();
      }
    }
    CHECK_EQ(window.as<int>()[0], round * 10 + previous());
  }
}

// Every rank accesses every rank, itself included.
void everybody(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * size, sizeof(int));
  const check::Group all(check::all_ranks());
  for (int round = 0; round < 100; ++round) {
    const int value = round * 10 + rank;
    CHECK_MPI(MPI_Win_post(all, 0, window));
    CHECK_MPI(MPI_Win_start(all, 0, window));
    for (int target = 0; target < size; ++target) put(window, value, target, rank);
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
    for (int origin = 0; origin < size; ++origin) CHECK_EQ(window.as<int>()[origin], round * 10 + origin);
  }
}

// A start or post with an empty group is a noop (12.5.2), so that any epoch may follow it, and go on around it.
void noops(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(4 * sizeof(int)), sizeof(int));
  const auto nobody = [&] {
    CHECK_MPI(MPI_Win_post(MPI_GROUP_EMPTY, 0, window));
    CHECK_MPI(MPI_Win_start(MPI_GROUP_EMPTY, 0, window));
  };
  nobody();
  CHECK_MPI(MPI_Win_fence(0, window));
  put(window, rank, next(), 0);
  nobody();
  CHECK_MPI(MPI_Win_complete(window));
  CHECK_MPI(MPI_Win_wait(window));
  put(window, rank, next(), 1);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  for (int i = 0; i < 2; ++i) CHECK_EQ(window.as<int>()[i], previous());
  // One colour after the other: a rank without a partner has empty groups, and does not wait for the end.
  for (int colour = 0; colour < size; ++colour) {
    const check::Group origins(rank == colour ? std::vector<int>{previous()} : std::vector<int>{});
    const check::Group targets(next() == colour ? std::vector<int>{next()} : std::vector<int>{});
    CHECK_MPI(MPI_Win_post(origins, 0, window));
    CHECK_MPI(MPI_Win_start(targets, 0, window));
    if (next() == colour) put(window, 10 + colour, next(), 2);
    if (next() == colour) CHECK_MPI(MPI_Win_complete(window));
    if (rank == colour) CHECK_MPI(MPI_Win_wait(window));
  }
  CHECK_EQ(window.as<int>()[2], 10 + rank);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  nobody();
  CHECK_MPI(MPI_Win_lock_all(0, window));
  put(window, rank, next(), 3);
  nobody();
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Win_complete(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(window.as<int>()[3], previous());
  nobody();  // and MPI_Win_free
}

// Epochs with empty groups, which wait for nothing, between other epochs.
void empty_groups(check::Memory memory) {
  check::Window window(memory, sizeof(int), sizeof(int));
  const check::Group self({rank});
  for (int round = 0; round < 20; ++round) {
    CHECK_MPI(MPI_Win_start(MPI_GROUP_EMPTY, 0, window));
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_post(MPI_GROUP_EMPTY, 0, window));
    CHECK_MPI(MPI_Win_wait(window));
    CHECK_MPI(MPI_Win_post(MPI_GROUP_EMPTY, 0, window));
    int done = 0;
    CHECK_MPI(MPI_Win_test(window, &done));
    CHECK(done);
    // Epochs without operations.
    CHECK_MPI(MPI_Win_post(self, 0, window));
    CHECK_MPI(MPI_Win_start(self, 0, window));
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
  }
}

// Each rank accesses the following ranks, one more per round. The groups of one epoch overlap those of the next, and
// fast ranks are epochs ahead of slow ones.
void overlapping_groups(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * size, sizeof(int));
  for (int round = 0; round < 60; ++round) {
    std::vector<int> targets;
    std::vector<int> origins;
    const int reach = 1 + round % size;  // the number of following ranks that are written
    for (int i = 1; i <= reach; ++i) {
      targets.push_back((rank + i) % size);
      origins.push_back((rank + size * 2 - i) % size);
    }
    const check::Group to(targets);
    const check::Group from(origins);
    CHECK_MPI(MPI_Win_post(from, 0, window));
    if (round % 7 == rank) nap();
    CHECK_MPI(MPI_Win_start(to, 0, window));
    const int value = round * 10 + rank;
    for (int target : targets) put(window, value, target, rank);
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
    for (int origin : origins) CHECK_EQ(window.as<int>()[origin], round * 10 + origin);
  }
}

// Rank 0 only writes, the others only expose; each of them posts its next epoch without waiting for the others.
void one_origin(check::Memory memory) {
  constexpr int kRounds = 200;
  check::Window window(memory, sizeof(int), sizeof(int));
  if (size == 1) return;
  std::vector<int> others = check::all_ranks();
  others.erase(others.begin());
  if (rank == 0) {
    const check::Group to(others);
    for (int round = 1; round <= kRounds; ++round) {
      CHECK_MPI(MPI_Win_start(to, 0, window));
      std::vector<int> values(others.size());
      for (std::size_t i = 0; i < others.size(); ++i) {
        values[i] = round * 10 + others[i];
        put(window, values[i], others[i], 0);
      }
      CHECK_MPI(MPI_Win_complete(window));
    }
  } else {
    const check::Group from({0});
    for (int round = 1; round <= kRounds; ++round) {
      if (round % 50 == rank) nap();
      CHECK_MPI(MPI_Win_post(from, 0, window));
      CHECK_MPI(MPI_Win_wait(window));
      CHECK_EQ(window.as<int>()[0], round * 10 + rank);
    }
  }
}

// Rank 0 only exposes its window, to all others at once.
void one_target(check::Memory memory) {
  constexpr int kRounds = 200;
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * size, sizeof(int));
  if (size == 1) return;
  std::vector<int> others = check::all_ranks();
  others.erase(others.begin());
  for (int round = 1; round <= kRounds; ++round) {
    if (rank == 0) {
      const check::Group from(others);
      CHECK_MPI(MPI_Win_post(from, 0, window));
      CHECK_MPI(MPI_Win_wait(window));
      for (int origin : others) CHECK_EQ(window.as<int>()[origin], round * 10 + origin);
    } else {
      const check::Group to({0});
      const int value = round * 10 + rank;
      CHECK_MPI(MPI_Win_start(to, 0, window));
      put(window, value, 0, rank);
      CHECK_MPI(MPI_Win_complete(window));
    }
  }
}

// Small and middle-sized puts of all ranks to one, more than a target keeps room for while it computes; each epoch ends
// by a wait, by tests, or by a fence, and the target reads its memory at once.
void many_puts(check::Memory memory) {
  constexpr int kMost = 4096;  // ints per origin and epoch
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * size * kMost, sizeof(int));
  if (size == 1) return;
  std::vector<int> others = check::all_ranks();
  others.erase(others.begin());
  const check::Group from(others);
  const check::Group to({0});
  std::vector<int> out(kMost);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  for (int round = 0; round < 60; ++round) {
    // Puts of 4 bytes to 2 KiB: few, or so many that each origin puts 16 KiB in an epoch.
    const int ints = 1 << (round % 10);
    const int puts = round % 3 == 0 ? 1 : round % 3 == 1 ? 3 : kMost / ints;
    const bool by_fence = round % 4 == 3;
    const auto value = [&](int origin, int i) { return round * 1000000 + origin * 10000 + i; };
    const auto put_all = [&] {
      for (int i = 0; i < puts * ints; ++i) out[static_cast<std::size_t>(i)] = value(rank, i);
      // Backwards, so that they are not one dense block.
      for (int at = (puts - 1) * ints; at >= 0; at -= ints)
        CHECK_MPI(MPI_Put(&out[static_cast<std::size_t>(at)], ints, MPI_INT, 0,
                          static_cast<MPI_Aint>(rank) * kMost + at, ints, MPI_INT, window));
    };
    if (by_fence) {
      CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
      if (rank != 0) put_all();
      CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
    } else if (rank == 0) {
      CHECK_MPI(MPI_Win_post(from, 0, window));
      if (round % 5 == 0) nap();
      if (round % 2 == 0) {
        CHECK_MPI(MPI_Win_wait(window));
      } else {
        for (int flag = 0; flag == 0;) CHECK_MPI(MPI_Win_test(window, &flag));
      }
    } else {
      CHECK_MPI(MPI_Win_start(to, 0, window));
      put_all();
      CHECK_MPI(MPI_Win_complete(window));
    }
    if (rank == 0) {
      for (int origin : others) {
        for (int i = 0; i < puts * ints; ++i) CHECK_EQ(window.as<int>()[origin * kMost + i], value(origin, i));
      }
    }
  }
}

// Two windows in epochs at the same time, completed in the other order; a get and an accumulate in the second.
void two_windows(check::Memory memory) {
  check::Window one(memory, sizeof(int), sizeof(int));
  check::Window other(memory, 2 * sizeof(int), sizeof(int));
  const check::Group to({next()});
  const check::Group from({previous()});
  other.as<int>()[1] = 77 + rank;
  for (int round = 0; round < 100; ++round) {
    const int value = round * 10 + rank;
    int seen = -1;
    CHECK_MPI(MPI_Win_post(from, 0, one));
    CHECK_MPI(MPI_Win_post(from, 0, other));
    CHECK_MPI(MPI_Win_start(to, 0, other));
    CHECK_MPI(MPI_Win_start(to, 0, one));
    put(one, value, next(), 0);
    CHECK_MPI(MPI_Accumulate(&value, 1, MPI_INT, next(), 0, 1, MPI_INT, MPI_SUM, other));
    CHECK_MPI(MPI_Get(&seen, 1, MPI_INT, next(), 1, 1, MPI_INT, other));
    CHECK_MPI(MPI_Win_complete(other));
    CHECK_EQ(seen, 77 + next());
    CHECK_MPI(MPI_Win_wait(other));
    CHECK_EQ(other.as<int>()[0], round * 10 + previous());
    other.as<int>()[0] = 0;
    CHECK_MPI(MPI_Win_complete(one));
    CHECK_MPI(MPI_Win_wait(one));
    CHECK_EQ(one.as<int>()[0], round * 10 + previous());
  }
}

// MPI_MODE_NOCHECK on both sides: a message notifies the origin that the target has posted.
void without_check(check::Memory memory) {
  check::Window window(memory, sizeof(int), sizeof(int));
  const check::Group to({next()});
  const check::Group from({previous()});
  for (int round = 0; round < 100; ++round) {
    CHECK_MPI(MPI_Win_post(from, MPI_MODE_NOCHECK | (round % 2 ? MPI_MODE_NOSTORE : 0), window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_start(to, MPI_MODE_NOCHECK, window));
    const int value = round * 10 + rank;
    put(window, value, next(), 0);
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
    CHECK_EQ(window.as<int>()[0], round * 10 + previous());
  }
}

// One window, with all kinds of synchronization in succession.
void taking_turns(check::Memory memory) {
  check::Window window(memory, sizeof(int), sizeof(int));
  const check::Group to({next()});
  const check::Group from({previous()});
  for (int round = 0; round < 30; ++round) {
    int value = 100 * round + rank;
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
    put(window, value, next(), 0);
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
    CHECK_EQ(window.as<int>()[0], 100 * round + previous());
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    value += 10;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next(), 0, window));
    put(window, value, next(), 0);
    CHECK_MPI(MPI_Win_unlock(next(), window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
    CHECK_EQ(window.as<int>()[0], 100 * round + 10 + previous());
    CHECK_MPI(MPI_Win_unlock(rank, window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    value += 10;
    CHECK_MPI(MPI_Win_post(from, 0, window));
    CHECK_MPI(MPI_Win_start(to, 0, window));
    put(window, value, next(), 0);
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
    CHECK_EQ(window.as<int>()[0], 100 * round + 20 + previous());
  }
}

// Groups that are made and freed: the handle of a freed group may be reused for a group with other members.
void groups_come_and_go(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * size, sizeof(int));
  for (int i = 0; i < 200; ++i) {
    // The group has the rank `step` ahead, sometimes this rank as well, or all ranks.
    const int step = i % size;
    const int target = (rank + step) % size;
    std::vector<int> targets{target}, origins{(rank + size - step) % size};
    if (i % 3 == 1 && target != rank) {
      targets.push_back(rank);
      origins.push_back(rank);
    }
    if (i % 7 == 6) targets = origins = check::all_ranks();
    const check::Group exposed_to(origins), accessed(targets);
    CHECK_MPI(MPI_Win_post(exposed_to, 0, window));
    CHECK_MPI(MPI_Win_start(accessed, 0, window));
    const int value = 1000 * (i + 1) + rank;
    for (const int each : targets) put(window, value, each, rank);
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
    for (const int each : origins) CHECK_EQ(window.as<int>()[each], 1000 * (i + 1) + each);
  }
}

void only_fences(check::Memory memory, int count) {
  check::section("only fences");
  const check::Window window(memory, sizeof(int), sizeof(int));
  for (int i = 0; i < count; ++i) CHECK_MPI(MPI_Win_fence(0, window));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  if (program.has("fences")) {
    only_fences(program.memory(), program.number("fences", 1));
    return 0;
  }
  const check::Section<check::Memory> sections[] = {
      {"fence with assertions", fence_asserts, "12.5.5"},
      {"late fences", late_fences, "12.5.1"},
      {"a ring, a thousand times", ring, "12.5.2"},
      {"everybody to everybody", everybody, "12.5.2"},
      {"noops", noops},
      {"empty groups", empty_groups, "12.5.2"},
      {"overlapping groups", overlapping_groups, "12.5.2"},
      {"one origin", one_origin, "12.5.2"},
      {"one target", one_target, "12.5.2"},
      {"many puts", many_puts, "12.5.2"},
      {"two windows", two_windows, "12.5.2"},
      {"groups come and go", groups_come_and_go, "12.5.2"},
      {"MPI_MODE_NOCHECK", without_check, "12.5.5"},
      {"fence, locks and posts in turn", taking_turns, "12.5"},
  };
  check::run(sections, program.memory());
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
// A rank that is stopped, and cables that are cut.
#pragma once

#include <algorithm>
#include <cstring>
#include <thread>

#include "../stopped.hpp"
#include "common.hpp"

namespace faults {

// Requests the cut from support/virtual_hosts, which has passed the place where it waits for the request.
inline void cut_cable() {
  const char* file = std::getenv("FARSIDE_TEST_CUT_CABLE");
  if (check::rank() != 0 || file == nullptr) return;
  std::FILE* made = std::fopen(file, "w");
  CHECK(made != nullptr);
  std::fclose(made);
}

// Two counters at every rank: one changed by fetch_and_op, one by get and put under an exclusive lock. With `held` the
// rank stops itself while it holds the lock of rank 0.
inline int stopped(const check::Program& program) {
  check::section("rank 1 is stopped for 2 s");
  const check::Window window(program.memory(), kBytes, 8);
  const int ranks = check::size();
  int pid = getpid();
  std::vector<int> pids(static_cast<std::size_t>(ranks));
  CHECK_MPI(MPI_Allgather(&pid, 1, MPI_INT, pids.data(), 1, MPI_INT, MPI_COMM_WORLD));
  std::thread stopper;
  const bool cut = program.has("cut"), held = program.has("held");
  bool to_stop = held && check::rank() == kVictim;
  if (check::rank() == 0 && !cut) {
    stopper = std::thread([&] {
      if (!held) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      held ? check::await_stop(pids[kVictim]) : check::stop(pids[kVictim]);
      std::this_thread::sleep_for(std::chrono::seconds(2));
      kill(pids[kVictim], SIGCONT);
    });
  }
  if (cut) cut_cable();
  const std::int64_t one = 1;
  std::vector<std::int64_t> rounds(static_cast<std::size_t>(ranks));
  const auto begin = Clock::now();
  Clock::duration longest{};
  int next = 0;
  for (auto now = begin; now - begin < std::chrono::seconds(cut ? 6 : 3);) {
    const int target = next++ % ranks;
    std::int64_t before = 0, counted = 0;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, 0, MPI_SUM, window));
    CHECK_MPI(MPI_Get(&counted, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    CHECK_EQ(before, counted);
    if (target == 0 && std::exchange(to_stop, false)) CHECK_EQ(raise(SIGSTOP), 0);
    ++counted;
    CHECK_MPI(MPI_Put(&counted, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
    ++rounds[static_cast<std::size_t>(target)];
    const auto then = std::exchange(now, Clock::now());
    longest = std::max(longest, now - then);
  }
  if (cut && check::rank() == 0) CHECK(longest > std::chrono::seconds(1));
  if (stopper.joinable()) stopper.join();
  std::vector<std::int64_t> all(rounds.size());
  CHECK_MPI(MPI_Allreduce(rounds.data(), all.data(), ranks, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, check::rank(), 0, window));
  CHECK_EQ(window.as<std::int64_t>()[0], all[static_cast<std::size_t>(check::rank())]);
  CHECK_EQ(window.as<std::int64_t>()[1], all[static_cast<std::size_t>(check::rank())]);
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
  return 0;
}

// Waits until the cable is repaired. From then on all operations succeed, on new connections.
inline void back_again(const check::Window& window, int target) {
  const std::int64_t number = 8;
  int code = MPI_ERR_OTHER;
  for (const auto end = Clock::now() + std::chrono::seconds(40); code != MPI_SUCCESS && Clock::now() < end;) {
    code = MPI_Put(&number, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window);
    if (code == MPI_SUCCESS) code = MPI_Win_flush(target, window);
  }
  CHECK_MPI(code);
  const long double one = 1;
  CHECK_MPI(MPI_Accumulate(&one, 1, MPI_LONG_DOUBLE, target, 2, 1, MPI_LONG_DOUBLE, MPI_SUM, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, check::rank(), 0, window));
  CHECK_EQ(window.as<std::int64_t>()[0], number);
  CHECK_EQ(window.as<long double>()[1], one);
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
}

// Each rank puts to the other one until a put fails. Checks the time until the error, and this rank's own memory.
inline int dead(const check::Program& program) {
  check::section("a cable that is dead");
  const std::chrono::seconds timeout(program.number("dead", 0));
  // Not freed while the cable is cut, because that would wait for the other rank's data.
  auto* const kept = new check::Window(program.memory(), kBytes, 8);
  const check::Window& window = *kept;
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const int target = 1 - check::rank();
  const std::int64_t number = 7;
  int code = MPI_SUCCESS;
  Clock::duration took{};
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(MPI_Put(&number, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  cut_cable();
  for (const auto end = Clock::now() + std::chrono::seconds(20); code == MPI_SUCCESS && Clock::now() < end;) {
    const auto begin = Clock::now();
    code = MPI_Put(&number, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window);
    if (code == MPI_SUCCESS) code = MPI_Win_flush(target, window);
    took = Clock::now() - begin;
  }
  CHECK(code != MPI_SUCCESS);
  CHECK(took >= timeout - std::chrono::milliseconds(500));
  CHECK(took < timeout + std::chrono::seconds(3));
  CHECK_EQ(window.as<std::int64_t>()[0], number);
  std::printf("rank %d: error after %.1f s\n", check::rank(), std::chrono::duration<double>(took).count());
  std::fflush(stdout);
  // Without `back` the window is not freed, because messages between the runtimes would wait for the cable.
  if (program.has("back")) {
    back_again(window, target);
    delete kept;
  }
  return 0;
}

// The host of rank 1 vanishes, with the lock of rank 0. The window is not freed, as in dead().
inline int vanished(const check::Program& program) {
  check::section("the host of a lock's holder vanishes");
  const double timeout = static_cast<double>(program.number("vanished", 0));
  const check::Window& window = *new check::Window(program.memory(), kBytes, 8);
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  if (check::rank() == kVictim) {
    const std::int64_t number = 7;  // without an operation the lock may be deferred
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
    CHECK_MPI(MPI_Put(&number, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  cut_cable();
  if (check::rank() != 0) return 0;
  const auto begin = Clock::now();
  CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window) != MPI_SUCCESS);
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("rank 0: error after %.1f s\n", took);
  std::fflush(stdout);
  CHECK((took > timeout / 2 && took < 2 * timeout));
  return 0;
}

// Rank 0 gets until a get fails, and then reuses the buffers. Data of the failed gets are still in transit, and must
// not arrive in the buffers when the cable is repaired.
inline int reused(const check::Program& program) {
  check::section("buffers of gets that have failed");
  constexpr std::size_t kGets = 64, kEach = std::size_t{1} << 20;
  constexpr unsigned char kTheirs = 0x11, kMine = 0x55;
  auto* const kept = new check::Window(program.memory(), kEach, 8);
  const check::Window& window = *kept;
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check::rank(), 0, window));
  std::memset(window.as<unsigned char>(), kTheirs, kEach);
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::vector<unsigned char> buffers(kGets * kEach);
  const auto get_all = [&](unsigned char* into) {
    int code = MPI_SUCCESS;
    for (std::size_t i = 0; i < kGets && code == MPI_SUCCESS; ++i) {
      code = MPI_Get(into + i * kEach, kEach, MPI_BYTE, 1, 0, kEach, MPI_BYTE, window);
    }
    const int flushed = MPI_Win_flush(1, window);
    return code == MPI_SUCCESS ? flushed : code;
  };
  if (check::rank() == 0) {
    CHECK_MPI(get_all(buffers.data()));
    CHECK_EQ(buffers.back(), kTheirs);
    cut_cable();
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (get_all(buffers.data()) == MPI_SUCCESS) CHECK(Clock::now() < end);
    std::memset(buffers.data(), kMine, buffers.size());
    // When the same amount has arrived again, in other memory, all data that was in transit before has arrived.
    std::vector<unsigned char> others(buffers.size());
    const auto last = Clock::now() + std::chrono::seconds(40);
    while (get_all(others.data()) != MPI_SUCCESS) CHECK(Clock::now() < last);
    CHECK_EQ(others.back(), kTheirs);
    const auto touched =
        std::count_if(buffers.begin(), buffers.end(), [](unsigned char byte) { return byte != kMine; });
    CHECK_EQ(touched, 0);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_unlock_all(window));
  delete kept;
  return 0;
}

}  // namespace faults

// SPDX-License-Identifier: BSD-3-Clause
// The last rank dies with the lock of rank 0, and the launcher lets the others live: each wait for that lock ends with
// an error that names the dead rank, within FARSIDE_PEER_TIMEOUT (argument `timeout`, in seconds); a later attempt
// fails immediately; other locks can be acquired. Ends by MPI_Abort, because the dead rank never reaches MPI_Finalize.
//   deaths SECONDS holds   it dies while it holds the lock
//   deaths SECONDS waits   while it waits for the lock
//   deaths SECONDS passes  at any time, in a loop of contended locks
//   deaths SECONDS apart   it has no part in the lock: nothing is lost
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.hpp"
#include "stderr.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTarget = 0, kOther = 2, kSurvived = 33;

// As by a signal, by which MPICH's launcher may end itself.
[[noreturn]] void die() { _exit(0); }

// Whether the process exists and is no zombie.
bool lives(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;  // stays empty if the process ends while the file is open
  std::getline(file, stat);
  const std::size_t name = stat.rfind(") ");
  return name != std::string::npos && stat[name + 2] != 'Z' && stat[name + 2] != 'X';
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Deaths {
 public:
  explicit Deaths(const check::Program& program) : timeout_(program.number("timeout", 4)), victim_(check::size() - 1) {
    // Without the home of the global lock no exclusive lock can be acquired. It differs from window to window.
    const std::string home = std::to_string(victim_);
    do {
      windows_.push_back(std::make_unique<check::Window>(program.memory(), 64, 8));
      window_ = *windows_.back();
    } while (check::hint(window_, "farside_global_lock_home") == home);
    CHECK_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    int pid = getpid();
    CHECK_MPI(MPI_Bcast(&pid, 1, MPI_INT, victim_, MPI_COMM_WORLD));
    victim_pid_ = pid;
    CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, is_victim() ? MPI_UNDEFINED : 0, 0, &survivors_));
  }

  void holds() {
    if (is_victim()) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, window_));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (is_victim()) die();
    await_death();
    check::section("locks of other ranks go on");
    lock_and_add(MPI_LOCK_EXCLUSIVE, kOther);
    survivors_meet();
    the_lock_is_lost();
    if (check::rank() == kOther) all_are_lost();
    if (check::rank() != kOther) lock_and_add(MPI_LOCK_EXCLUSIVE, 1);
    survivors_meet();
    the_others_are_not();
  }

  void waits() {
    if (check::rank() == kOther) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, window_));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (is_victim()) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        die();
      }).detach();
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, window_);
    }
    await_death();
    // The unlock reports that its wake-up has not arrived, if it knows.
    if (check::rank() == kOther) MPI_Win_unlock(kTarget, window_);
    survivors_meet();
    the_lock_is_lost();
    survivors_meet();
    the_others_are_not();
  }

  // Where the lock is not lost, the victim had no part in it when it died.
  void passes() {
    if (is_victim()) {
      std::thread([] {
        std::random_device random;
        std::this_thread::sleep_for(std::chrono::microseconds(300'000 + random() % 10'000));
        die();
      }).detach();
    }
    check::Stderr captured;
    int code = MPI_SUCCESS;
    for (Clock::time_point died{}; code == MPI_SUCCESS;) {
      const Clock::time_point begin = Clock::now();
      code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, window_);
      // The holder may first try for as long to connect to the victim, which waits for it.
      CHECK(seconds_since(died != Clock::time_point{} ? std::max(begin, died) : begin) < 2 * timeout_ + 1);
      // An unlock may report that a wake-up of the victim has not arrived.
      if (code == MPI_SUCCESS) MPI_Win_unlock(kTarget, window_);
      if (died == Clock::time_point{} && !lives(victim_pid_)) died = Clock::now();
      if (died != Clock::time_point{} && seconds_since(died) > 2) break;
    }
    const std::string text = captured.end();
    std::fputs(text.c_str(), stderr);
    std::fprintf(stderr, "deaths: rank %d: the lock is %s\n", check::rank(), code == MPI_SUCCESS ? "free" : "lost");
    await_death();
    survivors_meet();
    the_others_are_not();
  }

  // Waiters look for dead ranks after each sixth of the timeout, and find one.
  void apart() {
    if (is_victim()) die();
    await_death();
    const auto after = [&](double looks) {
      std::this_thread::sleep_for(std::chrono::duration<double>(looks * timeout_ / 6));
    };
    const auto hold = [&](int type, double looks) {
      CHECK_MPI(MPI_Win_lock(type, kTarget, 0, window_));
      after(looks);
      CHECK_MPI(MPI_Win_unlock(kTarget, window_));
    };
    check::section("a living holder keeps the lock for long");
    const int rank = check::rank();
    if (rank == kOther) hold(MPI_LOCK_EXCLUSIVE, 3.5);
    if (rank != kOther) {
      after(0.2);
      lock_and_add(rank == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, kTarget);
    }
    survivors_meet();
    check::section("readers that were let in together depart one after the other");
    if (rank == 3) hold(MPI_LOCK_EXCLUSIVE, 1);
    if (rank == 1 || rank == 2) {
      after(0.2);
      hold(MPI_LOCK_SHARED, rank == 1 ? 1.1 : 2.1);
    }
    if (rank == 0) {
      after(0.6);
      lock_and_add(MPI_LOCK_EXCLUSIVE, kTarget);
    }
    survivors_meet();
    the_others_are_not();
  }

  [[noreturn]] void end() {
    survivors_meet();
    std::fprintf(stderr, "deaths: rank %d has survived\n", check::rank());
    survivors_meet();
    MPI_Abort(MPI_COMM_WORLD, kSurvived);
    std::abort();
  }

 private:
  bool is_victim() const { return check::rank() == victim_; }
  void await_death() const {
    while (lives(victim_pid_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void survivors_meet() const { CHECK_MPI(MPI_Barrier(survivors_)); }
  void lock_and_add(int type, int target) {
    const std::int64_t one = 1;
    CHECK_MPI(MPI_Win_lock(type, target, 0, window_));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window_));
    CHECK_MPI(MPI_Win_unlock(target, window_));
  }
  // Expects an error that names the dead rank, within so many seconds.
  template <class Call>
  void fails(const char* what, double limit, Call&& call) {
    const Clock::time_point begin = Clock::now();
    check::Stderr captured;
    const int code = call();
    const std::string text = captured.end();
    const double took = seconds_since(begin);
    std::fputs(text.c_str(), stderr);
    std::fprintf(stderr, "deaths: rank %d: %s fails after %.2f s\n", check::rank(), what, took);
    CHECK(code != MPI_SUCCESS);
    CHECK(text.find(" is lost: rank " + std::to_string(victim_) + " (") != std::string::npos);
    CHECK(took < limit);
  }
  void the_lock_is_lost() {
    check::section("the lock is lost");
    const int type = check::rank() == 1 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE;
    // MPI_Win_lock need not wait for the lock.
    const auto attempt = [&] {
      const int code = MPI_Win_lock(type, kTarget, 0, window_);
      return code == MPI_SUCCESS ? MPI_Win_unlock(kTarget, window_) : code;
    };
    fails(type == MPI_LOCK_SHARED ? "a shared lock" : "an exclusive lock", timeout_, attempt);
    fails("the next attempt", timeout_ / 10, attempt);
    survivors_meet();
  }
  void all_are_lost() {
    check::section("a lock_all waits for the lock, too");
    fails("a lock_all", timeout_, [&] { return MPI_Win_lock_all(0, window_); });
    fails("the next lock_all", timeout_ / 10, [&] { return MPI_Win_lock_all(0, window_); });
  }
  void the_others_are_not() {
    check::section("other locks can be acquired");
    // This unlock may still report that a wake-up of the victim has not arrived.
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kOther, 0, window_));
    MPI_Win_unlock(kOther, window_);
    for (const int target : {1, kOther}) {
      for (const int type : {MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED}) lock_and_add(type, target);
    }
    survivors_meet();
  }

  double timeout_;
  std::vector<std::unique_ptr<check::Window>> windows_;
  MPI_Win window_ = MPI_WIN_NULL;  // the last one
  int victim_;
  int victim_pid_ = 0;
  MPI_Comm survivors_ = MPI_COMM_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  // The second thread only sends a signal.
  check::Program program(argc, argv, MPI_THREAD_FUNNELED);
  signal(SIGUSR1, SIG_IGN);  // MPICH's launcher sends it to the other ranks when one has died
  Deaths deaths(program);
  if (program.has("holds")) deaths.holds();
  if (program.has("waits")) deaths.waits();
  if (program.has("passes")) deaths.passes();
  if (program.has("apart")) deaths.apart();
  deaths.end();
}

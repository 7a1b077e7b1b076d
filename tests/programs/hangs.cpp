// SPDX-License-Identifier: BSD-3-Clause
// Long waits are reported with their cause (FARSIDE_HANG, which is 1 here), and end when the cause is removed. The
// program runs on two or three ranks. Of three ranks, rank 1 is the cause, rank 2 waits, and rank 0 takes part if it
// can. Of two ranks, rank 0 is the cause.
//
//   hangs [create]          each kind of wait
//   hangs quiet [create]    with FARSIDE_HANG=0: nothing is printed
#include <atomic>
#include <cerrno>
#include <chrono>
#include <regex>
#include <signal.h>
#include <string>
#include <thread>

#include "check.hpp"
#include "notified_calls.hpp"
#include "stderr.hpp"
#include "stopped.hpp"

namespace {

using Clock = std::chrono::steady_clock;

int cause() { return check::size() > 2 ? 1 : 0; }
int waiter() { return check::size() - 1; }
bool waits() { return check::rank() == waiter(); }
bool causes() { return check::rank() == cause(); }

std::string route() {
  const char* given = std::getenv("TEST_ROUTE");
  return given != nullptr ? given : "";
}
// Between the cause and the rank that waits.
bool over_fabric() { return route() == "fabric" || route() == "hosts"; }
// Whether barriers combine the ranks of a node: a waiting rank then knows only the rank whose word it waits for.
bool by_nodes() { return route() == "hosts" && check::size() > 2; }

std::vector<int> pids;

// The cause waits here until the waiter has said what it waits for.
void await_report(int signal = SIGUSR2) {
  sigset_t reported;
  sigemptyset(&reported);
  sigaddset(&reported, signal);
  const timespec limit{30, 0};
  int got = 0;
  // A process that is stopped and continued leaves the call (signal(7)).
  do {
    got = sigtimedwait(&reported, nullptr, &limit);
  } while (got < 0 && errno == EINTR);
  CHECK_EQ(got, signal);
}

// Calls `wait`, which hangs until the cause has the signal, and returns what was printed. The cause gets it when a line
// matches the pattern, or after 20 s.
template <class Wait>
void reports(const std::string& pattern, int signal, Wait&& wait) {
  check::Stderr captured;
  const std::regex expected(pattern);
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    const Clock::time_point until = Clock::now() + std::chrono::seconds(20);
    while (!std::regex_search(captured.so_far(), expected) && Clock::now() < until && !over)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kill(pids[static_cast<std::size_t>(cause())], signal);
  });
  wait();
  over = true;
  watcher.join();
  const std::string text = captured.end();
  std::fputs(text.c_str(), stderr);
  if (!std::regex_search(text, expected)) check::fail(__FILE__, __LINE__, "nothing matches: " + pattern);
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

// "rank 2 has waited 1 s in CALL FOR (window 'hung')MORE; called from lock_held (hangs.cpp:108)"
std::string line(const std::string& call, const std::string& what, const std::string& more) {
  return rank_text(waiter()) + " has waited [0-9]+ s in " + call + " " + what + " \\(window 'hung'\\)" + more +
         ".*; called from .* \\(hangs\\.cpp:[0-9]+\\)";
}

void lock_held(MPI_Win window) {
  const std::int64_t one = 1;
  if (causes()) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
  if (causes()) CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window));
  if (causes()) CHECK_MPI(MPI_Win_flush(0, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (causes()) {
    await_report();
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
  // A deferred lock is acquired by the flush.
  if (waits()) {
    reports(line("MPI_Win_(lock|flush)", "for an exclusive lock at rank 0", ", which " + rank_text(cause()) + " holds"),
            SIGUSR2, [&] {
              CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
              CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, window));
              CHECK_MPI(MPI_Win_flush(0, window));
              CHECK_MPI(MPI_Win_unlock(0, window));
            });
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// The cause holds a lock of rank 0 until the waiter has said what it waits for.
void hold_until_reported(int lock_type, MPI_Win window) {
  std::int64_t got = 0;
  if (causes()) {
    CHECK_MPI(MPI_Win_lock(lock_type, 0, 0, window));
    CHECK_MPI(MPI_Get(&got, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(0, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (causes()) {
    await_report();
    CHECK_MPI(MPI_Win_unlock(0, window));
  }
}

void lock_shared_by_others(MPI_Win window) {
  std::int64_t got = 0;
  hold_until_reported(MPI_LOCK_SHARED, window);
  if (waits()) {
    reports(line("MPI_Win_(lock|flush)", "for an exclusive lock at rank 0",
                 "; its lock word counts 1 shared lock and 1 exclusive lock, held or awaited"),
            SIGUSR2, [&] {
              CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
              CHECK_MPI(MPI_Get(&got, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, window));
              CHECK_MPI(MPI_Win_flush(0, window));
              CHECK_MPI(MPI_Win_unlock(0, window));
            });
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void lock_all_kept_out(MPI_Win window) {
  hold_until_reported(MPI_LOCK_EXCLUSIVE, window);
  if (waits()) {
    const std::string holder = rank_text(cause());
    reports(check::lock_all_has_global_lock()
                ? line("MPI_Win_lock_all", "for the locks of all ranks",
                       "; 1 exclusive lock, held or awaited, keeps it out, held by " + holder)
                : line("MPI_Win_lock_all", "for the locks of all ranks, and now for that of rank 0",
                       ", which " + holder + " holds"),
            SIGUSR2, [&] { CHECK_MPI(MPI_Win_lock_all(0, window)); });
    CHECK_MPI(MPI_Win_unlock_all(window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

std::string not_reached() {
  return by_nodes() ? "for rank [0-9]+, which has not reached it, or waits for another rank that has not"
                    : "for " + rank_text(cause()) + ", which has not reached it";
}

void fence_missed(MPI_Win window) {
  CHECK_MPI(MPI_Win_fence(0, window));
  if (causes()) await_report();
  if (waits()) {
    reports(line("MPI_Win_fence", not_reached(), ""), SIGUSR2, [&] { CHECK_MPI(MPI_Win_fence(0, window)); });
  } else {
    CHECK_MPI(MPI_Win_fence(0, window));
  }
}

void post_missing(MPI_Win window) {
  const check::Group origin({waiter()}), target({cause()});
  if (causes()) {
    await_report();
    CHECK_MPI(MPI_Win_post(origin, 0, window));
    CHECK_MPI(MPI_Win_wait(window));
  }
  if (waits()) {
    reports(line("MPI_Win_start", "for the MPI_Win_post of " + rank_text(cause()), ""), SIGUSR2, [&] {
      CHECK_MPI(MPI_Win_start(target, 0, window));
      const std::int64_t one = 1;
      CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, cause(), 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_complete(window));
    });
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void complete_missing(MPI_Win window) {
  const check::Group origin({cause()}), target({waiter()});
  if (causes()) {
    CHECK_MPI(MPI_Win_start(target, 0, window));
    await_report();
    CHECK_MPI(MPI_Win_complete(window));
  }
  if (waits()) {
    CHECK_MPI(MPI_Win_post(origin, 0, window));
    reports(line("MPI_Win_wait", "for the MPI_Win_complete of " + rank_text(cause()), ""), SIGUSR2,
            [&] { CHECK_MPI(MPI_Win_wait(window)); });
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void notification_missing(MPI_Win window) {
  CHECK_MPI(MPIX_Win_set_num_notify(window, MPI_INFO_NULL, 1));
  if (causes()) {
    await_report();
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, waiter(), 0, window));
    CHECK_MPI(MPIX_Put_notify(nullptr, 0, MPI_BYTE, waiter(), 0, 0, MPI_BYTE, 0, window));
    CHECK_MPI(MPI_Win_unlock(waiter(), window));
  }
  if (waits()) {
    reports(line("MPIX_Win_wait_notify", "for notification counter 0, which is 0, to reach 1", ""), SIGUSR2,
            [&] { CHECK_MPI(MPIX_Win_wait_notify(window, 0, 1)); });
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

std::string stopped_text() {
  return over_fabric()
             ? " \\(it (does not answer within 500 ms: it is stopped, or out of reach|has not acknowledged earlier "
               "operations: it is stopped, out of reach, or slow)\\)"
             : " \\(its process " + std::to_string(pids[static_cast<std::size_t>(cause())]) + " is stopped\\)";
}

// The cause is stopped from here on, until it gets SIGCONT.
void stop_cause() {
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  // The other ranks may still be in the barrier, and need the cause to leave it.
  if (waits()) {
    for (int rank = 0; rank < waiter(); ++rank)
      CHECK_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    check::stop(pids[static_cast<std::size_t>(cause())]);
  } else {
    CHECK_MPI(MPI_Send(nullptr, 0, MPI_BYTE, waiter(), 0, MPI_COMM_WORLD));
  }
  if (causes()) await_report(SIGCONT);
}

void stopped_before_fence(MPI_Win window) {
  CHECK_MPI(MPI_Win_fence(0, window));
  stop_cause();
  if (waits()) {
    reports(line("MPI_Win_fence", not_reached(), by_nodes() ? "" : stopped_text()), SIGCONT,
            [&] { CHECK_MPI(MPI_Win_fence(0, window)); });
  } else {
    CHECK_MPI(MPI_Win_fence(0, window));
  }
}

void stopped_target(MPI_Win window) {
  if (!over_fabric()) return;  // no other operation waits for its target
  std::int64_t one = 1;
  stop_cause();
  if (waits()) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, cause(), MPI_MODE_NOCHECK, window));
    reports(line("MPI_(Put|Win_flush)", "for " + rank_text(cause()) + " to acknowledge operations", stopped_text()),
            SIGCONT, [&] {
              CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, cause(), 0, 1, MPI_INT64_T, window));
              CHECK_MPI(MPI_Win_flush(cause(), window));
            });
    CHECK_MPI(MPI_Win_unlock(cause(), window));
  }
  stop_cause();
  if (waits()) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, cause(), MPI_MODE_NOCHECK, window));
    reports(line("a call that completes requests", "for " + rank_text(cause()) + " to acknowledge its MPI_Rget",
                 stopped_text()),
            SIGCONT, [&] {
              MPI_Request request;
              CHECK_MPI(MPI_Rget(&one, 1, MPI_INT64_T, cause(), 0, 1, MPI_INT64_T, window, &request));
              CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
            });
    CHECK_MPI(MPI_Win_unlock(cause(), window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void creation_missed(MPI_Win) {
  MPI_Win made = MPI_WIN_NULL;
  void* base = nullptr;
  const auto make = [&] { CHECK_MPI(MPI_Win_allocate(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &made)); };
  if (causes()) await_report();
  if (waits()) {
    reports(rank_text(waiter()) + " has waited [0-9]+ s in MPI_Win_allocate for other ranks of its communicator",
            SIGUSR2, make);
  } else {
    make();
  }
  CHECK_MPI(MPI_Win_free(&made));
}

constexpr check::Section<MPI_Win> kSections[] = {
    {"a lock that another rank holds", lock_held},
    {"a lock that others share", lock_shared_by_others},
    {"a lock_all that an exclusive lock keeps out", lock_all_kept_out},
    {"a fence that one rank misses", fence_missed},
    {"a start without the post", post_missing},
    {"a wait without the complete", complete_missing},
    {"a wait for a notification", notification_missing},
    {"a fence with a rank that is stopped", stopped_before_fence},
    {"operations on a rank that is stopped", stopped_target},
    {"a window that one rank does not make", creation_missed},
};

// Long enough that a report would come, were it asked for after no time at all.
void quiet(MPI_Win window) {
  check::Stderr captured;
  CHECK_MPI(MPI_Win_fence(0, window));
  if (causes()) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(captured.end(), "");
}

}  // namespace

int main(int argc, char** argv) {
  // Threads of the runtime inherit the mask.
  sigset_t reported;
  sigemptyset(&reported);
  sigaddset(&reported, SIGUSR2);
  sigaddset(&reported, SIGCONT);
  sigprocmask(SIG_BLOCK, &reported, nullptr);
  check::Program program(argc, argv);
  pids = check::pids_here();
  CHECK(pids[0] != 0);
  const check::Window window(program.memory(), 64, 8);
  CHECK_MPI(MPI_Win_set_name(window, "hung"));
  // Reports read words of ranks that were reached before.
  const std::int64_t none = 0;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int rank = 0; rank < check::size(); ++rank)
    CHECK_MPI(MPI_Put(&none, 1, MPI_INT64_T, rank, 2, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (program.has("quiet")) {
    check::section("nothing is reported");
    quiet(window);
  } else {
    check::run(kSections, MPI_Win(window));
  }
}

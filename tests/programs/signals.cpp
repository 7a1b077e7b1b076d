// SPDX-License-Identifier: BSD-3-Clause
// Signals that write statistics and traces (run by tests/system/signals, which looks at the files).
//
//   signals term|usr1 [create]   each rank sends itself SIGTERM or SIGUSR1 while it works. The default action ends it;
//                                where the runtime has a handler (MPICH's, of SIGUSR1), the program continues
//   signals own|later            the program has a handler of its own, installed before its first window or after it:
//                                it is called and stays, and the program ends normally
//   signals waiting              rank 1 gets SIGTERM while it waits in MPI_Win_lock
//   signals links                the names under which the files are begun are links to another file of this user
//   signals forked               a child of fork(2) gets SIGTERM: the action that there was before the first window
#include <atomic>
#include <chrono>
#include <fstream>
#include <signal.h>
#include <sys/wait.h>
#include <thread>

#include "check.hpp"

namespace {

std::atomic<int> calls{0};
void on_signal(int) { calls.fetch_add(1); }

struct sigaction action_of(int signal) {
  struct sigaction found {};
  CHECK_EQ(sigaction(signal, nullptr, &found), 0);
  return found;
}

void install(int signal) {
  struct sigaction own {};
  own.sa_handler = on_signal;
  CHECK_EQ(sigaction(signal, &own, nullptr), 0);
}

void work(MPI_Win window, int rounds, bool only_here = false) {
  const std::int64_t one = 1;
  for (int i = 0; i < rounds; ++i) {
    const int target = only_here ? check::rank() : i % check::size();
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
}

// By another thread, as signals come at any moment. Memory of a rank that has ended cannot be accessed, and locks that
// it holds stay held, so each rank works at itself until it ends.
void ended_by(int signal, MPI_Win window) {
  work(window, 100);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  std::thread([signal] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(getpid(), signal);
  }).detach();
  while (true) work(window, 1000, true);
}

void continues_after(int signal, MPI_Win window) {
  work(window, 100);
  raise(signal);
  const std::string path = std::string(std::getenv("FARSIDE_STATS")) + "." + std::to_string(check::rank()) + ".json";
  while (!std::ifstream(path)) work(window, 10);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void waits_in_lock(MPI_Win window) {
  work(window, 10);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() == 0) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() != 0) {
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      kill(getpid(), SIGTERM);
    }).detach();
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  kill(getpid(), SIGTERM);
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void forked(bool by_library) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  CHECK_EQ(kill(child, SIGTERM), 0);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  // A library's handler ends the child in its own way.
  CHECK(by_library ? WIFEXITED(status) : WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

std::string victim() { return std::string(std::getenv("FARSIDE_STATS")) + ".victim." + std::to_string(getpid()); }

void lay_links() {
  std::ofstream(victim()) << "precious";
  const std::string file = std::string(std::getenv("FARSIDE_STATS")) + "." + std::to_string(check::rank()) + ".json";
  const std::string part = file + "." + std::to_string(getpid()) + ".part";
  CHECK_EQ(symlink(victim().c_str(), part.c_str()), 0);
  std::atexit([] {
    std::string text;
    std::getline(std::ifstream(victim()), text);
    if (text == "precious") return;
    std::fprintf(stderr, "the file behind the link was overwritten\n");
    _exit(1);
  });
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const bool of_runtime = action_of(SIGUSR1).sa_handler != SIG_DFL;
  const bool by_library = action_of(SIGTERM).sa_handler != SIG_DFL;
  if (program.has("own")) install(SIGTERM);
  const check::Window window(program.memory(), 64, 8);
  if (program.has("later")) install(SIGTERM);
  if (program.has("own") || program.has("later")) {
    check::section("a handler of the program");
    work(window, 10);
    raise(SIGTERM);
    CHECK_EQ(calls.load(), 1);
    work(window, 10);
    CHECK(action_of(SIGTERM).sa_handler == on_signal);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  } else if (program.has("links")) {
    check::section("links");
    lay_links();
    work(window, 10);
  } else if (program.has("forked")) {
    check::section("a child");
    work(window, 10);
    forked(by_library);
  } else if (program.has("waiting")) {
    check::section("a rank that waits");
    waits_in_lock(window);
  } else {
    check::section("the default action");
    const int signal = program.has("term") ? SIGTERM : SIGUSR1;
    if (signal == SIGUSR1 && of_runtime) {
      continues_after(signal, window);
    } else {
      ended_by(signal, window);
    }
  }
}

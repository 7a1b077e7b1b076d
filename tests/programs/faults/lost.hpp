// SPDX-License-Identifier: BSD-3-Clause
// A rank that is lost, as its host would be; and connections that end with notifications on their way.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>

#include "../stderr.hpp"
#include "common.hpp"

namespace faults {

inline std::vector<int> sockets() {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    int kind = 0;
    socklen_t length = sizeof kind;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &length) == 0) found.push_back(fd);
  }
  return found;
}

// Whether all threads of the process are stopped.
inline bool all_stopped(pid_t process) {
  std::error_code ended;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", ended)) {
    std::ifstream file(thread.path() / "stat");
    std::string stat;  // stays empty if the thread ends while the file is open
    std::getline(file, stat);
    const std::size_t name = stat.rfind(") ");
    if (name != std::string::npos && stat[name + 2] != 'T') return false;
  }
  return true;
}

// Stops this process and shuts down its connections, except the runtime's, or the launcher would end all ranks. A child
// with copies of the descriptors does the shutdown, when farside's thread can accept no new connections any more.
[[noreturn]] inline void be_gone(const std::vector<int>& of_the_runtime) {
  const std::vector<int> all = sockets();
  const pid_t self = getpid();
  if (fork() == 0) {
    while (!all_stopped(self)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const int fd : all) {
      if (std::find(of_the_runtime.begin(), of_the_runtime.end(), fd) == of_the_runtime.end()) shutdown(fd, SHUT_RDWR);
    }
    _exit(0);
  }
  while (true) raise(SIGSTOP);
}

// The program ends by MPI_Abort, because the lost rank never reaches MPI_Finalize. The exit code carries the result,
// because launchers may lose output then.
inline constexpr int kGone = 33;

[[noreturn]] inline void gone(const check::Program& program) {
  check::section("rank 1 is gone");
  const std::vector<int> before = sockets();
  // MPICH's launcher sends SIGUSR1 to the other ranks when one has died.
  if (program.has("killed")) signal(SIGUSR1, SIG_IGN);
  const check::Window window(program.memory(), kBytes, 8);
  const check::Window exposed(program.memory(), 8, 8);
  // The sizes differ, so that the first operation on a rank asks it for its size.
  const check::Window uneven(program.memory(), 8 * (1 + check::rank()), 8);
  for (const MPI_Win each : {MPI_Win(window), MPI_Win(exposed), MPI_Win(uneven)})
    CHECK_MPI(MPI_Win_set_errhandler(each, MPI_ERRORS_RETURN));
  put_to_all(window, 0);
  // The last message to rank 1, which starts no access epoch. (An adapter says that the post has arrived, and nothing
  // ends a wait for a rank that dies afterwards.)
  const bool posts = !program.has("killed") && check::rank() != kVictim;
  if (posts) CHECK_MPI(MPI_Win_post(check::Group({kVictim}), 0, exposed));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() == kVictim) {
    if (program.has("killed")) kill(getpid(), SIGKILL);
    be_gone(before);
  }
  // Nothing says that rank 1 has received the post.
  if (posts) {
    check::Stderr of_wait;
    CHECK(MPI_Win_wait(exposed) != MPI_SUCCESS);
    CHECK(of_wait.end().find("target 1: the connection was lost") != std::string::npos);
  }
  const std::int64_t number = 7 + check::rank();
  // The timing decides which call gets the error.
  int code = MPI_SUCCESS;
  check::Stderr captured;
  while (code == MPI_SUCCESS) {
    code = MPI_Win_lock_all(0, window);
    if (code != MPI_SUCCESS) break;
    code = MPI_Put(&number, 1, MPI_INT64_T, kVictim, check::rank(), 1, MPI_INT64_T, window);
    if (code == MPI_SUCCESS) code = MPI_Win_flush(kVictim, window);
    const int unlocked = MPI_Win_unlock_all(window);
    if (code == MPI_SUCCESS) code = unlocked;
  }
  const std::string text = captured.end();
  std::fputs(text.c_str(), stderr);
  CHECK(text.find("target 1: libfabric ") != std::string::npos);
  // Without an exclusive lock, because rank 1 may be the home of the window's global lock.
  const int other = check::rank() == 0 ? 2 : 0;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, other, 0, window));
  CHECK_MPI(MPI_Put(&number, 1, MPI_INT64_T, other, check::rank(), 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock(other, window));
  std::int64_t theirs = 0;
  CHECK_MPI(MPI_Sendrecv(&number, 1, MPI_INT64_T, other, 0, &theirs, 1, MPI_INT64_T, other, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
  CHECK_EQ(window.as<volatile std::int64_t>()[other], theirs);
  // A lock that fails at the first contact with its target is not held.
  CHECK(MPI_Win_lock(MPI_LOCK_SHARED, kVictim, 0, uneven) != MPI_SUCCESS ||
        MPI_Win_unlock(kVictim, uneven) != MPI_SUCCESS);
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, other, 0, uneven));
  CHECK_MPI(MPI_Put(&number, 1, MPI_INT64_T, other, 0, 1, MPI_INT64_T, uneven));
  CHECK_MPI(MPI_Win_unlock(other, uneven));
  std::fprintf(stderr, "faults: rank %d goes on with rank %d\n", check::rank(), other);
  MPI_Send(&number, 1, MPI_INT64_T, other, 1, MPI_COMM_WORLD);
  MPI_Recv(&theirs, 1, MPI_INT64_T, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Abort(MPI_COMM_WORLD, kGone);
  std::abort();
}

// Stops this process until something has arrived by a TCP connection that is not the runtime's. That is lost, and these
// connections end.
inline void lose_what_arrives(const std::vector<int>& of_the_runtime) {
  std::vector<pollfd> connections;
  for (const int fd : sockets()) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (std::find(of_the_runtime.begin(), of_the_runtime.end(), fd) != of_the_runtime.end()) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 && peer.ss_family == AF_INET)
      connections.push_back({fd, POLLIN, 0});
  }
  CHECK(!connections.empty());
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    while (!all_stopped(self)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    poll(connections.data(), connections.size(), -1);
    for (const pollfd& each : connections) {
      char lost[4096];
      while (recv(each.fd, lost, sizeof lost, MSG_DONTWAIT) > 0) continue;
      shutdown(each.fd, SHUT_RDWR);
    }
    kill(self, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  waitpid(child, nullptr, 0);
}

// Rank 1 notifies rank 0 while that is stopped, and the notification is lost.
inline int interrupted(const check::Program& program) {
  constexpr int kReceiver = 0, kSender = 1;
  const std::vector<int> before = sockets();
  const std::chrono::seconds timeout(program.number("interrupted", 0));
  const bool receives = check::rank() == kReceiver;
  const int other = 1 - check::rank();
  int pid = getpid(), pids[2];
  CHECK_MPI(MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD));
  const check::Window window(program.memory(), kBytes, 8);
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  // Afterwards a connection is there, and what this rank has sent before is known to have arrived.
  const auto put = [&] {
    const std::int64_t number = 7;
    int code = MPI_Win_lock(MPI_LOCK_SHARED, other, 0, window);
    if (code == MPI_SUCCESS) code = MPI_Put(&number, 1, MPI_INT64_T, other, 0, 1, MPI_INT64_T, window);
    if (code == MPI_SUCCESS) code = MPI_Win_flush(other, window);
    const int unlocked = MPI_Win_unlock(other, window);
    return code == MPI_SUCCESS && unlocked == MPI_SUCCESS;
  };
  const auto exchange = [&](const check::Window& on, auto&& send, auto&& receive, bool sends_too = false) {
    CHECK_MPI(MPI_Win_set_errhandler(on, MPI_ERRORS_RETURN));
    while (!put()) continue;
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (!receives) {
      while (!all_stopped(pids[kReceiver])) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (void)send(MPI_Win(on));
      return;
    }
    lose_what_arrives(before);
    check::Stderr captured;
    const auto begin = Clock::now();
    const int code = receive(MPI_Win(on));
    const auto took = Clock::now() - begin;
    const std::string text = captured.end();
    std::fputs(text.c_str(), stderr);
    CHECK(code != MPI_SUCCESS);
    CHECK(text.find("target 1: ") != std::string::npos);
    const bool waited = text.find("and a notification of the rank perhaps with it") != std::string::npos;
    // A word of this rank may fail as well, if it is sent before this rank has noticed the end of the connection.
    if (sends_too && !waited) return;
    CHECK(waited);
    CHECK(took >= timeout - std::chrono::milliseconds(100));
  };
  const auto fence = [](MPI_Win on) { return MPI_Win_fence(0, on); };
  {
    check::section("the word of a fence is lost");
    const check::Window on(program.memory(), 8, 8);
    exchange(on, fence, fence, true);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    while (!put()) continue;
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int again = 0; again < 3; ++again) CHECK_MPI(MPI_Win_fence(0, on));
  }
  const check::Group with_sender({kSender}), with_receiver({kReceiver});
  {
    check::section("a post is lost");
    const check::Window on(program.memory(), 8, 8);
    exchange(
        on, [&](MPI_Win posted) { return MPI_Win_post(with_receiver, 0, posted); },
        [&](MPI_Win started) { return MPI_Win_start(with_sender, 0, started); });
    // The post will never be answered.
    if (!receives) {
      CHECK(MPI_Win_wait(on) != MPI_SUCCESS);
    } else {
      CHECK(MPI_Win_complete(on) != MPI_SUCCESS);  // no epoch is open
    }
    while (!put()) continue;
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  for (const bool tests : {false, true}) {
    check::section("a complete is lost");
    const check::Window on(program.memory(), 8, 8);
    CHECK_MPI(MPI_Win_set_errhandler(on, MPI_ERRORS_RETURN));
    const int assertion = tests ? MPI_MODE_NOCHECK : 0;
    if (receives) CHECK_MPI(MPI_Win_post(with_sender, assertion, on));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (!receives) CHECK_MPI(MPI_Win_start(with_receiver, assertion, on));
    exchange(
        on, [](MPI_Win started) { return MPI_Win_complete(started); },
        [&](MPI_Win posted) {
          int flag = 0, code = MPI_SUCCESS;
          while (tests && code == MPI_SUCCESS) code = MPI_Win_test(posted, &flag);
          const int waited = MPI_Win_wait(posted);
          CHECK(!tests || code == waited);
          return waited;
        });
    // A late complete of that exposure would count for this one.
    if (receives) CHECK(MPI_Win_post(with_sender, 0, on) != MPI_SUCCESS);
    while (!put()) continue;
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  check::section("all is well with a new window");
  const check::Window on(program.memory(), 8, 8);
  if (receives) {
    CHECK_MPI(MPI_Win_post(with_sender, 0, on));
    CHECK_MPI(MPI_Win_wait(on));
  } else {
    CHECK_MPI(MPI_Win_start(with_receiver, 0, on));
    CHECK_MPI(MPI_Win_complete(on));
  }
  CHECK_MPI(MPI_Win_fence(0, on));
  return 0;
}

}  // namespace faults

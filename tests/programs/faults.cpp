// SPDX-License-Identifier: BSD-3-Clause
// Ranks that die or are stopped during operations (run by tests/system/faults).
//
//   errors [create]                                      the provider reports failed operations
//                                                        (support/faulty_fabric.cpp): each is an error of the call that
//                                                        completes it, once
//   killed lock|put|accumulate|fence|creation [create]   rank 1 is killed while all ranks do that: the others must end
//                                                        soon
//   stopped [create]                                     rank 1 is stopped for 2 s while all work: nothing may be lost
//   cut                                                  the same, and the cable between two hosts is cut meanwhile
//   dead SECONDS [back]                                  the cable is cut for longer than FARSIDE_PEER_TIMEOUT, which
//                                                        is SECONDS (or than an adapter's own timeout); back: and is
//                                                        repaired later
//   reused                                               the cable is cut during gets for longer than
//                                                        FARSIDE_PEER_TIMEOUT and repaired later: the buffers of
//                                                        failed gets stay untouched
//   gone [create] [killed]                               rank 1 closes its connections and stops, as if its host were
//                                                        lost: the others get errors that name it, and continue with
//                                                        each other; exit code 33; killed: by SIGKILL, for launchers
//                                                        that then end no other rank (and have their own exit code)
//   interrupted SECONDS                                  connections end while a post, a complete and the word of a
//                                                        fence are on their way: the rank that waits for them gets
//                                                        an error after FARSIDE_PEER_TIMEOUT, which is SECONDS; two
//                                                        ranks
//   headless [create]                                    the main thread of each rank ends by pthread_exit(3), and
//                                                        another thread goes on
//   undumpable [create]                                  the ranks give up the access to each other (as by setuid(2))
//                                                        between two windows; the runtime makes the second
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <linux/capability.h>
#include <netinet/in.h>
#include <numeric>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>

#include "check.hpp"
#include "stderr.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kVictim = 1;

void lock_each(MPI_Win window, int round) {
  const int target = round % check::size();
  const std::int64_t one = 1;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
  CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, target, 4 + check::rank(), 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock(target, window));
}

void put_to_all(MPI_Win window, int) {
  static const std::vector<std::int64_t> words(4096, 7);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int target = 0; target < check::size(); ++target) {
    CHECK_MPI(MPI_Put(words.data(), 4096, MPI_INT64_T, target, 64 + 4096 * check::rank(), 4096, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

void accumulate_to_all(MPI_Win window, int) {
  static const std::vector<long double> ones(64, 1);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int target = 0; target < check::size(); ++target) {
    CHECK_MPI(MPI_Accumulate(ones.data(), 64, MPI_LONG_DOUBLE, target, 64, 64, MPI_LONG_DOUBLE, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

void fence(MPI_Win window, int round) {
  const std::int64_t number = round;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&number, 1, MPI_INT64_T, (check::rank() + 1) % check::size(), 0, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(0, window));
}

constexpr struct {
  const char* name;
  void (*round)(MPI_Win, int);
} kWorks[] = {{"lock", lock_each}, {"put", put_to_all}, {"accumulate", accumulate_to_all}, {"fence", fence}};

constexpr MPI_Aint kBytes = 8 * (64 + 4096 * 4);

// Returns only if the launcher does not end this rank.
int killed(const check::Program& program) {
  const auto doom = [] {
    if (check::rank() != kVictim) return;
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      kill(getpid(), SIGKILL);
    }).detach();
  };
  const auto end = Clock::now() + std::chrono::seconds(60);
  if (program.has("creation")) {
    doom();
    while (Clock::now() < end) const check::Window window(program.memory(), 4096, 1);
  }
  const check::Window window(program.memory(), kBytes, 8);
  doom();
  for (const auto& [name, round] : kWorks) {
    if (!program.has(name)) continue;
    for (int number = 0; Clock::now() < end; ++number) round(window, number);
  }
  std::fprintf(stderr, "faults: rank %d went on for a minute\n", check::rank());
  return 3;
}

std::vector<int> sockets() {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    int kind = 0;
    socklen_t length = sizeof kind;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &length) == 0) found.push_back(fd);
  }
  return found;
}

// Whether all threads of the process are stopped.
bool all_stopped(pid_t process) {
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
[[noreturn]] void be_gone(const std::vector<int>& of_the_runtime) {
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
constexpr int kGone = 33;

[[noreturn]] void gone(const check::Program& program) {
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
void lose_what_arrives(const std::vector<int>& of_the_runtime) {
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
int interrupted(const check::Program& program) {
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
    // A word of this rank may fail as well, if it is sent before this rank has noticed the end of the connection.
    if (sends_too && text.find("target 1: the connection was lost") == std::string::npos) return;
    CHECK(text.find("target 1: the connection was lost") != std::string::npos);
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

// Requests the cut from support/virtual_hosts, which has passed the place where it waits for the request.
void cut_cable() {
  const char* file = std::getenv("FARSIDE_TEST_CUT_CABLE");
  if (check::rank() != 0 || file == nullptr) return;
  std::FILE* made = std::fopen(file, "w");
  CHECK(made != nullptr);
  std::fclose(made);
}

// Two counters at every rank: one changed by fetch_and_op, one by get and put under an exclusive lock.
int stopped(const check::Program& program) {
  check::section("rank 1 is stopped for 2 s");
  const check::Window window(program.memory(), kBytes, 8);
  const int ranks = check::size();
  int pid = getpid();
  std::vector<int> pids(static_cast<std::size_t>(ranks));
  CHECK_MPI(MPI_Allgather(&pid, 1, MPI_INT, pids.data(), 1, MPI_INT, MPI_COMM_WORLD));
  std::thread stopper;
  const bool cut = program.has("cut");
  if (check::rank() == 0 && !cut) {
    stopper = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      kill(pids[kVictim], SIGSTOP);
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
void back_again(const check::Window& window, int target) {
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
int dead(const check::Program& program) {
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

// Rank 0 gets until a get fails, and then reuses the buffers. Data of the failed gets are still in transit, and must
// not arrive in the buffers when the cable is repaired.
int reused(const check::Program& program) {
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

int errors(const check::Program& program) {
  check::section("operations that fail");
  const auto fail = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "faulty_fabric_fail"));
  CHECK(fail != nullptr);
  const check::Window window(program.memory(), kBytes, 8);
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const int target = (check::rank() + 1) % check::size();
  constexpr std::int64_t kRounds = 200;
  const std::int64_t one = 1;
  enum Kind { kPut, kGet, kFetchAndOp, kAccumulate, kKinds };
  std::array<std::int64_t, kKinds> failures{};
  // Whether the call and its flush succeeded; at most one of them may report an error.
  const auto went_well = [&](Kind kind, int code) {
    const int flushed = MPI_Win_flush(target, window);
    CHECK(code == MPI_SUCCESS || flushed == MPI_SUCCESS);
    const bool well = code == MPI_SUCCESS && flushed == MPI_SUCCESS;
    failures[kind] += well ? 0 : 1;
    return well;
  };
  CHECK_MPI(MPI_Win_lock_all(0, window));
  check::Stderr captured;
  fail(10);
  for (std::int64_t value = 1; value <= kRounds; ++value) {
    std::int64_t seen = 0, before = -1;
    went_well(kPut, MPI_Put(&value, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, window));
    if (went_well(kGet, MPI_Get(&seen, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, window))) CHECK_EQ(seen, value);
    if (went_well(kFetchAndOp, MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, 0, MPI_SUM, window)))
      CHECK_EQ(before, value - 1);
    went_well(kAccumulate, MPI_Accumulate(&one, 1, MPI_INT64_T, target, 2, 1, MPI_INT64_T, MPI_SUM, window));
  }
  fail(0);
  CHECK_MPI(MPI_Win_unlock_all(window));
  const std::string text = captured.end();
  std::int64_t told = 0;
  const std::string named = "target " + std::to_string(target) + ": libfabric ";
  for (std::size_t at = 0; (at = text.find(named, at)) != std::string::npos; ++at) ++told;
  for (const std::int64_t each : failures) CHECK(each > 0);
  const std::int64_t failed = std::accumulate(failures.begin(), failures.end(), std::int64_t{0});
  if (told != failed) std::fputs(text.c_str(), stderr);
  CHECK_EQ(told, failed);
  // The provider has carried out all operations, whatever it reported.
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check::rank(), 0, window));
  for (int word = 0; word < 3; ++word) CHECK_EQ(window.as<std::int64_t>()[word], kRounds);
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
  if (check::rank() == 0)
    std::printf("%lld errors in %lld operations of rank 0\n", static_cast<long long>(failed),
                static_cast<long long>(4 * kRounds));
  return 0;
}

// Operations by system calls, messages, and both, to the next rank.
void operate(const check::Window& window, std::int64_t rounds) {
  constexpr int kMany = 2000;
  const int target = (check::rank() + 1) % check::size();
  const std::vector<std::int64_t> ones(kMany, 1);
  std::vector<std::int64_t> got(2 * kMany);
  MPI_Datatype strided;
  CHECK_MPI(MPI_Type_vector(300, 1, 2, MPI_INT64_T, &strided));
  CHECK_MPI(MPI_Type_commit(&strided));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::int64_t before = -1;
    CHECK_MPI(MPI_Fetch_and_op(ones.data(), &before, MPI_INT64_T, target, 0, MPI_SUM, window));
    CHECK_MPI(MPI_Accumulate(ones.data(), kMany, MPI_INT64_T, target, 1, kMany, MPI_INT64_T, MPI_SUM, window));
    CHECK_MPI(MPI_Put(ones.data(), 1, MPI_INT64_T, target, 2100, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Put(ones.data(), 1, strided, target, 2200, 1, strided, window));
    CHECK_MPI(MPI_Put(ones.data(), kMany, MPI_INT64_T, target, 3000, kMany, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    CHECK_EQ(before, round);
    CHECK_MPI(MPI_Get(got.data(), kMany, MPI_INT64_T, target, 1, kMany, MPI_INT64_T, window));
    CHECK_MPI(MPI_Get(got.data() + kMany, 1, strided, target, 2200, 1, strided, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    CHECK_EQ(got[kMany - 1], round + 1);
    CHECK_EQ(got[kMany + 598], std::int64_t{1});
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, check::rank(), 0, window));
  for (const std::size_t at : {2100, 2200, 2798, 3000, 3000 + kMany - 1})
    CHECK_EQ(window.as<std::int64_t>()[at], std::int64_t{1});
  CHECK_EQ(window.as<std::int64_t>()[0], rounds);
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
}

constexpr MPI_Aint kOperated = 8 * 6000;

[[noreturn]] void headless(check::Program* program) {
  static const pthread_t main_thread = pthread_self();
  auto* const window = new check::Window(program->memory(), kOperated, 8);
  std::thread([program, window] {
    CHECK_EQ(pthread_join(main_thread, nullptr), 0);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    check::section("a window from before the main thread has ended");
    operate(*window, 10);
    check::section("a window from afterwards");
    operate(check::Window(program->memory(), kOperated, 8), 10);
    delete window;
    delete program;
    std::exit(0);
  }).detach();
  pthread_exit(nullptr);
}

int undumpable(const check::Program& program) {
  const check::Window window(program.memory(), kOperated, 8);
  // With CAP_SYS_PTRACE a process may access others that are not dumpable.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  CHECK_EQ(syscall(SYS_capset, &header, none), 0L);
  CHECK_EQ(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  check::section("a window from before the process is not dumpable");
  operate(window, 10);
  check::section("a window from afterwards");
  const check::Window other(check::Memory::kAllocate, 64, 8);
  const std::int64_t one = 1;
  CHECK_MPI(MPI_Win_fence(0, other));
  CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, (check::rank() + 1) % check::size(), 3, 1, MPI_INT64_T, other));
  CHECK_MPI(MPI_Win_fence(0, other));
  CHECK_EQ(other.as<std::int64_t>()[3], one);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::count(argv, argv + argc, std::string_view("headless")) != 0)
    headless(new check::Program(argc, argv, MPI_THREAD_MULTIPLE));
  // The second thread only sends signals.
  check::Program program(argc, argv, MPI_THREAD_FUNNELED);
  if (program.has("gone")) gone(program);
  if (program.has("interrupted")) return interrupted(program);
  if (program.has("dead")) return dead(program);
  if (program.has("reused")) return reused(program);
  if (program.has("undumpable")) return undumpable(program);
  if (program.has("errors")) return errors(program);
  return program.has("stopped") || program.has("cut") ? stopped(program) : killed(program);
}

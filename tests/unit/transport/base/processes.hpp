// SPDX-License-Identifier: BSD-3-Clause
// Runs a function in several processes and lets them exchange bytes, as MPI would:
//
//   expect_well(run_processes(3, [](Ranks& ranks) {
//     const std::vector<int> all = ranks.all_gather(7 * ranks.rank());
//     ranks.check(all[2] == 14, "rank 2 says 14");
//   }));
//
// Each rank is a child process, forked while this process has a single thread. Failed checks are sent to the parent,
// which returns them as text. An alarm limits the time of every child, so no test hangs.
#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "transport/base/files.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace farside::testing {

// The line of a call, as the last argument of a function: Line line = Line::here(). (clang 14 has no
// std::source_location.)
struct Line {
  static constexpr Line here(int number = __builtin_LINE()) { return {number}; }
  int number;
};

// A sanitizer needs much address space and free descriptors. Without a free descriptor it reports valid objects as
// invalid.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// One rank's view of the job. A message to the parent begins with 'g' (gather) or 'f' (failure).
class Ranks {
 public:
  Ranks(int rank, int size, int parent) : rank_(rank), size_(size), parent_(parent) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  int failures() const { return failures_; }

  // Blocks in recv(2): a waiting process makes no progress for other processes.
  template <class T>
  std::vector<T> all_gather(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::string message(1 + sizeof mine, 'g');
    std::memcpy(message.data() + 1, &mine, sizeof mine);
    send_to_parent(message);
    std::vector<T> all(static_cast<std::size_t>(size_));
    const std::size_t expected = all.size() * sizeof mine;
    if (recv(parent_, all.data(), expected, 0) != static_cast<ssize_t>(expected)) {
      check(false, "the other processes answer");
      _exit(1);
    }
    return all;
  }
  void barrier() { all_gather('b'); }

  void check(bool good, std::string_view what, Line line = Line::here()) {
    if (good) return;
    ++failures_;
    if (failures_ <= 5) send_to_parent(fmt::format("frank {}, line {}: not so: {}\n", rank_, line.number, what));
  }

 private:
  void send_to_parent(const std::string& message) {
    [[maybe_unused]] const ssize_t sent = send(parent_, message.data(), message.size(), MSG_NOSIGNAL);
  }
  int rank_, size_, parent_;
  int failures_ = 0;
};

// Reads memory into which other processes have put data. A barrier among processes orders these accesses, but the
// sanitizer of one process cannot see that order.
[[gnu::no_sanitize_thread]] inline void read_memory(const void* at, void* to, std::size_t bytes) {
  const auto* from = static_cast<const volatile std::byte*>(at);
  auto* into = static_cast<volatile std::byte*>(to);
  for (std::size_t i = 0; i < bytes; ++i) into[i] = from[i];
}

namespace detail {

struct Child {
  pid_t pid = -1;
  UniqueFd socket;
  std::string gathered;
  bool over = false;
};

// Receives the next contribution of a child to a gather, and appends its failures before it to `failures`. Returns
// false if the child has ended.
inline bool receive_from_child(Child& child, std::string& failures) {
  std::string message(1 << 16, '\0');
  while (true) {
    const ssize_t bytes = recv(child.socket.get(), message.data(), message.size(), 0);
    if (bytes <= 0) return false;
    const std::string_view body(message.data() + 1, static_cast<std::size_t>(bytes) - 1);
    if (message[0] == 'g') {
      child.gathered = body;
      return true;
    }
    failures += body;
  }
}

[[noreturn]] inline void run_child(const std::function<void(Ranks&)>& program, int rank, int size, int parent,
                                   unsigned seconds) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGALRM, SIGSEGV, SIGABRT, SIGTERM}) std::signal(signal, SIG_DFL);  // not Catch2's
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  seconds *= 6;
#endif
  alarm(seconds);
  Ranks ranks(rank, size, parent);
  program(ranks);
#if defined(__SANITIZE_ADDRESS__)
  ranks.check(__lsan_do_recoverable_leak_check() == 0, "nothing leaked");
#endif
  _exit(ranks.failures() == 0 ? 0 : 1);
}

}  // namespace detail

// Returns the failures, one per line; empty if there are none.
inline std::string run_processes(int size, const std::function<void(Ranks&)>& program, unsigned seconds = 60) {
  std::vector<detail::Child> children(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return "no socketpair";
    detail::Child& child = children[static_cast<std::size_t>(rank)];
    child.socket = UniqueFd(pair[0]);
    const UniqueFd theirs(pair[1]);
    child.pid = fork();
    if (child.pid == 0) {
      for (detail::Child& other : children) other.socket.reset();
      detail::run_child(program, rank, size, theirs.get(), seconds);
    }
  }
  std::string failures;
  for (bool gathering = true; gathering;) {
    std::string all;
    std::size_t gone = 0;
    for (detail::Child& child : children) {
      child.over = !detail::receive_from_child(child, failures);
      gone += child.over ? 1 : 0;
      all += child.gathered;
    }
    gathering = gone == 0;
    if (gathering) {
      for (detail::Child& child : children) send(child.socket.get(), all.data(), all.size(), MSG_NOSIGNAL);
    } else if (gone < children.size()) {
      // The other ranks wait for ranks that have ended.
      for (detail::Child& child : children) {
        if (!child.over) kill(child.pid, SIGKILL);
      }
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    waitpid(children[static_cast<std::size_t>(rank)].pid, &status, 0);
    if (WIFSIGNALED(status)) failures += fmt::format("rank {}: ended by signal {}\n", rank, WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      failures += fmt::format("rank {}: exit status {}\n", rank, WEXITSTATUS(status));
    }
  }
  return failures;
}

// Waits until the condition holds, and returns whether it does. Only a failure takes half a minute.
template <class Condition>
bool soon(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Waits until a signal has stopped the process, or the process is dead (proc(5)), even if another process will wait(2)
// for it.
inline void await_state(pid_t pid, std::string_view states) {
  while (true) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    if (!std::getline(file, text)) return;  // gone altogether
    const std::size_t state = text.rfind(')') + 2;
    if (state < text.size() && states.find(text[state]) != std::string_view::npos) return;
    usleep(1000);
  }
}
inline void await_stopped(pid_t pid) { await_state(pid, "T"); }
inline void await_dead(pid_t pid) { await_state(pid, "ZX"); }

// Returns the number of descriptors of this process whose links in proc(5) begin like this.
inline std::size_t open_files(std::string_view kind = "") {
  std::size_t count = 0;
  std::error_code gone;  // the directory's own descriptor
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", gone))
    count += std::filesystem::read_symlink(entry.path(), gone).string().starts_with(kind) ? 1U : 0U;
  return count;
}
// Those of memory files for peers, and of sockets.
inline std::size_t open_memory_files() { return open_files("/memfd:farside"); }
inline std::size_t open_sockets() { return open_files("socket:"); }

// During its life this process has no descriptor left.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{3, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Returns the number of memory files that this process has mapped.
inline std::size_t mapped_segments() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:farside") != std::string::npos ? 1U : 0U;
  return count;
}

// Not inside the macro, which would print the whole program.
inline void expect_well(const std::string& failures, const std::string& expected = "") { CHECK(failures == expected); }

}  // namespace farside::testing

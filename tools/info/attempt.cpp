// SPDX-License-Identifier: BSD-3-Clause
#include "tools/info/attempt.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transport/base/unique_fd.hpp"

namespace farside::tools {
namespace {

// Never returns, since exit handlers are the parent's business.
[[noreturn]] void answer(const std::function<std::string()>& task, int to, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const int nowhere = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, fd);
  std::string text;
  try {
    text = task();
  } catch (const std::exception&) {
    _exit(1);
  }
  text.push_back('\0');  // marks a complete answer
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(to, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) _exit(1);
    if (written > 0) done += static_cast<std::size_t>(written);
  }
  _exit(0);
}

}  // namespace

Attempt attempt(const std::function<std::string()>& task, double seconds) {
  using Clock = std::chrono::steady_clock;
  Attempt result;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {false, {}, fmt::format("pipe: {}", std::strerror(errno))};
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return {false, {}, fmt::format("fork: {}", std::strerror(errno))};
  if (child == 0) answer(task, write_end.get(), parent);
  write_end.reset();
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  bool late = false;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{read_end.get(), POLLIN, 0};
    const int ready = left > 0 ? poll(&waiting, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    late = ready <= 0;
    if (late) break;
    std::array<char, 4096> buffer{};
    const ssize_t count = read(read_end.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    result.answer.append(buffer.data(), static_cast<std::size_t>(count));
    // The pipe may stay open in a process that the task has started.
    if (result.answer.back() == '\0') break;
  }
  result.answered = !result.answer.empty() && result.answer.back() == '\0';
  if (result.answered) result.answer.pop_back();
  if (!result.answered) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (result.answered) return result;
  result.answer.clear();
  if (late) {
    result.end = fmt::format("no answer for {:.0f} s", seconds);
  } else if (WIFSIGNALED(status)) {
    result.end = fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    result.end = fmt::format("ended with exit status {}", WEXITSTATUS(status));
  }
  return result;
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/child.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/ranges.h>

#include "tools/common/text.hpp"
#include "transport/base/files.hpp"

namespace farside::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kErrorOutputKept = 16384;
constexpr std::chrono::seconds kGrace{5};  // between SIGTERM and SIGKILL

volatile std::sig_atomic_t stop_signal = 0;
std::vector<pid_t> not_ours;  // from before prepare_for_children (a shell may exec into this); left alone

std::map<int, struct sigaction> signals_before;  // prepare_for_children()

void note_signal(int number) { stop_signal = number; }

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    std::array<int, 2> ends{-1, -1};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
};

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// Returns only on failure, with errno.
int execute(std::vector<std::string> arguments, const Environment& environment) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : environment) lines.push_back(fmt::format("{}={}", name, value));
  execvpe(arguments[0].c_str(), pointers(arguments).data(), pointers(lines).data());
  return errno;
}

// Runs in the child of this process, which has one thread.
[[noreturn]] void become(const ChildRequest& request, pid_t parent, int out, int err) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // ends the launcher if this process is killed
  if (getppid() != parent) _exit(127);
  const rlimit no_core{0, 0};  // native crashes are expected; no core files in the user's folder
  setrlimit(RLIMIT_CORE, &no_core);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_DFL);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(request.task ? null : out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (!request.task) {
    const int reason = execute(request.arguments, request.environment);
    dprintf(STDERR_FILENO, "%s: %s\n", request.arguments[0].c_str(), std::strerror(reason));
    _exit(127);
  }
  try {  // exit handlers are the parent's business
    const std::string answer = request.task();
    for (std::string_view left = answer; !left.empty();) {
      const ssize_t written = write(out, left.data(), left.size());
      if (written < 0 && errno != EINTR) _exit(1);
      left.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
    }
    _exit(0);
  } catch (const std::exception&) {
    _exit(1);
  }
}

// Process ids whose parent is this process.
std::vector<pid_t> children() {
  std::vector<pid_t> result;
  std::ifstream file("/proc/thread-self/children");
  for (pid_t pid = 0; file >> pid;)
    if (std::ranges::find(not_ours, pid) == not_ours.end()) result.push_back(pid);
  return result;
}

// Ends the processes that the launcher left behind, which have become children of this process. They have 2 s to end
// by themselves, then get SIGKILL; their own children become children of this process in turn.
void end_leftovers() {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(2);
  for (int round = 0; round < 500; ++round) {
    const std::vector<pid_t> left = children();
    if (left.empty()) return;
    for (const pid_t pid : left)
      if (waitpid(pid, nullptr, WNOHANG) == 0 && Clock::now() > deadline) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Reads the available bytes, and closes the descriptor at end of file. Returns true if there were any.
bool drain(UniqueFd& from, const std::function<void(std::string_view)>& take) {
  bool any = false;
  std::array<char, 4096> buffer{};
  while (from.valid()) {
    const ssize_t count = read(from.get(), buffer.data(), buffer.size());
    if (count > 0) {
      take({buffer.data(), static_cast<std::size_t>(count)});
      any = true;
    } else if (count < 0 && errno == EAGAIN) {
      break;
    } else if (count == 0 || errno != EINTR) {
      from.reset();
    }
  }
  return any;
}

// "[host:1234] *** An error occurred" becomes "An error occurred", which is the same in all ranks and runs.
std::string without_place(const std::string& line) {
  const std::size_t end = line.find("] ");
  if (!line.starts_with('[') || end == std::string::npos) return line;
  const std::size_t text = line.find_first_not_of("* ", end + 2);
  return text == std::string::npos ? std::string() : line.substr(text);
}

}  // namespace

Environment current_environment() {
  Environment result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) result.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return result;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void prepare_for_children() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  not_ours = children();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction action {
    }, before{};
    action.sa_handler = number == SIGPIPE ? SIG_IGN : note_signal;  // no SA_RESTART, so that poll() returns
    sigaction(number, &action, &before);
    signals_before.try_emplace(number, before);
  }
}

void forget_children() {
  // execve(2) would keep ignored signals and the role of a subreaper.
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  for (const auto& [number, before] : signals_before) sigaction(number, &before, nullptr);
  signals_before.clear();
  if (stop_signal != 0) std::raise(stop_signal);
}

int become_program(const std::vector<std::string>& arguments, const Environment& environment) {
  forget_children();
  return execute(arguments, environment);
}

ChildEnd run_child(const ChildRequest& request) {
  if (stop_signal != 0) return {ChildEnd::How::kInterrupted, 0, {}};
  Pipe out, err;
  const pid_t parent = getpid();
  const pid_t child = out.read.valid() && err.read.valid() ? fork() : -1;
  if (child < 0) return {ChildEnd::How::kNotStarted, errno, {}};
  if (child == 0) become(request, parent, out.write.get(), err.write.get());
  setpgid(child, child);  // parent and child both call it, since either may run first
  out.write.reset();
  err.write.reset();

  ChildEnd end;
  std::string line;
  const auto take_output = [&](std::string_view bytes) {
    for (const char byte : bytes) {
      if (byte != '\n') {
        line.push_back(byte);
        continue;
      }
      if (request.on_line) request.on_line(line);
      line.clear();
    }
  };
  const auto take_errors = [&](std::string_view bytes) {
    end.error_output.append(bytes);
    if (end.error_output.size() > 2 * kErrorOutputKept) {
      end.error_output.erase(0, end.error_output.size() - kErrorOutputKept);
    }
  };
  const auto silence = [&request] {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.silence_seconds));
  };
  Clock::time_point deadline = Clock::now() + silence();
  std::optional<ChildEnd::How> ended_by_us;
  bool killed = false;
  int status = 0;
  for (;;) {
    std::array<pollfd, 2> waiting{{{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
    // poll ignores closed descriptors (-1). If the child leaves its pipes to other processes, its end is noticed
    // after at most 100 ms.
    poll(waiting.data(), waiting.size(), 100);
    if (drain(out.read, take_output) && !ended_by_us) deadline = Clock::now() + silence();
    drain(err.read, take_errors);
    const pid_t gone = waitpid(child, &status, WNOHANG);
    if (gone == child) break;
    if (!out.read.valid() && !err.read.valid()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!ended_by_us && (stop_signal != 0 || Clock::now() > deadline)) {
      ended_by_us = stop_signal != 0 ? ChildEnd::How::kInterrupted : ChildEnd::How::kSilent;
      kill(-child, SIGTERM);  // on SIGTERM launchers end their ranks, on all nodes
      deadline = Clock::now() + kGrace;
    } else if (ended_by_us && !killed && Clock::now() > deadline) {
      kill(-child, SIGKILL);
      killed = true;
    }
  }
  drain(out.read, take_output);
  drain(err.read, take_errors);
  if (!line.empty()) take_output("\n");
  end_leftovers();
  const bool signalled = WIFSIGNALED(status);
  end.how = ended_by_us.value_or(signalled ? ChildEnd::How::kSignalled : ChildEnd::How::kExited);
  if (!ended_by_us) end.code = signalled ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

std::string telling_lines(const std::string& errors) {
  std::vector<std::string> all;
  std::vector<std::string> ours;
  for (const std::string& whole : split(errors, "\n")) {
    const std::string line = without_place(printable(whole));
    if (line.find_first_not_of("-=* \t") == std::string::npos || line.starts_with("reported by process") ||
        line.find("ORTE_ERROR_LOG") != std::string::npos)
      continue;
    add_once(all, line);  // ranks repeat each other's lines
    if (line.find("farside:") != std::string::npos || line.starts_with("farside[")) add_once(ours, line);
  }
  std::vector<std::string>& some = ours.empty() ? all : ours;
  if (some.size() > 3) some.resize(3);
  return fmt::format("{}", fmt::join(some, " / "));
}

std::string end_in_words(const ChildEnd& end) {
  switch (end.how) {
    case ChildEnd::How::kExited: return fmt::format("exit status {}", end.code);
    case ChildEnd::How::kSignalled: return fmt::format("signal {} ({})", end.code, strsignal(end.code));
    case ChildEnd::How::kSilent: return "no output for too long, ended";
    case ChildEnd::How::kInterrupted: return "interrupted";
    case ChildEnd::How::kNotStarted: break;
  }
  return fmt::format("no process: {}", std::strerror(end.code));
}

Attempt attempt(const std::function<std::string()>& task, double seconds) {
  std::vector<std::string> lines;
  ChildRequest request;
  request.task = task;
  request.silence_seconds = seconds;
  request.on_line = [&](std::string_view line) { lines.emplace_back(line); };
  const ChildEnd end = run_child(request);
  if (end.how == ChildEnd::How::kExited && end.code == 0) return {true, fmt::format("{}", fmt::join(lines, "\n")), {}};
  return {false, {}, end_in_words(end)};
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include "tools/child.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace farside::tools {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kErrorOutputKept = 16384;
constexpr std::chrono::seconds kGrace{5};  // between SIGTERM and SIGKILL

volatile std::sig_atomic_t stop_signal = 0;
std::vector<pid_t> not_ours;  // from before prepare_for_children (a shell may exec into this); left alone

void note_signal(int number) { stop_signal = number; }

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read;
  Descriptor write;
};

std::optional<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// Runs between fork and exec: it may call async-signal-safe functions only (signal-safety(7)).
[[noreturn]] void become(char** arguments, char** environment, pid_t parent, int in, int out, int err, int failure) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // ends the launcher if this process is killed
  if (getppid() != parent) _exit(127);
  const rlimit no_core{0, 0};  // native crashes are expected; no core files in the user's folder
  setrlimit(RLIMIT_CORE, &no_core);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    std::signal(number, SIG_DFL);
  }
  execvpe(arguments[0], arguments, environment);
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = write(failure, &reason, sizeof reason);
  _exit(127);
}

// Process ids whose parent is this process.
std::vector<pid_t> children() {
  std::vector<pid_t> result;
  DIR* processes = opendir("/proc");
  if (processes == nullptr) return result;
  while (const dirent* entry = readdir(processes)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    std::ifstream file("/proc/" + std::string(entry->d_name) + "/stat");
    std::string line;
    std::getline(file, line);
    const std::size_t name_end = line.rfind(')');  // "pid (name) state parent ..."
    int parent = 0;
    const auto pid = static_cast<pid_t>(std::atol(entry->d_name));
    if (name_end != std::string::npos && std::sscanf(line.c_str() + name_end + 1, " %*c %d", &parent) == 1 &&
        parent == getpid() && std::find(not_ours.begin(), not_ours.end(), pid) == not_ours.end()) {
      result.push_back(pid);
    }
  }
  closedir(processes);
  return result;
}

// Ends the processes that the launcher left behind, which have become children of this process. They have 2 s to end
// by themselves, then get SIGKILL; their own children become children of this process in turn.
void end_leftovers() {
  const Clock::time_point patience = Clock::now() + std::chrono::seconds(2);
  for (int round = 0; round < 500; ++round) {
    const std::vector<pid_t> left = children();
    if (left.empty()) return;
    for (const pid_t pid : left) {
      if (waitpid(pid, nullptr, WNOHANG) == 0 && Clock::now() > patience) kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Splits bytes into lines and passes each complete line on.
class Lines {
 public:
  explicit Lines(const std::function<void(std::string_view)>& sink) : sink_(sink) {}
  void take(std::string_view bytes) {
    for (const char byte : bytes) {
      if (byte != '\n') {
        line_.push_back(byte);
      } else {
        if (sink_) sink_(line_);
        line_.clear();
      }
    }
  }
  void end() {
    if (!line_.empty()) take("\n");
  }

 private:
  const std::function<void(std::string_view)>& sink_;
  std::string line_;
};

// Reads the available bytes, and closes the descriptor at end of file. Returns true if there were any.
bool drain(Descriptor& from, const std::function<void(std::string_view)>& take) {
  bool any = false;
  std::array<char, 4096> buffer{};
  while (from.get() >= 0) {
    const ssize_t count = read(from.get(), buffer.data(), buffer.size());
    if (count > 0) {
      take({buffer.data(), static_cast<std::size_t>(count)});
      any = true;
    } else if (count < 0 && errno == EINTR) {
      continue;
    } else {
      if (count == 0 || errno != EAGAIN) from.close();
      break;
    }
  }
  return any;
}

}  // namespace

void prepare_for_children() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  not_ours = children();
  struct sigaction action {};
  action.sa_handler = note_signal;  // no SA_RESTART, so that poll() returns
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(number, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

int become_program(const std::vector<std::string>& arguments, const Environment& environment) {
  std::vector<std::string> argument_strings = arguments;
  std::vector<std::string> environment_strings = environment.lines();
  // execve(2) resets handlers, but keeps ignored signals and the role of a subreaper.
  std::signal(SIGPIPE, SIG_DFL);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  if (stop_signal != 0) {  // a signal to stop arrived meanwhile
    std::signal(stop_signal, SIG_DFL);
    std::raise(stop_signal);
  }
  execvpe(argument_strings[0].c_str(), pointers(argument_strings).data(), pointers(environment_strings).data());
  return errno;
}

ChildEnd run_child(const ChildRequest& request) {
  ChildEnd end;
  if (stop_signal != 0) {
    end.how = ChildEnd::How::kInterrupted;
    return end;
  }
  std::vector<std::string> argument_strings = request.arguments;
  std::vector<std::string> environment_strings = request.environment.lines();
  const std::vector<char*> arguments = pointers(argument_strings);
  const std::vector<char*> environment = pointers(environment_strings);
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::optional<Pipe> out = make_pipe();
  std::optional<Pipe> err = make_pipe();
  std::optional<Pipe> failure = make_pipe();
  const pid_t parent = getpid();
  const pid_t child = out && err && failure && null.get() >= 0 ? fork() : -1;
  if (child < 0) {
    end.code = errno;
    return end;
  }
  if (child == 0) {
    become(const_cast<char**>(arguments.data()), const_cast<char**>(environment.data()), parent, null.get(),
           out->write.get(), err->write.get(), failure->write.get());
  }
  setpgid(child, child);  // parent and child both call it, since either may run first
  out->write.close();
  err->write.close();
  failure->write.close();
  int reason = 0;
  if (read(failure->read.get(), &reason, sizeof reason) == static_cast<ssize_t>(sizeof reason)) {
    waitpid(child, nullptr, 0);
    end.code = reason;
    return end;
  }
  fcntl(out->read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err->read.get(), F_SETFL, O_NONBLOCK);

  Lines lines(request.on_line);
  const auto take_output = [&](std::string_view bytes) { lines.take(bytes); };
  const auto take_errors = [&](std::string_view bytes) {
    end.error_output.append(bytes);
    if (end.error_output.size() > 2 * kErrorOutputKept) {
      end.error_output.erase(0, end.error_output.size() - kErrorOutputKept);
    }
  };
  const auto silence =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.silence_seconds));
  Clock::time_point deadline = Clock::now() + silence;
  std::optional<ChildEnd::How> ended_by_us;
  bool killed = false;
  int status = 0;
  for (;;) {
    std::array<pollfd, 2> waiting{{{out->read.get(), POLLIN, 0}, {err->read.get(), POLLIN, 0}}};
    // poll ignores closed descriptors (-1). If the child leaves its pipes to other processes, its end is noticed
    // after at most 100 ms.
    poll(waiting.data(), waiting.size(), 100);
    if (drain(out->read, take_output) && !ended_by_us) deadline = Clock::now() + silence;
    drain(err->read, take_errors);
    const pid_t gone = waitpid(child, &status, WNOHANG);
    if (gone == child) break;
    if (out->read.get() < 0 && err->read.get() < 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (request.on_tick) request.on_tick();
    if (!ended_by_us && (stop_signal != 0 || Clock::now() > deadline)) {
      ended_by_us = stop_signal != 0 ? ChildEnd::How::kInterrupted : ChildEnd::How::kSilent;
      kill(-child, SIGTERM);  // on SIGTERM launchers end their ranks, on all nodes
      deadline = Clock::now() + kGrace;
    } else if (ended_by_us && !killed && Clock::now() > deadline) {
      kill(-child, SIGKILL);
      killed = true;
    }
  }
  drain(out->read, take_output);
  drain(err->read, take_errors);
  lines.end();
  end_leftovers();
  if (ended_by_us) {
    end.how = *ended_by_us;
  } else if (WIFSIGNALED(status)) {
    end.how = ChildEnd::How::kSignalled;
    end.code = WTERMSIG(status);
  } else {
    end.how = ChildEnd::How::kExited;
    end.code = WEXITSTATUS(status);
  }
  return end;
}

}  // namespace farside::tools

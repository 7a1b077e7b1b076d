// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/identity.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transport/base/integers.hpp"

namespace farside {

std::uint64_t node_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const auto inode = [](const char* path) {
    struct stat info {};
    return stat(path, &info) == 0 ? info.st_ino : 0;
  };
  // Kernels before 5.6 have no namespaces of time.
  const std::string all = fmt::format("{} {} {} {} {}", boot, host.data(), inode("/proc/thread-self/ns/pid"),
                                      inode("/proc/thread-self/ns/time"), geteuid());
  return fnv1a(all) | 1;
}

namespace {

// The contents of /proc/PID/stat (proc(5)).
struct ProcStat {
  std::uint64_t pid = 0;
  char state = '?';
  std::uint64_t threads = 0;
  std::uint64_t began = 0;
};

// Returns nothing if the file does not exist or cannot be read; errno says which.
std::optional<ProcStat> read_state(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // The name of the program, in parentheses, may contain any characters.
  const std::size_t behind = text.rfind(')');
  if (behind == std::string::npos) return std::nullopt;
  ProcStat found;
  std::istringstream rest(text.substr(behind + 1));
  rest >> found.state;
  std::string skipped;
  for (int field = 4; field < 20; ++field) rest >> skipped;
  rest >> found.threads >> skipped >> found.began;
  found.pid = std::strtoull(text.c_str(), nullptr, 10);
  return rest ? std::optional(found) : std::nullopt;
}

}  // namespace

ProcessIdentity ProcessIdentity::own() {
  const auto self = read_state("/proc/self/stat");
  if (!self || self->pid != static_cast<std::uint64_t>(getpid()) || self->pid >> kPidBits != 0) return {};
  return of_bits(self->began << kPidBits | self->pid);
}

ProcessIdentity::State ProcessIdentity::state() const {
  if (pid() == 0) return State::kUnknown;
  const auto found = read_state(fmt::format("/proc/{}/stat", pid()));
  // /proc may hide processes (mount option hidepid), but kill(2) finds them.
  if (!found) return kill(pid(), 0) != 0 && errno == ESRCH ? State::kDead : State::kUnknown;
  const std::uint64_t began = bits_ >> kPidBits;
  if (began != 0 && of_bits(found->began << kPidBits).bits_ != began << kPidBits) return State::kDead;
  // The main thread may have ended while other threads of the process still run.
  if ((found->state == 'Z' || found->state == 'X') && found->threads <= 1) return State::kDead;
  return found->state == 'T' || found->state == 't' ? State::kStopped : State::kAlive;
}

}  // namespace farside

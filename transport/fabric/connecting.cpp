// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connecting.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/resource.h>

#include "transport/base/files.hpp"
#include "transport/base/log.hpp"

namespace farside {

namespace {

std::size_t open_descriptors() {
  const std::size_t count = names_in("/proc/thread-self/fd").size();
  return count > 0 ? count - 1 : 0;  // without the folder itself
}

// Returns whether an error of connecting says that this process or its node has no room for another connection.
bool is_shortage(int error) {
  constexpr std::array kShortages{EMFILE, ENFILE, ENOMEM, ENOBUFS};
  return std::ranges::find(kShortages, error) != kShortages.end();
}

}  // namespace

bool is_transient_connect_error(int error) {
  constexpr std::array kPassing{ENETUNREACH, EHOSTUNREACH,  ENETDOWN, EHOSTDOWN, ECONNREFUSED, ECONNRESET, ECONNABORTED,
                                ETIMEDOUT,   EADDRNOTAVAIL, EAGAIN,   EINTR,     EBUSY,        ENETRESET,  EPIPE};
  return is_shortage(error) || std::ranges::find(kPassing, error) != kPassing.end();
}

ConnectionRoom::ConnectionRoom(std::optional<std::size_t> queue_pairs) : queue_pairs_(queue_pairs) {
  if (queue_pairs_) return;
  open_ = open_descriptors();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  hard_limit_ = limit.rlim_max;
  allowed_ = connections_within(limit.rlim_cur, open_);
}

// Returns false if the soft limit cannot be raised any more.
bool ConnectionRoom::raise_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, std::max<rlim_t>(4 * before, 256));
  if (before >= limit.rlim_max || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    allowed_ = SIZE_MAX;  // there are no more
    return false;
  }
  allowed_ = connections_within(limit.rlim_cur, open_);
  log(LogLevel::kInfo, "the soft limit of descriptors (ulimit -n) is raised from {} to {}", before, limit.rlim_cur);
  return true;
}

void ConnectionRoom::note_error(int error) {
  if (is_shortage(error) && !(error == EMFILE && raise_limit())) shortage = true;
}

void ConnectionRoom::look_for_shortage(int descriptor) {
  if (const UniqueFd one(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); !one.valid()) note_error(errno);
}

}  // namespace farside

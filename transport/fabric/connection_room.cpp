// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/connection_room.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>

#include "transport/base/files.hpp"
#include "transport/fabric/node_share.hpp"

namespace farside {
namespace {

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

std::size_t ConnectionRoom::most_connections(std::size_t processes) const {
  if (!domain_.by_adapter()) return std::max<std::size_t>(descriptors_.most_connections(processes), 1);
  return connections_of_adapter(domain_.info()->domain_attr->ep_cnt, processes);
}

const char* ConnectionRoom::what_limits() const {
  return domain_.by_adapter() ? "the adapter's queue pairs" : "descriptors (ulimit -Hn, fs.file-max)";
}

void ConnectionRoom::note_error(int error, std::size_t connections) {
  if (!is_shortage(error)) return;
  if (error == EMFILE && descriptors_.raise(connections + 1)) return;
  shortage_ = true;
}

void ConnectionRoom::look_for_shortage(int descriptor, std::size_t connections) {
  if (const UniqueFd one(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); !one.valid()) note_error(errno, connections);
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <sys/socket.h>

#include "tools/bench/program/measuring.hpp"
#include "transport/base/unique_fd.hpp"

namespace farside::bench {
namespace {

// Where the target listens: its IPv4 addresses, those of the loopback interface last.
struct Listening {
  std::array<in_addr_t, 8> addresses{};
  std::size_t count = 0;
  in_port_t port = 0;
};

[[noreturn]] void fail(const char* what) { throw std::runtime_error(std::string(what) + ": " + std::strerror(errno)); }

Listening listen_on(int socket) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  ifaddrs* interfaces = nullptr;
  if (bind(socket, reinterpret_cast<sockaddr*>(&any), length) != 0 || listen(socket, 1) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&any), &length) != 0 || getifaddrs(&interfaces) != 0)
    return {};  // the origin says that no address answers
  Listening listening;
  listening.port = any.sin_port;
  for (const unsigned loopback : {0U, unsigned{IFF_LOOPBACK}}) {
    for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET ||
          (each->ifa_flags & (IFF_UP | IFF_LOOPBACK)) != (IFF_UP | loopback) ||
          listening.count == listening.addresses.size())
        continue;
      sockaddr_in address{};
      std::memcpy(&address, each->ifa_addr, sizeof address);
      listening.addresses.at(listening.count++) = address.sin_addr.s_addr;
    }
  }
  freeifaddrs(interfaces);
  return listening;
}

// Connects to the first address that answers within a second; else returns none.
UniqueFd connect_to(const Listening& listening) {
  for (std::size_t i = 0; i < listening.count; ++i) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{1, 0};  // of connect(2) too (socket(7))
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = listening.port;
    address.sin_addr.s_addr = listening.addresses.at(i);
    if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return socket;
  }
  return {};
}

// Sends or receives all bytes. While the socket is not ready, a spinning rank tries again, and a sleeping one sleeps in
// poll(2).
void transfer(int socket, bool sends, std::vector<char>& data, bool sleeps) {
  constexpr int kSpins = 1000;
  int spins = 0;
  for (std::size_t done = 0; done < data.size();) {
    const ssize_t moved = sends ? send(socket, &data[done], data.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : recv(socket, &data[done], data.size() - done, MSG_DONTWAIT);
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
      spins = 0;
    } else if (moved == 0) {
      throw std::runtime_error("the connection was closed");
    } else if (errno != EAGAIN && errno != EINTR) {
      fail("the connection");
    } else if (sleeps) {
      pollfd ready{socket, static_cast<short>(sends ? POLLOUT : POLLIN), 0};
      poll(&ready, 1, -1);
    } else if (++spins > kSpins) {
      sched_yield();
    }
  }
}

UniqueFd connected(const Pair& pair) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Listening listening = of_rank(1, pair.origin ? Listening() : listen_on(listener.get()), pair.comm);
  UniqueFd socket;
  if (pair.origin) socket = connect_to(listening);
  if (!of_rank(0, socket.valid(), pair.comm)) throw std::runtime_error("no address of the peer answers");
  if (!pair.origin) socket = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

}  // namespace

Outcome measure_bare_tcp(std::size_t bytes, const MeasureInfo& info, const Pair& pair, const Options& options) {
  const bool sleeps = !pair.origin && info.target == TargetState::kServesAsleep;
  const auto announced = [&pair](long count) { return of_rank(0, count, pair.comm); };
  Outcome outcome;
  try {
    const UniqueFd socket = connected(pair);
    std::vector<char> data(bytes, 'x'), answer(8, 'y');
    const auto batch = [&](long count) {
      return time_of(count, [&] {
        transfer(socket.get(), pair.origin, data, sleeps);
        transfer(socket.get(), !pair.origin, answer, sleeps);
      });
    };
    if (pair.origin) {
      outcome.values =
          take_samples({.sample_seconds = options.sample_seconds}, [&](long count) { return batch(announced(count)); });
      announced(0);
    } else {
      while (const long count = announced(0)) batch(count);
    }
  } catch (const std::runtime_error& error) {
    outcome.wrong = error.what();
  }
  outcome.values = in_unit(info, bytes, std::move(outcome.values));
  return outcome;
}

}  // namespace farside::bench

// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "tools/bench/program/measuring.hpp"
#include "tools/bench/program/program.hpp"
#include "transport/base/unique_fd.hpp"

namespace farside::bench {
namespace {

constexpr std::size_t kMostAddresses = 8;

// Where the target listens: all its IPv4 addresses, those of the loopback interface last.
struct Listening {
  std::array<in_addr_t, kMostAddresses> addresses{};
  std::uint32_t count = 0;
  in_port_t port = 0;
};

[[noreturn]] void fail(const char* what) { throw std::runtime_error(std::string(what) + ": " + std::strerror(errno)); }

Listening listen_on(int socket) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  if (bind(socket, reinterpret_cast<sockaddr*>(&any), length) != 0 || listen(socket, 1) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&any), &length) != 0)
    fail("listening");
  Listening listening;
  listening.port = any.sin_port;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) fail("getifaddrs");
  for (const bool loopback : {false, true}) {
    for (const ifaddrs* each = interfaces; each != nullptr && listening.count < kMostAddresses; each = each->ifa_next) {
      const bool wanted = each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET &&
                          (each->ifa_flags & IFF_UP) != 0 && ((each->ifa_flags & IFF_LOOPBACK) != 0) == loopback;
      if (!wanted) continue;
      sockaddr_in address{};
      std::memcpy(&address, each->ifa_addr, sizeof address);
      listening.addresses.at(listening.count++) = address.sin_addr.s_addr;
    }
  }
  freeifaddrs(interfaces);
  return listening;
}

// Connects to the first address that answers within a second.
UniqueFd connect_to(const Listening& listening) {
  for (std::uint32_t i = 0; i < std::min<std::size_t>(listening.count, kMostAddresses); ++i) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = listening.port;
    address.sin_addr.s_addr = listening.addresses.at(i);
    int error = 0;
    if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) error = errno;
    if (error == EINPROGRESS) {
      constexpr int kMilliseconds = 1000;
      pollfd writable{socket.get(), POLLOUT, 0};
      socklen_t length = sizeof error;
      if (poll(&writable, 1, kMilliseconds) != 1 ||
          getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = ETIMEDOUT;
    }
    if (error == 0) return socket;
  }
  throw std::runtime_error("no address of the peer answers");
}

// Sends or receives all bytes. While the socket is not ready, a spinning rank tries again, and a sleeping one sleeps in
// poll(2).
template <class Transfer>
void all_of(int socket, std::size_t bytes, short event, bool sleeps, Transfer&& transfer) {
  constexpr int kSpins = 1000;
  int spins = 0;
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t moved = transfer(done);
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
      spins = 0;
    } else if (moved == 0) {
      throw std::runtime_error("the connection was closed");
    } else if (errno != EAGAIN && errno != EINTR) {
      fail("the connection");
    } else if (sleeps) {
      pollfd ready{socket, event, 0};
      poll(&ready, 1, -1);
    } else if (++spins > kSpins) {
      sched_yield();
    }
  }
}

void send_all(int socket, std::vector<char>& data, std::size_t bytes, bool sleeps) {
  all_of(socket, bytes, POLLOUT, sleeps,
         [&](std::size_t done) { return send(socket, data.data() + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL); });
}

void receive_all(int socket, std::vector<char>& data, std::size_t bytes, bool sleeps) {
  all_of(socket, bytes, POLLIN, sleeps,
         [&](std::size_t done) { return recv(socket, data.data() + done, bytes - done, MSG_DONTWAIT); });
}

UniqueFd connected(const Pair& pair) {
  UniqueFd socket;
  std::string wrong;
  Listening listening;
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  try {
    if (!pair.origin) listening = listen_on(listener.get());
  } catch (const std::runtime_error&) {
    listening.count = 0;  // the origin says that no address answers
  }
  listening = of_rank(1, listening, pair.comm);
  try {
    if (pair.origin) socket = connect_to(listening);
  } catch (const std::runtime_error& error) {
    wrong = error.what();
  }
  const bool good = of_rank(0, wrong.empty(), pair.comm);
  if (!good) throw std::runtime_error(wrong);
  if (!pair.origin) socket = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

}  // namespace

Outcome measure_bare_tcp(std::size_t bytes, const MeasureInfo& info, const Pair& pair, const Options& options) {
  constexpr std::size_t kSmall = 8;
  const bool sleeps = !pair.origin && info.target == TargetState::kServesAsleep;
  Outcome outcome;
  try {
    const UniqueFd socket = connected(pair);
    std::vector<char> data(bytes, 'x');
    std::vector<char> answer(kSmall, 'y');
    const auto serve = [&](long count) {
      for (long i = 0; i < count; ++i) {
        receive_all(socket.get(), data, bytes, sleeps);
        send_all(socket.get(), answer, kSmall, sleeps);
      }
    };
    const auto announced = [&pair](long count) { return of_rank(0, count, pair.comm); };
    if (pair.origin) {
      const auto batch = [&](long count) {
        announced(count);
        return time_of(count, [&] {
          send_all(socket.get(), data, bytes, false);
          receive_all(socket.get(), answer, kSmall, false);
        });
      };
      outcome.values = take_samples({.sample_seconds = options.sample_seconds}, batch);
      announced(0);
    } else {
      while (const long count = announced(0)) serve(count);
    }
  } catch (const std::runtime_error& error) {
    outcome.wrong = error.what();
  }
  outcome.values = in_unit(info, bytes, std::move(outcome.values));
  return outcome;
}

}  // namespace farside::bench

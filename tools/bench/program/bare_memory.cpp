// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "tools/bench/program/measuring.hpp"
#include "transport/base/files.hpp"
#include "transport/base/pause.hpp"

namespace farside::bench {
namespace {

// Each word has two cache lines of its own, since processors fetch lines in pairs.
struct Page {
  struct alignas(128) Word {
    std::atomic<std::uint64_t> value;
  };
  Word lock, data, asked, answered;
};
constexpr std::uint64_t kEnd = ~std::uint64_t{0};

// Memory that both ranks of the pair map. Throws at both ranks if they cannot.
class SharedMemory {
 public:
  SharedMemory(const Pair& pair, std::size_t bytes) : bytes_(bytes) {
    std::array<char, 64> name{};
    int file = -1;
    if (pair.origin) {
      std::snprintf(name.data(), name.size(), "/farside-bench-%ld", static_cast<long>(getpid()));
      file = shm_open(name.data(), O_RDWR | O_CREAT | O_EXCL, 0600);
      if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) != 0) close(std::exchange(file, -1));
    }
    name = of_rank(0, name, pair.comm);
    if (!pair.origin) file = shm_open(name.data(), O_RDWR, 0);
    void* mapped = MAP_FAILED;
    if (file >= 0) {
      mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      close(file);
    }
    const bool good = tools::at_all(mapped != MAP_FAILED, pair.comm);
    if (pair.origin) shm_unlink(name.data());
    if (!good && mapped != MAP_FAILED) munmap(mapped, bytes);
    if (!good) throw std::runtime_error("the two ranks share no memory");
    memory_ = mapped;
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, bytes_); }
  void* get() const { return memory_; }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

// Returns the next value of the word, for which it polls.
std::uint64_t wait_for_more(const std::atomic<std::uint64_t>& word, std::uint64_t seen) {
  constexpr int kSpins = 1000;
  for (int round = 0;; ++round) {
    const std::uint64_t now = word.load(std::memory_order_acquire);
    if (now != seen) return now;
    if (round < kSpins)
      relax();
    else
      sched_yield();
  }
}

Outcome measure_words(BareMemory what, const Pair& pair, const Options& options) {
  Outcome outcome;
  const SharedMemory shared(pair, sizeof(Page));
  Page& page = *static_cast<Page*>(shared.get());
  if (pair.origin) {
    std::uint64_t done = 0;
    outcome.values = sample(options.sample_seconds, [&] {
      if (what == BareMemory::kLock) {
        page.lock.value.fetch_add(1);
        page.data.value.store(done, std::memory_order_relaxed);
        page.lock.value.fetch_sub(1);
      } else {
        page.asked.value.fetch_add(1);
        wait_for_more(page.answered.value, done);
      }
      ++done;
    });
    page.asked.value.store(kEnd);
  } else if (what == BareMemory::kExchange) {
    for (std::uint64_t seen = 0; (seen = wait_for_more(page.asked.value, seen)) != kEnd;)
      page.answered.value.fetch_add(1);
  }
  MPI_Barrier(pair.comm);
  return outcome;
}

Outcome measure_copy(std::size_t bytes, const Pair& pair, const Options& options) {
  Outcome outcome;
  const SharedMemory shared(pair, bytes);
  std::vector<char> here(bytes, 'x');
  if (pair.origin) {
    outcome.values = sample(options.sample_seconds, [&] {
      std::memcpy(shared.get(), here.data(), bytes);
      asm volatile("" ::: "memory");  // keeps the compiler from removing a copy
    });
  }
  MPI_Barrier(pair.comm);
  const bool arrived = std::memcmp(shared.get(), here.data(), bytes) == 0;
  if (!of_rank(1, arrived, pair.comm)) outcome.wrong = "what was copied did not arrive";
  return outcome;
}

}  // namespace

Outcome measure_bare_memory(BareMemory what, std::size_t bytes, const MeasureInfo& info, const Pair& pair,
                            const Options& options) {
  Outcome outcome;
  try {
    switch (what) {
      case BareMemory::kLock:
      case BareMemory::kExchange: outcome = measure_words(what, pair, options); break;
      case BareMemory::kCopy: outcome = measure_copy(bytes, pair, options); break;
    }
  } catch (const std::runtime_error& error) {
    outcome.wrong = error.what();
  }
  outcome.values = in_unit(info, bytes, std::move(outcome.values));
  return outcome;
}

// ---- a TCP socket ----

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
  Outcome outcome;
  try {
    const UniqueFd socket = connected(pair);
    std::vector<char> data(bytes, 'x'), answer(8, 'y');
    outcome.values = sample_together(pair, options.sample_seconds, [&](long count) {
      return time_of(count, [&] {
        transfer(socket.get(), pair.origin, data, sleeps);
        transfer(socket.get(), !pair.origin, answer, sleeps);
      });
    });
  } catch (const std::runtime_error& error) {
    outcome.wrong = error.what();
  }
  outcome.values = in_unit(info, bytes, std::move(outcome.values));
  return outcome;
}

}  // namespace farside::bench

// SPDX-License-Identifier: BSD-3-Clause
// Connections whose endpoints are opened by a thread, while the resolution of an address takes as long as the test
// wants.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/opened_connections.hpp"
#include "tests/unit/transport/fabric/silent_listener.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::endpoint_opener_test {

using namespace farside::testing;
using namespace std::chrono_literals;

namespace {

// Address resolutions that end when the test says so (Connections::Opening::resolve).
class Resolutions {
 public:
  // Waits until the resolution of this address may end, and returns its code.
  int resolve(const SocketAddress& address) {
    std::unique_lock lock(mutex_);
    begun_.push_back(address.port);
    changed_.notify_all();
    changed_.wait(lock, [&] { return ends_.contains(address.port); });
    return ends_[address.port];
  }
  // Waits until the first resolution of this address has begun.
  void await(const FabricAddress& address) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::find(begun_, address.socket.port) != begun_.end(); });
  }
  // Returns how many resolutions of this address have begun.
  std::ptrdiff_t begun(const FabricAddress& address) {
    const std::scoped_lock lock(mutex_);
    return std::ranges::count(begun_, address.socket.port);
  }
  // Ends the current and all later resolutions of this address at once.
  void end(const FabricAddress& address, int code = 0) {
    const std::scoped_lock lock(mutex_);
    ends_[address.socket.port] = code;
    changed_.notify_all();
  }
  // Resolutions that begin from now on do not end.
  void hold(const FabricAddress& address) {
    const std::scoped_lock lock(mutex_);
    ends_.erase(address.socket.port);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint16_t> begun_;
  std::map<std::uint16_t, int> ends_;
};

// Connections whose resolutions the test ends.
struct Resolved {
  const std::size_t threads;
  Resolutions resolutions;
  std::atomic<int> opened{0};
  Opened with{opening()};
  explicit Resolved(std::size_t most_threads = 1) : threads(most_threads) {}

  Connections::Opening opening() {
    return {threads, [this] { ++opened; },
            [this](const SocketAddress& address) { return resolutions.resolve(address); }};
  }
  Connections* operator->() { return with.connections.get(); }
  PeerState& know(const FabricAddress& address) { return with.peers.insert(address); }
  // Waits, without progress, until the thread has opened so many endpoints that were wanted.
  void await_opened(int count) const {
    while (opened < count) std::this_thread::sleep_for(1ms);
  }
};

bool soon_sockets(Opened& opened, std::size_t count) {
  return soon(opened, [&] { return open_sockets() == count; });
}

}  // namespace

TEST_CASE("while an address is resolved, a process reaches and accepts other peers") {
  Resolved one;
  Opened other, third;
  const SilentListener slow;
  PeerState &reached = one.know(other->address()), &resolved = one.know(slow.address());
  one.resolutions.end(other->address());
  CHECK(soon(one.with, [&] {
    other->progress();
    return one.with.reach(reached) == 0;
  }));
  CHECK(one.with.reach(resolved) == -FI_EAGAIN);
  one.resolutions.await(slow.address());
  CHECK(one.with.reach(resolved) == -FI_EAGAIN);
  CHECK(one->connecting());
  CHECK(one->count() == 2);
  CHECK_FALSE(resolved.waits);
  fid_ep* endpoint = nullptr;
  CHECK(one->reach(reached, endpoint) == 0);
  CHECK(fi_inject(endpoint, "word", 4, FI_ADDR_UNSPEC) == 0);
  PeerState& back = third.peers.insert(one->address());
  CHECK(soon(one.with, [&] {
    third->progress();
    return third.reach(back) == 0;
  }));
  CHECK_FALSE(slow.called());
  one.resolutions.end(slow.address());
  CHECK(soon(one.with, [&] { return slow.called(); }));
  CHECK(one.resolutions.begun(slow.address()) == 1);
}

TEST_CASE("a peer that is abandoned while its address is resolved leaves nothing behind") {
  Resolved one;
  const SilentListener slow, next;
  const std::size_t before = open_sockets();
  PeerState &resolved = one.know(slow.address()), &behind = one.know(next.address());
  CHECK(one.with.reach(resolved) == -FI_EAGAIN);
  CHECK(one.with.reach(behind) == -FI_EAGAIN);
  one.resolutions.await(slow.address());
  CHECK(one->count() == 1);
  CHECK(behind.waits);
  // One is under way, the other is behind it.
  one->stop(resolved);
  one->stop(behind);
  CHECK_FALSE(one->connecting());
  CHECK(one->count() == 0);
  // Asked for again, while the thread is still in the call for the abandoned request.
  CHECK(soon(one.with, [&] { return one.with.reach(resolved) == -FI_EAGAIN && resolved.waits; }));
  CHECK(one->count() == 0);
  one.resolutions.end(slow.address());
  CHECK(soon(one.with, [&] { return slow.called(); }));
  CHECK(one.resolutions.begun(slow.address()) == 2);
  CHECK(one.resolutions.begun(next.address()) == 0);
  CHECK(one.opened == 2);
  one->stop(resolved);
  CHECK(soon_sockets(one.with, before));
  // An endpoint that was opened and not taken yet.
  one.resolutions.end(next.address());
  CHECK(soon(one.with, [&] { return one.with.reach(behind) == -FI_EAGAIN && one->count() == 1; }));
  one.await_opened(3);
  CHECK(open_sockets() == before + 1);
  one->stop(behind);
  CHECK(open_sockets() == before);
  CHECK_FALSE(one->connecting());
  one->progress();
  CHECK_FALSE(next.called());
}

TEST_CASE("a peer that connects while its address is resolved is connected once") {
  Resolved one;
  Opened other;
  const std::size_t before = open_sockets();
  PeerState &there = one.know(other->address()), &here = other.peers.insert(one->address());
  CHECK(one.with.reach(there) == -FI_EAGAIN);
  one.resolutions.await(other->address());
  CHECK(soon(one.with, [&] {
    other->progress();
    return other.reach(here) == 0 && one.with.reach(there) == 0;
  }));
  CHECK(there.connection_number() == here.connection_number());
  CHECK(one->count() == 1);
  CHECK_FALSE(one->connecting());
  one.resolutions.end(other->address());
  CHECK(soon_sockets(one.with, before + 2));  // both ends of the connection
  CHECK(one.with.reach(there) == 0);
}

TEST_CASE("a resolution that fails is repeated, or its error is returned once") {
  Resolved one;
  const SilentListener slow;
  PeerState& peer = one.know(slow.address());
  for (const int error : {EHOSTUNREACH, ETIMEDOUT, ENOMEM, ECONNREFUSED, EADDRNOTAVAIL, ECONNRESET}) {
    one.resolutions.end(slow.address(), -error);
    const auto before = one.resolutions.begun(slow.address());
    CHECK(soon(one.with, [&] {
      CHECK(one.with.reach(peer) == -FI_EAGAIN);
      return one.resolutions.begun(slow.address()) >= before + 3;
    }));
    CHECK(peer.connect_error() == fi_strerror(error));
  }
  one.resolutions.end(slow.address(), -FI_EINVAL);
  CHECK(soon(one.with, [&] { return one.with.reach(peer) == -FI_EINVAL; }));
  one.resolutions.end(slow.address());
  CHECK(soon(one.with, [&] {
    one.with.reach(peer);
    return slow.called();
  }));
}

TEST_CASE("addresses that are not resolved delay no other peer while there are fewer of them than threads") {
  constexpr std::size_t kThreads = 3;
  Resolved one(kThreads);
  const std::deque<SilentListener> slow(kThreads);
  const SilentListener next, last;
  one.resolutions.end(next.address());
  one.resolutions.end(last.address());
  for (std::size_t i = 0; i + 1 < kThreads; ++i) CHECK(one.with.reach(one.know(slow[i].address())) == -FI_EAGAIN);
  CHECK(one.with.reach(one.know(next.address())) == -FI_EAGAIN);
  CHECK(soon(one.with, [&] { return next.called(); }));
  // With as many as threads, the next one waits.
  PeerState &filling = one.know(slow.back().address()), &behind = one.know(last.address());
  CHECK(one.with.reach(filling) == -FI_EAGAIN);
  one.resolutions.await(slow.back().address());
  CHECK(one.with.reach(behind) == -FI_EAGAIN);
  CHECK(behind.waits);
  CHECK_FALSE(filling.waits);
  one.resolutions.end(slow.front().address());
  CHECK(soon(one.with, [&] { return last.called() && slow.front().called(); }));
  for (const SilentListener& each : slow) one.resolutions.end(each.address());
}

TEST_CASE("while an address is resolved, operations on other peers proceed, and the peer is abandoned in time") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    NoProgress progress;
    Statistics statistics;
    Settings settings;
    settings.peer_timeout = 1;
    Resolutions resolutions;
    const auto open = [&](Fabric::Resolve resolve) {
      InfoHandle info = std::move(find_provider("tcp").value());
      return std::move(Fabric::open(std::move(info), settings, progress, statistics, std::move(resolve), 1).value());
    };
    auto one = open([&](const SocketAddress& address) { return resolutions.resolve(address); });
    const auto other = open(nullptr), behind = open(nullptr);
    const SilentListener slow;
    std::array<std::uint64_t, 2> words{};
    const auto registration = std::move(other->register_memory(&words[0], 8, random_bits()).value());
    const auto registration_behind = std::move(behind->register_memory(&words[1], 8, random_bits()).value());
    const std::uint64_t word = 7;
    WakeEvent wake_event;
    const auto put = [&](const Fabric::Place& place) {
      Pending pending;
      Status status = one->write(pending, place, &word, sizeof word);
      for (Waiter waiter(progress, wake_event); !pending.done();) waiter.pause();
      Status completed = pending.take_error();
      return status ? std::move(completed) : std::move(status);
    };
    resolutions.end(other->address());
    const Fabric::Place there{one->insert(other->address()), registration.key, 0};
    ranks.check(put(there).ok(), "a peer whose address is resolved at once is reached");
    Status abandoned, waited;
    std::thread first([&] { abandoned = put({one->insert(slow.address()), {}, 0}); });
    resolutions.await(slow.address());
    std::thread second([&] { waited = put({one->insert(behind->address()), registration_behind.key, 0}); });
    for (int i = 0; i < 100; ++i) ranks.check(put(there).ok(), "operations on other peers proceed");
    first.join();
    ranks.check(!abandoned.ok() && abandoned.error().kind == ErrorKind::kPeer, "the peer is abandoned");
    std::this_thread::sleep_for(2s);  // longer than the time after which a peer is abandoned
    resolutions.end(behind->address());
    resolutions.end(slow.address());
    second.join();
    ranks.check(waited.ok(), "a peer behind it was not tried, and is not abandoned");
    ranks.check(words[0] == 7 && words[1] == 7, "what was put is here");
    // An endpoint that ends meanwhile.
    resolutions.hold(slow.address());
    ranks.check(!put({one->insert(slow.address()), {}, 0}).ok(), "the peer is abandoned again");
    std::thread ending([&] { one.reset(); });
    resolutions.end(slow.address());
    ending.join();
  }));
}

}  // namespace farside::endpoint_opener_test

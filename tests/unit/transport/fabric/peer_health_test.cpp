// SPDX-License-Identifier: BSD-3-Clause
// Which peers are abandoned, and when: by a clock of the test, and connections that do what it says.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/timing.hpp"
#include "transport/fabric/peers.hpp"

namespace farside::peer_health_test {

using namespace std::chrono_literals;

namespace {

struct Network final : PeerHealth::Network {
  bool room = true;
  ssize_t code = 0;  // of a probe
  TcpState state;
  int looks = 0;  // of tcp_state()
  int probes = 0;
  std::vector<std::string> abandoned;

  std::optional<ssize_t> send_probe(PeerState&) override {
    if (!room) return {};
    ++probes;
    return code;
  }
  std::optional<TcpState> tcp_state(PeerState&) override {
    ++looks;
    return state;
  }
  void abandon(PeerState& peer, const std::string& why) override {
    abandoned.push_back(why);
    while (peer.in_flight > 0) --peer.in_flight;
  }
};

// An endpoint with one operation in flight, 10 s after which its peer is abandoned.
struct Checked {
  Peers peers;
  Network network;
  PeerHealth health;
  PeerState &peer = peers.know(2), &other = peers.know(3);
  Clock::time_point begin;

  explicit Checked(bool adapter, std::chrono::seconds timeout = 10s) : health(peers, network, adapter, timeout) {
    peers.activate(peer);
    peer.begin();
    // Operations that were begun since the last check are quiet from this check on.
    begin = peer.quiet_since + 100ms;
    health.check(begin);
  }
  // Checks four times per second, after `from` and until `until`.
  void check(std::chrono::milliseconds from, std::chrono::milliseconds until) {
    for (auto at = from + 250ms; at <= until; at += 250ms) health.check(begin + at);
  }
  // Checks the hosts once, and returns how many connections it has looked at.
  int look(std::chrono::milliseconds at, bool unanswered, std::chrono::milliseconds silent) {
    network.state = {unanswered, silent};
    const int before = network.looks;
    health.check_hosts(begin + at);
    return network.looks - before;
  }
  int gone() const { return static_cast<int>(network.abandoned.size()); }
};

}  // namespace

TEST_CASE("a peer whose probes are taken is slow, and is waited for") {
  Checked one(false);
  one.check(0ms, 4750ms);
  CHECK(one.network.probes == 0);
  one.check(4750ms, 100s);
  CHECK(one.gone() == 0);
  CHECK(one.network.probes == 20);  // one for each half of the timeout
}

TEST_CASE("a peer whose probes are refused is abandoned after the timeout") {
  Checked one(false);
  one.network.code = -FI_EAGAIN;
  one.check(0ms, 9750ms);
  CHECK(one.gone() == 0);
  one.peer.last_error = EHOSTUNREACH;
  one.check(9750ms, 10s);
  REQUIRE(one.gone() == 1);
  CHECK(one.network.abandoned[0] == std::string("connecting to it: ") + fi_strerror(EHOSTUNREACH));
  CHECK(one.peer.failures == 1);
  one.check(10s, 60s);
  CHECK(one.gone() == 1);
}

TEST_CASE("a probe that cannot be sent at all ends the wait, and without room for one nothing is decided") {
  Checked broken(false), crowded(true);
  broken.network.code = -FI_ENOTCONN;
  broken.check(0ms, 5s);
  CHECK(broken.gone() == 1);
  crowded.network.room = false;
  crowded.check(0ms, 60s);
  CHECK(crowded.gone() == 0);
}

TEST_CASE("an adapter must complete its probe before the timeout") {
  Checked one(true);
  one.check(0ms, 9750ms);
  CHECK(one.network.probes == 1);
  SECTION("it does not") {
    one.check(9750ms, 10s);
    CHECK(one.gone() == 1);
    CHECK_FALSE(one.peer.probed);
  }
  SECTION("it does") {
    PeerHealth::probe_completed(one.peer, one.begin + 9900ms);
    one.check(9750ms, 14750ms);
    CHECK(one.network.probes == 1);
    one.check(14750ms, 19750ms);
    CHECK(one.network.probes == 2);
    CHECK(one.gone() == 0);
  }
  SECTION("it fails, and the next one is taken") {
    one.peer.probed = false;
    one.check(9750ms, 10s);
    CHECK(one.network.probes == 2);
    CHECK(one.gone() == 0);
  }
}

TEST_CASE("a peer towards which something completes is not probed") {
  Checked one(true);
  for (auto at = 0ms; at < 60s; at += 4s) {
    ++one.peer.completed;
    one.check(at, at + 4s);
  }
  CHECK(one.network.probes == 0);
}

TEST_CASE("a peer to which a number is owed is probed as soon as there is a connection that takes it") {
  Checked one(false);
  one.peer.owes_number = true;
  one.check(0ms, 4750ms);
  CHECK(one.network.probes == 0);
  for (const auto state : {Connection::State::kConnecting, Connection::State::kDisconnecting}) {
    Connection connection{nullptr, nullptr, one.peer, 1, state, true, true};
    one.peer.current = &connection;
    CHECK_FALSE(one.peer.can_tell());
    connection.state = Connection::State::kConnected;
    CHECK(one.peer.can_tell());
    const int before = one.network.probes;
    one.check(4500ms, 4750ms);
    CHECK(one.network.probes == before + 1);
  }
  one.peer.owes_number = false;
  CHECK_FALSE(one.peer.can_tell());
  one.peer.current = nullptr;
  CHECK(one.gone() == 0);
}

TEST_CASE("a peer that waits for its turn to be connected to is not blamed") {
  Checked one(false);
  one.network.code = -FI_EAGAIN;
  one.peer.waits = true;
  one.check(0ms, 60s);
  CHECK(one.network.probes == 0);
  one.peer.waits = false;
  one.check(60s, 69750ms);
  CHECK(one.gone() == 0);
  one.check(69750ms, 70s);
  CHECK(one.gone() == 1);
}

TEST_CASE("a peer on trial is abandoned sooner, unless the timeout is shorter") {
  Checked one(false);
  one.network.code = -FI_EAGAIN;
  PeerState &peer = one.peer, &other = one.other;
  for (int threads = 0; threads < 2; ++threads) one.health.set_on_trial(peer, true);
  CHECK(one.health.timeout(peer) == Timing::kTrial);
  CHECK(one.health.timeout(other) == 10s);
  CHECK(one.health.timeout() == 10s);
  one.check(0ms, 2750ms);
  CHECK(one.gone() == 0);
  one.check(2750ms, Timing::kTrial);
  CHECK(one.gone() == 1);
  one.health.set_on_trial(peer, false);
  CHECK(one.health.timeout(peer) == Timing::kTrial);
  one.health.set_on_trial(peer, false);
  CHECK(one.health.timeout(peer) == 10s);
  Checked brief(false, 2s);
  brief.health.set_on_trial(brief.peer, true);
  CHECK(brief.health.timeout(brief.peer) == 2s);
}

TEST_CASE("a peer without a limit is waited for, whatever the limits of others") {
  Checked one(false);
  one.network.code = -FI_EAGAIN;
  one.health.set_on_trial(one.other, true);
  one.check(0ms, 9750ms);
  CHECK(one.gone() == 0);
  Checked patient(false, 0s);
  patient.network.code = -FI_EAGAIN;
  patient.check(0ms, 200s);
  CHECK(patient.look(100s, true, 100s) == 0);
  patient.health.set_on_trial(patient.other, true);
  patient.check(0ms, 200s);
  CHECK(patient.look(100s, true, 100s) == 0);
  CHECK(patient.gone() == 0);
  patient.health.set_on_trial(patient.peer, true);
  patient.check(0ms, 3250ms);  // from the first check on
  CHECK(patient.gone() == 1);
}

TEST_CASE("a peer is watched after a notification until its host has acknowledged it") {
  Checked one(false);
  --one.peer.in_flight;
  const auto look = [&](auto... how) { return one.look(how...); };
  CHECK(look(2s, true, 20s) == 0);
  ++one.peer.notifications;
  CHECK(look(2s, true, 0ms) == 0);
  CHECK(look(4s, true, 1s) == 1);
  one.peers.deactivate_unused();
  CHECK(one.peers.active().size() == 1);
  SECTION("it does") {
    CHECK(look(5s, false, 2s) == 1);
    CHECK(look(60s, true, 60s) == 0);
    one.peers.deactivate_unused();
    CHECK(one.peers.active().empty());
    CHECK(one.gone() == 0);
  }
  SECTION("it does not") {
    CHECK(look(9s, true, 9s) == 1);
    CHECK(one.gone() == 0);
    CHECK(look(14s, true, 14s) == 1);
    CHECK(one.gone() == 1);
    CHECK(look(60s, true, 60s) == 0);
    CHECK(one.gone() == 1);
  }
}

TEST_CASE("over TCP a peer is abandoned whose host acknowledges nothing for the whole timeout") {
  Checked one(false);
  const auto look = [&](auto... how) { return one.look(how...); };
  CHECK(look(900ms, true, 900ms) == 0);
  CHECK(look(2s, true, 2s) == 1);
  SECTION("and only then") {
    CHECK(look(6900ms, true, 20s) == 1);
    CHECK(one.gone() == 0);  // data have waited for less than half of the timeout
    CHECK(look(9s, true, 9s) == 1);
    CHECK(one.gone() == 0);
    CHECK(look(10s, true, 10s) == 1);
    REQUIRE(one.gone() == 1);
    CHECK(one.network.abandoned[0] == "its host acknowledges nothing that is sent to it");
  }
  SECTION("not if it acknowledges meanwhile") {
    look(8s, false, 0ms);
    look(9s, true, 20s);
    CHECK(look(13s, true, 20s) == 1);
    CHECK(one.gone() == 0);
    look(14s, true, 20s);
    CHECK(one.gone() == 1);
  }
}

TEST_CASE("with a short timeout a host is looked at before the probe that ends its quiet") {
  for (const auto timeout : {1s, 2s}) {
    Checked one(false, timeout);
    const std::chrono::milliseconds half = std::chrono::milliseconds(timeout) / 2;
    CHECK(one.look(half - 1ms, true, 0ms) == 0);
    CHECK(one.look(half, false, 0ms) == 1);
    one.check(half - 250ms, half);
    CHECK(one.network.probes == 1);
    // The host is lost.
    CHECK(one.look(timeout, true, timeout) == 1);
    one.check(timeout - 250ms, timeout);
    CHECK(one.gone() == 0);
    CHECK(one.look(3 * half, true, 3 * half) == 1);
    CHECK(one.gone() == 1);
  }
}

}  // namespace farside::peer_health_test

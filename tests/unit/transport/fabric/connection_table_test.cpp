// SPDX-License-Identifier: BSD-3-Clause
// The table of connections, with endpoints that only count how many of them are open.
#include "transport/fabric/connection_table.hpp"

#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include <catch2/catch.hpp>

namespace farside::connection_table_test {

using namespace std::chrono_literals;

namespace {

using State = Connection::State;

// Endpoints that do nothing but end.
class Endpoints {
 public:
  FabricHandle<fid_ep> open() {
    auto endpoint = std::make_unique<Counted>();
    endpoint->of = this;
    endpoint->fid.fid.ops = &operations();
    ++count;
    return FabricHandle<fid_ep>(&endpoint.release()->fid);
  }
  int count = 0;

 private:
  struct Counted {
    fid_ep fid{};
    Endpoints* of = nullptr;
  };
  static fi_ops& operations() {
    static fi_ops all = [] {
      fi_ops made{};
      made.size = sizeof made;
      made.close = [](fid* closed) {
        auto* const endpoint = reinterpret_cast<Counted*>(closed);
        --endpoint->of->count;
        delete endpoint;
        return 0;
      };
      return made;
    }();
    return all;
  }
};

struct Table : ConnectionTable {
  Table() { own_identity = 1; }
  Endpoints endpoints;
  ~Table() { clear(); }
  Connection& connect(Peer peer, std::uint64_t number) {
    return add(endpoints.open(), peer, State::kConnecting, number);
  }
};

std::set<Peer> present(const ConnectionTable& table) {
  std::set<Peer> found;
  table.for_each_present([&](const Connection& connection) { found.insert(connection.peer); });
  return found;
}

}  // namespace

TEST_CASE("a connection is counted in each state from its request to its end") {
  Table table;
  const Peer peer = table.find(7);
  Connection& mine = table.connect(peer, 70);
  Connection& theirs = table.add(table.endpoints.open(), table.find(8), State::kAccepting, 80);
  CHECK(table.size() == 2);
  CHECK(table.not_closing() == 2);
  CHECK(table.in_progress() == 2);
  CHECK(table.initiated() == 1);
  table.established(mine);
  table.established(theirs);
  CHECK(table.in_progress() == 0);
  CHECK(table.initiated() == 0);
  CHECK(mine.state == State::kConnected);
  // One that is being closed does not stay, and is counted off once.
  table.begin_disconnect(mine);
  CHECK(mine.state == State::kDisconnecting);
  CHECK(mine.carries());
  CHECK(table.not_closing() == 1);
  table.end(mine);
  table.end(mine);
  CHECK(mine.state == State::kEnded);
  CHECK(table.not_closing() == 1);
  CHECK(table.endpoints.count == 2);
  table.close(mine);
  CHECK(table.size() == 1);
  CHECK(table.endpoints.count == 1);
}

TEST_CASE("a connection that is to be closed while it is being made carries only answers when it is there") {
  Table table;
  Connection& connection = table.connect(table.find(7), 70);
  table.begin_disconnect(connection);
  CHECK(connection.state == State::kConnecting);
  table.established(connection);
  CHECK(connection.state == State::kDisconnecting);
}

TEST_CASE("a connection of a process to itself does not count towards limits") {
  Table table;
  table.connect(table.find(1), 10);
  CHECK(table.not_closing() == 0);
  CHECK(table.in_progress() == 1);
}

TEST_CASE("an ended connection is closed when nothing is under way towards its peer, in any order") {
  Table table;
  for (std::uint64_t identity = 10; identity < 20; ++identity) {
    Connection& connection = table.connect(table.find(identity), identity);
    table.end(connection);
  }
  table.close_ended([](Peer peer) { return peer % 3 != 0; });
  CHECK(table.size() == 4);
  table.close_ended([](Peer peer) { return peer == 3; });
  CHECK(table.endpoints.count == 3);
  table.close_ended([](Peer) { return true; });
  CHECK(table.endpoints.count == 0);
}

TEST_CASE("a connection is found by its number, as long as it is the present one") {
  Table table;
  const Peer first = table.find(7);
  Connection& of_first = table.connect(first, 5);
  CHECK(table.peer_of(5) == first);
  CHECK(present(table) == std::set<Peer>{first});
  table.end(of_first);
  CHECK_FALSE(table.peer_of(5));
  CHECK(present(table).empty());
  CHECK(table.find(&of_first.endpoint->fid) == &of_first);
  const fid* const gone = &of_first.endpoint->fid;
  table.close(of_first);
  CHECK(table.find(gone) == nullptr);
}

TEST_CASE("attempts to connect are delayed ever longer, up to a limit, until one succeeds") {
  Table table;
  const Peer peer = table.find(7);
  KnownPeer& known = table.of(peer);
  const auto now = Connection::Clock::now();
  for (const auto wait : {1ms, 2ms, 4ms, 8ms, 16ms, 32ms, 64ms, 100ms, 100ms, 100ms}) {
    known.back_off(now);
    CHECK(known.not_before == now + wait);
  }
  known.last_error = ECONNREFUSED;
  table.established(table.connect(peer, 70));
  CHECK(known.last_error == 0);
  known.back_off(now);
  CHECK(known.not_before == now + 1ms);
}

TEST_CASE("a peer may connect before its address is known") {
  Table table;
  CHECK_FALSE(table.find_known(7));
  const Peer peer = table.find(7);
  FabricAddress address;
  address.identity = 7;
  address.secret = 9;
  CHECK(table.insert(address) == peer);
  CHECK(table.find_known(7) == peer);
  CHECK(table.of(peer).address.secret == 9);
  CHECK(table.insert(FabricAddress{}) != peer);
}

}  // namespace farside::connection_table_test

// SPDX-License-Identifier: BSD-3-Clause
// A stranger is a process that is not of the job. It knows the secret, so a rank's endpoint accepts its connection, and
// it tries all that libfabric allows. It must read and change nothing, and the job must not be disturbed.
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <netinet/in.h>
#include <new>
#include <random>
#include <span>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include "tests/support/seeds.hpp"
#include "tests/unit/transport/fabric/fake_process.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/base/address.hpp"
#include "transport/base/files.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/sockets.hpp"
#include "transport/handler/message.hpp"

namespace farside::stranger_test {

using namespace farside::testing;

namespace {

// farside's own private data (Connections::Hello): its layout is part of the protocol between processes of one version.
struct CallerHello {
  std::uint32_t magic = 0x46415253, version = 4;
  std::uint64_t from = 1, secret = 0, number = 7, attempt = 1;
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};

// A client that connects to a rank's endpoint by libfabric without farside, with any private data.
class Caller {
 public:
  Caller(const FabricAddress& address, std::span<const std::byte> hello) {
    info_ = tcp_provider();
    info_->ep_attr->rx_ctx_cnt = 0;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_eq* events = nullptr;
    fid_cq* queue = nullptr;
    fid_ep* endpoint = nullptr;
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_UNSPEC;
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_MSG;
    if (fi_fabric(info_->fabric_attr, &fabric, nullptr) != 0) return;
    fabric_.reset(fabric);
    if (fi_eq_open(fabric, &eq_attr, &events, nullptr) != 0) return;
    events_.reset(events);
    if (fi_domain(fabric, info_.get(), &domain, nullptr) != 0) return;
    domain_.reset(domain);
    if (fi_cq_open(domain, &cq_attr, &queue, nullptr) != 0) return;
    queue_.reset(queue);
    if (fi_endpoint(domain, info_.get(), &endpoint, nullptr) != 0) return;
    endpoint_.reset(endpoint);
    if (fi_ep_bind(endpoint, &events->fid, 0) != 0 || fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV) != 0)
      return;
    const Sockaddr there = to_sockaddr(address.socket);
    if (fi_enable(endpoint) != 0 || fi_connect(endpoint, &there.any, hello.data(), hello.size()) != 0) return;
    std::uint32_t event = 0;
    alignas(8) std::array<std::byte, 512> entry;
    const ssize_t read = fi_eq_sread(events, &event, entry.data(), entry.size(), 10'000, 0);
    if (read == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      fi_eq_readerr(events, &error, 0);
      outcome_ = error.err;
    } else if (read > 0 && event == FI_CONNECTED) {
      outcome_ = 0;
    }
  }
  // A caller that knows everything the ranks exchange about an endpoint, except keys. Each attempt needs a new caller,
  // since a target ends a connection on which a peer accesses memory that does not exist.
  static Caller stranger(const FabricAddress& victim) {
    static std::uint64_t last = 0;
    CallerHello hello;
    hello.from = ++last;
    hello.secret = victim.secret;
    return {victim, hello.bytes()};
  }
  // 0: the client is connected. Otherwise libfabric's error, or -1 if an earlier call has failed.
  int outcome() const { return outcome_; }

  enum class Outcome { kDone, kError, kNothing };
  // Returns the result of one operation, issue(endpoint, context), within the time `timeout`.
  template <class Issue>
  Outcome attempt(Issue&& issue, std::chrono::milliseconds timeout) {
    const auto end = Clock::now() + timeout;
    bool issued = false;
    while (Clock::now() < end) {
      if (!issued) {
        const ssize_t code = issue(endpoint_.get(), &context_);
        if (code != 0 && code != -FI_EAGAIN) return Outcome::kError;
        issued = code == 0;
      }
      fi_cq_msg_entry entry;
      const ssize_t count = fi_cq_read(queue_.get(), &entry, 1);
      if (count == 1) return Outcome::kDone;
      if (count == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        fi_cq_readerr(queue_.get(), &error, 0);
        return Outcome::kError;
      }
    }
    return Outcome::kNothing;
  }
  void send(std::span<const std::byte> message) {
    attempt(
        [&](fid_ep* endpoint, void* context) {
          return fi_send(endpoint, message.data(), message.size(), nullptr, FI_ADDR_UNSPEC, context);
        },
        std::chrono::milliseconds(1000));
  }

 private:
  fi_context2 context_{};
  InfoHandle info_;
  FabricHandle<fid_fabric> fabric_;
  FabricHandle<fid_eq> events_;
  FabricHandle<fid_domain> domain_;
  FabricHandle<fid_cq> queue_;
  FabricHandle<fid_ep> endpoint_;
  int outcome_ = -1;
};

// RDMA with a key that was guessed.
void try_key(Ranks& ranks, const FabricAddress& victim, std::uint64_t key, int how) {
  Caller stranger = Caller::stranger(victim);
  ranks.check(stranger.outcome() == 0, "the stranger has an endpoint");
  std::array<std::uint64_t, 4> words{0x5712a43e5712a43e, 1, 2, 3};
  std::array<std::uint64_t, 4> got{};
  const auto outcome = stranger.attempt(
      [&](fid_ep* endpoint, void* context) -> ssize_t {
        constexpr fi_addr_t to = FI_ADDR_UNSPEC;
        return how == 0 ? fi_write(endpoint, words.data(), sizeof words, nullptr, to, 0, key, context)
                        : fi_read(endpoint, got.data(), sizeof got, nullptr, to, 0, key, context);
      },
      std::chrono::milliseconds(100));
  // A write without delivery-complete is "done" once it is sent; what was read must be nothing.
  ranks.check(how == 0 || outcome != Caller::Outcome::kDone, fmt::format("key {} is refused", key));
  ranks.check(std::ranges::all_of(got, [](std::uint64_t word) { return word == 0; }), "nothing was read");
}

std::vector<std::byte> garbage(std::mt19937_64& random, std::size_t bytes) {
  std::vector<std::byte> message(bytes);
  for (std::byte& b : message) b = static_cast<std::byte>(random());
  return message;
}

// A bare socket, connected to a rank's listener; not valid if it could not be connected.
UniqueFd connect_to(const FabricAddress& victim) {
  const Sockaddr there = to_sockaddr(victim.socket);
  sockaddr_in address{};
  std::memcpy(&address, &there.any, sizeof address);
  if (address.sin_addr.s_addr == 0) address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return socket;
}

// Sends bytes that are not libfabric's wire protocol.
void speak_nonsense(Ranks& ranks, const FabricAddress& victim, std::mt19937_64& random, std::size_t bytes) {
  const UniqueFd socket = connect_to(victim);
  ranks.check(socket.valid(), "the endpoint listens");
  if (bytes > 0) {
    const std::vector<std::byte> text = garbage(random, bytes);
    [[maybe_unused]] const ssize_t sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
}

// Sends answers to requests that were sent to other processes.
void answer_for_others(const FabricAddress& victim) {
  Caller stranger = Caller::stranger(victim);
  for (std::uint64_t operation = 0; operation < 4; ++operation) {
    for (std::uint32_t generation = 0; generation < 20; ++generation) {
      struct {
        ReplyHeader header;
        std::array<std::uint64_t, 2> fetched;
      } reply{};
      reply.header = {MessageKind::kReply, ReplyStatus::kDone, 0, generation, operation};
      for (const std::size_t bytes : {0, 8, 16})
        stranger.send(std::as_bytes(std::span(&reply, 1)).first(sizeof(ReplyHeader) + bytes));
    }
  }
}

void do_harm(Ranks& ranks, const FabricAddress& victim, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  for (const std::size_t bytes : {0, 1, 7, 64, 200, 4096, 100'000}) speak_nonsense(ranks, victim, random, bytes);
  for (int how = 0; how < 2; ++how) {
    for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, random(), ~std::uint64_t{0}})
      try_key(ranks, victim, key, how);
  }
  Caller stranger = Caller::stranger(victim);
  for (const std::size_t bytes : {1, 15, 16, 47, 48, 49, 100, 1000, 6000}) stranger.send(garbage(random, bytes));
  // Requests that are as well formed as possible without the id of a space.
  for (std::uint64_t space = 0; space < 24; ++space) {
    const std::uint64_t word = 1;
    OperationList list;
    list.add(DataOperation::put(0, &word, sizeof word));
    RequestHeader header{};
    header.kind = std::array{MessageKind::kOperations, MessageKind::kRegions, MessageKind::kDescribe}[space % 3];
    header.identity = victim.identity;
    header.space = space < 12 ? space : random();
    std::vector<std::byte> message(sizeof header + list.bytes().size());
    std::memcpy(message.data(), &header, sizeof header);
    std::ranges::copy(list.bytes(), message.begin() + sizeof header);
    stranger.send(message);
  }
}

}  // namespace

TEST_CASE("a connection without the secret is refused, and others are not") {
  const Exposed listens(1, {}, tcp_provider());
  const FakeProcess peer({}, tcp_provider());
  const FabricAddress address = listens.fabric->address();
  const auto outcome = [&](std::span<const std::byte> data) { return Caller(address, data).outcome(); };
  CallerHello hello;
  hello.secret = address.secret + 1;
  CHECK(outcome(hello.bytes()) == FI_ECONNREFUSED);
  CHECK(outcome({}) == FI_ECONNREFUSED);
  CHECK(outcome(std::vector(200, std::byte{0x46})) == FI_ECONNREFUSED);
  hello.secret = address.secret;
  hello.version = 3;
  CHECK(outcome(hello.bytes()) == FI_ECONNREFUSED);
  // A caller with the right secret and version is accepted, so the others were refused for theirs.
  hello.version = 4;
  CHECK(outcome(hello.bytes()) == 0);
  CHECK(peer.put(listens.place_for(peer), 7));
  CHECK(listens.words[0] == 7);
}

TEST_CASE("a stranger that knows a rank's address reads and changes nothing, and the job goes on") {
  const std::uint32_t seed = seeds({}).front();
  INFO(named(seed));
  // The last of three processes is the stranger. The others make a space without it, and use the space until it has
  // ended.
  auto* const shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& asked = *new (shared) std::atomic<bool>(false);
  auto& over = *new (&asked + 1) std::atomic<bool>(false);
  const std::string failures = run_processes(3, [&](Ranks& ranks) {
    use_routes("fabric");
    setenv("FARSIDE_LOG", "error", 1);  // each refusal is a warning
    const bool foreign = ranks.rank() == 2;
    constexpr std::uint64_t kWords = 64;
    // The ranks exchange all addresses, and the stranger gets them, too.
    OpenSpace open = make_space(ranks, space_request(kControlBytes, 2 * kWords * 8), 2);
    const FabricAddress victim = open.addresses[0];
    std::unique_ptr<Space> space = std::move(open.space);
    if (!foreign) std::fill_n(space->data(), 2 * kWords * 8, std::byte{0});
    const auto pids = ranks.all_gather(getpid());
    if (foreign) {
      ranks.barrier();
      while (!asked) usleep(1000);
      answer_for_others(victim);
      kill(pids[1], SIGCONT);
      do_harm(ranks, victim, seed);
      over = true;
      ranks.barrier();
      return;
    }
    // RDMA into the first half, atomics and the handler on the first words of the second.
    const int other = 1 - ranks.rank();
    constexpr std::uint64_t kSums = 8 * kWords, kOnes = kSums + 16;
    const auto good = [&](const Status& status) { ranks.check(status.ok(), status.ok() ? "" : status.error().text); };
    // Rank 1 is stopped while rank 0 waits for its answer. Rank 0 must not accept the answer of the stranger.
    const long double five = 5;
    good(space->route(other).carry_out(
        other, DataOperation::accumulate(kOnes, ReduceOp::kReplace, BasicType::kLongDouble, &five, nullptr, 1)));
    good(space->route(other).flush(other));
    ranks.barrier();
    if (ranks.rank() == 1) {
      raise(SIGSTOP);
    } else {
      await_stopped(pids[1]);
      long double before = 0;
      const long double none = 0;
      good(space->route(1).carry_out(
          1, DataOperation::accumulate(kOnes, ReduceOp::kReplace, BasicType::kLongDouble, &none, &before, 1)));
      asked = true;
      good(space->route(1).flush(1));
      ranks.check(before == 5, "only the rank that was asked can answer");
    }
    std::uint64_t rounds = 0;
    std::vector<std::uint64_t> words(kWords), got(kWords);
    const long double one = 1;
    const std::uint64_t more = 3;
    while (!over || rounds < 100) {
      ++rounds;
      std::ranges::fill(words, rounds);
      Status status = space->route(other).carry_out(other, DataOperation::put(0, words.data(), 8 * kWords));
      if (status) status = space->route(other).flush(other);
      if (status) status = space->route(other).carry_out(other, DataOperation::get(0, got.data(), 8 * kWords));
      if (status)
        status = space->route(other).carry_out(
            other, DataOperation::accumulate(kSums, ReduceOp::kSum, BasicType::kUint64, &more, nullptr, 1));
      if (status)
        status = space->route(other).carry_out(
            other, DataOperation::accumulate(kOnes, ReduceOp::kSum, BasicType::kLongDouble, &one, nullptr, 1));
      if (status) status = space->route(other).flush(other);
      ranks.check(status.ok(), status.ok() ? "" : status.error().text);
      ranks.check(got == words, "what was put is got");
      if (!status.ok() || got != words) break;
    }
    std::uint64_t sum = 0;
    long double ones = 0;
    const long double first = ranks.rank() == 1 ? five : 0;
    Status status = space->route(other).carry_out(other, DataOperation::get(kSums, &sum, sizeof sum));
    if (status) status = space->route(other).carry_out(other, DataOperation::get(kOnes, &ones, sizeof ones));
    if (status) status = space->route(other).flush(other);
    ranks.check(status.ok() && sum == 3 * rounds && ones == static_cast<long double>(rounds) + first,
                "nothing is lost");
    ranks.barrier();
    space.reset();
    Process::instance().shut_down();
  });
  munmap(shared, 4096);
  expect_well(failures);
}

}  // namespace farside::stranger_test

// SPDX-License-Identifier: BSD-3-Clause
// Failures during the use of a Space are errors of the operation or of the flush: accesses beyond the data, and peers
// that are stopped, dead, or have unmapped their memory.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/node/process_memory.hpp"

namespace farside::space_errors_test {

using namespace farside::testing;
using namespace std::chrono_literals;

TEST_CASE("an access beyond a target's data over the fabric is an error of the flush") {
  // Callers check ranges: a provider may well drop the connection.
  for (const bool puts : {true, false}) {
    expect_well(run_with_space(2, Variant::kFabric, 4096, [&](Ranks& ranks, SpaceFixture& space) {
      if (ranks.rank() == 1) return;
      std::uint64_t word = 1;
      Route& route = space->route(1);
      const Status issued = puts ? route.carry_out(1, DataOperation::put(1 << 30, &word, 8))
                                 : route.carry_out(1, DataOperation::get(1 << 30, &word, 8));
      const Status flushed = route.flush(1);
      ranks.check(!issued.ok() || (!flushed.ok() && flushed.error().kind == ErrorKind::kPeer), "an error of the peer");
      space.good(route.flush(1), "it is reported once");
    }));
  }
}

TEST_CASE("what the handler refuses is an error of the flush, and the target lives on") {
  expect_well(run_with_space(2, Variant::kFabric, 4096, [](Ranks& ranks, SpaceFixture& space) {
    if (ranks.rank() == 0) {
      const std::uint64_t word = 1;
      const long double real = 1;
      for (const std::uint64_t offset : {4088UL, 1UL << 40}) {
        space.good(space->route(1).carry_out(
                       1, DataOperation::accumulate(offset, ReduceOp::kSum, BasicType::kLongDouble, &real, nullptr, 1)),
                   "issuing");
        const Status refused = space->route(1).flush(1);
        ranks.check(!refused.ok() && refused.error().kind == ErrorKind::kRange, "the refusal says range");
        space.good(space->route(1).flush(1), "an error is reported once");
      }
      space.good(space->route(1).carry_out(1, DataOperation::put(0, &word, 8)), "put");
      space.good(space->route(1).carry_out(
                     1, DataOperation::accumulate(16, ReduceOp::kReplace, BasicType::kLongDouble, &real, nullptr, 1)),
                 "handler");
      space.good(space->route(1).flush(1), "all is well again");
    }
    ranks.barrier();
    if (ranks.rank() == 1) ranks.check(read_data<long double>(space, 16) == 1, "what was sent is here");
  }));
}

namespace {

// Operations that are outstanding to a rank when it dies, or are issued to it afterwards.
enum class Last { kPut, kFetch, kHandler, kControl };

void outlive(Ranks& ranks, Last last, bool when_dead) {
  setenv("FARSIDE_PEER_TIMEOUT", "2", 1);
  SpaceFixture space(ranks, Variant::kFabric, 1 << 16);
  std::vector<std::uint64_t> words(8192, 1);
  const long double real = 1;
  ControlMemory memory(*space);
  ControlMemory::Operation operation;
  const auto finish = [&] {
    await(space, operation);
    return operation.take_error();
  };
  if (ranks.rank() == 0) {
    // All connections are made.
    space.good(space->route(1).carry_out(1, DataOperation::put(0, words.data(), 8)), "put");
    space.good(space->route(1).carry_out(
                   1, DataOperation::accumulate(16, ReduceOp::kReplace, BasicType::kLongDouble, &real, nullptr, 1)),
               "handler");
    space.good(space->route(1).flush(1), "flush");
  }
  const auto pids = ranks.all_gather(getpid());
  if (ranks.rank() == 1) {
    ranks.barrier();
    while (true) raise(SIGSTOP);
  }
  ranks.barrier();
  await_stopped(pids[1]);
  const auto begin = Clock::now();
  if (when_dead) {
    kill(pids[1], SIGKILL);
    await_dead(pids[1]);
  }
  Status issued;
  switch (last) {
    case Last::kPut:
      for (int i = 0; i < 50 && issued.ok(); ++i)
        issued = space->route(1).carry_out(1, DataOperation::put(0, words.data(), 8 * words.size()));
      break;
    case Last::kFetch:
      issued = space->route(1).carry_out(
          1, DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kUint64, words.data(), words.data() + 1, 1));
      break;
    case Last::kHandler:
      issued = space->route(1).carry_out(
          1, DataOperation::accumulate(16, ReduceOp::kReplace, BasicType::kLongDouble, &real, nullptr, 1));
      break;
    case Last::kControl: memory.fetch_add(operation, 1, 64, 1); break;
  }
  if (!when_dead) {
    std::this_thread::sleep_for(100ms);
    kill(pids[1], SIGKILL);
  }
  Status status = last == Last::kControl ? finish() : space->route(1).flush(1);
  if (!issued) status = std::move(issued);
  ranks.check(!status.ok() && status.error().kind == ErrorKind::kPeer, "the error says that the peer is gone");
  ranks.check(Clock::now() - begin < 10s, "in time");
  // No outstanding operation can write to this memory later.
  space->route(1).flush(1).ok();
  _exit(ranks.failures() == 0 ? 0 : 1);
}

}  // namespace

TEST_CASE("what waits for a peer that has died ends with an error, whatever it is and whenever that was") {
  for (const Last last : {Last::kPut, Last::kFetch, Last::kHandler, Last::kControl}) {
    for (const bool when_dead : {false, true}) {
      INFO("operation " << static_cast<int>(last) << (when_dead ? " to a dead peer" : " under way"));
      expect_well(run_processes(
                      2, [&](Ranks& ranks) { outlive(ranks, last, when_dead); }, 20),
                  "rank 1: ended by signal 9\n");
    }
  }
}

TEST_CASE("private memory that is gone is an error of the operation", "[native]") {
  expect_well(run_processes(
      2,
      [](Ranks& ranks) {
        use_routes("mapped,cma");
        void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const std::unique_ptr<Space> space =
            std::move(make_space(ranks, space_request(kControlBytes, 4096, memory)).space);
        if (ranks.rank() == 1) munmap(memory, 4096);
        ranks.barrier();
        if (ranks.rank() == 0) {
          std::uint64_t word = 1, fetched = 0;
          const auto is_peer_error = [](const Status& status) {
            return !status.ok() && status.error().kind == ErrorKind::kRange;
          };
          ranks.check(is_peer_error(space->route(1).carry_out(1, DataOperation::put(0, &word, 8))), "put");
          ranks.check(is_peer_error(space->route(1).carry_out(1, DataOperation::get(0, &word, 8))), "get");
          // The call is made twice, since a failed call must release the accumulate lock.
          for (int i = 0; i < 2; ++i) {
            ranks.check(is_peer_error(space->route(1).carry_out(
                            1, DataOperation::accumulate(0, ReduceOp::kSum, BasicType::kUint64, &word, nullptr, 1))),
                        "add");
            ranks.check(is_peer_error(space->route(1).carry_out(
                            1, DataOperation::compare_and_swap(0, BasicType::kUint64, &word, &word, &fetched))),
                        "swap");
          }
          ranks.check(space->route(1).flush(1).ok(), "nothing is left to report");
        }
        ranks.barrier();
      },
      20));
}

}  // namespace farside::space_errors_test

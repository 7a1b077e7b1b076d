// SPDX-License-Identifier: BSD-3-Clause
// Operations complete while the target sleeps or polls, on every variant. (The program progress has the other states.)
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <pthread.h>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"

namespace farside::space_progress_test {

using namespace farside::testing;
using namespace std::chrono_literals;

namespace {

// The thread sanitizer compares each word of a large transfer with its suppressions: 1 MiB takes it seconds.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kLarge = 16 << 10;
#else
constexpr std::size_t kLarge = 1 << 20;
#endif

std::atomic<bool> woken{false};

constexpr std::array<std::string_view, 3> kOwnThreads{"farside", "farside-node", "farside-opener"};

// Calls `each(folder)` for every thread of this process that farside has started, with its folder in proc(5). Returns
// their number.
template <class Each>
int for_each_own_thread(Each&& each) {
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string thread_name;
    std::getline(file, thread_name);
    if (std::ranges::find(kOwnThreads, thread_name) == kOwnThreads.end()) continue;
    each(task.path());
    ++threads;
  }
  return threads;
}

// Returns whether there are `least` threads of farside or more, and all of them block signals.
bool threads_block_signals(int least) {
  bool good = true;
  const int threads = for_each_own_thread([&](const std::filesystem::path& folder) {
    std::ifstream status(folder / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const auto blocked = std::strtoull(line.c_str() + 7, nullptr, 16);
      for (const int signal : {SIGUSR1, SIGALRM, SIGPROF, SIGTERM, SIGINT, SIGCHLD}) {
        good = good && (blocked >> (signal - 1) & 1) != 0;
      }
    }
  });
  return good && threads >= least;
}

// Executes every kind of operation at rank 0, each within `limit`.
void visit(Ranks& ranks, SpaceFixture& space, std::chrono::milliseconds limit) {
  const auto timed = [&](const char* what, const Status& issued) {
    const auto begin = Clock::now();
    space.good(issued, what);
    space.good(space->route(0).flush(0), what);
    ranks.check(Clock::now() - begin < limit, fmt::format("{} is served in time", what));
  };
  std::vector<std::byte> large(kLarge, std::byte{1});
  std::uint64_t one = 1, zero = 0, fetched = 0;
  long double long_one = 1, long_fetched = 0;
  ControlMemory memory(*space);
  ControlMemory::Operation operation;
  for (int i = 0; i < 20; ++i) {
    timed("put", space->route(0).put(0, 64, &one, 8));
    timed("large put", space->route(0).put(0, 128, large.data(), large.size()));
    timed("get", space->route(0).get(0, 64, &fetched, 8));
    timed("large get", space->route(0).get(0, 128, large.data(), large.size()));
    timed("accumulate", space->route(0).accumulate(0, 0, ReduceOp::kSum, BasicType::kUint64, &one, nullptr, 1));
    timed("fetch", space->route(0).accumulate(0, 0, ReduceOp::kSum, BasicType::kUint64, &one, &fetched, 1));
    timed("handler",
          space->route(0).accumulate(0, 16, ReduceOp::kSum, BasicType::kLongDouble, &long_one, &long_fetched, 1));
    timed("compare_and_swap", space->route(0).compare_and_swap(0, 32, BasicType::kUint64, &one, &zero, &fetched));
    const auto begin = Clock::now();
    memory.fetch_add(operation, 0, 64, 1);
    await(space, operation);
    ranks.check(Clock::now() - begin < limit, "a control word is served in time");
  }
}

}  // namespace

TEST_CASE("a target whose main thread sleeps in the kernel serves all the same, and gets its signals itself") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, kLarge + 256, [&](Ranks& ranks, SpaceFixture& space) {
      if (ranks.rank() == 0) std::fill_n(space->data(), 256, std::byte{0});
      const auto main_thread = pthread_self();
      static pthread_t handled_by;
      sigset_t wake, before;
      sigemptyset(&wake);
      sigaddset(&wake, SIGUSR1);
      pthread_sigmask(SIG_BLOCK, &wake, &before);
      std::signal(SIGUSR1, [](int) {
        handled_by = pthread_self();
        woken = true;
      });
      ranks.check(threads_block_signals(variant == Variant::kMapped ? 0 : 1), "threads of farside block all signals");
      const auto pids = ranks.all_gather(getpid());
      if (ranks.rank() == 0) {
        // pause(2) with the signal let in: it cannot come too early.
        while (!woken) sigsuspend(&before);
        ranks.check(pthread_equal(handled_by, main_thread) != 0, "no thread of farside takes a signal");
      } else {
        std::this_thread::sleep_for(20ms);
        visit(ranks, space, 1000ms);
        kill(pids[0], SIGUSR1);
      }
      ranks.barrier();
      if (ranks.rank() == 0) {
        ranks.check(read_data<std::uint64_t>(space, 0) == 40, "the additions are here");
        ranks.check(read_data<long double>(space, 16) == 20, "the handler's too");
        ranks.check(read_data<std::uint64_t>(space, 32) == 1, "swapped");
      }
    }));
  }
}

TEST_CASE("operations that take many messages have their effect on a target that polls") {
  constexpr std::size_t kElements = 20'000;  // some 20 messages, of which 8 are under way at once
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, kElements * sizeof(double), [&](Ranks& ranks, SpaceFixture& space) {
      const std::span mine(reinterpret_cast<double*>(space->data()), kElements);
      if (ranks.rank() == 0) {
        for (std::size_t i = 0; i < kElements; ++i) mine[i] = static_cast<double>(i);
        ranks.barrier();
        const std::atomic_ref end(mine[0]);
        while (end.load() != -1) Process::instance().poll_from_runtime();
        ranks.check(mine[kElements - 1] == 2.0 * (kElements - 1) + 1, "the last element was added to");
      } else {
        std::vector<double> operands(kElements), before(kElements), after(kElements);
        for (std::size_t i = 0; i < kElements; ++i) operands[i] = static_cast<double>(i + 1);
        ranks.barrier();
        for (const std::size_t count : {std::size_t{1024}, std::size_t{1040}, kElements}) {
          const std::size_t bytes = count * sizeof(double);
          space.good(space->route(0).get(0, 0, before.data(), bytes), "get");
          space.good(space->route(0).flush(0), "flush");
          space.good(space->route(0).accumulate(0, 0, ReduceOp::kSum, BasicType::kDouble, operands.data(), after.data(),
                                                count),
                     "get_accumulate");
          space.good(space->route(0).flush(0), "flush");
          ranks.check(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(count), after.begin()),
                      "what was there is fetched");
          space.good(space->route(0).get(0, 0, after.data(), bytes), "get");
          space.good(space->route(0).flush(0), "flush");
          bool once = true;
          for (std::size_t i = 0; i < count; ++i) once = once && after[i] == before[i] + operands[i];
          ranks.check(once, "each element was added to once");
          space.good(
              space->route(0).accumulate(0, 0, ReduceOp::kNoOp, BasicType::kDouble, nullptr, operands.data(), count),
              "get_accumulate of MPI_NO_OP");
          space.good(space->route(0).flush(0), "flush");
          ranks.check(std::equal(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(count), operands.begin()),
                      "it fetches what is there");
          for (std::size_t i = 0; i < count; ++i) operands[i] = static_cast<double>(i + 1);
          if (count == kElements) break;
          space.good(space->route(0).put(0, 0, before.data(), bytes), "put");
          space.good(space->route(0).flush(0), "flush");
        }
        const double end = -1;
        space.good(space->route(0).put(0, 0, &end, sizeof end), "put");
        space.good(space->route(0).flush(0), "flush");
      }
    }));
  }
}

}  // namespace farside::space_progress_test

// SPDX-License-Identifier: BSD-3-Clause
// Operations complete while the target sleeps or computes, on every variant; and several threads use one Space.
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

TEST_CASE("a target that computes serves all the same") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, kLarge + 256, [&](Ranks& ranks, SpaceFixture& space) {
      if (ranks.rank() == 0) {
        std::fill_n(space->data(), 256, std::byte{0});
        ranks.barrier();
        const std::atomic_ref end(*reinterpret_cast<std::uint64_t*>(space->data() + 48));
        for (volatile std::uint64_t work = 0; end.load() != 1;) work = work + 1;
      } else {
        ranks.barrier();
        visit(ranks, space, 1000ms);
        const std::uint64_t one = 1;
        space.good(space->route(0).put(0, 48, &one, 8), "put");
        space.good(space->route(0).flush(0), "flush");
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

TEST_CASE("a target that waits in the MPI runtime serves from there") {
  for (const Variant variant : kAllVariants) {
    if (variant == Variant::kMapped) continue;  // mapped memory needs no progress at the target
    INFO(name(variant));
    expect_well(run_with_space(2, variant, kLarge + 256, [&](Ranks& ranks, SpaceFixture& space) {
      const RouteKind route = over_fabric(variant) ? RouteKind::kFabric : RouteKind::kCma;
      const auto word = [&](std::size_t at) {
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(space->data() + at));
      };
      if (ranks.rank() == 0) {
        std::fill_n(space->data(), 256, std::byte{0});
        ranks.barrier();
        while (word(48).load() != 1) {
          Process::instance().poll_from_runtime();
          if (counted(route, Counted::kFromRuntime) > 0) word(56).store(1);
        }
        ranks.check(word(56).load() == 1, "what came was done from there");
        ranks.check(word(0).load() % 40 == 0, "the additions are here");
        ranks.check(read_data<long double>(space, 16) == static_cast<long double>(word(0).load()) / 2,
                    "the handler's too");
      } else {
        ranks.barrier();
        // The polling rank or a thread of farside executes each operation, whichever runs first. On busy cores this is
        // mostly the thread.
        std::uint64_t seen = 0;
        for (const auto end = Clock::now() + 200s; seen == 0 && Clock::now() < end;) {
          visit(ranks, space, 1000ms);
          space.good(space->route(0).get(0, 56, &seen, 8), "get");
          space.good(space->route(0).flush(0), "flush");
        }
        const std::uint64_t one = 1;
        space.good(space->route(0).put(0, 48, &one, 8), "put");
        space.good(space->route(0).flush(0), "flush");
      }
    }));
  }
}

TEST_CASE("threads of one process may use a space together") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_with_space(2, variant, 4096, [&](Ranks& ranks, SpaceFixture& space) {
      std::fill_n(space->data(), 4096, std::byte{0});
      space->expect_threads();
      ranks.barrier();
      std::atomic<int> failures{0};
      std::vector<std::thread> threads;
      for (std::uint64_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
          for (std::uint64_t i = 0; i < 200; ++i) {
            const int to = static_cast<int>(i % 2);
            const std::uint64_t one = 1, sent = i + 1;
            const long double long_one = 1;
            std::uint64_t got = 0;
            const std::uint64_t mine = 256 + 8 * (3 * static_cast<std::uint64_t>(ranks.rank()) + t);
            bool good = space->route(to).accumulate(to, 0, ReduceOp::kSum, BasicType::kUint64, &one, nullptr, 1).ok();
            good =
                good &&
                space->route(to).accumulate(to, 16, ReduceOp::kSum, BasicType::kLongDouble, &long_one, nullptr, 1).ok();
            good = good && space->route(to).put(to, mine, &sent, 8).ok();
            good = good && space->route(to).flush(to).ok();
            good = good && space->route(to).get(to, mine, &got, 8).ok();
            good = good && space->route(to).flush(to).ok() && got == sent;
            if (!good) ++failures;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      ranks.check(failures == 0, "every operation succeeds");
      ranks.barrier();
      Process::instance().poll();
      ranks.check(read_data<std::uint64_t>(space, 0) == 600, "all are counted");
      ranks.check(read_data<long double>(space, 16) == 600, "the handler's too");
    }));
  }
}

}  // namespace farside::space_progress_test

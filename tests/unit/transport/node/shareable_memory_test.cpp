// SPDX-License-Identifier: BSD-3-Clause
// Memory of MPI_Alloc_mem that peers map later: its places in the file, and that no descriptor or mapping is left.
#include "transport/node/shareable_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"

namespace farside::shareable_memory_test {

using namespace farside::testing;

TEST_CASE("pieces begin at a page or a cache line, and are found as a whole and in part") {
  ShareableMemory memory;
  std::vector<std::byte*> allocations;
  const std::vector<std::size_t> sizes = {1, 4096, 4097, 100'000, 8};
  for (const std::size_t bytes : sizes) {
    const Result<void*> made = memory.allocate(bytes);
    REQUIRE(made.ok());
    auto* allocation = static_cast<std::byte*>(made.value());
    CHECK(reinterpret_cast<std::uintptr_t>(allocation) % (bytes < 4096 ? 64 : 4096) == 0);
    std::memset(allocation, static_cast<int>(bytes % 251), bytes);
    allocations.push_back(allocation);
  }
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    const auto whole = memory.find(allocations[i], sizes[i]);
    const auto last = memory.find(allocations[i] + sizes[i] - 1, 1);
    REQUIRE(whole.has_value());
    REQUIRE(last.has_value());
    CHECK(last->offset == whole->offset + sizes[i] - 1);
    // The file holds the same bytes.
    std::byte found{};
    REQUIRE(pread(last->fd, &found, 1, static_cast<off_t>(last->offset)) == 1);
    CHECK(found == std::byte(sizes[i] % 251));
    CHECK_FALSE(memory.find(allocations[i], sizes[i] + 4096).has_value());
  }
  int local = 0;
  CHECK_FALSE(memory.find(&local, sizeof local).has_value());
  CHECK_FALSE(memory.find(nullptr, 1).has_value());
  CHECK_FALSE(memory.free(&local));
  CHECK_FALSE(memory.contains(&local));
  CHECK(memory.contains(allocations[3] + 4096));
  CHECK_FALSE(memory.free(allocations[3] + 4096));
  for (std::byte* allocation : allocations) {
    CHECK(memory.free(allocation));
    CHECK_FALSE(memory.free(allocation));
    CHECK_FALSE(memory.find(allocation, 1).has_value());
  }
}

TEST_CASE("what is freed gives back its pages, and the last one the descriptor") {
  const std::size_t files = open_files();
  const std::size_t mappings = mapped_segments();
  ShareableMemory memory;
  CHECK(open_files() == files);
  const Result<void*> first = memory.allocate(4096);
  REQUIRE(first.ok());
  const int fd = memory.find(first.value(), 1)->fd;
  for (int i = 0; i < 200; ++i) {
    const Result<void*> allocation = memory.allocate(1 << 20);
    REQUIRE(allocation.ok());
    REQUIRE(memory.free(allocation.value()));
  }
  CHECK(open_files() == files + 1);
  CHECK(mapped_segments() == mappings + 1);
  struct stat info {};
  REQUIRE(fstat(fd, &info) == 0);
  CHECK(info.st_blocks * 512 <= 64 * 1024);
  CHECK(memory.free(first.value()));
  CHECK(open_files() == files);
  CHECK(mapped_segments() == mappings);
}

TEST_CASE("a limit of the file size is one of the memory in use") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    const rlimit limit{4 << 20, RLIM_INFINITY};
    ranks.check(setrlimit(RLIMIT_FSIZE, &limit) == 0, "the limit is set");
    ShareableMemory memory;
    const Result<void*> kept = memory.allocate(100);
    for (int i = 0; i < 20; ++i) {
      const Result<void*> made = memory.allocate(3 << 20);
      ranks.check(made.ok() && memory.free(made.value()), "memory below the limit is there again and again");
    }
    ranks.check(!memory.allocate(5 << 20).ok(), "more is not");
    ranks.check(memory.free(kept.value()), "the first piece is as before");
  }));
}

TEST_CASE("no store of another thread is lost at a fork") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    constexpr std::size_t kPages = 64;
    ShareableMemory memory;
    for (int round = 0; round < 100; ++round) {
      auto* const words = static_cast<std::uint64_t*>(memory.allocate(kPages * 4096).value());
      std::memset(words, 0, kPages * 4096);
      std::atomic<bool> stop{false}, began{false}, lost{false};
      std::thread other([&] {
        for (std::uint64_t count = 1; !stop; ++count) {
          for (std::size_t i = 0; i < kPages; ++i) {
            std::atomic_ref<std::uint64_t> word(words[i * 512]);
            if (word.load() != count - 1) lost = true;
            word = count;
          }
          began = true;
        }
      });
      while (!began) std::this_thread::yield();
      const pid_t child = fork();
      if (child == 0) _exit(0);
      waitpid(child, nullptr, 0);
      stop = true;
      other.join();
      ranks.check(!lost, "each word has what the thread stored last");
      ranks.check(memory.free(words), "it is freed");
    }
  }));
}

TEST_CASE("forks of several threads, while others allocate and free") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    ShareableMemory memory;
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    auto* kept = static_cast<std::byte*>(memory.allocate(100'000).value());
    std::memset(kept, 7, 100'000);
    std::vector<std::thread> others;
    for (int i = 0; i < 2; ++i) {
      others.emplace_back([&] {
        while (!stop) {
          const Result<void*> made = memory.allocate(10'000);
          if (made) (void)memory.find(made.value(), 100);  // a fork meanwhile takes it from peers
          if (!made || !memory.free(made.value())) ++wrong;
        }
      });
    }
    const auto fork_often = [&] {
      for (int i = 0; i < 50; ++i) {
        const pid_t child = fork();
        if (child == 0) {
          const bool good = std::all_of(kept, kept + 100'000, [](std::byte b) { return b == std::byte{7}; });
          std::memset(kept, 8, 100'000);
          _exit(good && memory.free(kept) ? 0 : 1);
        }
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++wrong;
      }
    };
    std::thread second(fork_often);
    fork_often();
    second.join();
    stop = true;
    for (std::thread& other : others) other.join();
    ranks.check(wrong == 0, "all children saw what was there");
    ranks.check(std::all_of(kept, kept + 100'000, [](std::byte b) { return b == std::byte{7}; }),
                "and changed nothing");
    ranks.check(memory.free(kept), "it is freed");
  }));
}

}  // namespace farside::shareable_memory_test

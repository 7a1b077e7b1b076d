// SPDX-License-Identifier: BSD-3-Clause
// Memory of MPI_Alloc_mem that peers map later: its places in the file, and that no descriptor or mapping is left.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/transport/processes.hpp"
#include "transport/node/shareable_memory.hpp"

namespace farside::shareable_memory_test {

using namespace farside::testing;

namespace {

std::size_t open_files() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

std::size_t mapped_allocations() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:farside") != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("pieces are zeroed, on pages of their own, and found as a whole and in part") {
  ShareableMemory memory;
  std::vector<std::byte*> allocations;
  const std::vector<std::size_t> sizes = {1, 4096, 4097, 100'000, 8};
  for (const std::size_t bytes : sizes) {
    const Result<void*> made = memory.allocate(bytes);
    REQUIRE(made.ok());
    auto* allocation = static_cast<std::byte*>(made.value());
    CHECK(reinterpret_cast<std::uintptr_t>(allocation) % 4096 == 0);
    CHECK(std::all_of(allocation, allocation + bytes, [](std::byte b) { return b == std::byte{0}; }));
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
  CHECK_FALSE(memory.free(allocations[3] + 4096));
  for (std::byte* allocation : allocations) {
    CHECK(memory.free(allocation));
    CHECK_FALSE(memory.free(allocation));
    CHECK_FALSE(memory.find(allocation, 1).has_value());
  }
}

TEST_CASE("pieces begin at multiples of the alignment that was asked for") {
  ShareableMemory memory;
  std::vector<std::byte*> allocations;
  for (const std::size_t alignment : {1, 64, 4096, 8192, 1 << 21, 1 << 30, 1 << 21}) {
    const Result<void*> made = memory.allocate(5000, alignment);
    REQUIRE(made.ok());
    auto* const allocation = static_cast<std::byte*>(made.value());
    CHECK(reinterpret_cast<std::uintptr_t>(allocation) % alignment == 0);
    std::memset(allocation, 1, 5000);
    CHECK(memory.find(allocation + 4999, 1).has_value());
    allocations.push_back(allocation);
  }
  for (std::byte* allocation : allocations) CHECK(memory.free(allocation));
  for (const int bits : {50, 62, 63}) {
    const Result<void*> made = memory.allocate(1, std::size_t{1} << bits);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().kind == ErrorKind::kNoMemory);
  }
}

TEST_CASE("what is freed gives back its pages, and the last one the descriptor") {
  const std::size_t files = open_files();
  const std::size_t mappings = mapped_allocations();
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
  CHECK(mapped_allocations() == mappings + 1);
  struct stat info {};
  REQUIRE(fstat(fd, &info) == 0);
  CHECK(info.st_blocks * 512 <= 64 * 1024);
  CHECK(memory.free(first.value()));
  CHECK(open_files() == files);
  CHECK(mapped_allocations() == mappings);
}

TEST_CASE("more memory than there is, is refused, and the rest goes on") {
  ShareableMemory memory;
  for (const std::size_t bytes : {std::size_t{1} << 46, SIZE_MAX / 2, SIZE_MAX}) {
    const Result<void*> made = memory.allocate(bytes);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().kind == ErrorKind::kNoMemory);
  }
  const Result<void*> small = memory.allocate(10);
  REQUIRE(small.ok());
  CHECK(memory.free(small.value()));
}

TEST_CASE("a peer maps the part of the file that it was told of") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    struct Offer {
      pid_t pid;
      int fd;
      std::uint64_t offset;
    };
    ShareableMemory memory;
    (void)memory.allocate(10'000);
    const Result<void*> made = memory.allocate(20'000);
    ranks.check(made.ok(), "memory is allocated");
    std::memset(made.value(), 10 + ranks.rank(), 20'000);
    // The memory from its second page on.
    const auto place = memory.find(static_cast<std::byte*>(made.value()) + 4096, 5000);
    const auto offers = ranks.all_gather(Offer{getpid(), place->fd, place->offset});
    const Offer& other = offers[1 - static_cast<std::size_t>(ranks.rank())];
    const Result<Mapping> theirs = map_peer_segment(other.pid, other.fd, 5000, other.offset);
    ranks.check(theirs.ok(), "it can be mapped");
    ranks.check(theirs.value().base()[4999] == std::byte(11 - ranks.rank()), "and has what the peer has stored");
    ranks.check(!map_peer_segment(other.pid, other.fd, 1 << 20, other.offset).ok(), "not beyond the end of the file");
    ranks.barrier();
    theirs.value().base()[0] = std::byte(50 + ranks.rank());
    ranks.barrier();
    ranks.check(static_cast<std::byte*>(made.value())[4096] == std::byte(51 - ranks.rank()),
                "what is stored there is here");
    ranks.barrier();
    (void)memory.free(made.value());
  }));
}

TEST_CASE("a fork copies the memory: neither process sees what the other stores afterwards") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    constexpr std::size_t kBytes = std::size_t{1} << 30;
    constexpr std::size_t kFar = kBytes - 100;
    ShareableMemory memory;
    auto* first = static_cast<std::byte*>(memory.allocate(5000).value());
    auto* second = static_cast<std::byte*>(memory.allocate(kBytes).value());
    std::memset(first, 1, 5000);
    second[0] = std::byte{2};
    second[kFar] = std::byte{3};
    int go[2], stored[2];
    ranks.check(pipe2(go, O_CLOEXEC) == 0 && pipe2(stored, O_CLOEXEC) == 0, "there are pipes");
    char byte = 'x';
    const pid_t child = fork();
    if (child == 0) {
      int wrong = 0;
      if (read(go[0], &byte, 1) != 1) wrong |= 1;
      if (first[4999] != std::byte{1} || second[0] != std::byte{2} || second[kFar] != std::byte{3}) wrong |= 2;
      if (second[8192] != std::byte{0} || first[5001] != std::byte{0}) wrong |= 4;
      std::memset(first, 11, 5000);
      second[0] = second[4096] = second[kFar] = std::byte{12};
      if (memory.find(first, 1)) wrong |= 8;  // no peer can map it
      if (write(stored[1], &byte, 1) != 1) wrong |= 1;
      if (!memory.free(first) || !memory.free(second)) wrong |= 16;
      const Result<void*> another = memory.allocate(100);
      if (!another.ok() || !memory.find(another.value(), 100) || !memory.free(another.value())) wrong |= 32;
      _exit(wrong);
    }
    std::memset(first, 21, 5000);
    second[0] = second[8192] = second[kFar] = std::byte{22};
    ranks.check(write(go[1], &byte, 1) == 1 && read(stored[0], &byte, 1) == 1, "the child goes on");
    int status = -1;
    ranks.check(waitpid(child, &status, 0) == child && status == 0,
                fmt::format("the child sees its own memory ({:#x})", status));
    ranks.check(std::all_of(first, first + 5000, [](std::byte b) { return b == std::byte{21}; }),
                "the child's stores are not here");
    ranks.check(second[0] == std::byte{22} && second[4096] == std::byte{0} && second[kFar] == std::byte{22},
                "nor far from there");
    ranks.check(memory.find(first, 5000).has_value(), "the parent's memory can still be mapped");
    for (const int end : {go[0], go[1], stored[0], stored[1]}) close(end);
    ranks.check(memory.free(first) && memory.free(second), "and freed");
  }));
}

TEST_CASE("forks of several threads, while others allocate and free") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    ShareableMemory memory;
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    auto* kept = static_cast<std::byte*>(memory.allocate(100'000).value());
    std::memset(kept, 7, 100'000);
    std::thread other([&] {
      while (!stop) {
        const Result<void*> allocation = memory.allocate(10'000);
        if (!allocation || !memory.free(allocation.value())) ++wrong;
      }
    });
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
    other.join();
    ranks.check(wrong == 0, "all children saw what was there");
    ranks.check(std::all_of(kept, kept + 100'000, [](std::byte b) { return b == std::byte{7}; }),
                "and changed nothing");
    ranks.check(memory.free(kept), "it is freed");
  }));
}

TEST_CASE("threads allocate and free at once") {
  ShareableMemory memory;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 200; ++i) {
        const Result<void*> made = memory.allocate(100);
        if (!made) std::abort();
        std::memset(made.value(), t, 100);
        if (!memory.find(made.value(), 100) || !memory.free(made.value())) std::abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace farside::shareable_memory_test

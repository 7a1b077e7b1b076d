// SPDX-License-Identifier: BSD-3-Clause
// Memory of MPI_Alloc_mem that peers map later: its places in the file, and that no descriptor or mapping is left.
#include "transport/node/shareable_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"

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

TEST_CASE("many pieces have few mappings and share pages, and what is freed is used again") {
  const std::size_t files = open_files();
  const std::size_t mappings = mapped_allocations();
  ShareableMemory memory;
  // Sizes from 32 bytes to 1 MiB, each in the same order of magnitude of bytes.
  std::vector<std::pair<std::byte*, std::size_t>> pieces;
  const auto allocate = [&](std::size_t bytes) {
    const Result<void*> made = memory.allocate(bytes);
    REQUIRE(made.ok());
    auto* const piece = static_cast<std::byte*>(made.value());
    // A part, so that the test needs few pages.
    std::memset(piece, static_cast<int>(pieces.size() % 251), std::min<std::size_t>(bytes, 100));
    pieces.emplace_back(piece, bytes);
  };
  for (int i = 0; i < 66'000; ++i) allocate(32);
  struct stat info {};
  const int fd = memory.find(pieces[0].first, 1)->fd;
  REQUIRE(fstat(fd, &info) == 0);
  CHECK(info.st_blocks * 512 <= 66'000 * 64 + 4096);
  for (int i = 0; i < 3000; ++i) allocate(1000 + static_cast<std::size_t>(i) * 97 % 60'000);
  for (int i = 0; i < 300; ++i) allocate(1 << 20);
  CHECK(mapped_allocations() <= mappings + 40);
  CHECK(open_files() <= files + 40);
  const auto intact = [&] {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const auto& [piece, bytes] = pieces[i];
      if (piece == nullptr) continue;
      const std::byte mark{static_cast<unsigned char>(i % 251)};
      if (piece[0] != mark || piece[std::min<std::size_t>(bytes, 100) - 1] != mark) return false;
    }
    return true;
  };
  CHECK(intact());
  // Every second one is freed, and others take their places.
  const std::size_t count = pieces.size();
  for (std::size_t i = 0; i < count; i += 2) {
    REQUIRE(memory.free(pieces[i].first));
    pieces[i].first = nullptr;
  }
  CHECK(intact());
  const std::size_t before = mapped_allocations();
  for (std::size_t i = 0; i < count; i += 2) allocate(pieces[i].second);
  CHECK(mapped_allocations() <= before + 2);
  CHECK(intact());
  for (std::size_t i = pieces.size(); i-- > 0;) {
    if (pieces[i].first != nullptr) REQUIRE(memory.free(pieces[i].first));
  }
  CHECK(open_files() == files);
  CHECK(mapped_allocations() == mappings);
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

TEST_CASE("after a fork neither process sees what the other stores, but for the parent's stores to exposed memory") {
  const bool exposed = GENERATE(false, true);
  expect_well(run_processes(1, [exposed](Ranks& ranks) {
    constexpr std::size_t kBytes = std::size_t{1} << 30;
    constexpr std::size_t kFar = kBytes - 100;
    ShareableMemory memory;
    auto* first = static_cast<std::byte*>(memory.allocate(5000).value());
    auto* second = static_cast<std::byte*>(memory.allocate(kBytes).value());
    std::memset(first, 1, 5000);
    const auto place = exposed ? memory.find(first, 5000) : std::nullopt;
    const auto other_place = exposed ? memory.find(second, kBytes) : std::nullopt;
    second[0] = std::byte{2};
    second[kFar] = std::byte{3};
    int go[2], stored[2];
    ranks.check(pipe2(go, O_CLOEXEC) == 0 && pipe2(stored, O_CLOEXEC) == 0, "there are pipes");
    char byte = 'x';
    const pid_t child = fork();
    if (child == 0) {
      int wrong = 0;
      if (read(go[0], &byte, 1) != 1) wrong |= 1;
      if (!exposed && (first[4999] != std::byte{1} || second[0] != std::byte{2} || second[kFar] != std::byte{3}))
        wrong |= 2;
      if ((!exposed && second[8192] != std::byte{0}) || first[5001] != std::byte{0}) wrong |= 4;
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
    ranks.check(memory.find(first, 5000).has_value() == exposed, "the parent's memory is still mapped where it was");
    if (exposed) {
      std::byte found{};
      ranks.check(pread(place->fd, &found, 1, static_cast<off_t>(place->offset)) == 1 && found == first[0],
                  "and peers see its stores");
    }
    for (const int end : {go[0], go[1], stored[0], stored[1]}) close(end);
    ranks.check(memory.free(first) && memory.free(second), "and freed");
  }));
}

std::size_t kilobytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoul(line.substr(key.size()));
  }
  return 0;
}

TEST_CASE("a fork makes no second copy of memory that no window uses") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    constexpr std::size_t kBytes = 32 << 20;
    ShareableMemory memory;
    auto* const piece = static_cast<std::byte*>(memory.allocate(kBytes).value());
    std::memset(piece, 1, kBytes);
    const std::size_t before = kilobytes("VmHWM:");
    for (int i = 0; i < 3; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(piece[kBytes - 1] == std::byte{1} ? 0 : 1);
      int status = -1;
      ranks.check(waitpid(child, &status, 0) == child && status == 0, "the child has the data");
    }
    ranks.check(kilobytes("VmHWM:") < before + (8 << 10), "the parent's peak stays as before");
    ranks.check(memory.free(piece), "it is freed");
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

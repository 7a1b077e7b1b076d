// SPDX-License-Identifier: BSD-3-Clause
// Segments: what peers see, which mappings are refused, and that no descriptor or mapping is left.
#include "transport/node/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "transport/base/integers.hpp"

namespace farside::segment_test {

using namespace farside::testing;

namespace {

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Returns the number of segments that this process has mapped.
std::size_t mapped_segments() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:farside") != std::string::npos ? 1 : 0;
  return count;
}

constexpr std::size_t kBytes = 3 * 4096 + 100;

struct Offer {
  std::int32_t pid;
  std::int32_t fd;
  std::uint64_t nonce;
};

}  // namespace

TEST_CASE("a segment is zeroed, of the size asked for, sealed against resizing, and only its user may open it") {
  Result<Segment> segment = make_segment(kBytes);
  REQUIRE(segment.ok());
  const Mapping& mapping = segment.value().mapping;
  REQUIRE(mapping.bytes() == kBytes);
  CHECK(std::all_of(mapping.base(), mapping.base() + kBytes, [](std::byte b) { return b == std::byte{0}; }));
  const int fd = segment.value().fd.get();
  struct stat info {};
  REQUIRE(fstat(fd, &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  CHECK(info.st_size == static_cast<off_t>(kBytes));
  CHECK(static_cast<std::size_t>(info.st_blocks) * 512 >= kBytes);  // reserved
  const int seals = fcntl(fd, F_GET_SEALS);
  CHECK((seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  CHECK(ftruncate(fd, 0) != 0);
  CHECK(ftruncate(fd, 1 << 20) != 0);
  CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("only what is reserved of a segment has pages before it is touched") {
  constexpr std::size_t kLarge = std::size_t{1} << 30, kReserved = 8192;
  const Result<Segment> segment = make_segment(kLarge, Reserve{0, kReserved}, kLarge);
  REQUIRE(segment.ok());
  const auto in_use = [&] {
    struct stat info {};
    return fstat(segment.value().fd.get(), &info) == 0 ? static_cast<std::size_t>(info.st_blocks) * 512 : 0;
  };
  CHECK(in_use() == kReserved);
  std::byte* const base = segment.value().mapping.base();
  CHECK(segment.value().mapping.bytes() == kLarge);
  base[kReserved - 1] = std::byte{1};
  CHECK(in_use() == kReserved);
  CHECK(base[kLarge / 2] == std::byte{0});
  base[kLarge / 2] = std::byte{1};
  CHECK(in_use() > kReserved);
  CHECK(in_use() <= kReserved + (std::size_t{2} << 20));  // a huge page
}

TEST_CASE("a large segment counts as promised once the peers have mapped it, as far as it has not been touched") {
  const std::uint64_t left = available_shared_memory().bytes;
  Result<Segment> large = make_segment(left / 16, Reserve{0, 4096}, left / 16);
  Result<Segment> small = make_segment(1 << 20, Reserve{0, 4096}, 1 << 20);
  REQUIRE((large.ok() && small.ok()));
  constexpr std::uint64_t kMore = 1 << 20;
  CHECK(find_memory_need(kMore).bytes == kMore);
  large.value().published();
  small.value().published();
  CHECK(large.value().fd.valid());
  CHECK_FALSE(small.value().fd.valid());
  const std::size_t bytes = large.value().mapping.bytes();
  CHECK(find_memory_need(kMore).bytes == kMore + bytes - 4096);
  std::memset(large.value().mapping.base(), 1, 1 << 20);
  CHECK(find_memory_need(kMore).bytes <= kMore + bytes - (1 << 20));
  large.value() = Segment{};
  CHECK(find_memory_need(kMore).bytes == kMore);
}

TEST_CASE("another process maps a segment through /proc, finds its nonce and shares its bytes") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    Result<Segment> mine = make_segment(kBytes);
    ranks.check(mine.ok(), "a segment is made");
    std::byte* base = mine.value().mapping.base();
    const std::uint64_t nonce = random_bits();
    std::memcpy(base, &nonce, sizeof nonce);
    const auto offers = ranks.all_gather(Offer{getpid(), mine.value().fd.get(), nonce});
    const Offer& other = offers[1 - static_cast<std::size_t>(ranks.rank())];
    const std::size_t before = open_files();
    Result<Mapping> theirs = map_peer_segment(other.pid, other.fd, kBytes);
    ranks.check(theirs.ok(), "the peer's segment can be mapped");
    ranks.check(open_files() == before, "mapping leaves no file open");
    std::uint64_t found = 0;
    std::memcpy(&found, theirs.value().base(), sizeof found);
    ranks.check(found == other.nonce && found != nonce, "it has the peer's nonce");
    ranks.barrier();
    // The mapping remains valid after the descriptor is closed.
    mine.value().fd.reset();
    ranks.barrier();
    theirs.value().base()[kBytes - 1] = std::byte(40 + ranks.rank());
    ranks.barrier();
    ranks.check(base[kBytes - 1] == std::byte(41 - ranks.rank()), "what the peer stored is here");
    ranks.barrier();
  }));
}

TEST_CASE("what is not the peer's segment is not mapped") {
  Result<Segment> segment = make_segment(4096);
  REQUIRE(segment.ok());
  const int fd = segment.value().fd.get();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const UniqueFd out(ends[0]), in(ends[1]);
  const std::size_t before = open_files();
  const auto refused = [](pid_t pid, int number, std::size_t bytes) {
    const Result<Mapping> mapping = map_peer_segment(pid, number, bytes);
    return !mapping.ok() && mapping.error().kind == ErrorKind::kNoRoute &&
           mapping.error().text.find(fmt::format("/proc/{}/fd/{}", pid, number)) != std::string::npos;
  };
  CHECK(refused(getpid(), fd, 8192));        // shorter than announced: later accesses would raise SIGBUS
  CHECK(refused(getpid(), in.get(), 4096));  // not a file
  CHECK(refused(getpid(), 9999, 4096));      // not open
  CHECK(refused(0x3fffffff, fd, 4096));      // no such process
  const UniqueFd directory(open("/", O_RDONLY | O_CLOEXEC));
  CHECK(refused(getpid(), directory.get(), 0));
  CHECK(open_files() == before + 1);
  CHECK(mapped_segments() == 1);
}

TEST_CASE("more memory than the machine has is refused") {
  const std::size_t files = open_files();
  for (const std::size_t bytes : {std::size_t{1} << 46, SIZE_MAX / 2}) {
    const Result<Segment> segment = make_segment(bytes);
    REQUIRE_FALSE(segment.ok());
    CHECK(segment.error().kind == ErrorKind::kNoMemory);
    CHECK(segment.error().text.find(std::to_string(bytes)) != std::string::npos);
  }
  CHECK(open_files() == files);
  CHECK(mapped_segments() == 0);
}

TEST_CASE("beyond the file size limit a segment is refused, and no SIGXFSZ ends the process") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);
    const std::size_t files = open_files();
    const Result<Segment> large = make_segment((1 << 20) + 1);
    ranks.check(!large.ok() && large.error().kind == ErrorKind::kNoMemory, "one byte too many is refused");
    ranks.check(!large.ok() && large.error().text.find("ulimit -f") != std::string::npos, "with advice");
    ranks.check(open_files() == files && mapped_segments() == 0, "nothing is left");
    ranks.check(make_segment(1 << 20).ok(), "the limit itself is allowed");
  }));
}

TEST_CASE("without address space or descriptors a segment is refused, and nothing is left open", "[native]") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    const std::size_t files = open_files();
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit few{3, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    const Result<Segment> no_file = make_segment(4096);
    setrlimit(RLIMIT_NOFILE, &before);
    ranks.check(!no_file.ok() && no_file.error().kind == ErrorKind::kNoMemory, "no descriptor is left");
    if (!kSanitized) {
      getrlimit(RLIMIT_AS, &before);
      const rlimit little{64 << 20, before.rlim_max};
      setrlimit(RLIMIT_AS, &little);
      const Result<Segment> no_space = make_segment(64 << 20);
      setrlimit(RLIMIT_AS, &before);
      ranks.check(!no_space.ok() && no_space.error().kind == ErrorKind::kNoMemory, "no address space is left");
    }
    ranks.check(open_files() == files, "nothing is left open");
  }));
}

TEST_CASE("segments and mappings go with their owners") {
  const std::size_t files = open_files();
  for (int i = 0; i < 50; ++i) {
    Result<Segment> segment = make_segment(kBytes);
    REQUIRE(segment.ok());
    Result<Mapping> again = map_peer_segment(getpid(), segment.value().fd.get(), kBytes);
    REQUIRE(again.ok());
    CHECK(mapped_segments() == 2);
    Mapping moved(std::move(again.value()));
    Mapping assigned;
    assigned = std::move(moved);
    CHECK(mapped_segments() == 2);
    Segment other = std::move(segment.value());
    CHECK(other.mapping.base() != nullptr);
  }
  CHECK(open_files() == files);
  CHECK(mapped_segments() == 0);
}

}  // namespace farside::segment_test

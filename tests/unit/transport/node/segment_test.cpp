// SPDX-License-Identifier: BSD-3-Clause
// Segments: what they are made of, which mappings are refused, and the check of the memory that the processes of a node
// need together.
#include "transport/node/segment.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/mempolicy.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"

namespace farside::segment_test {

using namespace farside::testing;

constexpr std::size_t kBytes = 3 * 4096 + 100;

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

// The policy of the pages at this address: "default", "interleave:0" and so on.
std::string policy_at(const std::byte* base) {
  std::string found;
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0;
    if (std::string policy; words >> std::hex >> begin >> policy && begin <= reinterpret_cast<std::uintptr_t>(base))
      found = policy;
  }
  return found;
}

TEST_CASE("a part of a segment is placed on NUMA nodes, for all processes, and no page of it exists before its use") {
  if (access("/proc/self/numa_maps", R_OK) != 0) return;  // a kernel without NUMA
  constexpr std::size_t kPage = 4096;
  for (const auto& [numa, begins] : {std::pair(Numa::kFirstTouch, "default"), std::pair(Numa::kBind, "prefer:"),
                                     std::pair(Numa::kInterleave, "interleave:")}) {
    INFO(begins);
    Result<Segment> segment = make_segment(8 * kPage, Reserve{0, kPage}, 8 * kPage);
    REQUIRE(segment.ok());
    const int fd = segment.value().fd.get();
    Result<Mapping> peer = map_peer_segment(getpid(), fd, 8 * kPage);
    REQUIRE(peer.ok());
    CHECK(place_on_nodes(segment.value().mapping.base() + 2 * kPage + 100, 2 * kPage, numa).ok());
    CHECK(place_on_nodes(segment.value().mapping.base() + 6 * kPage, 0, numa).ok());
    for (const std::size_t page : {0, 1, 2, 3, 4, 5, 6}) {
      INFO("page " << page);
      const bool placed = page >= 2 && page <= 4;
      CHECK(policy_at(segment.value().mapping.base() + page * kPage).starts_with(placed ? begins : "default"));
    }
    struct stat info {};
    REQUIRE(fstat(fd, &info) == 0);
    CHECK(static_cast<std::size_t>(info.st_blocks) * 512 == kPage);
    // The peer's mapping was made before; its policy is that of the file.
    int mode = -1;
    const std::byte* const there = peer.value().base() + 3 * kPage;
    REQUIRE(syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, there, MPOL_F_ADDR) == 0);
    CHECK(mode == (numa == Numa::kBind ? MPOL_PREFERRED : numa == Numa::kInterleave ? MPOL_INTERLEAVE : MPOL_DEFAULT));
  }
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

// ---- the memory that the processes of a node need together ----------------------------------------------------------

namespace {

MemoryNeed need(std::uint64_t bytes, MemoryNeed::Limit node, MemoryNeed::Limit inner = {},
                MemoryNeed::Limit outer = {}) {
  MemoryNeed made;
  made.bytes = bytes;
  made.limits[0] = node;
  made.limits[1] = inner;
  made.limits[2] = outer;
  return made;
}

// Returns whether some process of these, each with its own reading of the limits, refuses them for this reason.
bool refused(const std::vector<MemoryNeed>& needs, const char* why = "") {
  std::vector<MemoryShare> shares;
  for (const MemoryNeed& each : needs) shares.push_back({each.bytes, each.ids()});
  return std::ranges::any_of(needs, [&](const MemoryNeed& each) {
    const Status status = check_memory_needs(each, shares);
    return !status.ok() && status.error().kind == ErrorKind::kNoMemory &&
           status.error().text.find(why) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("what processes want is summed up for each limit that they meet") {
  const MemoryNeed::Limit node{7, 100}, other{9, 100};
  CHECK_FALSE(refused({need(100, node)}));
  CHECK(refused({need(101, node)}, "this node has left (100 bytes)"));
  CHECK_FALSE(refused({need(50, node), need(50, node)}));
  CHECK(refused({need(51, node), need(50, node)}, "101 bytes for 2 processes is more than this node has left"));
  CHECK_FALSE(refused({need(60, node), need(60, other)}));
  CHECK(refused({need(60, node), need(10, other), need(60, node)}));
  // The lowest value counts: a process may have read the limit before another one allocated its memory.
  CHECK(refused({need(50, node), need(40, {7, 80})}));
}

TEST_CASE("control groups count by themselves and with what is above them") {
  const MemoryNeed::Limit node{7, 1000}, job{11, 100}, first{21, 60}, second{22, 60};
  CHECK_FALSE(refused({need(50, node, first, job), need(50, node, second, job)}));
  CHECK(refused({need(70, node, first, job)}, "their control group has left (60 bytes)"));
  CHECK(refused({need(55, node, first, job), need(55, node, second, job)}, "their control group has left (100 bytes)"));
}

TEST_CASE("sums that overflow are refused, and a need of nothing is not") {
  const MemoryNeed::Limit node{7, 100};
  CHECK(refused({need(~std::uint64_t{0}, node), need(~std::uint64_t{0}, node)}));
  CHECK_FALSE(refused({}));
  CHECK_FALSE(refused({MemoryNeed{}, MemoryNeed{}}));
}

TEST_CASE("a process refuses what exceeds its own limits only") {
  const MemoryNeed::Limit node{7, 1000}, first{21, 60}, second{22, 1000};
  const MemoryNeed in_first = need(70, node, first), in_second = need(70, node, second);
  const std::vector<MemoryShare> shares = {{70, {7, 21}}, {70, {7, 22}}};
  CHECK_FALSE(check_memory_needs(in_first, shares).ok());
  CHECK(check_memory_needs(in_second, shares).ok());
  CHECK_FALSE(check_memory_need(in_first).ok());
  CHECK(check_memory_need(in_second).ok());
}

TEST_CASE("a process finds its node, and little is not worth the look") {
  const MemoryNeed large = find_memory_need(std::uint64_t{1} << 20);
  CHECK(large.bytes == std::uint64_t{1} << 20);
  CHECK(large.limits[0].id != 0);
  CHECK(large.limits[0].left > 0);
  CHECK(large.limits[0].id == find_memory_need(std::uint64_t{1} << 20).limits[0].id);
  CHECK(find_memory_need(4096).bytes == 0);
  const MemoryNeed::LimitIds ids = memory_limit_ids();
  for (std::size_t i = 0; i < ids.size(); ++i) CHECK(ids[i] == large.limits[i].id);
}

}  // namespace farside::segment_test

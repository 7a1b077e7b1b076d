// SPDX-License-Identifier: BSD-3-Clause
// The check of the memory that the processes of a node need together.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/node/segment.hpp"

namespace farside::memory_limits_test {

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

}  // namespace farside::memory_limits_test

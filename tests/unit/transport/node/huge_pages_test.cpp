// SPDX-License-Identifier: BSD-3-Clause
// Huge pages of segments: which data have them, where these lie, and what is said where the kernel gives none.
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_steps.hpp"
#include "transport/node/node_segment.hpp"

namespace farside::huge_pages_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kPage = 4096, kHuge = std::size_t{2} << 20, kLarge = HugePages::kFewest * kHuge;

// A folder like /sys/kernel/mm/transparent_hugepage.
class Kernel {
 public:
  Kernel() { std::filesystem::create_directories(folder_); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() { std::filesystem::remove_all(folder_); }
  void write(const std::string& file, const std::string& text) { std::ofstream(folder_ + "/" + file) << text << '\n'; }
  std::string why_not() const { return HugePages::why_not(folder_); }

 private:
  std::string folder_ = std::filesystem::temp_directory_path() / ("farside-kernel-" + std::to_string(getpid()));
};

NodeSegment::Layout layout_of(std::vector<std::uint64_t> data, HugePages huge, bool contiguous) {
  NodeSegment::Layout layout;
  layout.control_bytes = 2 * kPage;
  layout.reserved = kPage;
  layout.data = std::move(data);
  layout.contiguous = contiguous;
  layout.huge = huge;
  return layout;
}

bool begins_huge_page(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data) % kHuge == 0; }

}  // namespace

TEST_CASE("what the kernel says about huge pages of shared memory") {
  Kernel kernel;
  CHECK(kernel.why_not().find("no transparent huge pages") != std::string::npos);
  kernel.write("hpage_pmd_size", "2097152");
  kernel.write("shmem_enabled", "always within_size [advise] never deny force");
  CHECK(kernel.why_not().empty());
  kernel.write("shmem_enabled", "always within_size advise [never] deny force");
  CHECK(kernel.why_not().find("/shmem_enabled is 'never'") != std::string::npos);
  kernel.write("shmem_enabled", "always within_size advise never [deny] force");
  CHECK(kernel.why_not().find("/shmem_enabled is 'deny'") != std::string::npos);
}

TEST_CASE("data of eight huge pages or more are whole ones") {
  const HugePages none, huge(kHuge);
  CHECK_FALSE(none.suitable_for(UINT64_MAX / 2));
  CHECK(none.whole(kLarge + 1) == kLarge + kPage);
  CHECK_FALSE(huge.suitable_for(kLarge - 1));
  CHECK(huge.whole(kLarge - 1) == kLarge);
  CHECK(huge.whole(100) == kPage);
  CHECK(huge.suitable_for(kLarge));
  CHECK(huge.whole(kLarge) == kLarge);
  CHECK(huge.whole(kLarge + 1) == kLarge + kHuge);
  CHECK(huge.round_up(kPage, kLarge) == kHuge);
  CHECK(huge.round_up(kPage + 1, 100) == 2 * kPage);
}

// Members with another wish follow the leader.
TEST_CASE("large data begin a huge page at every member, small and contiguous ones do not, and nothing is touched") {
  for (const bool contiguous : {false, true}) {
    INFO((contiguous ? "contiguous" : "apart"));
    expect_well(run_processes(3, [&](Ranks& ranks) {
      const std::unique_ptr<NodeGroup> group = make_node(ranks);
      const std::vector<std::uint64_t> data{kLarge + 8, 100, kLarge};
      const NodeSegment::Layout layout = layout_of(data, group->leads() ? HugePages(kHuge) : HugePages(), contiguous);
      Result<NodeSegment> made = NodeSegment();
      const auto exchanged = group->exchange_by_leader('\0', Process::instance(), [&](const std::vector<char>&) {
        NodeSegment::Announcement announcement;
        made = NodeSegment::lead(*group, layout, announcement);
        return announcement;
      });
      if (!group->leads()) made = NodeSegment::join(*group, layout, exchanged.result);
      ranks.check(made.ok(), "the segment is made");
      NodeSegment& segment = made.value();
      ranks.check(begins_huge_page(segment.data(0)), "the first data begin a huge page");
      if (contiguous) {
        ranks.check(segment.data(2) == segment.data(0) + kLarge + 108, "contiguous data have no gaps");
      } else {
        ranks.check(segment.data(1) == segment.data(0) + kLarge + kHuge, "large data are whole huge pages");
        ranks.check(begins_huge_page(segment.data(2)), "so do other large ones");
        ranks.check(segment.data(2) - segment.data(1) <= static_cast<std::ptrdiff_t>(kHuge), "small data do not");
      }
      std::vector<unsigned char> present(kLarge / kPage);
      ranks.check(mincore(segment.data(0), kLarge, present.data()) == 0, "mincore");
      for (const unsigned char page : present) ranks.check((page & 1) == 0, "no page is there before its first use");
      ranks.barrier();
      std::byte* const own = segment.data(ranks.rank());
      std::memset(own, ranks.rank() + 1, data[static_cast<std::size_t>(ranks.rank())]);
      ranks.barrier();
      for (int i = 0; i < 3; ++i) {
        const std::byte mark{static_cast<unsigned char>(i + 1)};
        const std::byte* const of_member = segment.data(i);
        ranks.check(of_member[0] == mark && of_member[data[static_cast<std::size_t>(i)] - 1] == mark, "data of all");
      }
    }));
  }
}

}  // namespace farside::huge_pages_test

// SPDX-License-Identifier: BSD-3-Clause
// The segment of a space and a node: where control blocks and data are, what is reserved, what happens if a member
// fails, and which data have huge pages.
#include "transport/node/node_segment.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_fixture.hpp"

namespace farside::node_segment_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kPage = 4096, kControl = 2 * kPage;
constexpr std::size_t kHuge = std::size_t{2} << 20, kLarge = HugePages::kFewest * kHuge;

NodeSegment::Layout layout_of(std::vector<std::uint64_t> data, bool contiguous = false) {
  NodeSegment::Layout layout;
  layout.control_bytes = kControl;
  layout.reserved = kPage;
  layout.data = std::move(data);
  layout.contiguous = contiguous;
  return layout;
}

// Returns the memory that exists of the only segment that this process has open.
std::size_t memory_in_use() {
  std::size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the directory's own descriptor
    if (!std::filesystem::read_symlink(entry.path(), gone).string().starts_with("/memfd:farside")) continue;
    struct stat info {};
    if (stat(entry.path().c_str(), &info) == 0) bytes += static_cast<std::size_t>(info.st_blocks) * 512;
  }
  return bytes;
}

// Collective over the members of the group.
Result<NodeSegment> make_segment_of(NodeGroup& group, const NodeSegment::Layout& layout) {
  Result<NodeSegment> made = NodeSegment();
  const auto exchanged = group.exchange_by_leader('\0', Process::instance(), [&](const std::vector<char>&) {
    NodeSegment::Announcement announcement;
    made = NodeSegment::lead(group, layout, announcement);
    return announcement;
  });
  return group.leads() ? std::move(made) : NodeSegment::join(group, layout, exchanged.result);
}

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

}  // namespace

TEST_CASE("each member finds the control blocks and data of all, in one mapping") {
  for (const bool contiguous : {false, true}) {
    for (const std::vector<std::uint64_t>& data :
         {std::vector<std::uint64_t>{100, 0, 5000}, {0, 0, 0}, {0, 8192, 1}, {4096, 4096, 4096}}) {
      INFO((contiguous ? "contiguous" : "on own pages") << ": " << data[0] << ", " << data[1] << ", " << data[2]);
      expect_well(run_processes(3, [&](Ranks& ranks) {
        const std::unique_ptr<NodeGroup> group = make_node(ranks);
        const std::size_t mappings = mapped_segments();
        const std::size_t files = open_memory_files();
        Result<NodeSegment> made = make_segment_of(*group, layout_of(data, contiguous));
        ranks.check(made.ok(), "the segment is made");
        NodeSegment& segment = made.value();
        ranks.check(mapped_segments() == mappings + 1, "there is one mapping");
        const std::byte* const end = segment.control(0) + 3 * kControl;
        for (int i = 0; i < 3; ++i) {
          ranks.check(segment.control(i) == segment.control(0) + static_cast<std::size_t>(i) * kControl,
                      "control blocks follow each other");
          ranks.check(segment.data(i) >= end, "data are behind the control blocks");
          if (!contiguous)
            ranks.check(reinterpret_cast<std::uintptr_t>(segment.data(i)) % kPage == 0, "data begin a page");
          if (i == 0) continue;
          const std::byte* const before = segment.data(i - 1) + data[static_cast<std::size_t>(i - 1)];
          ranks.check(contiguous ? segment.data(i) == before : segment.data(i) >= before, "data follow each other");
        }
        const auto own = static_cast<std::size_t>(ranks.rank());
        const auto mark = static_cast<int>(own) + 1;
        // The first word belongs to the leader.
        ranks.check(segment.control(ranks.rank())[8] == std::byte{0}, "a control block is zeroed");
        std::memset(segment.control(ranks.rank()) + 8, mark, kControl - 8);
        std::memset(segment.data(ranks.rank()), 16 * mark, data[own]);
        ranks.barrier();
        for (int i = 0; i < 3; ++i) {
          ranks.check(segment.control(i)[8] == std::byte(i + 1) && segment.control(i)[kControl - 1] == std::byte(i + 1),
                      "each sees the control block of each");
          const std::uint64_t bytes = data[static_cast<std::size_t>(i)];
          if (bytes == 0) continue;
          ranks.check(
              segment.data(i)[0] == std::byte(16 * (i + 1)) && segment.data(i)[bytes - 1] == std::byte(16 * (i + 1)),
              "each sees the data of each");
        }
        ranks.barrier();
        ranks.check(segment.has_descriptor() == (ranks.rank() == 0), "the leader keeps a descriptor");
        segment.published();
        ranks.check(!segment.has_descriptor() && open_memory_files() == files, "until all have mapped the segment");
        ranks.check(segment.control(0)[8] == std::byte{1}, "which stays mapped");
        segment = NodeSegment();
        ranks.check(mapped_segments() == mappings, "until it ends");
        ranks.barrier();
      }));
    }
  }
}

TEST_CASE("the reserved part of each control block has pages, and nothing else has") {
  expect_well(run_processes(3, [](Ranks& ranks) {
    const std::unique_ptr<NodeGroup> group = make_node(ranks);
    const Result<NodeSegment> made = make_segment_of(*group, layout_of({kPage, 0, kPage}));
    ranks.check(made.ok(), "the segment is made");
    ranks.barrier();
    if (ranks.rank() == 0) {
      ranks.check(memory_in_use() == 3 * kPage, "a page of each control block exists");
      for (int i = 0; i < 3; ++i) {
        made.value().control(i)[kPage - 1] = std::byte{1};
        ranks.check(memory_in_use() == 3 * kPage, fmt::format("the first page of member {}", i));
      }
      made.value().control(1)[kPage] = std::byte{1};
      ranks.check(memory_in_use() == 4 * kPage, "a control block that is used gets its other pages");
      made.value().data(2)[0] = std::byte{1};
      ranks.check(memory_in_use() == 5 * kPage, "and so do data");
    }
    ranks.barrier();
  }));
}

TEST_CASE("if the leader cannot make a segment, no member has one, and another member fails by itself") {
  for (const int failing : {0, 1, 2}) {
    INFO("member " << failing);
    expect_well(run_processes(3, [&](Ranks& ranks) {
      const std::unique_ptr<NodeGroup> group = make_node(ranks);
      const std::size_t mappings = mapped_segments();
      const std::size_t files = open_memory_files();
      {
        // Without a descriptor a segment can neither be made nor opened.
        std::optional<NoDescriptors> few;
        if (ranks.rank() == failing) few.emplace();
        const Result<NodeSegment> made = make_segment_of(*group, layout_of({100, 100, 100}));
        few.reset();
        const bool fails = failing == 0 || ranks.rank() == failing;
        ranks.check(made.ok() != fails, "the members that have one are those");
        ranks.check(!fails || (!made.ok() && made.error().kind == ErrorKind::kNoMemory), "the others have an error");
        if (failing == 0 && ranks.rank() > 0)
          ranks.check(made.error().text.find("rank 0 ") != std::string::npos, "which says who has failed");
        ranks.barrier();
      }
      ranks.check(mapped_segments() == mappings && open_memory_files() == files, "nothing is left");
      const Result<NodeSegment> made = make_segment_of(*group, layout_of({100, 100, 100}));
      ranks.check(made.ok(), "the next one is made");
      ranks.barrier();
    }));
  }
}

TEST_CASE("data that are together more than an address space, or have an alignment beyond it, are refused") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    const std::unique_ptr<NodeGroup> group = make_node(ranks);
    for (const std::vector<std::uint64_t>& data :
         {std::vector<std::uint64_t>{SIZE_MAX / 4, SIZE_MAX / 4}, {0, UINT64_MAX}, {UINT64_MAX, 1}}) {
      const Result<NodeSegment> made = make_segment_of(*group, layout_of(data));
      ranks.check(!made.ok() && made.error().kind == ErrorKind::kNoMemory, "they are refused");
    }
    for (const int bits : {50, 62, 63}) {
      NodeSegment::Layout layout = layout_of({8, 8});
      layout.alignment = std::uint64_t{1} << bits;
      const Result<NodeSegment> made = make_segment_of(*group, layout);
      ranks.check(!made.ok() && made.error().kind == ErrorKind::kNoMemory, "so is the alignment");
    }
    ranks.barrier();
  }));
}

TEST_CASE("data begin at multiples of the alignment in every process, and large ones a huge page") {
  struct Case {
    std::uint64_t alignment;
    HugePages huge;  // as the leader wishes; members with another wish follow it
  };
  for (const bool contiguous : {false, true}) {
    for (const Case& each : {Case{64, {}}, Case{4096, {}}, Case{8 << 20, {}}, Case{kHuge, HugePages(kHuge)}}) {
      INFO((contiguous ? "contiguous" : "apart") << ", " << each.alignment);
      expect_well(run_processes(3, [&](Ranks& ranks) {
        const std::unique_ptr<NodeGroup> group = make_node(ranks);
        constexpr std::uint64_t kFirst = kLarge + 8, kLast = kLarge;
        NodeSegment::Layout layout = layout_of({kFirst, 0, kLast}, contiguous);
        if (each.huge.suitable_for(kLarge)) {
          if (group->leads()) layout.huge = each.huge;
        } else {
          layout.alignment = each.alignment;
        }
        Result<NodeSegment> made = make_segment_of(*group, layout);
        ranks.check(made.ok(), "the segment is made");
        const NodeSegment& segment = made.value();
        const auto is_aligned = [&](int i) {
          return reinterpret_cast<std::uintptr_t>(segment.data(i)) % each.alignment == 0;
        };
        ranks.check(is_aligned(0), "the first data are aligned");
        ranks.check(contiguous ? segment.data(2) == segment.data(0) + kFirst : is_aligned(2),
                    "the others follow, or are aligned, too");
        for (const int i : {0, 2}) {
          const std::uint64_t last = layout.data[static_cast<std::size_t>(i)] - 1;
          if (ranks.rank() == i) segment.data(i)[last] = std::byte(i + 1);
          ranks.barrier();
          ranks.check(segment.data(i)[last] == std::byte(i + 1), "all see the same memory");
        }
        ranks.barrier();
      }));
    }
  }
}

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

}  // namespace farside::node_segment_test

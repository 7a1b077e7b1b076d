// SPDX-License-Identifier: BSD-3-Clause
// The segment of a space and a node: where control blocks and data are, what is reserved, and what happens if a member
// fails.
#include "transport/node/node_segment.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/space/space_steps.hpp"
#include "transport/space/make_space.hpp"

namespace farside::node_segment_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kPage = 4096, kControl = 2 * kPage;

std::size_t mapped_segments() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:farside") != std::string::npos ? 1 : 0;
  return count;
}

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

// Limits a resource of this process during its life.
class Limited {
 public:
  Limited(int resource, rlim_t limit) : resource_(resource) {
    getrlimit(static_cast<__rlimit_resource>(resource_), &before_);
    const rlimit less{limit, before_.rlim_max};
    setrlimit(static_cast<__rlimit_resource>(resource_), &less);
  }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;
  ~Limited() { setrlimit(static_cast<__rlimit_resource>(resource_), &before_); }

 private:
  int resource_;
  rlimit before_{};
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

TEST_CASE("the descriptor of a large segment stays, as its untouched memory is needed later") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    const std::unique_ptr<NodeGroup> group = make_node(ranks);
    const std::uint64_t left = ranks.all_gather(available_shared_memory().bytes).front();
    constexpr std::uint64_t kMore = 1 << 20;
    {
      Result<NodeSegment> made = make_segment_of(*group, layout_of({left / 16, left / 16}));
      ranks.check(made.ok(), "the segment is made");
      ranks.barrier();
      made.value().published();
      const bool leads = ranks.rank() == 0;
      ranks.check(made.value().has_descriptor() == leads, "the leader keeps it");
      const std::uint64_t need = find_memory_need(kMore).bytes;
      ranks.check(leads ? need > kMore + left / 16 * 2 - 8 * kPage : need == kMore, "and needs what is untouched");
      ranks.barrier();
    }
    ranks.check(find_memory_need(kMore).bytes == kMore, "until the segment ends");
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
        std::unique_ptr<Limited> few;
        if (ranks.rank() == failing) few = std::make_unique<Limited>(RLIMIT_NOFILE, 3);
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

TEST_CASE("a member that cannot map the memory of its node makes no space, and all ranks hear the reason", "[native]") {
  if (kSanitized) return;
  for (const int failing : {0, 1, 2}) {
    INFO("member " << failing);
    expect_well(run_processes(3, [&](Ranks& ranks) {
      setenv("FARSIDE_ROUTES", "mapped", 1);
      RankGroup group(ranks);
      group.join(make_node(ranks), 0, 1);
      SpaceMaking making;
      making.request = space_request(kControl, 64 << 20);
      making.request.rank = ranks.rank();
      making.request.ranks = 3;
      making.request.id = 1;
      std::unique_ptr<Limited> little;
      if (ranks.rank() == failing) little = std::make_unique<Limited>(RLIMIT_AS, 64 << 20);
      const Result<MadeSpace> none = farside::make_space(making, group);
      little.reset();
      ranks.check(!none.ok() && none.error().kind == ErrorKind::kNoMemory, "all have the error");
      const bool told = ranks.rank() == failing || failing != 0;
      const std::string text = none.ok() ? "" : none.error().text;
      ranks.check(!told || text.find("mmap") != std::string::npos, fmt::format("the reason is there: {}", text));
      const bool names = text.find(fmt::format("rank {}", failing)) != std::string::npos;
      ranks.check(names == (ranks.rank() != failing), fmt::format("the others say who has failed: {}", text));
      ++making.request.id;
      const Result<MadeSpace> next = farside::make_space(making, group);
      ranks.check(next.ok(), "the next one is made");
      ranks.barrier();
    }));
  }
}

TEST_CASE("data that are together more than an address space are refused") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    const std::unique_ptr<NodeGroup> group = make_node(ranks);
    for (const std::vector<std::uint64_t>& data :
         {std::vector<std::uint64_t>{SIZE_MAX / 4, SIZE_MAX / 4}, {0, UINT64_MAX}, {UINT64_MAX, 1}}) {
      const Result<NodeSegment> made = make_segment_of(*group, layout_of(data));
      ranks.check(!made.ok() && made.error().kind == ErrorKind::kNoMemory, "they are refused");
    }
    ranks.barrier();
  }));
}

TEST_CASE("data begin at multiples of the alignment in every process") {
  for (const bool contiguous : {false, true}) {
    for (const std::uint64_t alignment : {std::uint64_t{64}, std::uint64_t{4096}, std::uint64_t{8} << 20}) {
      INFO((contiguous ? "contiguous" : "apart") << ", " << alignment);
      expect_well(run_processes(3, [&](Ranks& ranks) {
        const std::unique_ptr<NodeGroup> group = make_node(ranks);
        constexpr std::uint64_t kFirst = 100'000, kLast = 5000;
        NodeSegment::Layout layout = layout_of({kFirst, 0, kLast}, contiguous);
        layout.alignment = alignment;
        Result<NodeSegment> made = make_segment_of(*group, layout);
        ranks.check(made.ok(), "the segment is made");
        const NodeSegment& segment = made.value();
        const auto is_aligned = [&](int i) {
          return reinterpret_cast<std::uintptr_t>(segment.data(i)) % alignment == 0;
        };
        ranks.check(is_aligned(0), "the first data are aligned");
        ranks.check(contiguous ? segment.data(2) == segment.data(0) + kFirst : is_aligned(2),
                    "the others follow, or are aligned, too");
        std::memset(segment.data(ranks.rank()), 1 + ranks.rank(), layout.data[static_cast<std::size_t>(ranks.rank())]);
        ranks.barrier();
        ranks.check(segment.data(0)[kFirst - 1] == std::byte{1} && segment.data(2)[kLast - 1] == std::byte{3},
                    "all see the same memory");
        ranks.barrier();
      }));
    }
  }
}

TEST_CASE("an alignment that no address space has is refused") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    const std::unique_ptr<NodeGroup> group = make_node(ranks);
    for (const int bits : {50, 62, 63}) {
      NodeSegment::Layout layout = layout_of({8, 8});
      layout.alignment = std::uint64_t{1} << bits;
      const Result<NodeSegment> made = make_segment_of(*group, layout);
      ranks.check(!made.ok() && made.error().kind == ErrorKind::kNoMemory, "it is refused");
    }
    ranks.barrier();
  }));
}

TEST_CASE("a process alone has a segment of its own") {
  const std::unique_ptr<NodeGroup> alone = NodeGroup::alone(3);
  Result<NodeSegment> made = make_segment_of(*alone, layout_of({100}));
  REQUIRE(made.ok());
  CHECK(made.value().data(0) == made.value().control(0) + kControl);
  made.value().published();
  CHECK_FALSE(made.value().has_descriptor());
}

}  // namespace farside::node_segment_test

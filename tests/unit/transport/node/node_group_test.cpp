// SPDX-License-Identifier: BSD-3-Clause
// The board of a node: what the members exchange, who may join, and what stays open.
#include "transport/node/node_group.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <sched.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/seeds.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/space/group.hpp"

namespace farside::node_group_test {

using namespace farside::testing;

namespace {

// Counts the polls of a member that waits. Such a member sleeps until another one wakes it.
struct Sleeper final : Progress {
  void poll() override { ++polls; }
  void poll_runtime() override {}
  void listen(WakeEvent&) override {}
  void stop_listening(WakeEvent&) override {}
  std::chrono::microseconds longest_sleep() const override { return std::chrono::hours(1); }
  std::uint64_t polls = 0;
};

// All words of a value are the same, so that a value of two rounds or two members is none.
using Value = std::array<std::uint64_t, NodeGroup::kSlotBytes / 8>;
Value value_of(std::uint64_t round, int member) {
  Value value{};
  value.fill(1000 * round + static_cast<std::uint64_t>(member));
  return value;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Two ranks, of which this process is the first, on nodes of their own.
class Apart final : public Group {
 public:
  Apart() : Group(0, 2) {}
  Status combine(std::span<std::uint64_t>) override { return count(); }
  Status take_lowest(int&) override { return count(); }
  Status broadcast(std::span<std::byte>, int) override { return count(); }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    std::ranges::copy(own, all.begin());
    std::ranges::fill(all.subspan(own.size()), std::byte{1});
    return count();
  }
  int collectives = 0;

 private:
  Status count() {
    ++collectives;
    return {};
  }
};

}  // namespace

TEST_CASE("an exchange waits for a member that is late, which wakes the others") {
  void* const shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& waiting = *new (shared) std::atomic<int>(0);
  expect_well(run_processes(3, [&](Ranks& ranks) {
    Sleeper progress;
    const std::unique_ptr<NodeGroup> group = make_node(ranks);
    const std::vector<pid_t> pids = ranks.all_gather(getpid());
    if (ranks.rank() == 2) {
      while (waiting.load() < 2) sched_yield();
      for (const int early : {0, 1}) await_state(pids[static_cast<std::size_t>(early)], "S");
    } else {
      ++waiting;
    }
    const std::vector<int> all = group->exchange(7 * ranks.rank(), progress);
    ranks.check(all == std::vector<int>{0, 7, 14}, "the late value is there, too");
    ranks.check(progress.polls > 0 || ranks.rank() == 2, "a member that waits makes progress");
    ranks.barrier();
  }));
  munmap(shared, 4096);
}

TEST_CASE("members that meet get the values of all, and the leader's result of them, between other exchanges") {
  for (const int members : {1, 2, 3, 5}) {
    for (const std::uint32_t seed : seeds({6})) {
      INFO(members << " members, " << named(seed));
      expect_well(run_processes(members, [&](Ranks& ranks) {
        Sleeper progress;
        const std::unique_ptr<NodeGroup> group = members == 1 ? NodeGroup::alone(0) : make_node(ranks);
        std::mt19937 random(seed + static_cast<std::uint32_t>(ranks.rank()));
        std::mt19937 kinds(seed);  // equal on all members
        std::uint64_t wrong = 0, led = 0, meetings = 0;
        for (std::uint64_t round = 0; round < 4000; ++round) {
          for (std::uint32_t late = random() % 16; late > 12; --late) sched_yield();
          std::vector<Value> all;
          if (kinds() % 3 == 0) {
            all = group->exchange(value_of(round, ranks.rank()), progress);
          } else {
            ++meetings;
            const auto exchanged = group->exchange_by_leader(value_of(round, ranks.rank()), progress,
                                                             [&](const std::vector<Value>& values) {
                                                               ++led;
                                                               Value sum{};
                                                               for (const Value& each : values) {
                                                                 for (std::size_t i = 0; i < sum.size(); ++i)
                                                                   sum[i] += each[i];
                                                               }
                                                               return sum;
                                                             });
            all = exchanged.values;
            const auto count = static_cast<std::uint64_t>(members);
            for (const std::uint64_t word : exchanged.result)
              wrong += word == 1000 * round * count + count * (count - 1) / 2 ? 0 : 1;
          }
          for (int i = 0; i < members; ++i) wrong += all[static_cast<std::size_t>(i)] == value_of(round, i) ? 0 : 1;
        }
        ranks.check(wrong == 0, fmt::format("{} values are wrong", wrong));
        ranks.check(led == (ranks.rank() == 0 ? meetings : 0), "only the leader makes results");
        ranks.barrier();
      }));
    }
  }
}

TEST_CASE("words are combined inside the node, then by the leaders, and a leader's failure reaches its node") {
  struct Peers final : RankGroup {
    using RankGroup::RankGroup;
    Status combine_leaders(std::span<std::uint64_t> words) override {
      ++calls;
      if (fails) return Error{ErrorKind::kPeer, "no way"};
      words[0] |= 1024;
      words[1] |= words.size() << 32;
      return {};
    }
    int calls = 0;
    bool fails = false;
  };
  expect_well(run_processes(3, [](Ranks& ranks) {
    Sleeper progress;
    Peers peers(ranks);
    peers.join(make_node(ranks), 0, 7);
    ranks.check(peers.next_id() != peers.next_id() && peers.spaces() == 2, "ids differ");
    std::array<std::uint64_t, 2> words{std::uint64_t{1} << ranks.rank(), std::uint64_t{16} << ranks.rank()};
    ranks.check(peers.combine_by_nodes(words, progress).ok(), "all goes well");
    ranks.check(words[0] == (1024 | 7) && words[1] == (std::uint64_t{2} << 32 | 112), "the words are those of all");
    peers.fails = true;
    const Status failed = peers.combine_by_nodes(words, progress);
    ranks.check(!failed.ok() && failed.error().kind == ErrorKind::kPeer, "all have the error");
    ranks.check(contains(failed.error().text, "no way") == (ranks.rank() == 0), "the leader says why");
    ranks.check(peers.calls == (ranks.rank() == 0 ? 2 : 0), "only the leader takes part among leaders");
    peers.fails = false;
    ranks.check(peers.combine_by_nodes(words, progress).ok() && (words[0] & 7) == 7, "the next one goes well");
    ranks.barrier();
  }));
}

TEST_CASE("members know each other, and where a member's message queue is once it has told them") {
  expect_well(run_processes(3, [](Ranks& ranks) {
    const std::size_t files = open_memory_files();
    const std::unique_ptr<NodeGroup> group = make_node(ranks);
    ranks.check(open_memory_files() == files, "the descriptor of the board is closed");
    const std::vector<pid_t> pids = ranks.all_gather(getpid());
    ranks.check(group->members() == 3 && group->index() == ranks.rank() && group->leads() == (ranks.rank() == 0),
                "a member knows its place");
    for (int i = 0; i < 3; ++i) {
      const NodeMember member = group->member(i);
      ranks.check(member.rank == i && member.pid == pids[static_cast<std::size_t>(i)], "rank and process are known");
      ranks.check(member.limits == memory_limit_ids(), "the limits of memory are known");
      ranks.check(member.handler.fd == -1, "there is no message queue");
    }
    ranks.barrier();
    Sleeper progress;
    if (ranks.rank() == 1) group->set_handler({1, 17, 4711});
    (void)group->exchange('\0', progress);
    ranks.check(group->member(1).handler.fd == 17 && group->member(1).handler.nonce == 4711, "now there is one");
    ranks.check(group->member(2).handler.fd == -1, "of that member only");
    ranks.barrier();
  }));
}

TEST_CASE("a board is joined only at its place and with its nonce") {
  const Result<std::unique_ptr<NodeGroup>> leader = NodeGroup::lead(2);
  REQUIRE(leader.ok());
  const SegmentPlace place = leader.value()->place();
  CHECK(NodeGroup::join(place, 1, 2).ok());
  const auto refused = [](const SegmentPlace& wrong, int members, const std::string& why) {
    const Result<std::unique_ptr<NodeGroup>> joined = NodeGroup::join(wrong, 1, members);
    return !joined.ok() && joined.error().kind == ErrorKind::kNoRoute && contains(joined.error().text, why);
  };
  SegmentPlace wrong = place;
  ++wrong.nonce;
  CHECK(refused(wrong, 2, "another process"));
  wrong = place;
  wrong.fd = 999;
  CHECK(refused(wrong, 2, "fd/999"));
  wrong = place;
  wrong.pid = 0x3fffffff;
  CHECK(refused(wrong, 2, "/proc/1073741823/"));
  CHECK(refused(place, 1000, "not the peer's segment"));  // a board of two is shorter
  CHECK(refused({}, 2, "open"));
}

TEST_CASE("a process alone exchanges with itself, and shares no memory") {
  Sleeper progress;
  const std::size_t files = open_memory_files();
  std::vector<std::unique_ptr<NodeGroup>> groups;
  groups.push_back(NodeGroup::alone(5));
  groups.push_back(std::move(NodeGroup::lead(1).value()));
  groups.back()->publish_member(5, progress);
  for (const std::unique_ptr<NodeGroup>& group : groups) {
    CHECK((group->members() == 1 && group->index() == 0 && group->leads()));
    CHECK(group->member(0).rank == 5);
    CHECK(group->member(0).handler.fd == -1);
    for (std::uint64_t round = 0; round < 5; ++round)
      CHECK(group->exchange(value_of(round, 0), progress) == std::vector<Value>{value_of(round, 0)});
  }
  CHECK(progress.polls == 0);
  CHECK(open_memory_files() == files);
}

// In a child, since the process gets its nonce.
TEST_CASE("ranks that share no node find that out by one collective") {
  expect_well(run_processes(1, [](Ranks& child) {
    Apart ranks;
    const Result<Nodes> nodes = ranks.find_nodes(Process::instance());
    child.check(nodes.ok() && ranks.collectives == 1, "one collective");
    child.check(nodes.value().count == 2 && nodes.value().largest == 1, "two nodes");
    child.check(nodes.value().leaders == std::vector{0, 1}, "each rank leads its own");
    child.check(nodes.value().own->members() == 1, "no member but this process");
  }));
}

TEST_CASE("each rank has another partner of its trial, on another node where it can be") {
  const auto partners = [](const std::vector<std::uint64_t>& nodes) {
    std::vector<int> all;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      all.push_back(Group::trial_partner(static_cast<int>(rank), nodes));
    return all;
  };
  CHECK(partners({7}) == std::vector<int>{0});
  CHECK(partners({7, 7, 7}) == std::vector<int>{1, 2, 0});
  CHECK(partners({9, 8, 7}) == std::vector<int>{2, 0, 1});
  CHECK(partners({7, 7, 8, 8, 9, 9}) == std::vector<int>{2, 3, 4, 5, 0, 1});
  CHECK(partners({7, 8, 7, 8}) == std::vector<int>{1, 0, 3, 2});
  CHECK(partners({7, 7, 7, 8}) == std::vector<int>{3, 0, 1, 2});
}

}  // namespace farside::node_group_test

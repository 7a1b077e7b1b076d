// SPDX-License-Identifier: BSD-3-Clause
// The target's view: which accesses of several origins conflict, and what ends them.
#include "epochs/races/shared_log.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace farside::shared_log_test {

using namespace farside::epochs;

namespace {

constexpr int kRanks = 3;
constexpr std::uint32_t kCapacity = 8;
constexpr int kInt = 1;
constexpr int kDouble = 2;
using Epoch = SharedLog::Epoch;

class Logs final : public LogMemory {
 public:
  Logs() {
    for (auto& log : logs_) log.resize(SharedLog::bytes(kRanks, kCapacity));
  }
  Status read(int rank, std::uint64_t offset, void* to, std::size_t bytes) override {
    REQUIRE(offset + bytes <= log(rank).size());
    std::memcpy(to, log(rank).data() + offset, bytes);
    return {};
  }
  Status write(int rank, std::uint64_t offset, const void* from, std::size_t bytes) override {
    REQUIRE(offset + bytes <= log(rank).size());
    std::memcpy(log(rank).data() + offset, from, bytes);
    ++writes;
    return {};
  }
  std::vector<std::byte>& log(int rank) { return logs_.at(static_cast<std::size_t>(rank)); }
  int writes = 0;

 private:
  std::array<std::vector<std::byte>, kRanks> logs_;
};

struct Ranks {
  Logs memory;
  std::array<SharedLog, kRanks> log{SharedLog(memory, 0, kRanks, kCapacity), SharedLog(memory, 1, kRanks, kCapacity),
                                    SharedLog(memory, 2, kRanks, kCapacity)};
  std::array<std::uint64_t, kRanks> number{};

  SharedLog& operator[](int rank) { return log.at(static_cast<std::size_t>(rank)); }

  // Adds an access to rank 1; returns the rank with which it conflicts, or -1.
  int access(int by, Use use, Epoch epoch, StridedRun run, int type = kInt, bool local = false) {
    const Counted call = use == Use::kPut   ? Counted::kPut
                         : use == Use::kGet ? Counted::kGet
                                            : (use == Use::kFetch ? Counted::kFetch : Counted::kAccumulate);
    return with_call(by, call, use, epoch, run, type, local);
  }
  int with_call(int by, Counted call, Use use, Epoch epoch, StridedRun run, int type = kInt, bool local = false) {
    const std::uint16_t element = type == kDouble ? 8 : 4;
    auto conflict = (*this)[by].add(
        1,
        {call, use, epoch, local, type, element, reduce_op, local ? 2 : 1, ++number.at(static_cast<std::size_t>(by))},
        std::span(&run, 1));
    REQUIRE(conflict);
    last = conflict.value().value_or(SharedLog::Found{});
    return conflict.value() ? conflict.value()->origin : -1;
  }
  SharedLog::Found last{};
  std::uint16_t reduce_op = 0;
};

constexpr StridedRun kFirstFour{0, 4, 0, 1};

}  // namespace

TEST_CASE("accesses of two origins between two fences conflict, whatever comes in between") {
  Ranks r;
  CHECK(r.access(0, Use::kPut, Epoch::kFence, kFirstFour) == -1);
  CHECK(r.access(2, Use::kGet, Epoch::kFence, {4, 4, 0, 1}) == -1);
  CHECK(r.access(2, Use::kGet, Epoch::kFence, {3, 4, 0, 1}) == 0);
  CHECK(r.last.number == 1);
  CHECK(r.last.call == Counted::kPut);
  CHECK(r.last.range.first == 3);
  CHECK(r.last.range.last == 4);
  // Only a fence completes it.
  CHECK(r[0].completed_all());
  CHECK(r[0].start_completed());
  CHECK(r.access(2, Use::kAccumulate, Epoch::kFence, kFirstFour) == 0);
  // Refused accesses do not conflict, and accesses behind the fence are not compared with those before it.
  CHECK(r.access(0, Use::kPut, Epoch::kFence, {6, 2, 0, 1}) == 2);
  CHECK(r.access(0, Use::kPut, Epoch::kFence, {8, 8, 0, 1}) == -1);
  r[2].fence_passed();
  CHECK(r.access(2, Use::kGet, Epoch::kFence, kFirstFour) == -1);
  r[0].fence_passed();
  CHECK(r.access(0, Use::kPut, Epoch::kFence, {0, 8, 0, 1}) == 2);
  CHECK(r.access(0, Use::kPut, Epoch::kFence, {4, 4, 0, 1}) == -1);
}

TEST_CASE("an origin does not meet itself in the log, and what is atomic may meet") {
  Ranks r;
  CHECK(r.access(0, Use::kPut, Epoch::kPassive, kFirstFour) == -1);
  CHECK(r.access(0, Use::kPut, Epoch::kPassive, kFirstFour) == -1);
  CHECK(r.access(0, Use::kAccumulate, Epoch::kPassive, {8, 8, 0, 1}) == -1);
  CHECK(r.access(2, Use::kAccumulate, Epoch::kPassive, {12, 4, 0, 1}) == -1);
  CHECK(r.access(2, Use::kFetch, Epoch::kPassive, {8, 8, 0, 1}) == -1);
  // Of another type, or with elements that begin elsewhere.
  CHECK(r.access(2, Use::kAccumulate, Epoch::kPassive, {8, 8, 0, 1}, kDouble) == 0);
  CHECK(r.access(2, Use::kAccumulate, Epoch::kPassive, {10, 4, 0, 1}) == 0);
  CHECK(r.access(2, Use::kGet, Epoch::kPassive, {8, 4, 0, 1}) == 0);
}

TEST_CASE("atomic updates of two origins by different operations conflict, and atomic reads with none") {
  Ranks r;
  r.reduce_op = 1;
  CHECK(r.access(0, Use::kAccumulate, Epoch::kPassive, kFirstFour) == -1);
  r.reduce_op = 2;
  CHECK(r.access(0, Use::kAccumulate, Epoch::kPassive, kFirstFour) == -1);  // in their order
  CHECK(r.access(2, Use::kAccumulate, Epoch::kPassive, kFirstFour) == 0);
  CHECK(r.last.only_ops_differ);
  CHECK(r.access(2, Use::kFetch, Epoch::kPassive, kFirstFour) == -1);
  CHECK(r.access(2, Use::kAccumulate, Epoch::kPassive, {4, 4, 0, 1}) == -1);
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, kFirstFour) == 0);
  CHECK_FALSE(r.last.only_ops_differ);
  r.reduce_op = 0;  // a compare-and-swap
  CHECK(r.access(2, Use::kAccumulate, Epoch::kPassive, kFirstFour) == -1);
}

TEST_CASE("an access by way of another window meets all but reads, also those of its own origin") {
  Ranks r;
  const auto look = [&](int by, Use use, StridedRun run) {
    auto found = r[by].look_from_outside(1, {.use = use}, std::span(&run, 1));
    REQUIRE(found);
    return found.value() ? found.value()->origin : -1;
  };
  CHECK(r.access(0, Use::kGet, Epoch::kFence, kFirstFour) == -1);
  CHECK(r.access(0, Use::kAccumulate, Epoch::kFence, {4, 4, 0, 1}) == -1);
  for (const int by : {0, 2}) {
    CHECK(look(by, Use::kGet, kFirstFour) == -1);
    CHECK(look(by, Use::kFetch, kFirstFour) == -1);
    CHECK(look(by, Use::kPut, kFirstFour) == 0);
    CHECK(look(by, Use::kAccumulate, {4, 4, 0, 1}) == 0);
    CHECK(look(by, Use::kGet, {7, 4, 0, 1}) == 0);
    CHECK(look(by, Use::kPut, {8, 4, 0, 1}) == -1);
  }
  // It is not entered, and the epoch of its window does not count.
  CHECK(r.access(2, Use::kGet, Epoch::kFence, kFirstFour) == -1);
  for (auto& log : r.log) log.fence_passed();
  CHECK(look(2, Use::kPut, {0, 8, 0, 1}) == -1);
}

TEST_CASE("a rank tells where its memory lies") {
  Ranks r;
  CHECK(r[0].memory_of(1).value().bytes == 0);
  SharedLog::describe(r.memory.log(1).data(), {4096, 64});
  CHECK(r[0].memory_of(1).value().base == 4096);
  CHECK(r[2].memory_of(1).value().bytes == 64);
  CHECK(r[0].memory_of(2).value().bytes == 0);
}

TEST_CASE("a flush or unlock takes accesses out, a local flush those that read") {
  Ranks r;
  CHECK(r.access(0, Use::kPut, Epoch::kPassive, kFirstFour) == -1);
  CHECK(r.access(0, Use::kGet, Epoch::kPassive, {4, 4, 0, 1}) == -1);
  CHECK(r[0].under_way(1));
  CHECK(r[0].completed(2));
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {4, 4, 0, 1}) == 0);
  CHECK(r[0].locally_completed(1));
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {4, 4, 0, 1}) == -1);
  CHECK(r.access(2, Use::kGet, Epoch::kPassive, kFirstFour) == 0);
  CHECK(r[0].completed(1));
  CHECK_FALSE(r[0].under_way(1));
  CHECK(r.access(2, Use::kGet, Epoch::kPassive, kFirstFour) == -1);
  CHECK(r[2].completed_all());
  CHECK(r.access(0, Use::kPut, Epoch::kPassive, {0, 8, 0, 1}) == -1);
  // Nothing is written if there is nothing to take out.
  const int writes = r.memory.writes;
  CHECK(r[2].completed_all());
  CHECK(r[2].completed(1));
  CHECK(r.memory.writes == writes);
}

TEST_CASE("a notification takes its own operation out in any epoch, and leaves its local buffer") {
  for (const Epoch epoch : {Epoch::kFence, Epoch::kStarted, Epoch::kPassive}) {
    Ranks r;
    CHECK(r.access(0, Use::kPut, epoch, kFirstFour) == -1);
    CHECK(r.access(0, Use::kPut, epoch, {4, 4, 0, 1}) == -1);
    CHECK(r[0].notified(1));
    CHECK(r.access(2, Use::kPut, epoch, kFirstFour) == -1);
    CHECK(r.access(2, Use::kPut, epoch, {4, 4, 0, 1}) == 0);
    CHECK(r.access(0, Use::kGet, epoch, {8, 4, 0, 1}, kInt, true) == -1);  // operation 3
    CHECK(r[0].notified(3));
    CHECK(r.access(2, Use::kPut, epoch, {8, 4, 0, 1}) == 0);
  }
}

TEST_CASE("a request takes out its own reads") {
  Ranks r;
  CHECK(r.access(0, Use::kGet, Epoch::kPassive, {0, 4, 0, 1}) == -1);  // operation 1
  CHECK(r.access(0, Use::kGet, Epoch::kPassive, {4, 4, 0, 1}) == -1);  // operation 2
  CHECK(r.access(0, Use::kPut, Epoch::kPassive, {8, 4, 0, 1}) == -1);  // operation 3
  CHECK(r.with_call(0, Counted::kFetch, Use::kAccumulate, Epoch::kPassive, {12, 4, 0, 1}) == -1);
  CHECK(r[0].request_under_way(2));
  CHECK_FALSE(r[0].request_under_way(3));
  CHECK(r[0].request_completed(2));
  CHECK(r[0].request_completed(3));
  CHECK(r[0].request_completed(4));
  CHECK_FALSE(r[0].request_under_way(2));
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {0, 4, 0, 1}) == 0);
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {4, 4, 0, 1}) == -1);
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {8, 4, 0, 1}) == 0);
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {12, 4, 0, 1}) == -1);
  const int writes = r.memory.writes;
  CHECK(r[0].request_completed(2));
  CHECK(r.memory.writes == writes);
}

TEST_CASE("in an exposure an update lasts until the wait, a read until the complete") {
  Ranks r;
  CHECK(r.access(0, Use::kPut, Epoch::kStarted, kFirstFour) == -1);
  CHECK(r.access(0, Use::kGet, Epoch::kStarted, {4, 4, 0, 1}) == -1);
  CHECK(r[0].reads_started());
  CHECK(r[0].start_completed());
  CHECK_FALSE(r[0].reads_started());
  CHECK(r.access(2, Use::kPut, Epoch::kStarted, {4, 4, 0, 1}) == -1);
  CHECK(r.access(2, Use::kGet, Epoch::kStarted, kFirstFour) == 0);
  CHECK(r[2].start_completed());
  CHECK(r[1].exposure_ended());
  CHECK(r.access(2, Use::kGet, Epoch::kStarted, {0, 8, 0, 1}) == -1);
  CHECK(r.access(0, Use::kPut, Epoch::kStarted, {4, 4, 0, 1}) == 2);
}

TEST_CASE("a fetch that an epoch of start has completed is over") {
  Ranks r;
  CHECK(r.with_call(0, Counted::kFetch, Use::kAccumulate, Epoch::kStarted, kFirstFour) == -1);
  CHECK(r[0].start_completed());
  CHECK(r.access(2, Use::kGet, Epoch::kStarted, kFirstFour) == -1);
}

TEST_CASE("local buffers in the own window are accesses, too") {
  Ranks r;
  // Rank 1 puts to rank 2 out of its own window.
  CHECK(r.access(1, Use::kGet, Epoch::kPassive, kFirstFour, kInt, true) == -1);
  CHECK(r.access(0, Use::kGet, Epoch::kPassive, kFirstFour) == -1);
  CHECK(r.access(0, Use::kPut, Epoch::kPassive, kFirstFour) == 1);
  CHECK(r.last.local);
  CHECK(r[1].locally_completed(2));
  CHECK(r[0].completed(1));
  CHECK(r.access(0, Use::kPut, Epoch::kPassive, kFirstFour) == -1);
}

TEST_CASE("what there is no room for is missed, and no more") {
  Ranks r;
  for (std::uint64_t i = 0; i < kCapacity + 2; ++i) {
    CHECK(r.access(0, Use::kPut, Epoch::kPassive, {i * 8, 4, 0, 1}) == -1);
  }
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {(kCapacity - 1) * 8, 4, 0, 1}) == 0);
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {kCapacity * 8, 4, 0, 1}) == -1);
  CHECK(r[0].completed(1));
  CHECK(r.access(0, Use::kPut, Epoch::kPassive, {(kCapacity + 1) * 8, 4, 0, 1}) == -1);
  CHECK(r.access(2, Use::kPut, Epoch::kPassive, {(kCapacity + 1) * 8, 4, 0, 1}) == 0);
}

TEST_CASE("what the target stores to what an origin has accessed shows before the epoch ends") {
  for (const Epoch epoch : {Epoch::kFence, Epoch::kStarted}) {
    Ranks r;
    const auto changes = [&](std::uint64_t now) {
      auto found = r[1].changed_after(epoch, [&](const StridedRun&) { return now; });
      REQUIRE(found);
      return found.value();
    };
    const std::array<SharedLog::Images, 1> image{{{33, 77}}};
    CHECK(r.access(0, Use::kPut, epoch, kFirstFour) == -1);
    CHECK(changes(5).empty());  // not known to be executed
    CHECK(r[0].executed(1, image));
    CHECK(changes(77).empty());
    REQUIRE(changes(5).size() == 1);
    CHECK(changes(5)[0].origin == 0);
    CHECK(changes(5)[0].call == Counted::kPut);
    // The epoch is over.
    if (epoch == Epoch::kFence) {
      for (auto& log : r.log) log.fence_passed();
    } else {
      CHECK(r[1].exposure_ended());
    }
    CHECK(changes(5).empty());
  }
}

TEST_CASE("what the target stores before an origin's access shows before the epoch ends") {
  for (const Epoch epoch : {Epoch::kFence, Epoch::kStarted}) {
    Ranks r;
    const auto changes = [&](std::uint64_t kept) {
      auto found = r[1].changed_before(epoch, [&](const StridedRun&) { return kept; });
      REQUIRE(found);
      return found.value().size();
    };
    const std::array<SharedLog::Images, 1> image{{{33, 77}}};
    CHECK(r.with_call(0, Counted::kGet, Use::kGet, epoch, kFirstFour) == -1);
    CHECK(r[0].executed(1, image));
    CHECK(changes(5) == 0);  // there is no image
    CHECK(r[1].image_kept(epoch));
    CHECK(changes(5) == 0);  // the image may show the access
    CHECK(r.with_call(2, Counted::kGet, Use::kGet, epoch, kFirstFour) == -1);
    CHECK(changes(5) == 0);  // not known to be executed
    CHECK(r[2].executed(1, image));
    CHECK(changes(0) == 0);
    CHECK(changes(33) == 0);
    CHECK(changes(5) == 1);
    if (epoch == Epoch::kStarted) CHECK(r[2].start_completed());
    CHECK(changes(5) == 1);
  }
}

TEST_CASE("what others have updated is no store of the target") {
  const std::array<SharedLog::Images, 1> image{{{33, 77}}};
  const auto changed = [](Ranks& r, Epoch epoch) {
    auto found = r[1].changed_after(epoch, [](const StridedRun&) { return std::uint64_t{5}; });
    REQUIRE(found);
    return !found.value().empty();
  };
  SECTION("by an accumulate that may meet the first") {
    Ranks r;
    CHECK(r.access(0, Use::kAccumulate, Epoch::kFence, kFirstFour) == -1);
    CHECK(r[0].executed(1, image));
    CHECK(changed(r, Epoch::kFence));
    CHECK(r.access(2, Use::kAccumulate, Epoch::kFence, kFirstFour) == -1);
    CHECK_FALSE(changed(r, Epoch::kFence));
  }
  SECTION("by one that is over, of an epoch of start") {
    Ranks r;
    CHECK(r.access(0, Use::kAccumulate, Epoch::kStarted, kFirstFour) == -1);
    CHECK(r[0].executed(1, image));
    CHECK(r.with_call(2, Counted::kFetch, Use::kAccumulate, Epoch::kStarted, kFirstFour) == -1);
    CHECK(r[2].start_completed());
    CHECK_FALSE(changed(r, Epoch::kStarted));
  }
  SECTION("by one under a lock, which has left the log") {
    Ranks r;
    CHECK(r.access(0, Use::kAccumulate, Epoch::kFence, kFirstFour) == -1);
    CHECK(r[0].executed(1, image));
    CHECK(r.access(2, Use::kAccumulate, Epoch::kPassive, kFirstFour) == -1);
    CHECK(r[2].completed(1));
    CHECK_FALSE(changed(r, Epoch::kFence));
  }
  SECTION("by one that the log had no room for") {
    Ranks r;
    CHECK(r.access(0, Use::kAccumulate, Epoch::kFence, kFirstFour) == -1);
    CHECK(r[0].executed(1, image));
    for (std::uint64_t i = 1; i <= kCapacity + 1; ++i) {
      CHECK(r.access(2, Use::kAccumulate, Epoch::kFence, {i * 8, 4, 0, 1}) == -1);
    }
    CHECK_FALSE(changed(r, Epoch::kFence));
  }
  SECTION("by one that had no room, although the log has room for later ones of the same epoch") {
    for (const Epoch epoch : {Epoch::kFence, Epoch::kStarted, Epoch::kPassive}) {
      Ranks r;
      CHECK(r.access(0, Use::kAccumulate, Epoch::kFence, kFirstFour) == -1);
      CHECK(r[0].executed(1, image));
      const std::vector<StridedRun> many(kCapacity + 1, kFirstFour);
      const auto conflict = r[2].add(1, {Counted::kAccumulate, Use::kAccumulate, epoch, false, kInt, 4, 0, 1, 7}, many);
      REQUIRE(conflict);
      CHECK_FALSE(conflict.value());
      CHECK_FALSE(changed(r, Epoch::kFence));
      CHECK(r.access(2, Use::kAccumulate, epoch, {100, 4, 0, 1}) == -1);
      CHECK_FALSE(changed(r, Epoch::kFence));
      if (epoch == Epoch::kPassive) {
        CHECK(r[2].under_way(1));
        CHECK(r[2].completed(1));
        CHECK_FALSE(r[2].under_way(1));
        CHECK_FALSE(changed(r, Epoch::kFence));
      }
      // In the next epoch all updates are in the log again.
      for (auto& log : r.log) log.fence_passed();
      CHECK(r[1].exposure_ended());
      CHECK(r.access(0, Use::kAccumulate, Epoch::kFence, kFirstFour) == -1);
      CHECK(r[0].executed(1, image));
      CHECK(r.access(2, Use::kAccumulate, epoch, {100, 4, 0, 1}) == -1);
      CHECK(changed(r, Epoch::kFence));
    }
  }
}

TEST_CASE("a block that changes while it is read is read again") {
  // A reader reads between the two parts of a write.
  class Torn final : public LogMemory {
   public:
    Status read(int rank, std::uint64_t offset, void* to, std::size_t bytes) override {
      if (halves > 0 && bytes == 32 && --halves == 0) REQUIRE(whole_.write(rank, at_, held_.data(), held_.size()));
      return whole_.read(rank, offset, to, bytes);
    }
    Status write(int rank, std::uint64_t offset, const void* from, std::size_t bytes) override {
      if (hold && bytes > 64) {
        const auto* first = static_cast<const std::byte*>(from);
        held_.assign(first, first + bytes);
        at_ = offset;
        return whole_.write(rank, offset, from, 48);
      }
      return whole_.write(rank, offset, from, bytes);
    }
    bool hold = false;
    int halves = 0;

   private:
    Logs whole_;
    std::vector<std::byte> held_;
    std::uint64_t at_ = 0;
  };
  Torn memory;
  SharedLog first(memory, 0, kRanks, kCapacity);
  SharedLog second(memory, 2, kRanks, kCapacity);
  memory.hold = true;
  const SharedLog::Access put{Counted::kPut, Use::kPut, Epoch::kFence, false, 0, 1, 0, 1, 1};
  REQUIRE(first.add(1, put, std::span(&kFirstFour, 1)));
  memory.hold = false;
  memory.halves = 2;  // whole at the second read
  auto conflict = second.add(1, put, std::span(&kFirstFour, 1));
  REQUIRE(conflict);
  CHECK(conflict.value());
}

TEST_CASE("what is over, and not yet written over by what came after it, is not taken for what goes on") {
  // Other ranks act between a reader's read of the headers and its read of the entries.
  class Between final : public LogMemory {
   public:
    Status read(int rank, std::uint64_t offset, void* to, std::size_t bytes) override {
      constexpr std::uint64_t kEntries = 64 + 32 * kRanks;
      if (offset >= kEntries && between) std::exchange(between, nullptr)();
      return whole_.read(rank, offset, to, bytes);
    }
    Status write(int rank, std::uint64_t offset, const void* from, std::size_t bytes) override {
      return whole_.write(rank, offset, from, bytes);
    }
    std::function<void()> between;

   private:
    Logs whole_;
  };
  Between memory;
  SharedLog first(memory, 0, kRanks, kCapacity);
  SharedLog second(memory, 2, kRanks, kCapacity);
  const SharedLog::Access put{Counted::kPut, Use::kPut, Epoch::kPassive, false, 0, 1, 0, 1, 1};
  const StridedRun elsewhere{100, 4, 0, 1};
  REQUIRE(first.add(1, put, std::span(&elsewhere, 1)));
  REQUIRE(first.add(1, put, std::span(&kFirstFour, 1)));
  memory.between = [&] {
    REQUIRE(first.completed(1));
    REQUIRE(first.add(1, put, std::span(&elsewhere, 1)));
  };
  const auto conflict = second.add(1, put, std::span(&kFirstFour, 1));
  REQUIRE(conflict);
  CHECK_FALSE(memory.between);
  CHECK_FALSE(conflict.value());
}

TEST_CASE("of two origins that come at once, at least one sees the other") {
  // Memory as processes share it.
  class Shared final : public LogMemory {
   public:
    Status read(int, std::uint64_t offset, void* to, std::size_t bytes) override {
      for (std::size_t i = 0; i < bytes; i += 8) {
        const std::uint64_t word = words_.at((offset + i) / 8).load();
        std::memcpy(static_cast<std::byte*>(to) + i, &word, 8);
      }
      return {};
    }
    Status write(int, std::uint64_t offset, const void* from, std::size_t bytes) override {
      for (std::size_t i = 0; i < bytes; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, static_cast<const std::byte*>(from) + i, 8);
        words_.at((offset + i) / 8).store(word);
      }
      return {};
    }

   private:
    std::vector<std::atomic<std::uint64_t>> words_ =
        std::vector<std::atomic<std::uint64_t>>(SharedLog::bytes(2, kCapacity) / 8);
  };
  Shared memory;
  constexpr int kRounds = 20000;
  std::atomic<int> arrived{0};
  std::array<std::vector<char>, 2> saw{std::vector<char>(kRounds), std::vector<char>(kRounds)};
  const auto origin = [&](int rank) {
    SharedLog log(memory, rank, 2, kCapacity);
    const SharedLog::Access put{Counted::kPut, Use::kPut, Epoch::kPassive, false, 0, 1, 0, 1, 1};
    const auto meet_other = [&](int count) {
      arrived.fetch_add(1);
      while (arrived.load() < 2 * count) std::this_thread::yield();
    };
    for (int round = 0; round < kRounds; ++round) {
      meet_other(2 * round + 1);
      const auto conflict = log.add(1, put, std::span(&kFirstFour, 1));
      saw.at(static_cast<std::size_t>(rank))[static_cast<std::size_t>(round)] = conflict && conflict.value() ? 1 : 0;
      meet_other(2 * round + 2);
      (void)log.completed_all();
    }
  };
  std::thread other(origin, 0);
  origin(1);
  other.join();
  int missed = 0;
  for (std::size_t i = 0; i < kRounds; ++i) missed += saw[0][i] == 0 && saw[1][i] == 0 ? 1 : 0;
  CHECK(missed == 0);
}

}  // namespace farside::shared_log_test

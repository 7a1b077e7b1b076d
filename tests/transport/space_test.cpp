// SPDX-License-Identifier: BSD-3-Clause
// A Space among processes, on every route: what is put arrives, what is combined is combined once and atomically, and
// a target that sleeps or computes serves all the same.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/transport/elements.hpp"
#include "tests/transport/processes.hpp"
#include "transport/control_memory.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/space.hpp"

#if defined(__SANITIZE_THREAD__)
// libfabric is not instrumented: its own synchronisation is invisible, and its writes into a target's memory are
// ordered by other processes.
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libfabric.so\nmutex:_dl_call_fini\n"; }
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }
#endif

using namespace farside;
using namespace farside::testing;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

enum class Way { kMapped, kCma, kFabric, kFabricPrivate };
constexpr Way kAllWays[] = {Way::kMapped, Way::kCma, Way::kFabric, Way::kFabricPrivate};
constexpr std::array<const char*, 4> kWayNames = {"mapped", "cma", "fabric", "fabric on private memory"};

#if defined(__SANITIZE_THREAD__)
constexpr bool kOwnThread = true;  // the sanitizer starts one
#else
constexpr bool kOwnThread = false;
#endif

constexpr std::byte kFilling{0x5A};
constexpr std::size_t kControlBytes = 4096;

bool over_fabric(Way way) { return way == Way::kFabric || way == Way::kFabricPrivate; }
bool on_private(Way way) { return way == Way::kCma || way == Way::kFabricPrivate; }

void use_routes(const char* routes) {
  setenv("FARSIDE_ROUTES", routes, 1);
  setenv("FARSIDE_PROVIDER", "tcp;ofi_rxm", 1);
  setenv("FARSIDE_STATS", "/dev/null", 1);  // counted, not written: that is pmpi's
  setenv("FI_TCP_IFACE", "lo", 1);
  setenv("FI_OFI_RXM_BUFFER_SIZE", "16384", 1);
}

// One rank's end of a Space, with the steps of space.hpp.
class World {
 public:
  // Private data begins `misaligned` bytes behind a multiple of 64, or ends with its page and nothing behind.
  static constexpr std::size_t kAtPageEnd = SIZE_MAX;
  World(Ranks& ranks, Way way, std::size_t bytes, std::size_t misaligned = 0) : ranks_(ranks) {
    allow_process_memory_access();
    use_routes(over_fabric(way) ? "fabric" : "mapped,cma");
    Space::Request request{ranks.rank(), ranks.size(), kControlBytes, bytes, nullptr};
    if (on_private(way) && misaligned == kAtPageEnd) {
      constexpr std::size_t kPage = 4096;
      auto* pages = static_cast<std::byte*>(
          mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      mprotect(pages + kPage, kPage, PROT_NONE);
      request.private_data = pages + kPage - bytes;
    } else if (on_private(way)) {
      private_.resize(bytes + 128);
      auto at = reinterpret_cast<std::uintptr_t>(private_.data());
      request.private_data = private_.data() + (63 - (at + 63) % 64) + misaligned;
    }
    Result<std::unique_ptr<Space>> made = Space::make(request);
    require(made.status(), "the space is made");
    space_ = std::move(made.value());
    std::fill_n(space_->data(), bytes, kFilling);
    const std::vector<char> same_node(static_cast<std::size_t>(ranks.size()), 1);
    const Space::Reach reach = space_->map_peers(ranks.all_gather(space_->describe()), same_node);
    ranks.check(reach.needs_fabric == over_fabric(way), "the fabric is needed where nothing else is allowed");
    ranks.check(reach.uses_cma == (way == Way::kCma), "cma is used on private memory");
    if (over_fabric(way)) {
      const Result<FabricDescriptor> opened = space_->open_fabric();
      require(opened.status(), "the fabric is opened");
      require(space_->connect(ranks.all_gather(opened.value()), false), "the fabric is connected");
    }
    ranks.barrier();
    space_->finish(way == Way::kCma);
    ranks.check(space_->describe().segment_fd == -1, "no descriptor stays once the peers have mapped");
    const RouteKind expected[] = {RouteKind::kMapped, RouteKind::kCma, RouteKind::kFabric, RouteKind::kFabric};
    for (int r = 0; r < ranks.size(); ++r) {
      const RouteKind route = r == ranks.rank() ? RouteKind::kSelf : expected[static_cast<std::size_t>(way)];
      ranks.check(space_->route(r) == route, "the route is the one that was asked for");
      ranks.check(space_->bytes(r) == bytes, "the size of a peer's data is known");
    }
    ranks.barrier();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    good(space_->flush_all(), "the last flush succeeds");
    ranks_.barrier();
    space_.reset();
    ranks_.barrier();
  }
  Space& operator*() { return *space_; }
  Space* operator->() { return space_.get(); }
  void good(const Status& status, std::string_view what, std::source_location where = std::source_location::current()) {
    if (!status.ok()) ranks_.check(false, fmt::format("{}: {}", what, status.error().text), where);
  }

 private:
  void require(const Status& status, std::string_view what) {
    if (status.ok()) return;
    good(status, what);
    _exit(1);
  }
  Ranks& ranks_;
  std::vector<std::byte> private_;
  std::unique_ptr<Space> space_;
};

// A child's whole program; afterwards its endpoint is closed in good order.
std::string run_world(int size, Way way, std::size_t bytes, const std::function<void(Ranks&, World&)>& program,
                      std::size_t misaligned = 0) {
  return run_processes(size, [&](Ranks& ranks) {
    {
      World world(ranks, way, bytes, misaligned);
      program(ranks, world);
    }
    Process::instance().shut_down();
    ranks.barrier();
  });
}

std::uint64_t counted(RouteKind route, Counted what) {
  return Process::instance().statistics().counter(route, what).count.load();
}

// What a barrier among processes orders, a sanitizer of one process cannot see.
template <class T>
__attribute__((no_sanitize("thread"))) T read_data(World& world, std::uint64_t offset) {
  std::array<std::byte, sizeof(T)> bytes;
  const volatile std::byte* at = world->data() + offset;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = at[i];
  return std::bit_cast<T>(bytes);
}

// In one load, perhaps while somebody writes there.
__attribute__((no_sanitize("thread"))) std::uint64_t look_at_word(World& world, std::uint64_t offset) {
  return *reinterpret_cast<const volatile std::uint64_t*>(world->data() + offset);
}

}  // namespace

TEST_CASE("what is put arrives, and what is got is what is there, at any size and offset") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    constexpr std::size_t kSlot = (1 << 20) + 64;
    expect_well(run_world(3, way, 3 * kSlot, [&](Ranks& ranks, World& world) {
      const auto slot = [](int rank) { return static_cast<std::size_t>(rank) * kSlot; };
      const auto seed = [](int from, int to, std::size_t i) { return std::byte(from * 91 + to * 37 + i * 7); };
      for (const std::size_t bytes : {0UL, 1UL, 7UL, 8UL, 64UL, 65UL, 4096UL, 16385UL, 65537UL, 1UL << 20}) {
        const std::size_t offset = bytes % 2 == 0 ? 8 : 3;
        std::vector<std::vector<std::byte>> sent(3);
        for (int to = 0; to < 3; ++to) {
          auto& buffer = sent[static_cast<std::size_t>(to)];
          buffer.resize(bytes + 1);
          for (std::size_t i = 0; i < bytes; ++i) buffer[i] = seed(ranks.rank(), to, i);
          world.good(world->put(to, slot(ranks.rank()) + offset, buffer.data(), bytes), "put");
          if (to == 1) world.good(world->flush(to), "flush");
        }
        world.good(world->flush_all(), "flush_all");
        ranks.barrier();
        for (int from = 0; from < 3; ++from) {
          const std::byte* at = world->data() + slot(from);
          bool good = at[offset - 1] == kFilling && at[offset + bytes] == kFilling;
          for (std::size_t i = 0; i < bytes; ++i) good = good && at[offset + i] == seed(from, ranks.rank(), i);
          ranks.check(good, fmt::format("{} bytes of rank {} are here and nothing else", bytes, from));
        }
        for (int at = 0; at < 3; ++at) {
          const int of = (at + 1) % 3;  // what `of` has put there
          std::vector<std::byte> got(bytes + 1, kFilling);
          world.good(world->get(at, slot(of) + offset, got.data(), bytes), "get");
          world.good(world->flush(at), "flush");
          bool good = got[bytes] == kFilling;
          for (std::size_t i = 0; i < bytes; ++i) good = good && got[i] == seed(of, at, i);
          ranks.check(good, fmt::format("{} bytes are got from rank {}", bytes, at));
        }
        ranks.barrier();
        std::fill_n(world->data(), 3 * kSlot, kFilling);
        ranks.barrier();
      }
    }));
  }
}

TEST_CASE("many operations may be under way at once") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    constexpr std::size_t kMany = 3000;
    expect_well(run_world(2, way, kMany * 8, [&](Ranks& ranks, World& world) {
      const int to = 1 - ranks.rank();
      std::vector<std::uint64_t> sent(kMany), got(kMany);
      for (std::size_t i = 0; i < kMany; ++i) {
        sent[i] = i * 2654435761 + static_cast<std::uint64_t>(ranks.rank());
        world.good(world->put(to, 8 * i, &sent[i], 8), "put");
      }
      world.good(world->flush(to), "flush");
      for (std::size_t i = 0; i < kMany; ++i) world.good(world->get(to, 8 * i, &got[i], 8), "get");
      world.good(world->flush(to), "flush");
      ranks.check(got == sent, "all are there");
      ranks.barrier();
      for (std::size_t i = 0; i < kMany; ++i) {
        world.good(world->accumulate(to, 8 * i, ReduceOp::kSum, BasicType::kUint64, &sent[i], &got[i], 1), "add");
      }
      world.good(world->flush(to), "flush");
      ranks.check(got == sent, "all are fetched");
    }));
  }
}

TEST_CASE("accumulates of every operation and type come out as the kernels', in the order in which they were issued") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    constexpr std::size_t kMost = 600;  // times 32 bytes: several messages to the agent
    constexpr std::size_t kSlot = kMost * 32 + 64;
    expect_well(run_world(2, way, 2 * kSlot, [&](Ranks& ranks, World& world) {
      const int to = 1 - ranks.rank();
      const std::size_t slot = static_cast<std::size_t>(ranks.rank()) * kSlot;
      unsigned seed = 1;
      for (const BasicType type : all_types()) {
        for (const ReduceOp op : all_ops()) {
          if (!allowed(op, type)) continue;
          for (const std::size_t count : {std::size_t{1}, std::size_t{3}, op == ReduceOp::kSum ? kMost : 40}) {
            const std::size_t bytes = count * traits(type).extent;
            std::vector<std::vector<std::byte>> origin(3, std::vector<std::byte>(bytes, kFilling));
            for (auto& buffer : origin) fill_elements(type, buffer.data(), count, ++seed);
            std::vector<std::byte> model = origin[0], first(bytes, kFilling), last(bytes, kFilling);
            std::vector<std::byte> before_second;
            combine(AtomicWay::kLocked, op, type, model.data(), origin[1].data(), nullptr, count);
            before_second = model;
            combine(AtomicWay::kLocked, op, type, model.data(), origin[2].data(), nullptr, count);

            world.good(world->accumulate(to, slot, ReduceOp::kReplace, type, origin[0].data(), nullptr, count), "a");
            world.good(world->accumulate(to, slot, op, type, origin[1].data(), nullptr, count), "b");
            world.good(world->accumulate(to, slot, op, type, origin[2].data(), first.data(), count), "c");
            world.good(world->accumulate(to, slot, ReduceOp::kNoOp, type, nullptr, last.data(), count), "d");
            world.good(world->flush(to), "flush");
            const std::string what = fmt::format("{} {} x{}", traits(type).name, name(op), count);
            ranks.check(same_elements(type, first.data(), before_second.data(), count), what + ": fetched");
            ranks.check(same_elements(type, last.data(), model.data(), count), what + ": the result");
            std::vector<std::byte> got(bytes, kFilling);
            world.good(world->get(to, slot, got.data(), bytes), "get");
            world.good(world->flush(to), "flush");
            ranks.check(same_elements(type, got.data(), model.data(), count), what + ": got");
          }
        }
      }
      world.good(world->accumulate(to, slot, ReduceOp::kNoOp, BasicType::kInt32, nullptr, nullptr, 1), "nothing");
      world.good(world->accumulate(to, slot, ReduceOp::kSum, BasicType::kInt32, nullptr, nullptr, 0), "no element");
    }));
  }
}

TEST_CASE("accumulates by the provider and by the agent keep their order, without a flush between them") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    expect_well(run_world(2, way, 64, [&](Ranks& ranks, World& world) {
      // 16 bytes, moved by the agent; their first 8, moved by the provider.
      using Pair = std::array<std::uint64_t, 2>;
      constexpr std::size_t kTimes = 300;
      const int to = 1 - ranks.rank();
      std::vector<Pair> sent(kTimes), seen_as_pair(kTimes);
      std::vector<std::uint64_t> word(kTimes), seen_as_word(kTimes);
      for (std::uint64_t i = 0; i < kTimes; ++i) {
        constexpr BasicType kPair = BasicType::kDoubleDouble, kWord = BasicType::kUint64;
        sent[i] = {2 * i, i};
        word[i] = 2 * i + 1;
        world.good(world->accumulate(to, 0, ReduceOp::kReplace, kPair, &sent[i], nullptr, 1), "replace the pair");
        world.good(world->accumulate(to, 0, ReduceOp::kNoOp, kWord, nullptr, &seen_as_word[i], 1), "fetch the word");
        world.good(world->accumulate(to, 0, ReduceOp::kReplace, kWord, &word[i], nullptr, 1), "replace the word");
        world.good(world->accumulate(to, 0, ReduceOp::kNoOp, kPair, nullptr, &seen_as_pair[i], 1), "fetch the pair");
      }
      world.good(world->flush(to), "flush");
      for (std::uint64_t i = 0; i < kTimes; ++i) {
        ranks.check(seen_as_word[i] == 2 * i, "the word sees the pair before it");
        ranks.check(seen_as_pair[i] == Pair{2 * i + 1, i}, "the pair sees the word before it");
      }
    }));
  }
}

TEST_CASE("the gaps of pair types are left alone, at the target and in the result") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    constexpr std::size_t kCount = 5;
    expect_well(run_world(2, way, 4096, [&](Ranks& ranks, World& world) {
      const int to = 1 - ranks.rank();
      std::uint64_t offset = 0;
      for (const BasicType type : all_types()) {
        if (!has_gap(type)) continue;
        const std::size_t bytes = kCount * traits(type).extent;
        std::vector<std::byte> origin(bytes), fetched(bytes, kFilling), got(bytes);
        fill_elements(type, origin.data(), kCount, 9);
        world.good(world->accumulate(to, offset, ReduceOp::kReplace, type, origin.data(), nullptr, kCount), "replace");
        world.good(world->accumulate(to, offset, ReduceOp::kNoOp, type, nullptr, fetched.data(), kCount), "fetch");
        world.good(world->get(to, offset, got.data(), bytes), "get");
        world.good(world->flush(to), "flush");
        ranks.check(gaps_hold(type, got.data(), kCount, kFilling), fmt::format("{}: target", traits(type).name));
        ranks.check(gaps_hold(type, fetched.data(), kCount, kFilling), fmt::format("{}: result", traits(type).name));
        offset += 512;
      }
    }));
  }
}

TEST_CASE("stores of others into the gaps of pairs are not lost while the pairs are combined") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    expect_well(run_world(2, way, 4096, [&](Ranks& ranks, World& world) {
      // Rank 0 combines pairs at rank 1, which writes the gap between them by itself.
      constexpr std::size_t kCount = 200;
      if (ranks.rank() == 0) {
        std::vector<std::byte> origin(kCount * 16);
        fill_elements(BasicType::kDoubleInt, origin.data(), kCount, 3);
        for (int i = 0; i < 2000; ++i) {
          world.good(world->accumulate(1, 0, ReduceOp::kMaxloc, BasicType::kDoubleInt, origin.data(), nullptr, kCount),
                     "maxloc");
          world.good(world->flush(1), "flush");
        }
        const std::uint64_t end = 1;
        world.good(world->put(1, 4088, &end, 8), "put");
      } else {
        auto* gap = reinterpret_cast<std::uint32_t*>(world->data() + 12 + 16 * (kCount / 2));
        const std::atomic_ref end(*reinterpret_cast<std::uint64_t*>(world->data() + 4088));
        std::uint32_t lost = 0;
        for (std::uint32_t n = 0; end.load() != 1; ++n) {
          std::atomic_ref(*gap).store(n);
          for (int i = 0; i < 100; ++i) lost += std::atomic_ref(*gap).load() != n ? 1 : 0;
        }
        ranks.check(lost == 0, "every store stays");
      }
    }));
  }
}

TEST_CASE("a pair whose data ends with the buffers is combined, and nothing behind is touched") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    constexpr std::size_t kData = 12;  // of the 16 bytes of a double-int
    expect_well(run_world(2, way, 16 + kData, [&](Ranks& ranks, World& world) {
      if (ranks.rank() == 0) {
        const auto origin = std::make_unique<std::byte[]>(kData), fetched = std::make_unique<std::byte[]>(kData);
        const double value = 1e9;
        const std::int32_t index = 7;
        std::memcpy(origin.get(), &value, sizeof value);
        std::memcpy(origin.get() + 8, &index, sizeof index);
        const auto combine_with = [&](ReduceOp op) {
          return world->accumulate(1, 16, op, BasicType::kDoubleInt, origin.get(), fetched.get(), 1);
        };
        world.good(combine_with(ReduceOp::kReplace), "replace");
        world.good(world->flush(1), "flush");
        world.good(combine_with(ReduceOp::kMaxloc), "maxloc");
        world.good(world->flush(1), "flush");
        ranks.check(std::memcmp(origin.get(), fetched.get(), kData) == 0, "what is fetched is what was there");
      }
      ranks.barrier();
      if (ranks.rank() == 1) {
        ranks.check(read_data<double>(world, 16) == 1e9, "the value is there");
        ranks.check(read_data<std::int32_t>(world, 24) == 7, "the index is there");
      }
    }, on_private(way) ? World::kAtPageEnd : 0));
  }
}

TEST_CASE("concurrent additions to one location are all counted, and no two fetch the same value") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    constexpr std::uint64_t kTimes = 1500;
    expect_well(run_world(3, way, 4096, [&](Ranks& ranks, World& world) {
      if (ranks.rank() == 0) std::fill_n(world->data(), 4096, std::byte{0});
      ranks.barrier();
      const std::uint64_t one = 1;
      const std::int16_t short_one = 1;
      const double real_one = 1;
      const long double long_one = 1;
      std::vector<std::uint64_t> fetched(kTimes);
      long double sink = 0;
      for (std::uint64_t i = 0; i < kTimes; ++i) {
        world.good(world->accumulate(0, 0, ReduceOp::kSum, BasicType::kUint64, &one, &fetched[i], 1), "uint64");
        world.good(world->accumulate(0, 10, ReduceOp::kSum, BasicType::kInt16, &short_one, nullptr, 1), "int16");
        world.good(world->accumulate(0, 16, ReduceOp::kSum, BasicType::kDouble, &real_one, nullptr, 1), "double");
        if (i % 4 == 0) {
          world.good(world->accumulate(0, 32, ReduceOp::kSum, BasicType::kLongDouble, &long_one, &sink, 1), "long");
          // Not at a multiple of its size: no atomic of the CPU or of a provider.
          world.good(world->accumulate(0, 65, ReduceOp::kSum, BasicType::kUint64, &one, nullptr, 1), "misaligned");
        }
        if (i % 16 == 15) world.good(world->flush(0), "flush");
      }
      world.good(world->flush(0), "flush");
      ranks.check(std::is_sorted(fetched.begin(), fetched.end()), "one origin's additions come in order");
      std::uint64_t sum = 0;
      for (const std::uint64_t value : fetched) sum += value;
      const auto sums = ranks.all_gather(sum);
      ranks.check(sums[0] + sums[1] + sums[2] == 3 * kTimes * (3 * kTimes - 1) / 2, "each value is fetched once");
      if (ranks.rank() == 0) {
        constexpr std::uint64_t kRare = 3 * ((kTimes + 3) / 4);
        ranks.check(read_data<std::uint64_t>(world, 0) == 3 * kTimes, "uint64");
        ranks.check(read_data<std::int16_t>(world, 10) == static_cast<std::int16_t>(3 * kTimes), "int16");
        ranks.check(read_data<double>(world, 16) == 3 * kTimes, "double");
        ranks.check(read_data<long double>(world, 32) == kRare, "long double");
        ranks.check(read_data<std::uint64_t>(world, 65) == kRare, "misaligned");
      }
    }));
  }
}

TEST_CASE("additions to private memory at an odd address are all counted, whoever makes them") {
  for (const Way way : {Way::kCma, Way::kFabricPrivate}) {
    for (const std::size_t misaligned : {std::size_t{4}, std::size_t{1}}) {
      INFO(kWayNames[static_cast<std::size_t>(way)] << ", " << misaligned << " bytes off");
      constexpr std::uint64_t kTimes = 3000;
      expect_well(run_world(2, way, 64, [&](Ranks& ranks, World& world) {
        if (ranks.rank() == 0) std::fill_n(world->data(), 64, std::byte{0});
        ranks.barrier();
        const std::uint64_t one = 1;
        std::uint64_t times = 0;
        const auto add = [&] {
          world.good(world->accumulate(0, 8, ReduceOp::kSum, BasicType::kUint64, &one, nullptr, 1), "add");
          if (++times % 16 == 0) world.good(world->flush(0), "flush");
        };
        if (ranks.rank() == 0) {
          // As long as the peer does.
          const std::atomic_ref end(world->data()[40]);
          while (end.load() != std::byte{1}) add();
        } else {
          while (times < kTimes) add();
          world.good(world->flush(0), "flush");
          world.good(world->put(0, 40, &one, 1), "put");
        }
        world.good(world->flush(0), "flush");
        ranks.barrier();
        if (ranks.rank() == 0) {
          ranks.check(read_data<std::uint64_t>(world, 8) == times + kTimes, "all are counted");
          if (over_fabric(way)) {
            ranks.check(counted(RouteKind::kFabric, Counted::kAgent) == kTimes, "as the owner takes the lock");
          }
        }
      }, misaligned));
    }
  }
}

TEST_CASE("compare_and_swap swaps only what it expects, and increments made of it are all counted") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    expect_well(run_world(3, way, 4096, [&](Ranks& ranks, World& world) {
      if (ranks.rank() == 0) std::fill_n(world->data(), 4096, std::byte{0});
      ranks.barrier();
      const auto increment = [&](auto zero, BasicType type, std::uint64_t offset) {
        using T = decltype(zero);
        T expected = 0;
        while (true) {
          T desired = static_cast<T>(expected + 1), found = 0;
          world.good(world->compare_and_swap(0, offset, type, &desired, &expected, &found), "compare_and_swap");
          world.good(world->flush(0), "flush");
          if (found == expected) return;
          expected = found;
        }
      };
      for (int i = 0; i < 30; ++i) {
        increment(std::uint8_t{}, BasicType::kUint8, 3);
        increment(std::int16_t{}, BasicType::kInt16, 6);
        increment(std::int32_t{}, BasicType::kInt32, 8);
        increment(std::int64_t{}, BasicType::kInt64, 16);
        increment(std::int64_t{}, BasicType::kInt64, 33);  // misaligned: by the agent or under the lock
      }
      ranks.barrier();
      if (ranks.rank() == 0) {
        ranks.check(read_data<std::uint8_t>(world, 3) == 90, "uint8");
        ranks.check(read_data<std::int16_t>(world, 6) == 90, "int16");
        ranks.check(read_data<std::int32_t>(world, 8) == 90, "int32");
        ranks.check(read_data<std::int64_t>(world, 16) == 90, "int64");
        ranks.check(read_data<std::int64_t>(world, 33) == 90, "misaligned");
        ranks.check(world->data()[2] == std::byte{0} && world->data()[4] == std::byte{0}, "neighbours are left alone");
      }
    }));
  }
}

TEST_CASE("control words are added to, swapped, read and written, from everywhere") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    expect_well(run_world(3, way, 64, [&](Ranks& ranks, World& world) {
      ControlMemory memory(*world);
      ControlMemory::Operation operation;
      const auto finish = [&] {
        Waiter waiter(Process::instance(), world->bell());
        while (!operation.done() && !operation.failed()) waiter.pause();
        world.good(operation.take_error(), "a control operation");
        return operation.value();
      };
      constexpr std::uint32_t kCounter = 64, kSwapped = 72, kMine = 128;
      for (int i = 0; i < 200; ++i) {
        for (int to = 0; to < 3; ++to) {
          memory.fetch_add(operation, to, kCounter, 3);
          ranks.check(finish() % 3 == 0, "what was there is a sum of threes");
        }
        memory.own_fetch_add(kCounter, 3);
      }
      for (int i = 0; i < 30; ++i) {
        for (std::uint64_t expected = 0;;) {
          memory.compare_and_swap(operation, 1, kSwapped, expected, expected + 1);
          const std::uint64_t found = finish();
          if (found == expected) break;
          expected = found;
        }
      }
      const auto mine = kMine + static_cast<std::uint32_t>(8 * ranks.rank());
      for (int to = 0; to < 3; ++to) {
        memory.write(operation, to, mine, 77);
        finish();
        memory.write(operation, to, mine, 0xABCDEF0000000000 + static_cast<std::uint64_t>(ranks.rank()));
        finish();
        memory.read(operation, to, mine);
        ranks.check(finish() == 0xABCDEF0000000000 + static_cast<std::uint64_t>(ranks.rank()), "what was written");
      }
      ranks.barrier();
      ranks.check(memory.own(kCounter) == 3 * 200 * 4, "all additions are counted, my own too");
      ranks.check(memory.own(kSwapped) == (ranks.rank() == 1 ? 90 : 0), "all increments are counted");
      for (std::uint32_t r = 0; r < 3; ++r) ranks.check(memory.own(kMine + 8 * r) == 0xABCDEF0000000000 + r, "written");
      ranks.check(memory.own(kMine + 24) == 0, "nothing else was written");
      const auto begin = Clock::now();
      memory.pause(operation, 1000);
      finish();
      ranks.check(Clock::now() - begin >= 1ms, "a pause takes its time");
    }));
  }
}

TEST_CASE("who sees a control atomic sees what was put before it, though nothing was waited for between") {
  // Few credits: the provider often refuses what is issued, and it is issued again.
  setenv("FI_OFI_RXM_TX_SIZE", "8", 1);
  for (const Way way : {Way::kFabric, Way::kFabricPrivate}) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    constexpr std::uint64_t kRounds = 5000;
    constexpr std::uint32_t kFlag = 64, kEnd = 72;
    // Where the round is put: a word, the first and last word of a long piece, a byte at an odd place.
    constexpr std::uint64_t kWord = 0, kLong = 64, kLongWords = 512, kByte = 8191;
    constexpr std::uint64_t kLast = kLong + 8 * (kLongWords - 1);
    expect_well(run_world(2, way, 8192, [&](Ranks& ranks, World& world) {
      std::fill_n(world->data(), 8192, std::byte{0});
      ControlMemory memory(*world);
      ranks.barrier();
      ranks.check(Process::instance().fabric().value()->orders_atomics(), "this provider orders atomics");
      if (ranks.rank() == 0) {
        constexpr std::size_t kUnderWay = 32;
        std::array<ControlMemory::Operation, kUnderWay> operations;
        std::vector<std::array<std::uint64_t, kLongWords>> rounds(kUnderWay);
        const auto finish = [&](ControlMemory::Operation& operation) {
          Waiter waiter(Process::instance(), world->bell());
          while (!operation.done() && !operation.failed()) waiter.pause();
          world.good(operation.take_error(), "a control operation");
        };
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          ControlMemory::Operation& operation = operations[round % kUnderWay];
          auto& words = rounds[round % kUnderWay];
          finish(operation);
          words.fill(round);
          world->expect_release(1);
          world.good(world->put(1, kLong, words.data(), sizeof words), "put");
          world.good(world->put(1, kByte, words.data(), 1), "put");
          world.good(world->put(1, kWord, words.data(), 8), "put");
          world.good(world->settle(1), "settle");
          memory.fetch_add(operation, 1, kFlag, 1);
        }
        for (auto& operation : operations) finish(operation);
        world.good(world->flush(1), "flush");
        memory.write(operations[0], 1, kEnd, 1);
        finish(operations[0]);
      } else {
        std::uint64_t looks = 0, late = 0;
        while (memory.own(kEnd) == 0) {
          const std::uint64_t seen = memory.own(kFlag);
          const auto word = [&](std::uint64_t offset) {
            return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(world->data() + offset)).load();
          };
          late += word(kWord) < seen || word(kLong) < seen || word(kLast) < seen ? 1 : 0;
          // A byte has the round modulo 256; the data may be ahead of the flag by what is under way.
          const auto byte = std::to_integer<std::uint8_t>(std::atomic_ref(world->data()[kByte]).load());
          late += static_cast<std::uint8_t>(byte - seen) >= 128 && memory.own(kFlag) == seen ? 1 : 0;
          ++looks;
        }
        ranks.check(late == 0, fmt::format("no flag comes before its data ({} of {} looks)", late, looks));
        ranks.check(memory.own(kFlag) == kRounds, "all flags have come");
        ranks.check(read_data<std::uint64_t>(world, kWord) == kRounds, "the last round is here");
      }
    }));
  }
  unsetenv("FI_OFI_RXM_TX_SIZE");
}

TEST_CASE("a small put before a release travels with it, and without one all the same") {
  for (const Way way : {Way::kFabric, Way::kFabricPrivate}) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    constexpr std::uint64_t kRounds = 800;
    constexpr std::uint32_t kFlag = 64, kOther = 72, kEnd = 80;
    expect_well(run_world(3, way, 16384, [&](Ranks& ranks, World& world) {
      std::fill_n(world->data(), 16384, std::byte{0});
      Process::instance().poll();  // the agent, on another thread, comes after that
      ControlMemory memory(*world);
      ControlMemory::Operation operation;
      const auto finish = [&] {
        Waiter waiter(Process::instance(), world->bell());
        while (!operation.done() && !operation.failed()) waiter.pause();
        world.good(operation.take_error(), "a control operation");
        return operation.value();
      };
      ranks.barrier();
      const auto there = [&](std::uint64_t offset) { return look_at_word(world, offset); };
      const auto fetch = [&](std::uint64_t offset) {
        std::uint64_t got = 0;
        world.good(world->get(1, offset, &got, 8), "get");
        world.good(world->flush(1), "flush");
        return got;
      };
      if (ranks.rank() == 0) {
        std::vector<std::uint64_t> words(2048);
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          words[0] = words[511] = round;
          world->expect_release(1);
          world.good(world->put(1, 0, words.data(), round % 2 == 0 ? 8 : 4096), "put");
          world.good(world->settle(1), "settle");
          memory.fetch_add(operation, 1, kFlag, 1);
          ranks.check(finish() == round - 1, "what the word held is fetched");
          words[0] = 0;  // over is over
        }
        // What ends the wait of a held put: a flush, a second put, a get, an accumulate; nothing, if none was put.
        words[0] = 77;
        world->expect_release(1);
        world.good(world->put(1, 8192, words.data(), 8), "put");
        world.good(world->flush(1), "flush");
        ranks.check(fetch(8192) == 77, "a flush sends it");
        world->expect_release(1);
        world.good(world->put(1, 8200, words.data(), 8), "put");
        world.good(world->put(1, 8208, words.data(), 8), "put");
        world.good(world->flush_all(), "flush_all");
        ranks.check(fetch(8200) == 77 && fetch(8208) == 77, "a second put sends it");
        std::uint64_t one = 1, got = 0;
        world->expect_release(1);
        world.good(world->put(1, 8216, words.data(), 8), "put");
        world.good(world->accumulate(1, 8224, ReduceOp::kSum, BasicType::kUint64, &one, &got, 1), "accumulate");
        world.good(world->settle(1), "settle");
        memory.fetch_add(operation, 1, kOther, 1);
        finish();
        world.good(world->flush(1), "flush");
        ranks.check(fetch(8216) == 77 && fetch(8224) == 1, "an accumulate sends it");
        world->expect_release(1);
        world.good(world->put(1, 8232, words.data(), 8), "put");
        world.good(world->get(1, 8192, &got, 8), "get");
        // To another rank, which nothing is put to.
        memory.fetch_add(operation, 2, kOther, 1);
        finish();
        world.good(world->flush(1), "flush");
        ranks.check(got == 77 && fetch(8232) == 77, "a get sends it");
        // A large one does not wait, and is waited for.
        words.assign(words.size(), 5);
        world->expect_release(1);
        world.good(world->put(1, 0, words.data(), 16384), "put");
        world.good(world->settle(1), "settle");
        memory.fetch_add(operation, 1, kEnd, 1);
        finish();
        world.good(world->flush(1), "flush");
      } else if (ranks.rank() == 1) {
        std::uint64_t looks = 0, late = 0;
        while (memory.own(kEnd) == 0) {
          const std::uint64_t seen = memory.own(kFlag);
          late += there(0) < seen && there(0) != 5 ? 1 : 0;
          if (++looks % 64 == 0) std::this_thread::yield();  // each round waits for this rank's progress thread
        }
        ranks.check(late == 0, "no flag comes before its data");
        ranks.check(there(0) == 5 && there(16376) == 5, "the large put is here when its flag is");
        ranks.check(memory.own(kOther) == 1, "the accumulate's flag is here");
      }
      ranks.barrier();
      if (ranks.rank() == 1) {
        ranks.check(counted(RouteKind::kFabric, Counted::kAgent) == kRounds, "each put came with its flag");
      }
    }));
  }
}

namespace {

std::atomic<bool> woken{false};

// Of every thread that farside has started, by what proc(5) says of it.
bool threads_block_signals() {
  bool good = true;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool farside = false;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:")) farside = line.ends_with("\tfarside");
      if (!farside || !line.starts_with("SigBlk:")) continue;
      const auto blocked = std::strtoull(line.c_str() + 7, nullptr, 16);
      for (const int signal : {SIGUSR1, SIGALRM, SIGPROF, SIGTERM, SIGINT, SIGCHLD}) {
        good = good && (blocked >> (signal - 1) & 1) != 0;
      }
    }
  }
  return good;
}

// Everything an origin may do to rank 0, each within `limit`.
void visit(Ranks& ranks, World& world, std::chrono::milliseconds limit) {
  const auto timed = [&](const char* what, const Status& issued) {
    const auto begin = Clock::now();
    world.good(issued, what);
    world.good(world->flush(0), what);
    ranks.check(Clock::now() - begin < limit, fmt::format("{} is served in time", what));
  };
  std::vector<std::byte> large(1 << 20, std::byte{1});
  std::uint64_t one = 1, zero = 0, fetched = 0;
  long double long_one = 1, long_fetched = 0;
  ControlMemory memory(*world);
  ControlMemory::Operation operation;
  for (int i = 0; i < 20; ++i) {
    timed("put", world->put(0, 64, &one, 8));
    timed("large put", world->put(0, 128, large.data(), large.size()));
    timed("get", world->get(0, 64, &fetched, 8));
    timed("large get", world->get(0, 128, large.data(), large.size()));
    timed("accumulate", world->accumulate(0, 0, ReduceOp::kSum, BasicType::kUint64, &one, nullptr, 1));
    timed("fetch", world->accumulate(0, 0, ReduceOp::kSum, BasicType::kUint64, &one, &fetched, 1));
    timed("agent", world->accumulate(0, 16, ReduceOp::kSum, BasicType::kLongDouble, &long_one, &long_fetched, 1));
    timed("compare_and_swap", world->compare_and_swap(0, 32, BasicType::kUint64, &one, &zero, &fetched));
    const auto begin = Clock::now();
    memory.fetch_add(operation, 0, 64, 1);
    for (Waiter waiter(Process::instance(), world->bell()); !operation.done() && !operation.failed();) waiter.pause();
    ranks.check(Clock::now() - begin < limit, "a control word is served in time");
  }
}

}  // namespace

TEST_CASE("a target whose main thread sleeps in the kernel serves all the same, and gets its signals itself") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    expect_well(run_world(2, way, (1 << 20) + 256, [&](Ranks& ranks, World& world) {
      if (ranks.rank() == 0) std::fill_n(world->data(), 256, std::byte{0});
      const auto main_thread = pthread_self();
      static pthread_t handled_by;
      sigset_t wake, before;
      sigemptyset(&wake);
      sigaddset(&wake, SIGUSR1);
      pthread_sigmask(SIG_BLOCK, &wake, &before);
      std::signal(SIGUSR1, [](int) {
        handled_by = pthread_self();
        woken = true;
      });
      ranks.check(threads_block_signals(), "threads of farside block all signals");
      const auto pids = ranks.all_gather(getpid());
      if (ranks.rank() == 0) {
        // pause(2) with the signal let in: it cannot come too early.
        while (!woken) sigsuspend(&before);
        ranks.check(pthread_equal(handled_by, main_thread) != 0, "no thread of farside takes a signal");
      } else {
        std::this_thread::sleep_for(20ms);
        visit(ranks, world, 1000ms);
        kill(pids[0], SIGUSR1);
      }
      ranks.barrier();
      if (ranks.rank() == 0) {
        ranks.check(read_data<std::uint64_t>(world, 0) == 40, "the additions are here");
        ranks.check(read_data<long double>(world, 16) == 20, "the agent's too");
        ranks.check(read_data<std::uint64_t>(world, 32) == 1, "swapped");
      }
    }));
  }
}

TEST_CASE("a target that computes serves all the same") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    expect_well(run_world(2, way, (1 << 20) + 256, [&](Ranks& ranks, World& world) {
      if (ranks.rank() == 0) {
        std::fill_n(world->data(), 256, std::byte{0});
        ranks.barrier();
        const std::atomic_ref end(*reinterpret_cast<std::uint64_t*>(world->data() + 48));
        for (volatile std::uint64_t work = 0; end.load() != 1;) work = work + 1;
      } else {
        ranks.barrier();
        visit(ranks, world, 1000ms);
        const std::uint64_t one = 1;
        world.good(world->put(0, 48, &one, 8), "put");
        world.good(world->flush(0), "flush");
      }
    }));
  }
}

TEST_CASE("threads of one process may use a space together") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    expect_well(run_world(2, way, 4096, [&](Ranks& ranks, World& world) {
      std::fill_n(world->data(), 4096, std::byte{0});
      ranks.barrier();
      std::atomic<int> failures{0};
      std::vector<std::thread> threads;
      for (std::uint64_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
          for (std::uint64_t i = 0; i < 200; ++i) {
            const int to = static_cast<int>(i % 2);
            const std::uint64_t one = 1, sent = i + 1;
            const long double long_one = 1;
            std::uint64_t got = 0;
            const std::uint64_t mine = 256 + 8 * (3 * static_cast<std::uint64_t>(ranks.rank()) + t);
            bool good = world->accumulate(to, 0, ReduceOp::kSum, BasicType::kUint64, &one, nullptr, 1).ok();
            good = good &&
                   world->accumulate(to, 16, ReduceOp::kSum, BasicType::kLongDouble, &long_one, nullptr, 1).ok();
            good = good && world->put(to, mine, &sent, 8).ok();
            good = good && world->flush(to).ok();
            good = good && world->get(to, mine, &got, 8).ok();
            good = good && world->flush(to).ok() && got == sent;
            if (!good) ++failures;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      ranks.check(failures == 0, "every operation succeeds");
      ranks.barrier();
      Process::instance().poll();
      ranks.check(read_data<std::uint64_t>(world, 0) == 600, "all are counted");
      ranks.check(read_data<long double>(world, 16) == 600, "the agent's too");
    }));
  }
}

TEST_CASE("operations and bytes are counted by route") {
  expect_well(run_world(2, Way::kFabric, 4096, [](Ranks& ranks, World& world) {
    const std::uint64_t before = counted(RouteKind::kFabric, Counted::kPut);
    const std::uint64_t word = 1;
    world.good(world->put(1 - ranks.rank(), 0, &word, 8), "put");
    world.good(world->put(ranks.rank(), 8, &word, 8), "put");
    world.good(world->flush_all(), "flush");
    ranks.check(counted(RouteKind::kFabric, Counted::kPut) == before + 1, "one to the peer");
    ranks.check(counted(RouteKind::kSelf, Counted::kPut) == 1, "one to itself");
    ranks.check(counted(RouteKind::kMapped, Counted::kPut) == 0, "none by another route");
  }));
}

// ---- what goes wrong ------------------------------------------------------------------------------------------------

TEST_CASE("an access beyond a target's data over the fabric is an error of the flush") {
  // Callers check ranges: a provider may well drop the connection.
  for (const int call : {0, 1, 2}) {
    INFO("call " << call);
    expect_well(run_world(2, Way::kFabric, 4096, [&](Ranks& ranks, World& world) {
      if (ranks.rank() == 1) return;
      std::uint64_t word = 1;
      const Status issued = call == 0   ? world->put(1, 1 << 30, &word, 8)
                            : call == 1 ? world->get(1, 1 << 30, &word, 8)
                                        : world->accumulate(1, 1 << 30, ReduceOp::kSum, BasicType::kUint64, &word,
                                                            nullptr, 1);
      const Status flushed = world->flush(1);
      ranks.check(!issued.ok() || (!flushed.ok() && flushed.error().kind == ErrorKind::kPeer), "an error of the peer");
      world.good(world->flush(1), "it is reported once");
    }));
  }
}

TEST_CASE("what the agent refuses is an error of the flush, and the target lives on") {
  expect_well(run_world(2, Way::kFabric, 4096, [](Ranks& ranks, World& world) {
    if (ranks.rank() == 0) {
      const std::uint64_t word = 1;
      const long double real = 1;
      for (const std::uint64_t offset : {4088UL, 1UL << 40}) {
        world.good(world->accumulate(1, offset, ReduceOp::kSum, BasicType::kLongDouble, &real, nullptr, 1), "issuing");
        const Status refused = world->flush(1);
        ranks.check(!refused.ok() && refused.error().kind == ErrorKind::kRange, "the refusal says range");
        world.good(world->flush(1), "an error is reported once");
      }
      world.good(world->put(1, 0, &word, 8), "put");
      world.good(world->accumulate(1, 16, ReduceOp::kReplace, BasicType::kLongDouble, &real, nullptr, 1), "agent");
      world.good(world->flush(1), "all is well again");
    }
    ranks.barrier();
    if (ranks.rank() == 1) ranks.check(read_data<long double>(world, 16) == 1, "what was sent is here");
  }));
}

TEST_CASE("a peer that is gone is an error of the flush") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    World world(ranks, Way::kFabric, 4096);
    const std::uint64_t word = 1;
    world.good(world->put(1 - ranks.rank(), 0, &word, 8), "put");
    world.good(world->flush_all(), "flush");
    const auto pids = ranks.all_gather(getpid());
    if (ranks.rank() == 1) {
      ranks.barrier();
      raise(SIGSTOP);  // what comes now is not answered
      pause();
    }
    ranks.barrier();
    std::this_thread::sleep_for(100ms);
    world.good(world->put(1, 0, &word, 8), "put");
    kill(pids[1], SIGKILL);
    const Status status = world->flush(1);
    ranks.check(!status.ok() && status.error().kind == ErrorKind::kPeer, "the flush says so");
    _exit(ranks.failures() == 0 ? 0 : 1);
  }, 20), "rank 1: ended by signal 9\n");
}

namespace {

// What may be under way to a rank that dies, or be asked of it after it has died.
enum class Last { kPut, kFetch, kAgent, kControl };

void outlive(Ranks& ranks, Last last, bool when_dead) {
  setenv("FARSIDE_PEER_TIMEOUT", "2", 1);
  World world(ranks, Way::kFabric, 1 << 16);
  std::vector<std::uint64_t> words(8192, 1);
  const long double real = 1;
  ControlMemory memory(*world);
  ControlMemory::Operation operation;
  const auto finish = [&] {
    for (Waiter waiter(Process::instance(), world->bell()); !operation.done() && !operation.failed();) waiter.pause();
    return operation.take_error();
  };
  if (ranks.rank() == 0) {
    // All connections are made.
    world.good(world->put(1, 0, words.data(), 8), "put");
    world.good(world->accumulate(1, 16, ReduceOp::kReplace, BasicType::kLongDouble, &real, nullptr, 1), "agent");
    world.good(world->flush(1), "flush");
  }
  const auto pids = ranks.all_gather(getpid());
  if (ranks.rank() == 1) {
    ranks.barrier();
    while (true) raise(SIGSTOP);
  }
  ranks.barrier();
  std::this_thread::sleep_for(100ms);
  const auto begin = Clock::now();
  if (when_dead) {
    kill(pids[1], SIGKILL);
    std::this_thread::sleep_for(100ms);
  }
  Status issued;
  switch (last) {
    case Last::kPut:
      for (int i = 0; i < 50 && issued.ok(); ++i) issued = world->put(1, 0, words.data(), 8 * words.size());
      break;
    case Last::kFetch:
      issued = world->accumulate(1, 0, ReduceOp::kSum, BasicType::kUint64, words.data(), words.data() + 1, 1);
      break;
    case Last::kAgent:
      issued = world->accumulate(1, 16, ReduceOp::kReplace, BasicType::kLongDouble, &real, nullptr, 1);
      break;
    case Last::kControl: memory.fetch_add(operation, 1, 64, 1); break;
  }
  if (!when_dead) {
    std::this_thread::sleep_for(100ms);
    kill(pids[1], SIGKILL);
  }
  Status status = last == Last::kControl ? finish() : world->flush(1);
  if (!issued) status = std::move(issued);
  ranks.check(!status.ok() && status.error().kind == ErrorKind::kPeer, "the error says that the peer is gone");
  ranks.check(Clock::now() - begin < 10s, "in time");
  // Nothing is left that could write here later.
  world->flush(1).ok();
  _exit(ranks.failures() == 0 ? 0 : 1);
}

}  // namespace

TEST_CASE("what waits for a peer that has died ends with an error, whatever it is and whenever that was") {
  for (const Last last : {Last::kPut, Last::kFetch, Last::kAgent, Last::kControl}) {
    for (const bool when_dead : {false, true}) {
      INFO("operation " << static_cast<int>(last) << (when_dead ? " to a dead peer" : " under way"));
      expect_well(run_processes(2, [&](Ranks& ranks) { outlive(ranks, last, when_dead); }, 20),
                  "rank 1: ended by signal 9\n");
    }
  }
}

TEST_CASE("a peer that is stopped for longer than the time-out is waited for") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    setenv("FARSIDE_PEER_TIMEOUT", "1", 1);
    World world(ranks, Way::kFabric, 4096);
    const std::uint64_t one = 1;
    std::uint64_t fetched = 0;
    const long double real = 1;
    world.good(world->put(1 - ranks.rank(), 0, &one, 8), "put");
    world.good(world->flush(1 - ranks.rank()), "flush");
    const auto pids = ranks.all_gather(getpid());
    if (ranks.rank() == 1) {
      raise(SIGSTOP);
    } else {
      std::this_thread::sleep_for(100ms);
      std::thread later([&] {
        std::this_thread::sleep_for(2500ms);
        kill(pids[1], SIGCONT);
      });
      world.good(world->accumulate(1, 16, ReduceOp::kReplace, BasicType::kLongDouble, &real, nullptr, 1), "agent");
      world.good(world->accumulate(1, 8, ReduceOp::kSum, BasicType::kUint64, &one, &fetched, 1), "fetch");
      world.good(world->flush(1), "flush");
      later.join();
    }
    ranks.barrier();
  }));
}

TEST_CASE("a space may end while operations are under way") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("fabric");
    std::vector<std::uint64_t> words(8192, 7);
    {
      auto space = std::move(Space::make({ranks.rank(), 2, kControlBytes, 1 << 16, nullptr}).value());
      space->map_peers(ranks.all_gather(space->describe()), std::vector<char>(2, 1));
      ranks.check(space->connect(ranks.all_gather(space->open_fabric().value()), false).ok(), "connected");
      ranks.barrier();
      space->finish(false);
      if (ranks.rank() == 0) {
        for (int i = 0; i < 20; ++i) ranks.check(space->put(1, 0, words.data(), 8 * words.size()).ok(), "put");
        space.reset();
      }
      ranks.barrier();
    }
    Process::instance().shut_down();
    ranks.barrier();
  }));
}

TEST_CASE("private memory that is gone is an error of the operation") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("mapped,cma");
    allow_process_memory_access();
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto space = std::move(Space::make({ranks.rank(), 2, kControlBytes, 4096, memory}).value());
    space->map_peers(ranks.all_gather(space->describe()), std::vector<char>(2, 1));
    ranks.barrier();
    space->finish(true);
    if (ranks.rank() == 1) munmap(memory, 4096);
    ranks.barrier();
    if (ranks.rank() == 0) {
      std::uint64_t word = 1, fetched = 0;
      const auto is_peer_error = [](const Status& status) {
        return !status.ok() && status.error().kind == ErrorKind::kPeer;
      };
      ranks.check(is_peer_error(space->put(1, 0, &word, 8)), "put");
      ranks.check(is_peer_error(space->get(1, 0, &word, 8)), "get");
      // Twice: the accumulate lock is not kept on the way out.
      for (int i = 0; i < 2; ++i) {
        ranks.check(is_peer_error(space->accumulate(1, 0, ReduceOp::kSum, BasicType::kUint64, &word, nullptr, 1)),
                    "add");
        ranks.check(is_peer_error(space->compare_and_swap(1, 0, BasicType::kUint64, &word, &word, &fetched)), "swap");
      }
      ranks.check(space->flush(1).ok(), "nothing is left to report");
    }
    ranks.barrier();
  }, 20));
}

TEST_CASE("a peer that cannot be mapped needs the fabric, and why is said") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("mapped");
    const auto reach_of = [&](SpaceDescriptor change(SpaceDescriptor), char same_node, void* memory) {
      auto space = std::move(Space::make({ranks.rank(), 2, kControlBytes, 4096, memory}).value());
      auto peers = ranks.all_gather(space->describe());
      auto& other = peers[static_cast<std::size_t>(1 - ranks.rank())];
      other = change(other);
      const Space::Reach reach = space->map_peers(peers, std::vector<char>(2, same_node));
      ranks.barrier();
      return reach;
    };
    const auto same = [](SpaceDescriptor d) { return d; };
    const auto contains = [](const std::string& text, const char* part) {
      return text.find(part) != std::string::npos;
    };
    Space::Reach reach = reach_of(same, 1, nullptr);
    ranks.check(!reach.needs_fabric && !reach.uses_cma, "mapped");
    reach = reach_of(same, 0, nullptr);
    ranks.check(reach.needs_fabric && contains(reach.why, "another node"), "another node");
    reach = reach_of([](SpaceDescriptor d) { ++d.nonce; return d; }, 1, nullptr);
    ranks.check(reach.needs_fabric && contains(reach.why, "another one"), "another process by that number");
    reach = reach_of([](SpaceDescriptor d) { d.segment_fd = 999; return d; }, 1, nullptr);
    ranks.check(reach.needs_fabric && contains(reach.why, "fd/999"), "no such descriptor");
    reach = reach_of([](SpaceDescriptor d) { d.segment_bytes *= 2; return d; }, 1, nullptr);
    ranks.check(reach.needs_fabric && contains(reach.why, "not the peer's segment"), "too short");
    static std::array<std::byte, 4096> memory;
    reach = reach_of(same, 1, memory.data());
    ranks.check(reach.needs_fabric && !reach.uses_cma && contains(reach.why, "cma"), "cma is not allowed");
  }));
}

TEST_CASE("cma without mapped reaches oneself, and says what is missing for others") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("cma");
    static std::array<std::byte, 4096> memory;
    for (void* data : {static_cast<void*>(memory.data()), static_cast<void*>(nullptr)}) {
      auto space = std::move(Space::make({ranks.rank(), 2, kControlBytes, 4096, data}).value());
      const Space::Reach reach = space->map_peers(ranks.all_gather(space->describe()), std::vector<char>(2, 1));
      ranks.barrier();
      space->finish(reach.uses_cma);
      ranks.check(reach.needs_fabric && reach.why.find("cma without mapped") != std::string::npos, "why is said");
      ranks.check(space->route(ranks.rank()) == RouteKind::kSelf, "one's own memory needs no route");
      const std::uint64_t sent = 7;
      std::uint64_t got = 0;
      ranks.check(space->put(ranks.rank(), 8, &sent, 8).ok() && space->get(ranks.rank(), 8, &got, 8).ok() && got == 7,
                  "and is reached");
    }
  }));
}

TEST_CASE("a provider that does not exist is a bad setting, said again at every window, with those that exist") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    use_routes("fabric");
    setenv("FARSIDE_PROVIDER", "nonsense", 1);
    for (int i = 0; i < 2; ++i) {
      auto space = std::move(Space::make({0, 1, kControlBytes, 4096, nullptr}).value());
      const Result<FabricDescriptor> opened = space->open_fabric();
      ranks.check(!opened.ok() && opened.error().kind == ErrorKind::kBadSetting, "a bad setting");
      ranks.check(!opened.ok() && opened.error().text.find("'nonsense'") != std::string::npos, "names the value");
      ranks.check(!opened.ok() && opened.error().text.find("tcp") != std::string::npos, "names those that exist");
    }
    ranks.check(Process::instance().open_fabric() == nullptr, "nothing is open");
  }));
}

TEST_CASE("data that no memory holds is refused") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    for (const std::uint64_t bytes : {std::uint64_t{1} << 46, UINT64_MAX, UINT64_MAX - 4095}) {
      const auto made = Space::make({0, 1, kControlBytes, bytes, nullptr});
      ranks.check(!made.ok() && made.error().kind == ErrorKind::kNoMemory, "no memory");
    }
  }));
}

TEST_CASE("a space that is gone leaves no file, no mapping and no thread behind") {
  for (const Way way : kAllWays) {
    INFO(kWayNames[static_cast<std::size_t>(way)]);
    expect_well(run_processes(2, [&](Ranks& ranks) {
      const auto entries = [](const char* directory) {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
        return count;
      };
      const auto segments = [] {
        std::ifstream maps("/proc/self/maps");
        std::size_t count = 0;
        for (std::string line; std::getline(maps, line);) {
          count += line.find("memfd:farside") != std::string::npos ? 1 : 0;
        }
        return count;
      };
      const auto use = [&] {
        World world(ranks, way, 65536);
        const std::uint64_t word = 1;
        long double real = 1;
        world.good(world->put(1 - ranks.rank(), 0, &word, 8), "put");
        world.good(world->accumulate(1 - ranks.rank(), 16, ReduceOp::kSum, BasicType::kLongDouble, &real, nullptr, 1),
                   "add");
      };
      const std::size_t threads = entries("/proc/self/task");
      use();
      const std::size_t files = entries("/proc/self/fd");
      for (int i = 0; i < 10; ++i) use();
      // A provider may connect twice, and notice it late.
      ranks.check(entries("/proc/self/fd") <= files + 3, "no more files than after the first");
      ranks.check(segments() == 0, "no mapping");
      Process::instance().shut_down();
      ranks.check(kOwnThread || entries("/proc/self/task") == threads, "no thread");
      ranks.barrier();
    }));
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// The creation of a Space, the reasons for which it fails, and its end. At any time nothing may be left behind.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/fabric/best_endpoint.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/space/make_space.hpp"

namespace farside::space_life_test {

using namespace farside::testing;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kOwnThread = true;  // the sanitizer starts one
#else
constexpr bool kOwnThread = false;
#endif

}  // namespace

TEST_CASE("a peer that cannot be mapped needs the fabric, and why is said") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("mapped");
    const std::unique_ptr<NodeGroup> both = make_node(ranks);
    const std::unique_ptr<NodeGroup> alone = NodeGroup::alone(ranks.rank());
    const auto reach_of = [&](NodeGroup& node, void* memory) {
      Space::Request request = space_request(kControlBytes, 4096, memory);
      request.rank = ranks.rank();
      request.ranks = 2;
      SpaceMaker maker({.request = request});
      ranks.check(maker.make_memory(node).ok(), "the memory is made");
      ranks.barrier();
      return maker;
    };
    const auto contains = [](const std::string& text, const char* part) {
      return text.find(part) != std::string::npos;
    };
    const SpaceMaker mapped = reach_of(*both, nullptr);
    ranks.check(!mapped.vote.needs_fabric && !mapped.vote.uses_cma, "mapped");
    const SpaceMaker apart = reach_of(*alone, nullptr);
    ranks.check(apart.vote.needs_fabric && contains(apart.why, "another node"), "another node");
    static std::array<std::byte, 4096> memory;
    const SpaceMaker on_private = reach_of(*both, memory.data());
    ranks.check(on_private.vote.needs_fabric && !on_private.vote.uses_cma && contains(on_private.why, "cma"),
                "cma is not allowed");
  }));
}

TEST_CASE("cma without mapped reaches oneself, and says what is missing for others") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("cma");
    const std::unique_ptr<NodeGroup> node = make_node(ranks);
    static std::array<std::byte, 4096> memory;
    for (void* data : {static_cast<void*>(memory.data()), static_cast<void*>(nullptr)}) {
      Space::Request request = space_request(kControlBytes, 4096, data);
      request.rank = ranks.rank();
      request.ranks = 2;
      SpaceMaker maker({.request = request});
      ranks.check(maker.make_memory(*node).ok(), "the memory is made");
      ranks.barrier();
      const std::unique_ptr<Space> space = maker.finish({});
      ranks.check(maker.vote.needs_fabric && maker.why.find("cma without mapped") != std::string::npos, "why is said");
      ranks.check(space->kind(ranks.rank()) == RouteKind::kSelf, "one's own memory needs no route");
      const std::uint64_t sent = 7;
      std::uint64_t got = 0;
      ranks.check(space->route(ranks.rank()).put(ranks.rank(), 8, &sent, 8).ok() &&
                      space->route(ranks.rank()).get(ranks.rank(), 8, &got, 8).ok() && got == 7,
                  "and is reached");
    }
  }));
}

TEST_CASE("a provider that does not exist is a bad setting, said again at every call, with those that exist") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    use_routes("fabric");
    setenv("FARSIDE_PROVIDER", "nonsense", 1);
    for (int i = 0; i < 2; ++i) {
      const Result<OpenEndpoint*> opened = use_best_endpoint();
      ranks.check(!opened.ok() && opened.error().kind == ErrorKind::kBadSetting, "a bad setting");
      ranks.check(!opened.ok() && opened.error().text.find("'nonsense'") != std::string::npos, "names the value");
      ranks.check(!opened.ok() && opened.error().text.find("tcp") != std::string::npos, "names those that exist");
    }
    ranks.check(Process::instance().endpoints_in_use().empty(), "nothing is open");
  }));
}

TEST_CASE("data that no memory holds is refused") {
  expect_well(run_processes(1, [](Ranks& ranks) {
    for (const std::uint64_t bytes : {std::uint64_t{1} << 46, UINT64_MAX, UINT64_MAX - 4095}) {
      const Status made =
          SpaceMaker({.request = space_request(kControlBytes, bytes)}).make_memory(*NodeGroup::alone(0));
      ranks.check(!made.ok() && made.error().kind == ErrorKind::kNoMemory, "no memory");
    }
  }));
}

TEST_CASE("data of all ranks of a node that its memory does not hold are refused on every route") {
  for (const char* routes : {"mapped", "fabric"}) {
    INFO(routes);
    expect_well(run_processes(2, [&](Ranks& ranks) {
      use_routes(routes);
      const std::unique_ptr<NodeGroup> node = make_node(ranks);
      const std::uint64_t left = ranks.all_gather(available_shared_memory().bytes).front();
      const auto made_with = [&](std::uint64_t bytes) {
        Space::Request request = space_request(kControlBytes, bytes);
        request.rank = ranks.rank();
        request.ranks = 2;
        SpaceMaker maker({.request = request});
        Status made = maker.make_memory(*node);
        ranks.barrier();
        return made;
      };
      ranks.check(made_with(left / 5 * 2).ok(), "two fifths for each are enough");
      const Status made = made_with(left / 5 * 3);
      ranks.check(!made.ok() && made.error().kind == ErrorKind::kNoMemory, "three fifths are not");
      ranks.check(!made.ok() && made.error().text.find("for 2 processes") != std::string::npos, "the error says so");
      ranks.check(made_with(4096).ok(), "the node can be used again");
    }));
  }
}

TEST_CASE("a space may end while operations are under way") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    use_routes("fabric");
    std::vector<std::uint64_t> words(8192, 7);
    {
      std::unique_ptr<Space> space = std::move(make_space(ranks, space_request(kControlBytes, 1 << 16)).space);
      if (ranks.rank() == 0) {
        for (int i = 0; i < 20; ++i) ranks.check(space->route(1).put(1, 0, words.data(), 8 * words.size()).ok(), "put");
        space.reset();
      }
      ranks.barrier();
    }
    Process::instance().shut_down();
    ranks.barrier();
  }));
}

TEST_CASE("a space that is gone leaves no file, no mapping and no thread behind", "[native]") {
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
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
        SpaceFixture space(ranks, variant, 65536);
        const std::uint64_t word = 1;
        long double real = 1;
        space.good(space->route(1 - ranks.rank()).put(1 - ranks.rank(), 0, &word, 8), "put");
        space.good(space->route(1 - ranks.rank())
                       .accumulate(1 - ranks.rank(), 16, ReduceOp::kSum, BasicType::kLongDouble, &real, nullptr, 1),
                   "add");
      };
      const std::size_t threads = entries("/proc/self/task");
      use();
      const std::size_t files = entries("/proc/self/fd");
      const std::size_t kept = segments();  // the message queue of the handler for the node
      ranks.check(kept == (variant == Variant::kCma ? 1 : 0), "no mapping but what serves all spaces");
      for (int i = 0; i < 10; ++i) use();
      // A provider may connect twice, and notice it late.
      ranks.check(entries("/proc/self/fd") <= files + 3, "no more files than after the first");
      ranks.check(segments() == kept, "no mapping more");
      Process::instance().shut_down();
      ranks.check(segments() == 0, "no mapping");
      ranks.check(kOwnThread || entries("/proc/self/task") == threads, "no thread");
      ranks.barrier();
    }));
  }
}

TEST_CASE("a process is open to its peers only if some of them may reach its private data") {
  const auto open = [] { return Process::instance().peer_permission().needed(); };
  for (const Variant variant : kAllVariants) {
    INFO(name(variant));
    expect_well(run_processes(2, [&](Ranks& ranks) {
      ranks.check(!open(), "at first it is not");
      {
        SpaceFixture space(ranks, variant, 4096);
        ranks.check(open() == (variant == Variant::kCma), "only for cma");
        ranks.barrier();
      }
      Process::instance().shut_down();
    }));
  }
  // Alone.
  expect_well(run_processes(1, [&](Ranks& ranks) {
    use_routes("mapped,cma");
    static std::array<std::byte, 4096> memory;
    const OpenSpace alone = make_space(ranks, space_request(kControlBytes, memory.size(), memory.data()));
    ranks.check(alone.space->data() == memory.data() && !open(), "nobody needs it");
  }));
}

}  // namespace farside::space_life_test

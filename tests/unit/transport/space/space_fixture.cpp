// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/transport/space/space_fixture.hpp"

#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>
#include <utility>

namespace farside::testing {

const char* name(Variant variant) {
  constexpr std::array<const char*, 4> kNames = {"mapped", "cma", "fabric", "fabric on private memory"};
  return kNames[static_cast<std::size_t>(variant)];
}

const char* test_provider() {
  const char* const asked = std::getenv("FARSIDE_TEST_PROVIDER");
  return asked != nullptr ? asked : "tcp";
}

void use_routes(const char* routes, const char* provider) {
  setenv("FARSIDE_ROUTES", routes, 1);
  setenv("FARSIDE_PROVIDER", provider, 1);
  setenv("FARSIDE_STATS", "/dev/null", 1);  // counted, not written: that is pmpi's
  setenv("FI_TCP_IFACE", "lo", 1);
}

SpaceFixture::SpaceFixture(Ranks& ranks, Variant variant, std::size_t bytes, std::size_t misaligned) : ranks_(ranks) {
  use_routes(over_fabric(variant) ? "fabric" : "mapped,cma");
  Space::Request request = space_request(kControlBytes, bytes);
  if (on_private(variant) && misaligned == kAtPageEnd) {
    constexpr std::size_t kPage = 4096;
    auto* pages =
        static_cast<std::byte*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(pages + kPage, kPage, PROT_NONE);
    request.private_data = pages + kPage - bytes;
  } else if (on_private(variant)) {
    private_.resize(bytes + 128);
    auto at = reinterpret_cast<std::uintptr_t>(private_.data());
    request.private_data = private_.data() + (63 - (at + 63) % 64) + misaligned;
  }
  const std::size_t files = open_memory_files();
  space_ = std::move(make_space(ranks, request).space);
  std::fill_n(space_->data(), bytes, kFilling);
  ranks.check((space_->fabric_route() != nullptr) == over_fabric(variant),
              "the fabric is used if all else is forbidden");
  ranks.check(space_->uses(RouteKind::kCma) == (variant == Variant::kCma), "cma is used on private memory");
  // The first space on private memory opens a message queue for the node, which stays.
  ranks.check(open_memory_files() <= files + (variant == Variant::kCma ? 1 : 0),
              "no descriptor stays once the peers have mapped");
  const RouteKind expected = over_fabric(variant)       ? RouteKind::kFabric
                             : variant == Variant::kCma ? RouteKind::kCma
                                                        : RouteKind::kMapped;
  for (int r = 0; r < ranks.size(); ++r) {
    const RouteKind route = r == ranks.rank() ? RouteKind::kSelf : expected;
    ranks.check(space_->kind(r) == route, "the route is the one that was asked for");
    const Result<Space::Extent> extent = space_->extent(r);
    ranks.check(extent.ok() && extent.value().bytes == bytes, "the size of a peer's data is known");
  }
  ranks.barrier();
}

SpaceFixture::~SpaceFixture() {
  good(space_->flush_all(), "the last flush succeeds");
  ranks_.barrier();
  space_.reset();
  ranks_.barrier();
}

void SpaceFixture::good(const Status& status, std::string_view what, Line line) {
  if (!status.ok()) ranks_.check(false, fmt::format("{}: {}", what, status.error().text), line);
}

namespace {

bool is_wanted(Variant variant) {
  const char* const only = std::getenv("FARSIDE_TEST_VARIANT");
  return only == nullptr || fmt::format(",{},", only).find(fmt::format(",{},", name(variant))) != std::string::npos;
}

}  // namespace

std::string run_with_space(int size, Variant variant, std::size_t bytes,
                           const std::function<void(Ranks&, SpaceFixture&)>& program, std::size_t misaligned) {
  if (!is_wanted(variant)) return {};
  return run_processes(size, [&](Ranks& ranks) {
    {
      SpaceFixture space(ranks, variant, bytes, misaligned);
      program(ranks, space);
    }
    Process::instance().shut_down();
    ranks.barrier();
  });
}

std::uint64_t counted(RouteKind route, Counted what) {
  return Process::instance().statistics().counter(route, what).count.load();
}

void await(SpaceFixture& space, ControlMemory::Operation& operation) {
  Waiter waiter(Process::instance(), space->words().wake_event());
  while (!operation.done() && !operation.failed()) waiter.pause();
}

}  // namespace farside::testing

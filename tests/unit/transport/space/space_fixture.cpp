// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/transport/space/space_fixture.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "transport/fabric/fabric.hpp"
#include "transport/space/make_space.hpp"

namespace farside::testing {

std::vector<RankGroup::Message> RankGroup::exchange(std::span<const std::byte> own) {
  Message message;
  std::ranges::copy(own, message.bytes.begin());
  const std::vector<Message> all = ranks_.all_gather(message);
  std::vector<Message> of_members;
  for (const int member : members_) of_members.push_back(all[static_cast<std::size_t>(member)]);
  return of_members;
}

std::vector<int> RankGroup::first(int members) {
  std::vector<int> all(static_cast<std::size_t>(members));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Status RankGroup::combine(std::span<std::uint64_t> words) {
  const std::vector<Message> all = exchange(std::as_bytes(words));
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const Message& each : all) {
      std::uint64_t word = 0;
      std::memcpy(&word, &each.bytes[8 * i], sizeof word);
      words[i] |= word;
    }
  }
  return {};
}

Status RankGroup::take_lowest(int& number) {
  for (const Message& each : exchange(std::as_bytes(std::span(&number, 1)))) {
    int other = 0;
    std::memcpy(&other, each.bytes.data(), sizeof other);
    number = std::min(number, other);
  }
  return {};
}

Status RankGroup::broadcast(std::span<std::byte> bytes, int root) {
  const std::vector<Message> all = exchange(bytes);
  std::copy_n(all[static_cast<std::size_t>(root)].bytes.begin(), bytes.size(), bytes.begin());
  return {};
}

Status RankGroup::gather(std::span<const std::byte> own, std::span<std::byte> all) {
  auto into = all.begin();
  for (const Message& each : exchange(own)) into = std::copy_n(each.bytes.begin(), own.size(), into);
  return {};
}

std::unique_ptr<NodeGroup> make_node(Ranks& ranks) {
  RankGroup group(ranks);
  return std::move(group.find_nodes(Process::instance()).value().own);
}

Space::Request space_request(std::size_t control_bytes, std::uint64_t bytes, void* private_data) {
  Space::Request request;
  request.control_bytes = control_bytes;
  request.data_bytes = bytes;
  request.private_data = private_data;
  return request;
}

OpenSpace make_space(Ranks& ranks, Space::Request request, int members, Line line) {
  OpenSpace open;
  RankGroup::Message own;
  own.last = true;
  request.rank = ranks.rank();
  request.ranks = members;
  const auto require = [&](const Status& status, const char* what) {
    if (status) return;
    ranks.check(false, fmt::format("{}: {}", what, status.error().text), line);
    _exit(1);
  };
  if (ranks.rank() < members) {
    open.group = std::make_unique<RankGroup>(ranks, members);
    Group& group = *open.group;
    const Result<std::uint64_t> id = group.handshake(Process::instance().settings().status());
    require(id.status(), "the settings agree");
    Nodes nodes = std::move(group.find_nodes(Process::instance()).value());
    group.join(std::move(nodes.own), nodes.partner, id.value());
    request.id = group.next_id();
    SpaceMaking making;
    making.request = request;
    Result<MadeSpace> made = make_space(making, group);
    require(made.status(), "the space is made");
    open.space = std::move(made.value().space);
    if (const auto used = Process::instance().endpoints_in_use(); !used.empty())
      std::ranges::copy(std::as_bytes(std::span(&used.front().endpoint->address(), 1)), own.bytes.begin());
  }
  // The ranks that are no members take part in the gathers of the others.
  std::vector<RankGroup::Message> all = ranks.all_gather(ranks.rank() < members ? own : RankGroup::Message());
  while (!all.front().last) all = ranks.all_gather(RankGroup::Message());
  open.addresses.resize(static_cast<std::size_t>(members));
  for (std::size_t r = 0; r < open.addresses.size(); ++r)
    std::memcpy(&open.addresses[r], all[r].bytes.data(), sizeof open.addresses[r]);
  return open;
}

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

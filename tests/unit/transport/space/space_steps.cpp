// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/transport/space/space_steps.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <system_error>
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

std::size_t open_memory_files() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the directory's own descriptor
    count += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("/memfd:farside") ? 1U : 0U;
  }
  return count;
}

}  // namespace farside::testing

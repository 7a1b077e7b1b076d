// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/node_segment.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "transport/base/random.hpp"

namespace farside {
namespace {

// What the leader tells the others.
struct Announcement {
  std::int32_t fd = -1;
  std::int32_t failed = 0;  // 0, or 1 + ErrorKind
  std::uint64_t nonce = 0;  // the first word of the segment
};

constexpr std::uint64_t kMost = SIZE_MAX / 2;

}  // namespace

Result<NodeSegment> NodeSegment::make(NodeGroup& group, const Layout& layout, Progress& progress) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  NodeSegment segment;
  segment.control_bytes_ = layout.control_bytes;
  std::uint64_t bytes = layout.control_bytes * static_cast<std::uint64_t>(group.members());
  Status possible;
  for (const std::uint64_t of_member : layout.data) {
    segment.data_at_.push_back(bytes);
    if (of_member > kMost - bytes && possible) {
      possible = Error{ErrorKind::kNoMemory,
                       fmt::format("the data of this node's ranks, {} bytes of one rank among them, are more than an "
                                   "address space", of_member)};
    }
    if (possible) bytes += layout.contiguous ? of_member : (of_member + page - 1) / page * page;
  }
  if (!possible) return possible.error();  // all members have the same layout

  const auto own = static_cast<std::uint64_t>(group.index()) * layout.control_bytes;
  const Reserve reserve{own, layout.reserved};
  Announcement announcement;
  Status made;
  if (group.leads()) {
    Result<Segment> leading = make_segment(bytes, reserve, layout.control_bytes + layout.data.front());
    if (leading) {
      segment.made_ = std::make_unique<Segment>(std::move(leading.value()));
      segment.mapping_ = std::move(segment.made_->mapping);
      announcement = {segment.made_->fd.get(), 0, random_bits()};
      std::memcpy(segment.mapping_.base(), &announcement.nonce, sizeof announcement.nonce);
    } else {
      announcement.failed = 1 + static_cast<std::int32_t>(leading.error().kind);
      made = leading.status();
    }
  }
  if (group.members() > 1) announcement = group.exchange(announcement, progress).front();
  if (!made) return made.error();
  if (announcement.failed != 0) {
    return Error{static_cast<ErrorKind>(announcement.failed - 1),
                 fmt::format("rank {} could not make the shared memory of its node", group.member(0).rank)};
  }
  if (group.leads()) return segment;
  const std::int32_t pid = group.member(0).pid;
  Result<Mapping> mapped = map_peer_segment(pid, announcement.fd, bytes, 0, reserve);
  if (!mapped) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("shared memory of {} bytes of the ranks of this node: {}", bytes, mapped.error().text)};
  }
  std::uint64_t nonce = 0;
  std::memcpy(&nonce, mapped.value().base(), sizeof nonce);
  if (nonce != announcement.nonce)
    return Error{ErrorKind::kNoRoute, fmt::format("process id {} is that of another process here", pid)};
  segment.mapping_ = std::move(mapped.value());
  return segment;
}

void NodeSegment::published(std::size_t processes) {
  if (made_ != nullptr) made_->published(mapping_.bytes(), processes);
}

}  // namespace farside

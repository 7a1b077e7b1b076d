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

constexpr std::uint64_t kMost = SIZE_MAX / 2;

Reserve reserve_of(const NodeGroup& group, const NodeSegment::Layout& layout) {
  return {static_cast<std::uint64_t>(group.index()) * layout.control_bytes, layout.reserved};
}

}  // namespace

// Finds the places of the data. Returns the bytes of the segment.
Result<std::uint64_t> NodeSegment::arrange(const NodeGroup& group, const Layout& layout) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  control_bytes_ = layout.control_bytes;
  std::uint64_t bytes = layout.control_bytes * static_cast<std::uint64_t>(group.members());
  for (const std::uint64_t of_member : layout.data) {
    data_at_.push_back(bytes);
    if (of_member > kMost - bytes) {
      return Error{ErrorKind::kNoMemory,
                   fmt::format("the data of this node's ranks, {} bytes of one rank among them, are more than an "
                               "address space", of_member)};
    }
    bytes += layout.contiguous ? of_member : (of_member + page - 1) / page * page;
  }
  return bytes;
}

Result<NodeSegment> NodeSegment::lead(const NodeGroup& group, const Layout& layout, Announcement& announcement) {
  NodeSegment segment;
  const auto failed = [&](const Error& error) {
    announcement.failed = 1 + static_cast<std::int32_t>(error.kind);
    return error;
  };
  const Result<std::uint64_t> bytes = segment.arrange(group, layout);
  if (!bytes) return failed(bytes.error());
  Result<Segment> made =
      make_segment(bytes.value(), reserve_of(group, layout), layout.control_bytes + layout.data.front());
  if (!made) return failed(made.error());
  segment.made_ = std::make_unique<Segment>(std::move(made.value()));
  segment.mapping_ = std::move(segment.made_->mapping);
  announcement = {segment.made_->fd.get(), 0, random_bits()};
  std::memcpy(segment.mapping_.base(), &announcement.nonce, sizeof announcement.nonce);
  return segment;
}

Result<NodeSegment> NodeSegment::join(const NodeGroup& group, const Layout& layout, const Announcement& announcement) {
  NodeSegment segment;
  const Result<std::uint64_t> bytes = segment.arrange(group, layout);
  if (!bytes) return bytes.error();
  if (announcement.failed != 0) {
    return Error{static_cast<ErrorKind>(announcement.failed - 1),
                 fmt::format("rank {} could not make the shared memory of its node", group.member(0).rank)};
  }
  const std::int32_t pid = group.member(0).pid;
  Result<Mapping> mapped = map_peer_segment(pid, announcement.fd, bytes.value(), 0, reserve_of(group, layout));
  if (!mapped) {
    return Error{ErrorKind::kNoMemory, fmt::format("shared memory of {} bytes of the ranks of this node: {}",
                                                   bytes.value(), mapped.error().text)};
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

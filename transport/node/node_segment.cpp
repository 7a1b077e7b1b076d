// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/node_segment.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "transport/base/integers.hpp"

namespace farside {
namespace {

Reserve reserve_of(const NodeGroup& group, const NodeSegment::Layout& layout) {
  return {static_cast<std::uint64_t>(group.index()) * layout.control_bytes, layout.reserved};
}

}  // namespace

// Finds the places of the data.
Result<NodeSegment::Plan> NodeSegment::arrange(const NodeGroup& group, const Layout& layout, HugePages huge) {
  Plan plan;
  control_bytes_ = layout.control_bytes;
  std::uint64_t& end = plan.bytes = layout.control_bytes * static_cast<std::uint64_t>(group.members());
  const auto too_much = [](std::uint64_t bytes) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("the data of this node's ranks, {} bytes of one rank among them, are more than an address "
                             "space",
                             bytes)};
  };
  // Data of several members that are contiguous are treated as those of one.
  const auto place = [&](std::span<const std::uint64_t> data) -> Status {
    std::uint64_t all = 0;
    for (const std::uint64_t of_member : data) all = of_member > kMostBytes - all ? kMostBytes : all + of_member;
    end = huge.round_up(end, all);
    if (all > 0) {
      const std::uint64_t gap = -end & (layout.alignment - 1);
      if (gap > kMostBytes - end) return too_much(data.front());
      end += gap;
      plan.gaps += gap;
      plan.alignment = std::max<std::uint64_t>(plan.alignment, layout.alignment);
    }
    const std::uint64_t begin = end;
    for (const std::uint64_t of_member : data) {
      data_at_.push_back(end);
      if (of_member > kMostBytes - end) return too_much(of_member);
      end += of_member;
    }
    end = huge.round_up(end, all);
    if (!huge.suitable_for(all)) return {};
    plan.alignment = std::max(plan.alignment, huge.page());
    plan.huge.push_back({begin, end - begin});
    return {};
  };
  const std::span<const std::uint64_t> all(layout.data);
  const std::size_t together = layout.contiguous ? all.size() : 1;
  for (std::size_t i = 0; i < all.size(); i += together) {
    if (Status placed = place(all.subspan(i, together)); !placed) return placed.error();
  }
  return plan;
}

void NodeSegment::take(Mapping mapping, const Plan& plan) {
  mapping_ = std::move(mapping);
  gaps_ = plan.gaps;
  for (const Reserve& part : plan.huge) HugePages::advise(mapping_.base() + part.offset, part.bytes);
}

Result<NodeSegment> NodeSegment::lead(const NodeGroup& group, const Layout& layout, Announcement& announcement) {
  NodeSegment segment;
  const auto failed = [&](const Error& error) {
    announcement.failed = 1 + static_cast<std::int32_t>(error.kind);
    return error;
  };
  const Result<Plan> plan = segment.arrange(group, layout, layout.huge);
  if (!plan) return failed(plan.error());
  const std::size_t own = layout.control_bytes + (layout.overcommit ? 0 : layout.data.front());
  Result<Segment> made = make_segment(plan.value().bytes, reserve_of(group, layout), own, plan.value().alignment);
  if (!made) return failed(made.error());
  if (!plan.value().huge.empty()) HugePages::warn_if_refused();
  segment.made_ = std::make_unique<Segment>(std::move(made.value()));
  segment.take(std::move(segment.made_->mapping), plan.value());
  announcement = {segment.made_->fd.get(), 0, random_bits(), layout.huge.page()};
  std::memcpy(segment.mapping_.base(), &announcement.nonce, sizeof announcement.nonce);
  return segment;
}

Result<NodeSegment> NodeSegment::join(const NodeGroup& group, const Layout& layout, const Announcement& announcement) {
  NodeSegment segment;
  const Result<Plan> plan = segment.arrange(group, layout, HugePages(announcement.huge_page));
  if (!plan) return plan.error();
  if (announcement.failed != 0) {
    return Error{static_cast<ErrorKind>(announcement.failed - 1),
                 fmt::format("rank {} could not make the shared memory of its node", group.member(0).rank)};
  }
  const std::int32_t pid = group.member(0).pid;
  Result<Mapping> mapped =
      map_peer_segment(pid, announcement.fd, plan.value().bytes, 0, reserve_of(group, layout), plan.value().alignment);
  if (!mapped) {
    return Error{mapped.error().kind, fmt::format("shared memory of {} bytes of the ranks of this node: {}",
                                                   plan.value().bytes, mapped.error().text)};
  }
  std::uint64_t nonce = 0;
  std::memcpy(&nonce, mapped.value().base(), sizeof nonce);
  if (nonce != announcement.nonce)
    return Error{ErrorKind::kNoRoute, fmt::format("process id {} is that of another process here", pid)};
  segment.take(std::move(mapped.value()), plan.value());
  return segment;
}

void NodeSegment::published(std::size_t processes) {
  if (made_ != nullptr) made_->published(mapping_.bytes() - gaps_, processes);
}

}  // namespace farside

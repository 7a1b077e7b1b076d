// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/node_segment.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"

namespace farside {

namespace {

// Returns the word in brackets of "always [advise] never"; an empty string if there is none.
std::string chosen(const std::string& file) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  }
  return {};
}

}  // namespace

HugePages HugePages::of_kernel() {
  static const std::size_t page = [] {
    std::size_t bytes = 0;
    std::ifstream(fmt::format("{}/hpage_pmd_size", kFolder)) >> bytes;
    return bytes;
  }();
  return HugePages(page);
}

std::uint64_t HugePages::small_page() {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

std::string HugePages::why_not(const std::string& folder) {
  if (!std::ifstream(folder + "/hpage_pmd_size")) return "this kernel has no transparent huge pages";
  const std::string file = folder + "/shmem_enabled", word = chosen(file);
  if (word == "always" || word == "within_size" || word == "advise" || word == "force") return {};
  return fmt::format("{} is '{}'; an administrator may write 'advise' to it", file, word);
}

void HugePages::warn_if_refused() {
  if (!Log::is_new("FARSIDE_HUGE_PAGES")) return;
  const std::string why = why_not();
  if (!why.empty()) log(LogLevel::kWarn, "FARSIDE_HUGE_PAGES: windows get normal pages for now: {}", why);
}

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
  Wide most = end;
  for (const std::uint64_t bytes : layout.data) most += Wide{bytes} + layout.alignment + 2 * huge.round_up(1, bytes);
  if (most > kMostBytes) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("the data of this node's ranks, {} bytes of one rank among them, are "
                             "more than an address space",
                             std::ranges::max(layout.data))};
  }
  // Data of several members that are contiguous are treated as those of one.
  const std::span<const std::uint64_t> all(layout.data);
  const std::size_t together = layout.contiguous ? all.size() : 1;
  for (std::size_t i = 0; i < all.size(); i += together) {
    const std::span<const std::uint64_t> part = all.subspan(i, together);
    const std::uint64_t bytes = std::accumulate(part.begin(), part.end(), std::uint64_t{0});
    end = huge.round_up(end, bytes);
    if (bytes > 0) {
      end += -end & (layout.alignment - 1);
      plan.alignment = std::max<std::uint64_t>(plan.alignment, layout.alignment);
    }
    const std::uint64_t begin = end;
    for (const std::uint64_t of_member : part) {
      data_at_.push_back(end);
      end += of_member;
    }
    end = huge.round_up(end, bytes);
    if (!huge.suitable_for(bytes)) continue;
    plan.alignment = std::max(plan.alignment, huge.page());
    plan.huge.push_back({begin, end - begin});
  }
  return plan;
}

void NodeSegment::advise(const Plan& plan) {
  for (const Reserve& part : plan.huge)
    (void)madvise(segment_.mapping.base() + part.offset, part.bytes, MADV_HUGEPAGE);  // refused: small pages
}

Result<NodeSegment> NodeSegment::lead(const NodeGroup& group, const Layout& layout, Announcement& announcement) {
  NodeSegment segment;
  const auto failed = [&](const Error& error) {
    announcement.failed = 1 + static_cast<std::uint64_t>(error.kind);
    return error;
  };
  const Result<Plan> plan = segment.arrange(group, layout, layout.huge);
  if (!plan) return failed(plan.error());
  const std::size_t own = layout.control_bytes + (layout.overcommit ? 0 : layout.data.front());
  Result<Segment> made = make_segment(plan.value().bytes, reserve_of(group, layout), own, plan.value().alignment);
  if (!made) return failed(made.error());
  if (!plan.value().huge.empty()) HugePages::warn_if_refused();
  segment.segment_ = std::move(made.value());
  segment.advise(plan.value());
  announcement = {{getpid(), segment.segment_.fd.get(), random_bits()}, 0, layout.huge.page()};
  std::memcpy(segment.control(0), &announcement.place.nonce, sizeof announcement.place.nonce);
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
  Result<Mapping> mapped =
      map_peer_segment(announcement.place, plan.value().bytes, reserve_of(group, layout), plan.value().alignment);
  if (!mapped) {
    return Error{mapped.error().kind, fmt::format("shared memory of {} bytes of the ranks of this node: {}",
                                                  plan.value().bytes, mapped.error().text)};
  }
  segment.segment_.mapping = std::move(mapped.value());
  segment.advise(plan.value());
  return segment;
}

}  // namespace farside

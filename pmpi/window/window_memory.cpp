// SPDX-License-Identifier: BSD-3-Clause
// The calls of a window about its memory (MPI 4.0 section 12.2): shared memory, attached regions, hints.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include <fmt/ranges.h>

#include "pmpi/window/window.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/process.hpp"
#include "transport/space/regions.hpp"

namespace farside::pmpi {
namespace {

Outcome not_dynamic() {
  return Fault{MPI_ERR_RMA_FLAVOR, "the window was not made by MPI_Win_create_dynamic (MPI 4.0 section 12.2.4)"};
}

}  // namespace

Outcome Window::attach(const void* base, MPI_Aint size) {
  if (space_->regions() == nullptr) return not_dynamic();
  if (size < 0) return Fault{MPI_ERR_SIZE, fmt::format("size is {}; it may not be negative", size)};
  return space_->regions()->attach(base, static_cast<std::uint64_t>(size));
}

Outcome Window::detach(const void* base) {
  if (space_->regions() == nullptr) return not_dynamic();
  return space_->regions()->detach(base);
}

Outcome Window::locate_attached(const RemoteBuffer& target, const Datatype& type, std::int64_t& origin_at) const {
  // With 128 bits nothing here can overflow.
  __extension__ using Wide = __int128;
  const auto attached = [&](Wide first, Wide last) -> Result<bool> {
    if (first < 0 || last > std::numeric_limits<std::int64_t>::max()) return false;
    return space_->regions()->covered(target.rank, static_cast<std::uint64_t>(first),
                                      static_cast<std::uint64_t>(last - first));
  };
  const auto at = static_cast<Wide>(target.displacement);
  const Wide stretch = static_cast<Wide>(target.count - 1) * type.layout->extent();
  const Wide first = at + type.layout->true_lower_bound() + std::min<Wide>(stretch, 0);
  const Wide last = at + type.layout->true_upper_bound() + std::max<Wide>(stretch, 0);
  Result<bool> all = attached(first, last);
  if (all && !all.value() && !type.contiguous) {
    // Each run by itself, because a datatype of absolute addresses may reach into several regions.
    all = true;
    RunCursor runs(*type.layout, static_cast<std::size_t>(target.count));
    for (Layout::Run run; all && all.value() && runs.next(run);) {
      all = attached(at + run.offset, at + run.offset + static_cast<Wide>(span_of(run.type, run.count)));
    }
  }
  if (!all) return all.status();
  if (!all.value()) {
    return Fault{MPI_ERR_RMA_RANGE,
                 fmt::format("{} elements at {:#x} reach beyond the memory that rank {} has attached (MPI 4.0 section "
                             "12.2.4)", target.count, target.displacement, target.rank)};
  }
  origin_at = target.displacement - static_cast<std::int64_t>(Regions::kFirst);
  return {};
}

Outcome Window::check_shared(int rank) const {
  if (attributes_.flavor != MPI_WIN_FLAVOR_SHARED) {
    return Fault{MPI_ERR_RMA_FLAVOR, "the window was not made by MPI_Win_allocate_shared (MPI 4.0 section 12.2.3)"};
  }
  return rank == MPI_PROC_NULL ? Outcome() : check_rank(rank);
}

int Window::shared_rank(int rank) const {
  if (rank != MPI_PROC_NULL) return rank;
  // The lowest rank that has any memory (MPI 4.0 section 12.2.3).
  for (int r = 0; r < space_->ranks(); ++r) {
    const Result<Space::Extent> extent = space_->extent(r);
    if (extent && extent.value().bytes > 0) return r;
  }
  return 0;
}

Outcome Window::set_info(MPI_Info info) {
  const auto held = guard();
  hints_.take(info);
  return {};
}

Outcome Window::get_info(MPI_Info* info) {
  {
    const auto held = guard();
    if (Outcome o = hints_.report(info); !o) return o;
  }
  std::vector<const char*> routes;
  for (const RouteKind kind : {RouteKind::kMapped, RouteKind::kCma, RouteKind::kFabric}) {
    if (space_->uses(kind)) routes.push_back(kRouteNames[static_cast<std::size_t>(kind)]);
  }
  if (routes.empty()) routes.push_back(kRouteNames[static_cast<std::size_t>(RouteKind::kSelf)]);
  const int set_route = PMPI_Info_set(*info, "farside_route", fmt::format("{}", fmt::join(routes, ",")).c_str());
  const bool by_thread = space_->uses(RouteKind::kFabric) || space_->uses(RouteKind::kCma);
  const int set_progress = PMPI_Info_set(*info, "farside_progress", by_thread ? "thread" : "origin");
  bool named = true;
  for (const Process::EndpointInUse& each : Process::instance().endpoints_in_use()) {
    if (each.fabric == nullptr || each.fabric != space_->endpoint() || !space_->uses(RouteKind::kFabric)) continue;
    named = PMPI_Info_set(*info, "farside_provider", each.fabric->provider()) == MPI_SUCCESS &&
            PMPI_Info_set(*info, "farside_device", each.fabric->device()) == MPI_SUCCESS;
  }
  if (set_route != MPI_SUCCESS || set_progress != MPI_SUCCESS || !named)
    return Fault{MPI_ERR_NO_MEM, "the runtime took no more info"};
  return {};
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// The calls of a window about its memory (MPI 4.1 section 12.2): shared memory, attached regions, hints.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include <fmt/ranges.h>

#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/window.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/node/device_memory.hpp"
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
  if (size > 0 && DeviceMemory::instance().holds(base)) {
    return Fault{
        MPI_ERR_RMA_ATTACH,
        "the memory is of a GPU, which farside does not reach; a window that MPI_Win_create makes on it is the "
        "runtime's"};
  }
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
                             "12.2.4)",
                             target.count, target.displacement, target.rank)};
  }
  origin_at = target.displacement - static_cast<std::int64_t>(Regions::kFirst);
  return {};
}

Outcome Window::find_mapped(int rank, Space::MappedData& found) const {
  if (attributes_.flavor == MPI_WIN_FLAVOR_DYNAMIC) {
    return Fault{MPI_ERR_RMA_FLAVOR,
                 "the window was made by MPI_Win_create_dynamic, and may have several regions of memory in each rank; "
                 "query a window of another flavor (MPI 4.1 section 12.2.3)"};
  }
  if (rank == MPI_PROC_NULL) {
    // The lowest rank of the window that has any memory, wherever it is.
    rank = space_->lowest_rank_with_data();
    if (rank < 0) return {};
  } else if (Outcome o = check_rank(rank); !o) {
    return o;
  }
  found = space_->mapped_data(rank);
  return {};
}

Outcome Window::set_info(MPI_Info info) {
  if (info == MPI_INFO_NULL) {
    return Fault{MPI_ERR_INFO, "the info object is MPI_INFO_NULL, which has no hints (MPI 4.0 section 12.2.7)"};
  }
  if (Outcome o = check_info(info); !o) return o;
  const auto held = guard();
  hints_.take(info);
  return {};
}

std::string Window::routes() const {
  std::vector<const char*> names;
  for (const RouteKind kind : {RouteKind::kMapped, RouteKind::kCma, RouteKind::kFabric}) {
    if (space_->uses(kind)) names.push_back(kRouteNames[static_cast<std::size_t>(kind)]);
  }
  if (names.empty()) names.push_back(kRouteNames[static_cast<std::size_t>(RouteKind::kSelf)]);
  return fmt::format("{}", fmt::join(names, ","));
}

const Fabric* Window::fabric() const {
  if (!space_->uses(RouteKind::kFabric)) return nullptr;
  for (const Process::EndpointInUse& each : Process::instance().endpoints_in_use()) {
    if (each.fabric != nullptr && each.fabric == space_->endpoint()) return each.fabric;
  }
  return nullptr;
}

std::string Window::devices() const {
  const Fabric* const endpoint = fabric();
  if (endpoint == nullptr) return "none";
  if (!space_->uses_second_rail()) return endpoint->device();
  return fmt::format("{},{}", endpoint->device(), endpoint->second()->device());
}

Outcome Window::get_info(MPI_Info* info) {
  {
    const auto held = guard();
    if (Outcome o = hints_.report(info); !o) return o;
  }
  const auto set = [&](const char* key, const char* value) {
    return runtime().Info_set(*info, key, value) == MPI_SUCCESS;
  };
  const bool by_thread = space_->uses(RouteKind::kFabric) || space_->uses(RouteKind::kCma);
  bool taken = set("farside_route", routes().c_str()) && set("farside_progress", by_thread ? "thread" : "origin");
  if (const Fabric* const endpoint = fabric(); endpoint != nullptr) {
    taken = set("farside_provider", endpoint->provider()) && set("farside_device", devices().c_str()) && taken;
  }
  if (locks_.has_global_lock()) taken = set("farside_global_lock_home", std::to_string(locks_.home()).c_str()) && taken;
  return taken ? Outcome() : Outcome(Fault{MPI_ERR_NO_MEM, "the runtime took no more info"});
}

}  // namespace farside::pmpi

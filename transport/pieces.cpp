// SPDX-License-Identifier: BSD-3-Clause
#include "transport/pieces.hpp"

#include <utility>

#include "transport/agent/node_agent.hpp"

namespace farside {
namespace {

// Fewer are moved faster one by one: a letter wakes the neighbour's thread.
constexpr std::size_t kFewForProcessMemory = 8;
constexpr std::size_t kFewForFabric = 1;

}  // namespace

Space::Pieces::Pieces(Space& space, int rank, Outstanding* own, std::size_t about)
    : space_(space), rank_(rank), own_(own), listed_([&] {
        const Target& to = space.target(rank);
        return to.agent != nullptr ? about > kFewForProcessMemory : to.outstanding != nullptr && about > kFewForFabric && !space.by_origin_;
      }()) {}

Status Space::Pieces::add(const DataOperation& operation) {
  Target& to = space_.target(rank_);
  if (operation.bytes() > kMostGathered || (operation.atomic() && space_.by_nic(operation.type, Space::place_of(to, operation.offset)))) {
    if (Status status = issue(); !status) return status;
    return space_.operate(to, operation, own_);
  }
  if (list_ == nullptr) list_ = std::make_unique<OperationList>();
  if (list_->add(operation)) return {};
  if (Status status = issue(); !status) return status;
  list_ = std::make_unique<OperationList>();
  list_->add(operation);
  return {};
}

Status Space::Pieces::issue() {
  if (list_ == nullptr) return {};
  Target& to = space_.target(rank_);
  if (to.agent == nullptr) return space_.send_behind_gathered(to, own_, std::move(list_));
  const std::unique_ptr<OperationList> list = std::move(list_);
  return to.agent->carry_out(space_.process_, static_cast<std::uint32_t>(space_.rank_), *list);
}

Status Space::Pieces::end() {
  if (list_ == nullptr || space_.target(rank_).agent != nullptr || own_ != nullptr) return issue();
  return space_.keep_gathered(space_.target(rank_), std::move(list_));
}

}  // namespace farside

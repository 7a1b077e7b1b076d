// SPDX-License-Identifier: BSD-3-Clause
#include "transport/pieces.hpp"

#include <mutex>
#include <utility>

#include "transport/agent/node_agent.hpp"
#include "transport/process.hpp"

namespace farside {
namespace {

// Fewer are moved faster one by one: a letter wakes the neighbour's thread.
constexpr std::size_t kFewForProcessMemory = 8;
constexpr std::size_t kFewForFabric = 1;

}  // namespace

Space::Pieces::Pieces(Space& space, int rank, Outstanding* own, std::size_t about)
    : space_(space), rank_(rank), own_(own), listed_([&] {
        const Target& to = space.target(rank);
        return to.agent != nullptr ? about > kFewForProcessMemory : to.outstanding != nullptr && about > kFewForFabric;
      }()) {}

Status Space::Pieces::add(const DataOperation& operation) {
  if (operation.bytes() > kMostGathered) {
    if (Status status = issue(); !status) return status;
    return issue_alone(operation);
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
  if (to.agent == nullptr) return space_.issue_list(to, own_, std::move(list_));
  const std::unique_ptr<OperationList> list = std::move(list_);
  return to.agent->carry_out(space_.process_, static_cast<std::uint32_t>(space_.rank_), *list);
}

Status Space::Pieces::issue_alone(const DataOperation& operation) {
  Target& to = space_.target(rank_);
  if (to.agent == nullptr) return space_.operate_over_fabric(to, operation, own_);
  return space_.operate_by_cma(to, operation);
}

Status Space::Pieces::end() {
  if (list_ == nullptr || space_.target(rank_).agent != nullptr || own_ != nullptr) return issue();
  return space_.keep_gathered(space_.target(rank_), std::move(list_));
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// CmaRoute: operations on private memory of on-node peers, by process_vm_readv(2) and process_vm_writev(2), or by a
// message to the peer's handler. An operation is complete when it returns.
//
// Thread safety: any. Errors: kPeer and kRange of the system calls and the handler. Cost: transport/README.md, "Routes
// and costs".
#pragma once

#include <cstddef>

#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/handler/operation_list.hpp"
#include "transport/routes/accumulate_rules.hpp"
#include "transport/routes/node_targets.hpp"

namespace farside {

class CmaRoute {
 public:
  // `rank`: this process's. `lock_offset`: of the accumulate lock in each control block.
  CmaRoute(Progress& progress, int rank, std::size_t lock_offset)
      : progress_(progress), rank_(rank), lock_offset_(lock_offset) {}
  // Precondition: no operation is under way.
  void set_rules(const AccumulateRules& rules) { rules_ = rules; }
  void count_in(OperationCounts* counts) { counts_ = counts; }

  // `memory`: of the target.
  Status operate(const NodeTarget& target, const NodeTargetMore& memory, const DataOperation& operation);
  // Executes lists by the target's handler, in any order. Precondition: the target has a handler.
  Status execute(const NodeTargetMore& memory, std::span<const std::unique_ptr<OperationList>> lists) {
    return memory.handler->execute(progress_, static_cast<std::uint32_t>(rank_), lists);
  }

 private:
  Status accumulate(const NodeTarget& target, const NodeTargetMore& memory, const DataOperation& operation);
  Status compare_and_swap(const NodeTarget& target, const NodeTargetMore& memory, const DataOperation& operation);

  Progress& progress_;
  const int rank_;
  const std::size_t lock_offset_;
  AccumulateRules rules_;
  OperationCounts* counts_ = nullptr;
};

}  // namespace farside

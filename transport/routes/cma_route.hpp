// SPDX-License-Identifier: BSD-3-Clause
// CmaRoute: operations on private memory of on-node peers, by process_vm_readv(2) and process_vm_writev(2), or by a
// message to the peer's handler. An operation is complete when it returns, but for kept puts. These are copied, and
// leave together:
//
//   origin   keep(kUntilFlush) ... complete()
//
//   origin   keep(kUntilEnd) ... release(), notify the target
//   target   see the notification, finish_posted() of its NodeHandler
//
// In the second case the target executes the puts, and the origin makes no system call. A rank may leave a fence before
// a peer has executed the lists that were posted in the epoch that has ended. An access to a peer's memory therefore
// first checks whether the peer has executed all posted lists. If not, the origin sends a message, which is executed
// behind the posted ones.
//
// Thread safety: any, after expect_threads(). Errors: kPeer and kRange of the system calls and the handler. If a target
// refuses a posted put, only the target's log says so. Cost: node/on-node.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/handler/operation_list.hpp"
#include "transport/routes/accumulate_rules.hpp"
#include "transport/routes/node_targets.hpp"

namespace farside {

class CmaRoute {
 public:
  // `rank`: this process's.
  CmaRoute(Progress& progress, int rank) : progress_(progress), rank_(rank) {}
  // Precondition: no operation is under way.
  void set_rules(const AccumulateRules& rules) { rules_ = rules; }
  void count_in(OperationCounts* counts) { counts_ = counts; }
  // Completes the kept puts, because threads that flush must not share lists.
  void expect_threads() {
    if (Status kept = complete(); !kept) report_later(std::move(kept));
    threaded_ = true;
  }

  // `memory`: of the target.
  Status operate(NodeTargetExtra& memory, const DataOperation& operation);
  // kUntilEnd: the target awaits the end of the epoch (active target synchronization).
  enum class Keep : std::uint8_t { kUntilFlush, kUntilEnd };
  // Keeps a copy of a put of at most kMostKept bytes. Returns false, and does nothing, for larger ones and for targets
  // without a handler.
  bool keep(NodeTargetExtra& memory, const DataOperation& put, Keep until);
  // One load.
  bool keeps_any() const { return keeping_.load(std::memory_order_relaxed) > 0; }
  // Posts the puts that are kept until the end to the queues of their targets, without a system call, and completes
  // others. If a queue is full, this wakes the thread of the target, and waits until that thread has executed the puts.
  // Returns the first error since the last call of this or the following functions.
  Status release() { return keeps_any() ? send_kept(&CmaRoute::release_one) : Status(); }
  // Completes the kept puts at their targets, or at one of them, by one system call or message each.
  Status complete() { return keeps_any() ? send_kept(&CmaRoute::write) : Status(); }
  Status complete(NodeTargetExtra& memory) { return keeps_any() ? send_kept(&CmaRoute::write, &memory) : Status(); }
  // Precedes an access to the target's memory by system calls: completes the kept puts (MPI orders none of them before
  // other operations, but programs read what they have put), and the puts that any process has posted to the target.
  // Two loads if there are none.
  Status before_access(NodeTargetExtra& memory);
  // Leaves an error to the next call of release() or complete().
  void report_later(Status error);
  static constexpr std::size_t kMostKept = 1024;

  // Executes lists by the target's handler, in any order, or by system calls if the target leaves them in its queue for
  // long. Precondition: the target has a handler.
  Status execute(const NodeTargetExtra& memory, std::span<const std::unique_ptr<OperationList>> lists);

 private:
  Status by_system_calls(const NodeTargetExtra& memory, const DataOperation& operation);
  Status by_system_calls(const NodeTargetExtra& memory, const OperationList& list);
  Status by_messages(const NodeTargetExtra& memory, DataOperation& rest, bool all);
  Status accumulate(const NodeTargetExtra& memory, const DataOperation& operation);
  Status compare_and_swap(const NodeTargetExtra& memory, const DataOperation& operation);
  std::unique_lock<std::mutex> lock() const {
    return threaded_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  }
  using Send = Status (CmaRoute::*)(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list);
  Status release_one(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list) {
    return memory.kept_until_end ? post(memory, list) : write(memory, list);
  }
  Status post(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list);
  Status write(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list);
  Status send_kept(Send send, NodeTargetExtra* only = nullptr);

  Progress& progress_;
  const int rank_;
  AccumulateRules rules_;
  OperationCounts* counts_ = nullptr;
  RelaxedFlag threaded_;
  mutable std::mutex mutex_;  // guards the following members and NodeTargetExtra::kept, with several threads
  std::vector<NodeTargetExtra*> with_kept_;  // the targets with kept puts
  std::atomic<std::size_t> keeping_{0};      // their number, and 1 for failed_
  Status failed_;
};

}  // namespace farside

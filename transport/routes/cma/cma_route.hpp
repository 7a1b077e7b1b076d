// SPDX-License-Identifier: BSD-3-Clause
// CmaRoute: operations on private memory of on-node peers, by process_vm_readv(2) and process_vm_writev(2), or by a
// message to the peer's handler. An operation is complete when it returns, but for queued puts. These are copied, and
// leave together:
//
//   origin   queue_put(kFlush) ... flush()
//
//   origin   queue_put(kEnd) ... release(), notify the target
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
#include <optional>
#include <span>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/result.hpp"
#include "transport/base/threads.hpp"
#include "transport/handler/message.hpp"
#include "transport/node/message_queue.hpp"
#include "transport/routes/mapped/mapped_route.hpp"
#include "transport/routes/route.hpp"

namespace farside {

class CmaRoute final : public Route {
 public:
  // The entry of a target is its NodeTargetExtra.
  CmaRoute(NodeTargets& node, int rank) : Route(RouteKind::kCma, rank), node_(node) {}
  // Precondition: no operation is under way. `alone`: no rank of the space uses another route than mapped and cma. A
  // rank that reaches a target over the fabric could not find out whether posted lists are executed. `dynamic`: the
  // memory may be detached before a queued put arrives, and may have holes.
  void set_rules(const AccumulateRules& rules, bool alone, bool dynamic) {
    take_rules(rules);
    posts_ = alone;
    dynamic_ = dynamic;
  }
  static constexpr std::size_t kMostQueued = 1024;  // bytes of a put

  Status operate(int rank, const DataOperation& operation, Pending* own) override;
  Status queue_put(int rank, const DataOperation& put, Pending* own, Until until) override;
  std::size_t fewest_in_list(int rank, bool atomic) const override;
  std::optional<Status> move_blocks(int rank, const DataOperation& operation, std::size_t fragments) override;
  std::size_t lists_together() const override { return MessageQueue::kSlots; }
  Status ask_for_regions(int rank, std::uint64_t address, std::span<std::byte> regions) override;
  Status send_lists(int rank, std::span<std::unique_ptr<OperationList>> lists, Pending* own, bool last) override;
  // Complete the queued puts by one system call or message for each target.
  Status flush(int rank, bool /*locally*/ = false) override;
  Status flush_all(bool /*locally*/ = false) override { return any() ? send_queued(&CmaRoute::write) : Status(); }
  Status order_before_release(int rank) override { return flush(rank); }
  // Completes the queued puts, because threads that flush must not share lists.
  void expect_threads() override {
    if (Status queued = flush_all(); !queued) report_later(std::move(queued));
    threaded_ = true;
  }

  // Queued puts, of all targets. One load.
  bool any() const { return queued_.load(std::memory_order_relaxed) > 0; }
  // Posts the puts that are queued until the end of the epoch to their targets, without a system call, and completes
  // others. Returns the first error since the last call of this or a flush. If the queue of a target is full, this
  // wakes the thread of the target, and waits until that thread has executed the puts.
  Status release() { return any() ? send_queued(&CmaRoute::release_one) : Status(); }
  // Leaves an error to the next call of release() or a flush.
  void report_later(Status error) {
    const auto held = lock();
    if (!failed_) return;
    failed_ = std::move(error);
    queued_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  NodeTargetExtra& entry(int rank) const { return *node_.extra(*node_.find(rank)); }
  // Precedes an access to the target's memory by system calls: completes the queued puts (MPI orders none of them
  // before other operations, but programs read what they have put), and the puts that any process has posted to the
  // target. Two loads if there are none.
  Status before_access(NodeTargetExtra& memory);
  // Executes lists by the target's handler, in any order, or by system calls if the target leaves them in its queue for
  // long.
  Status execute(const NodeTargetExtra& memory, std::span<const std::unique_ptr<OperationList>> lists);
  Status by_system_calls(const NodeTargetExtra& memory, DataOperation& rest);
  Status by_system_calls(const NodeTargetExtra& memory, const OperationList& list);
  Status by_messages(const NodeTargetExtra& memory, DataOperation& rest, bool all);
  Status accumulate(const NodeTargetExtra& memory, DataOperation& rest);
  std::unique_lock<SmallMutex> lock() const {
    return threaded_ ? std::unique_lock(mutex_) : std::unique_lock<SmallMutex>();
  }
  using Send = Status (CmaRoute::*)(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list);
  Status release_one(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list) {
    return memory.queued_until_end ? post(memory, list) : write(memory, list);
  }
  Status post(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list);
  Status write(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list);
  Status send_queued(Send send, NodeTargetExtra* only = nullptr);

  NodeTargets& node_;
  std::atomic<std::size_t> queued_{0};  // targets with queued puts, and 1 for an error to report
  bool posts_ = false;
  bool dynamic_ = false;
  RelaxedFlag threaded_;
  mutable SmallMutex mutex_;  // guards the following members and NodeTargetExtra::queued, with several threads
  std::vector<NodeTargetExtra*> with_queued_;  // the targets with queued puts
  Status failed_;
};

}  // namespace farside

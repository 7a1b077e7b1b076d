// SPDX-License-Identifier: BSD-3-Clause
// The active-message handler for on-node peers of a process whose data are private memory (route cma). Its thread
// sleeps until an on-node peer enqueues a message, and then executes the operations in it (message_handler.hpp). Lists
// replace process_vm_readv(2) and process_vm_writev(2) for operations of many fragments. Application threads that wait,
// in farside or in the MPI runtime, poll the message queue, too. While one does, an accumulate, or a put or get of up
// to 8 KiB, takes less time by message than by system call. The handler never calls MPI. It waits for an application
// thread only while that thread holds the accumulate lock or a mutex of the handler or of the attached regions.
//
// Thread safety: any. Memory per process: one message queue (69 KiB, shared) and one thread, from the first space with
// private data on. A peer maps the queue once for all spaces. A request needs no system call while the target polls,
// and otherwise one to wake its thread; a posted list does not wake the target.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unistd.h>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/timing.hpp"
#include "transport/handler/message.hpp"
#include "transport/handler/message_handler.hpp"
#include "transport/node/message_queue.hpp"
#include "transport/node/node_group.hpp"
#include "transport/node/segment.hpp"

namespace farside {

class NodeHandler {
 public:
  // Errors: those of make_segment() and of start_own_thread().
  static Result<std::unique_ptr<NodeHandler>> open(Statistics& statistics);
  ~NodeHandler();

  // The location of the message queue, for on-node peers.
  SegmentPlace place() const { return {getpid(), segment_.fd.get(), message_queue_.nonce()}; }
  // As MessageHandler::publish.
  bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) {
    const std::scoped_lock held(mutex_);
    return handler_.publish(id, space);
  }
  void withdraw(std::uint64_t space) {
    const std::scoped_lock held(mutex_);
    handler_.withdraw(space);
  }

  // For application threads that wait. Executes the messages in the queue, and returns whether there were any.
  bool poll();
  // Returns when all messages that were posted before a change that the caller has seen are executed. Two loads if
  // nothing was posted.
  void finish_posted() {
    if (!message_queue_.has_executed_posted()) (void)look();
  }

 private:
  NodeHandler(Segment segment, Statistics& statistics);
  void run();
  // Waits for a thread that holds mutex_, which may have passed a slot with a message already, perhaps without a second
  // wake.
  bool look() {
    const std::scoped_lock held(mutex_);
    return answer_all(false);
  }
  bool answer_all(bool polls);
  std::optional<std::size_t> answer(std::span<const std::byte> message, std::span<std::byte> room);

  Segment segment_;
  MessageQueue& message_queue_;
  Statistics& statistics_;
  std::atomic<std::uint32_t> seen_{0};  // the count of messages at the last poll that read the queue
  std::mutex mutex_;                    // held while a thread reads the message queue; guards what follows, to handler_
  std::vector<std::byte> fetched_;      // the memory of the last answer's data
  RelaxedFlag deferred_;                // a message waits for an accumulate lock
  std::chrono::microseconds timeout_ = Timing::kHandlerLock;  // none while one waits
  MessageHandler handler_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// An origin's access to the handler of an on-node peer.
class PeerNodeHandler {
 public:
  // Checks that process_vm_readv(2) reaches the peer, and maps its message queue, unless this process has mapped it
  // already. Errors: kNoRoute. `space`: the id of the space in which this process is `rank`.
  static Result<std::unique_ptr<PeerNodeHandler>> find(const NodeMember& peer, std::uint64_t space, int rank);
  // Executes lists, in any order, and returns when all are complete, with the first error. The buffers of the
  // operations receive the fetched data. Calls `instead` with each list that the target leaves in its queue for long,
  // for instance because it is stopped; the list is no longer there then. Errors: kRange if the handler refuses a list;
  // kPeer if the target's process has ended, or if its answer has a wrong length.
  using Instead = std::function<Status(const OperationList& list)>;
  Status execute(Progress& progress, std::span<const std::unique_ptr<OperationList>> lists, const Instead& instead);
  // Requests the regions around an address of the peer, in a dynamic space (message.hpp), and waits for them.
  Status ask_for_regions(Progress& progress, std::uint64_t address, std::span<std::byte> regions);
  // Posts a list of operations that fetch nothing. The target executes it at the latest in
  // NodeHandler::finish_posted(), when it has seen a change that this process makes after this call. Posted lists have
  // no order. Returns false, and does nothing, if the queue has no free slot.
  bool post(const OperationList& list) {
    return queue().post(sender_, parts(HandlerRequest::operations().to(space_, rank_), list.bytes()));
  }
  // Returns whether the target has executed the lists that any process has posted (MessageQueue::has_executed_posted).
  // If not, a list of execute() is executed behind them, but a system call may take effect before them.
  bool has_executed_posted() const { return queue().has_executed_posted(); }
  // Returns whether a thread of the target polls the message queue, so that a message is answered without a wake-up.
  bool is_polling() const { return has_just_polled() || queue().is_polled(); }

 private:
  using Parts = std::array<std::span<const std::byte>, 2>;
  using IsAlive = std::function<bool()>;
  PeerNodeHandler(std::shared_ptr<Mapping> mapping, const NodeMember& peer, std::uint64_t space, int rank)
      : mapping_(std::move(mapping)),
        sender_(ProcessIdentity::own()),
        pid_(peer.pid),
        rank_(rank),
        nonce_address_(peer.nonce_address),
        nonce_(peer.nonce),
        space_(space) {}
  MessageQueue& queue() const { return MessageQueue::at(mapping_->base()); }
  bool is_alive() const;
  bool has_just_polled() const {
    return MessageQueue::is_just_now(poller_answered_at_.load(std::memory_order_relaxed));
  }
  static Parts parts(const HandlerRequest& request, std::span<const std::byte> list) {
    return {std::as_bytes(std::span(&request.header, 1)), list};
  }
  // Waits for the answer to a request with this list, and stores its data; or calls unanswered() if the message is
  // withdrawn.
  template <class Unanswered>
  Status finish(Progress& progress, MessageQueue::Message message, const MessageQueue::Owner& owner,
                const HandlerRequest& request, const OperationList* list, Unanswered&& unanswered);
  std::chrono::milliseconds timeout() const { return unanswered_ ? Timing::kReplyAgain : Timing::kReply; }

  std::shared_ptr<Mapping> mapping_;  // shared by all spaces with this on-node peer
  ProcessIdentity sender_;            // this process
  std::int32_t pid_;
  std::int32_t rank_;            // of this process
  std::uint64_t nonce_address_;  // in the peer's private memory
  std::uint64_t nonce_;
  std::uint64_t space_;
  RelaxedFlag unanswered_;
  // When a poller of the target has answered last. It is read in place of the target's own word, which is in the cache
  // of the target's core.
  std::atomic<Ticks> poller_answered_at_{0};
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The handler inside a node: a thread of this process that sleeps until an on-node peer enqueues a message, and carries
// out its operations (message_handler.hpp). For what process_vm_readv/writev cannot do well: many pieces. Application
// threads that wait, in farside or in the MPI runtime, look into the message queue too; while one does, small
// operations are done sooner by message than by a system call. Made with the first space whose data here are private;
// it never calls MPI and never waits for the application.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "transport/base/statistics.hpp"
#include "transport/handler/message_handler.hpp"
#include "transport/handler/operation_list.hpp"
#include "transport/node/message_queue.hpp"
#include "transport/node/segment.hpp"

namespace farside {

// Where a process's message queue is, and which region of its handler is meant. Plain bytes.
struct NodeHandlerDescriptor {
  std::int32_t fd = -1;        // none
  std::uint64_t nonce = 0;
  std::uint64_t region = 0;
};

class NodeHandler {
 public:
  static Result<std::unique_ptr<NodeHandler>> open(Statistics& statistics);
  NodeHandler(const NodeHandler&) = delete;
  NodeHandler& operator=(const NodeHandler&) = delete;
  ~NodeHandler();

  // The region's `peers` are not asked for: any rank below `ranks` may ask, since who can map the message queue can do
  // more.
  NodeHandlerDescriptor publish(MessageHandler::Region region, int ranks);
  void withdraw(std::uint64_t region);

  // For application threads that wait: carries out what is there. Whether there was anything.
  bool poll();

 private:
  NodeHandler(Segment segment, Statistics& statistics);
  void run();
  bool answer_all();
  std::size_t answer(std::span<const std::byte> message, std::span<std::byte> room);

  Segment segment_;
  MessageQueue& message_queue_;
  Statistics& statistics_;
  std::atomic<std::uint32_t> seen_{0};  // messages, by those that poll
  std::mutex answering_;                // held by who reads the message queue; before mutex_
  std::mutex mutex_;                    // guards handler_
  MessageHandler handler_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The handler of an on-node peer, as an origin sees it.
class PeerNodeHandler {
 public:
  // Errors: kNoRoute.
  static Result<std::unique_ptr<PeerNodeHandler>> find(std::int32_t pid, std::uint64_t nonce_address,
                                                       std::uint64_t nonce, const NodeHandlerDescriptor& descriptor);
  // Carries out lists, in any order; `sender`: this process's rank. The operations' buffers receive what they fetch.
  // Errors, the first of them: kRange, what the handler refuses; kPeer.
  Status execute(Progress& progress, std::uint32_t sender, std::span<const std::unique_ptr<OperationList>> lists);
  // Whether a message is answered at once, as a thread there waits and looks for it, and nobody must be woken.
  bool is_polling() const { return MessageQueue::at(mapping_->base()).is_polled(); }

 private:
  PeerNodeHandler(std::shared_ptr<Mapping> mapping, std::int32_t pid, std::uint64_t nonce_address, std::uint64_t nonce,
                  std::uint64_t region)
      : mapping_(std::move(mapping)),
        sender_(MessageQueue::at(mapping_->base()).sender()),
        pid_(pid),
        nonce_address_(nonce_address),
        nonce_(nonce),
        region_(region) {}
  bool lives() const;
  Status finish(Progress& progress, MessageQueue::Message message, const OperationList& list);

  std::shared_ptr<Mapping> mapping_;   // shared by all spaces with this on-node peer
  ProcessIdentity sender_;             // this process
  std::int32_t pid_;
  std::uint64_t nonce_address_;        // in the peer's private memory
  std::uint64_t nonce_;
  std::uint64_t region_;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The agent inside a node: a thread of this process that sleeps until a neighbour leaves a letter, and carries out its
// operations (agent.hpp). For what process_vm_readv/writev cannot do well: many pieces. Application threads that wait, in farside or in
// the MPI runtime, look into the mailbox too; while one does, small operations are done sooner by letter than by a system call. Made with the
// first space whose data here are private; it never calls MPI and never waits for the application.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "transport/agent/agent.hpp"
#include "transport/agent/operation_list.hpp"
#include "transport/base/statistics.hpp"
#include "transport/node/mailbox.hpp"
#include "transport/node/segment.hpp"

namespace farside {

// Where a process's mailbox is, and which region of its agent is meant. Plain bytes.
struct NodeAgentDescriptor {
  std::int32_t fd = -1;        // none
  std::uint64_t nonce = 0;
  std::uint64_t region = 0;
};

class NodeAgent {
 public:
  static Result<std::unique_ptr<NodeAgent>> open(Statistics& statistics);
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;
  ~NodeAgent();

  // The region's `peers` are not asked for: any rank below `ranks` may ask, since who can map the mailbox can do more.
  NodeAgentDescriptor publish(Agent::Region region, int ranks);
  void withdraw(std::uint64_t region);

  // For application threads that wait: carries out what is there. Whether there was anything.
  bool poll();

 private:
  NodeAgent(Segment segment, Statistics& statistics);
  void run();
  bool answer_all();
  std::size_t answer(std::span<const std::byte> letter, std::span<std::byte> room);

  Segment segment_;
  Mailbox& mailbox_;
  Statistics& statistics_;
  std::atomic<std::uint32_t> seen_{0};  // letters, by those that poll
  std::mutex answering_;                // held by who reads the mailbox; before mutex_
  std::mutex mutex_;                    // guards agent_
  Agent agent_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The agent of a neighbour, as an origin sees it.
class NeighbourAgent {
 public:
  // Errors: kNoRoute.
  static Result<std::unique_ptr<NeighbourAgent>> find(std::int32_t pid, std::uint64_t nonce_address, std::uint64_t nonce,
                                                      const NodeAgentDescriptor& descriptor);
  // Carries out lists, in any order; `sender`: this process's rank. The operations' buffers receive what they fetch. Errors, the
  // first of them: kRange, what the agent refuses; kPeer.
  Status carry_out(Progress& progress, std::uint32_t sender, std::span<const std::unique_ptr<OperationList>> lists);
  // Whether a letter is answered at once, as a thread there waits and looks for it, and nobody must be woken.
  bool is_watching() const { return Mailbox::at(mapping_->base()).is_watched(); }

 private:
  NeighbourAgent(std::shared_ptr<Mapping> mapping, std::int32_t pid, std::uint64_t nonce_address, std::uint64_t nonce,
                 std::uint64_t region)
      : mapping_(std::move(mapping)), sender_(Mailbox::at(mapping_->base()).sender()), pid_(pid), nonce_address_(nonce_address), nonce_(nonce), region_(region) {}
  bool lives() const;
  Status finish(Progress& progress, Mailbox::Letter letter, const OperationList& list);

  std::shared_ptr<Mapping> mapping_;   // shared by all spaces with this neighbour
  ProcessIdentity sender_;             // this process
  std::int32_t pid_;
  std::uint64_t nonce_address_;        // in the peer's private memory
  std::uint64_t nonce_;
  std::uint64_t region_;
};

}  // namespace farside

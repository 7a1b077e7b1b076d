// SPDX-License-Identifier: BSD-3-Clause
// A communicator as the group of ranks that make a space (transport/space/group.hpp), which farside keeps while the
// communicator lives, as an attribute of it. It serves every window of the communicator.
//
// Thread safety: one thread per communicator. Errors: kPeer if a call of the runtime fails; kNoMemory if the runtime
// makes no attribute key. Cost: one collective call of the runtime per function of the group. Memory: that of Group;
// with several nodes a communicator of the runtime per leader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <mpi.h>

#include "epochs/protocols/barrier.hpp"
#include "transport/base/result.hpp"
#include "transport/space/group.hpp"

namespace farside::pmpi {

class CommunicatorGroup final : public Group {
 public:
  // Errors: kPeer if the runtime does not return rank or size.
  static Result<std::unique_ptr<CommunicatorGroup>> of(MPI_Comm communicator);
  // Returns what is kept of the communicator of `fresh`, an attribute of it: at the first call `fresh` itself. Nothing
  // on one rank alone can fail behind the collective calls that follow. After an error `fresh` stays with the caller.
  static Result<CommunicatorGroup*> find_kept(std::unique_ptr<CommunicatorGroup>& fresh);
  ~CommunicatorGroup() override;

  Status combine(std::span<std::uint64_t> words) override;
  Status take_lowest(int& number) override;
  Status broadcast(std::span<std::byte> bytes, int root) override;
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override;
  // Collective: replaces the number by the highest of all ranks.
  Status take_highest(int& number);

  // Collective: finds the processes of this node. `id`: random bits, the same on all ranks. `one_node`: all ranks try
  // to map each other's memory, whatever their hosts are called; they take the result only if they do. Errors: kPeer;
  // kNoRoute on all ranks if control words have no room for so many.
  Status meet(std::uint64_t id, bool one_node = false);
  std::size_t node_count() const { return node_count_; }
  // Collective, after next_id(): returns whether the ranks can combine words by nodes. If there are several nodes,
  // their leaders make a communicator at the second window: programs that make one window per communicator need no
  // more communicators than their own.
  bool can_combine();
  // Returns the schedule of barriers. `mapped`: the control words of the ranks of a node are mapped, on all nodes.
  std::shared_ptr<const epochs::BarrierSchedule> barrier_schedule(bool mapped) const {
    return mapped && by_nodes_ != nullptr ? by_nodes_ : flat_;
  }

 private:
  CommunicatorGroup(MPI_Comm communicator, int rank, int ranks) : Group(rank, ranks), communicator_(communicator) {}
  // Looks through the directories of this process, whose groups may contain the communicator's. Local.
  PeerAddresses find_addresses(std::uint64_t identity) override;
  void keep(const PeerAddresses& directory, bool best) override;
  Status combine_leaders(std::span<std::uint64_t> words) override;
  bool make_leaders_communicator();

  const MPI_Comm communicator_;
  std::size_t node_count_ = 0;
  std::size_t nodes_ = 0;     // 0: words are not combined by nodes
  std::vector<int> leaders_;  // of the nodes; kept by leaders, until they have their communicator
  MPI_Comm leaders_communicator_ = MPI_COMM_NULL;
  std::shared_ptr<const epochs::BarrierSchedule> flat_;
  std::shared_ptr<const epochs::BarrierSchedule> by_nodes_;  // null if there is one node, or one rank per node
};

}  // namespace farside::pmpi

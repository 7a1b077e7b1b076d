// SPDX-License-Identifier: BSD-3-Clause
// A communicator as the group of ranks that make a space (transport/space/group.hpp), and what farside keeps of it
// while it lives, as an attribute of it. Both serve every window of the communicator.
//
// Thread safety: one thread per communicator. Errors: kPeer if a call of the runtime fails; kNoMemory if the runtime
// makes no attribute key. Cost: one collective call of the runtime per function of the group.
#pragma once

#include <memory>

#include <mpi.h>

#include "transport/base/result.hpp"
#include "transport/space/group.hpp"
#include "transport/space/group_peers.hpp"

namespace farside::pmpi {

class CommunicatorGroup final : public Group {
 public:
  // Errors: kPeer if the runtime does not return rank or size.
  static Result<std::unique_ptr<CommunicatorGroup>> of(MPI_Comm communicator);

  Status combine(std::span<std::uint64_t> words, const char* warning) override;
  Status take_lowest(int& number) override;
  Status broadcast(std::span<std::byte> bytes, int root) override;
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override;

 private:
  CommunicatorGroup(MPI_Comm communicator, int rank, int ranks) : Group(rank, ranks), communicator_(communicator) {}
  MPI_Comm communicator_;
};

class CommunicatorPeers final : public GroupPeers {
 public:
  // Collective at the first call for a communicator, of which `group` has the ranks (GroupPeers::find_node); then
  // local. Valid as long as the communicator.
  static Result<CommunicatorPeers*> of(MPI_Comm communicator, Group& group);

 private:
  CommunicatorPeers(MPI_Comm communicator, std::unique_ptr<NodeGroup> node)
      : GroupPeers(std::move(node)), communicator_(communicator) {}
  // Looks through the directories of this process, whose groups may contain the communicator's. Local.
  PeerAddresses find_addresses() override;
  void gathered(const std::shared_ptr<const PeerDirectory>& directory) override;

  MPI_Comm communicator_;
};

}  // namespace farside::pmpi

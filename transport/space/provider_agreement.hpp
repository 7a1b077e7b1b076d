// SPDX-License-Identifier: BSD-3-Clause
// The agreement of the ranks of a group on one libfabric provider, and the trial of an adapter before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/space/group.hpp"

namespace farside {

// ProviderTrial: the test that a rank makes with one other rank before all ranks commit themselves to an adapter. The
// rank connects, requests the other rank's memory key, writes 8 bytes and 1 MiB and reads them back, adds to a word by
// the adapter, and has 64 messages under way at once. At the same time it is the other side of some rank's trial.
//
// Not thread-safe. Errors: kPeer if an operation fails or its result is wrong, and kNoMemory. Cost: a connection to
// that rank and one from the rank that has chosen this one, and at most 71 operations. Memory: 3 MiB while it lives.
class ProviderTrial {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  static constexpr int kMessages = 64;

  // `id`: random bits, the same on all ranks.
  ProviderTrial(Endpoint& endpoint, int rank, int ranks, std::uint64_t id);
  ~ProviderTrial();

  // Makes this rank the other side of a trial. run() may be called when all ranks have returned from begin().
  Status begin();
  // Runs the trial with a rank, which no other rank has chosen. Waits without a limit: the endpoint ends
  // operations on a peer that is out of reach (OpenEndpoint::set_on_trial()). `waiting` progresses the endpoint.
  Status run(int other, const FabricAddress& address, Progress& waiting);

 private:
  Endpoint& endpoint_;
  const int rank_;
  const int ranks_;
  const std::uint64_t id_;
  bool published_ = false;
  std::vector<std::byte> memory_;  // that another rank accesses: a word, then kBytes
  Registration registration_;
  WakeEvent wake_event_;
};

// The agreement of the ranks of a group on one libfabric provider, at the group's first space that needs the fabric.
//
//   1. offer     each rank says which providers it can use, and all take the best one that all can use
//   2. open      each rank opens the endpoint and registers its memory of the space
//   3. addresses are gathered, unless all ranks know them
//   4. trial     over an adapter each rank tries one other rank, on another node if there is one (ProviderTrial)
//   5. agreement if all have succeeded, all use the endpoint. Else, over an adapter, all discard it and begin again
//                without this provider
//
// The provider of a group depends on its ranks, not on earlier groups. The agreement is skipped only if its result
// follows from an earlier one: a group of the same ranks uses the same endpoint, and a subgroup uses its group's
// endpoint if no rank of that group could use a better provider (Group::keep_addresses). Until a process has
// closed its endpoints, its rank does not offer a provider that it could not open, for which it could not register the
// memory of a group's first such space, or whose trial has failed. So no group repeats a trial that has failed.
//
// Rank 0 logs what was taken and why a better one was not; a process logs each reason once. With FARSIDE_PROVIDER there
// is no other provider: the failure is the error. A process has one endpoint per provider (process.hpp), so that a
// group may use another one than earlier groups. An endpoint that other groups use is not closed; this group only does
// not use it.
//
// Thread safety: one thread per group. Errors: kBadSetting if FARSIDE_DEVICE names nothing on any rank; those of
// ProviderChoice::try_best(), of `open` and of the trial. Cost: two reductions of 32 bytes and one gather of 40 bytes
// per rank, over an adapter the trial, and for each provider that is not taken the same again with a broadcast of its
// reason. A peer that does not answer a trial delays it by Timing::kTrial.
struct ProviderAgreement {
  Providers used = 0;    // of the endpoint that the group uses, and whose addresses all ranks know; else 0
  std::uint64_t id = 0;  // random bits, the same on all ranks
  // Makes this rank's memory accessible over the endpoint.
  std::function<Status(Endpoint&)> open;
  // Reverts open(), whether or not it succeeded.
  std::function<void()> close;
  // For tests: in place of a trial with another rank.
  std::function<Status(int other)> trial;

  // Collective. Returns whether the endpoints of all ranks have adapter atomics.
  Result<bool> carry_out(Group& group) const;
};

}  // namespace farside

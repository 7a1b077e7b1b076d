// SPDX-License-Identifier: BSD-3-Clause
// ProviderTrial: the test that a rank makes with one other rank before all ranks commit themselves to an adapter. The
// rank connects, requests the other rank's memory key, writes 8 bytes and 1 MiB and reads them back, adds to a word by
// the adapter, and has 64 messages under way at once. At the same time it is the other side of some rank's trial.
//
// Not thread-safe. Errors: kPeer if an operation fails or its result is wrong, and kNoMemory. Cost: a connection to
// that rank and one from the rank that has chosen this one, and at most 71 operations. Memory: 3 MiB while it lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/endpoint.hpp"

namespace farside {

class ProviderTrial {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  static constexpr int kMessages = 64;

  // `id`: random bits, the same on all ranks.
  ProviderTrial(Endpoint& endpoint, int rank, int ranks, std::uint64_t id);
  ProviderTrial(const ProviderTrial&) = delete;
  ProviderTrial& operator=(const ProviderTrial&) = delete;
  ~ProviderTrial();

  // Makes this rank the other side of a trial. run() may be called when all ranks have returned from begin().
  Status begin();
  // Runs the trial with a rank, which no other rank has chosen. Waits without a limit of its own: the endpoint ends
  // operations on a peer that is out of reach (Fabric::limit_silence()). `waiting` progresses the endpoint.
  Status run(int other, const FabricAddress& address, Progress& waiting);

 private:
  Status wait(Pending& pending, Progress& waiting);
  Status exchange(const Endpoint::Place& memory, Pending& pending, Progress& waiting);
  Status add(const Endpoint::Place& word, Pending& pending, Progress& waiting);

  Endpoint& endpoint_;
  const int rank_;
  const int ranks_;
  const std::uint64_t id_;
  bool published_ = false;
  std::vector<std::byte> memory_;  // that another rank accesses: a word, then kBytes
  Endpoint::Registration registration_;
  WakeEvent wake_event_;
};

}  // namespace farside

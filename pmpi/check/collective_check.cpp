// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/check/collective_check.hpp"

#include <utility>

#include <fmt/format.h>

#include "epochs/protocols/barrier.hpp"

namespace farside::pmpi {

using epochs::BarrierWord;

std::uint8_t flags_of_fence(int assert) {
  unsigned flags = 0;
  if ((assert& MPI_MODE_NOPRECEDE) != 0) flags |= BarrierWord::kNoPrecede;
  if ((assert& MPI_MODE_NOSUCCEED) != 0) flags |= BarrierWord::kNoSucceed;
  if ((assert& MPI_MODE_NOPUT) != 0) flags |= BarrierWord::kNoPut;
  return static_cast<std::uint8_t>(flags);
}

Outcome check_agreement(int rank, std::uint8_t flags, int other_rank, std::uint8_t other_flags) {
  if ((other_flags & BarrierWord::kFailed) != 0) {
    return fault_of(
        Error{ErrorKind::kPeer, fmt::format("rank {}, which releases this rank from the barrier of its node, could not "
                                            "notify some rank; an error of a rank of this node names it",
                                            other_rank)});
  }
  const unsigned differs = static_cast<unsigned>(flags ^ other_flags) & ~unsigned{BarrierWord::kNoPut};
  if (differs == 0) return {};
  const auto who = [&](std::uint8_t bit) {
    return (flags & bit) != 0 ? std::pair(rank, other_rank) : std::pair(other_rank, rank);
  };
  if ((differs & BarrierWord::kFree) != 0) {
    const auto [frees, fences] = who(BarrierWord::kFree);
    return Fault{
        MPI_ERR_RMA_SYNC,
        fmt::format("rank {} is in MPI_Win_free, but rank {} in MPI_Win_fence; make the same collective calls on "
                    "all processes (MPI 4.0 section 12.2.5)",
                    frees, fences)};
  }
  const bool succeed = (differs & BarrierWord::kNoSucceed) != 0;
  const auto [gave, did_not] = who(succeed ? BarrierWord::kNoSucceed : BarrierWord::kNoPrecede);
  return Fault{
      MPI_ERR_ASSERT,
      fmt::format("MPI_MODE_{} was given to this fence by rank {} but not by rank {}; give it on all processes "
                  "or on none (MPI 4.0 section 12.5.5)",
                  succeed ? "NOSUCCEED" : "NOPRECEDE", gave, did_not)};
}

}  // namespace farside::pmpi

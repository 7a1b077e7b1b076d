// SPDX-License-Identifier: BSD-3-Clause
// Checks what the info of a window asserts about all ranks together (MPI 4.0 section 12.2.1) against their arguments.
// The check runs during creation, where every rank learns the sizes and units of all. Thread safety: any thread.
#pragma once

#include <cstdint>
#include <span>

#include <mpi.h>

#include "transport/base/result.hpp"

namespace farside::pmpi {

// Returns same_size and same_disp_unit as bits; 0 for MPI_INFO_NULL.
std::int32_t info_assertions_in(MPI_Info info);

// The arguments of one rank.
struct RankArguments {
  std::int32_t info_assertions;
  std::int32_t displacement_unit;
  std::uint64_t bytes;
};

// Fails with kAssertion if an assertion of any rank does not hold. The result is the same on every rank.
Status check_info_assertions(std::span<const RankArguments> all);

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// What the info of a window promises about all ranks together (MPI 4.0 section 12.2.1), held against what they really
// gave: seen while the window is made, where every rank learns the sizes and units of all.
#pragma once

#include <cstdint>
#include <span>

#include <mpi.h>

#include "transport/base/result.hpp"

namespace farside::pmpi {

// same_size and same_disp_unit, as bits; 0 for MPI_INFO_NULL.
std::int32_t info_assertions_in(MPI_Info info);

// What one rank gave.
struct RankArguments {
  std::int32_t info_assertions;
  std::int32_t displacement_unit;
  std::uint64_t bytes;
};

// The same answer on every rank: an error if a promise, of anyone, does not hold.
Status check_info_assertions(std::span<const RankArguments> all);

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// A linear search over 14 handles costs no more than a hash. The most frequent operations come first.
#include "pmpi/datatypes/reduce_op.hpp"

#include <array>

namespace farside::pmpi {

std::optional<ReduceOp> find_reduce_op_in_list(MPI_Op op) {
  struct Entry {
    MPI_Op handle;
    ReduceOp op;
  };
  static const std::array<Entry, kReduceOps> kEntries = {{
      {MPI_SUM, ReduceOp::kSum},
      {MPI_REPLACE, ReduceOp::kReplace},
      {MPI_NO_OP, ReduceOp::kNoOp},
      {MPI_MAX, ReduceOp::kMax},
      {MPI_MIN, ReduceOp::kMin},
      {MPI_PROD, ReduceOp::kProd},
      {MPI_LAND, ReduceOp::kLand},
      {MPI_LOR, ReduceOp::kLor},
      {MPI_LXOR, ReduceOp::kLxor},
      {MPI_BAND, ReduceOp::kBand},
      {MPI_BOR, ReduceOp::kBor},
      {MPI_BXOR, ReduceOp::kBxor},
      {MPI_MINLOC, ReduceOp::kMinloc},
      {MPI_MAXLOC, ReduceOp::kMaxloc},
  }};
  for (const Entry& entry : kEntries) {
    if (entry.handle == op) return entry.op;
  }
  return std::nullopt;
}

}  // namespace farside::pmpi

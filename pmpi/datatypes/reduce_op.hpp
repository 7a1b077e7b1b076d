// SPDX-License-Identifier: BSD-3-Clause
// MPI_Op translated for the layers below.
#pragma once

#include <optional>

#include <mpi.h>

#include "transport/data/reduce_op.hpp"

namespace farside::pmpi {

// The predefined operation behind a handle; nothing for MPI_OP_NULL and user-defined operations, which the
// accumulate family does not take (MPI 4.0 section 12.3.4).
std::optional<ReduceOp> find_reduce_op_in_list(MPI_Op op);
inline std::optional<ReduceOp> find_reduce_op(MPI_Op op) {
  return op == MPI_SUM ? ReduceOp::kSum : find_reduce_op_in_list(op);
}

// MPI 4.0 section 12.3.4: C integer, Fortran integer, logical, multi-language types and byte. MPI_CHAR is none of them,
// but both runtimes take it (predefined_types.cpp), and MPI_CHARACTER is as good.
inline bool can_compare_and_swap(BasicType type) {
  return type <= BasicType::kUint64 || type == BasicType::kByte || type == BasicType::kCharacter ||
         (type >= BasicType::kLogical1 && type <= BasicType::kLogical8);
}

}  // namespace farside::pmpi

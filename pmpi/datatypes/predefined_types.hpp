// SPDX-License-Identifier: BSD-3-Clause
// The predefined datatypes of the runtime for which farside is compiled. Private to datatype.cpp and its test.
#pragma once

#include <optional>
#include <vector>

#include <mpi.h>

#include "pmpi/datatypes/datatype.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside::pmpi {

struct PredefinedType {
  MPI_Datatype handle;
  const char* name;
  Datatype datatype;
};

// Returns all predefined types that exist in this runtime and have a counterpart. None is MPI_DATATYPE_NULL; several
// names may share a handle. MPI must be initialized.
std::vector<PredefinedType> make_predefined_types();

// Translates MPI_Op for the layers below. Thread safety: any thread.

// Returns the predefined operation of a handle; nothing for MPI_OP_NULL and user-defined operations, which the
// accumulate family does not accept (MPI 4.0 section 12.3.4). find_reduce_op() compares with MPI_SUM first.
std::optional<ReduceOp> find_reduce_op_in_list(MPI_Op op);
inline std::optional<ReduceOp> find_reduce_op(MPI_Op op) {
  return op == MPI_SUM ? ReduceOp::kSum : find_reduce_op_in_list(op);
}

// MPI 4.0 section 12.3.4 allows C integer, Fortran integer, logical, multi-language types and byte. MPI_CHAR is none of
// them, but both runtimes accept it (predefined_types.cpp). MPI_CHARACTER is accepted likewise.
inline bool can_compare_and_swap(BasicType type) {
  return type <= BasicType::kUint64 || type == BasicType::kByte || type == BasicType::kCharacter ||
         (type >= BasicType::kLogical1 && type <= BasicType::kLogical8);
}

}  // namespace farside::pmpi

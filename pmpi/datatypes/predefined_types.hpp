// SPDX-License-Identifier: BSD-3-Clause
// The predefined datatypes of the runtime for which farside is compiled. Private to datatype.cpp and its test.
#pragma once

#include <vector>

#include <mpi.h>

#include "pmpi/datatypes/datatype.hpp"

namespace farside::pmpi {

struct PredefinedType {
  MPI_Datatype handle;
  const char* name;
  Datatype datatype;
};

// Returns all predefined types that exist in this runtime and have a counterpart. None is MPI_DATATYPE_NULL; several
// names may share a handle. MPI must be initialized.
std::vector<PredefinedType> make_predefined_types();

}  // namespace farside::pmpi

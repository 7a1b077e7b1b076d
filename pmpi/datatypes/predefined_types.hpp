// SPDX-License-Identifier: BSD-3-Clause
// The predefined datatypes of the runtime this is compiled for. Private to datatype.cpp and its test.
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

// All that exist here and have a counterpart: no MPI_DATATYPE_NULL, but several names may share a handle.
// MPI must be initialized.
std::vector<PredefinedType> make_predefined_types();

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// From a derived MPI_Datatype to its Layout. Private to datatype.cpp.
#pragma once

#include <mpi.h>

#include "pmpi/datatypes/datatype.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

// Translates any type but MPI_DATATYPE_NULL, recursively, without a cache; after prepare_datatypes().
Result<Datatype> flatten(MPI_Datatype handle);

}  // namespace farside::pmpi

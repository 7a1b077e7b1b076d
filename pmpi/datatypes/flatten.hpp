// SPDX-License-Identifier: BSD-3-Clause
// Translates a derived MPI_Datatype to its Layout. Private to datatype.cpp.
#pragma once

#include <mpi.h>

#include "pmpi/datatypes/datatype.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

// Translates any type but MPI_DATATYPE_NULL, recursively and without a cache. Call it after prepare_datatypes().
// Error kUnsupported: an unknown combiner or predefined type, or bounds beyond 2^63 bytes.
Result<Datatype> flatten(MPI_Datatype handle);

}  // namespace farside::pmpi

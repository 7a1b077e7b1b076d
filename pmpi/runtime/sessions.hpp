// SPDX-License-Identifier: BSD-3-Clause
// Whether the runtime has MPI 4.0's sessions. Open MPI 5 has them, although its mpi.h says MPI 3.1.
#pragma once

#include <mpi.h>

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define FARSIDE_HAS_SESSIONS 1
#else
#define FARSIDE_HAS_SESSIONS 0
#endif

// SPDX-License-Identifier: BSD-3-Clause
// Which binary interface mpi.h is for, and which calls it declares beyond those of MPI 3.1. (The large-count calls come
// with MPI_VERSION 4.)
#pragma once

#include <mpi.h>

// MPI 4.0's sessions. Open MPI 5 has them, although its mpi.h says MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define FARSIDE_HAS_SESSIONS 1
#else
#define FARSIDE_HAS_SESSIONS 0
#endif

// The standard's binary interface (MPI 5.0 section 20) instead of a runtime's own. (In its own mpi.h, Open MPI 6 has
// MPI_ABI_VERSION -1.)
#if defined(MPI_ABI_VERSION) && MPI_ABI_VERSION > 0
#define FARSIDE_IS_FOR_MPI_ABI 1
#else
#define FARSIDE_IS_FOR_MPI_ABI 0
#endif

// MPI 4.1's queries of several requests (MPI_Request_get_status_any and its like).
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#define FARSIDE_HAS_STATUS_QUERIES 1
#else
#define FARSIDE_HAS_STATUS_QUERIES 0
#endif

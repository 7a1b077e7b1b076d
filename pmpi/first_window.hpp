// SPDX-License-Identifier: BSD-3-Clause
// What farside takes from the runtime at the first window of the process, and gives back before the runtime finalizes.
#pragma once

#include <mpi.h>

#include "transport/base/result.hpp"

namespace farside::pmpi {

// Collective over nobody, but makes a communicator: called only while a window is being made, where the runtime
// would make one as well. Also reads the settings.
Status wake_up();

// This process alone, errors returned: for questions to the runtime that may fail. Only after wake_up().
MPI_Comm own_communicator();

void give_back();

}  // namespace farside::pmpi

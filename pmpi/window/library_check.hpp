// SPDX-License-Identifier: BSD-3-Clause
// Whether farside is loaded on all ranks of a communicator, before its first window. A rank without the library calls
// the runtime's function for the window and joins no collective of farside, so that the two would wait for each other,
// or take each other's messages.
//
//   1. On the node, runtime/node_ranks.hpp finds such ranks for certain, without communication.
//   2. With Open MPI, farside makes a reduction of one int that is also the first step of Open MPI's own functions for
//      windows. These duplicate the communicator, and the id of the duplicate is the maximum of ids above 0. A rank
//      with farside contributes 0, so the result is 0 only if all ranks have farside
//      (CommunicatorGroup::take_highest()). MPICH cannot be checked in this way, because its first step is a blocking
//      reduction whose size depends on its build.
//   3. In all other cases farside relies on time: after 10 s the waiting ranks log the ranks of which farside knows
//      nothing.
//
// Steps 1 and 2 and the handshake (transport/space/agreement.hpp) come first in every version of farside, so that
// ranks with different versions can say so. Thread safety: one thread per communicator. Errors: kPeer. Cost: one
// reduction of 4 bytes (Open MPI); node_ranks.hpp, and not again once all ranks of the node have farside.
#pragma once

#include <string>

#include <mpi.h>

#include "pmpi/window/communicator_group.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

// Collective, but for ranks that find an error on their own node: it names the ranks without farside. Returns the
// warning to be logged if some rank does not arrive.
Result<std::string> check_library_loaded(MPI_Comm communicator, CommunicatorGroup& group, const char* call);

}  // namespace farside::pmpi

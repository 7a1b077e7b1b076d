// SPDX-License-Identifier: BSD-3-Clause
// Whether farside is loaded on all ranks of a communicator, before its first window. A rank without the library calls
// the runtime's function for the window and joins no collective of farside, so that the two would wait for each other,
// or take each other's messages.
//
//   1. On the node, runtime/node_ranks.hpp finds such ranks for certain, without communication.
//   2. With Open MPI, a reduction of one int that is also the first step of its own functions for windows: these
//      duplicate the communicator, and the duplicate's id is the maximum of ids above 0. A rank with farside gives 0,
//      so that the result is 0 only if all have it (CommunicatorGroup::take_highest()). MPICH's first step is a
//      blocking reduction whose size depends on its build.
//   3. Else time must tell: after 10 s the ranks that wait say which ranks farside knows nothing of.
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

// What is known before the first window of a communicator.
struct Presence {
  Status found;         // an error that names the ranks without farside
  std::string overdue;  // to be said when some rank does not come
};

// Collective, but for ranks that find an error on their own node.
Presence find_presence(MPI_Comm communicator, CommunicatorGroup& group, const char* call);

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// Progress in both directions: a thread that waits in farside moves the runtime's messages, and a thread that waits in
// the runtime serves the requests of other processes at farside's endpoint.
//
// The first direction uses MPI_Request_get_status on every runtime. For the second MPI offers no hook, so it depends on
// the runtime. Open MPI has a list of functions that its progress engine calls (opal_progress_register). MPICH over UCX
// moves messages by calls of ucp_worker_progress, which farside redirects (imported_call.hpp). With neither (MPICH over
// libfabric), the progress thread serves alone.
//
// Thread safety: connect() and disconnect() exclude each other (RuntimeResources holds its mutex). The runtime may call
// the hook from any thread, and from several at once.
#pragma once

#include <mpi.h>

#include "transport/base/result.hpp"

namespace farside::pmpi {

// Only one object may be connected at a time (RuntimeResources owns it).
class RuntimeProgress {
 public:
  // Makes a generalized request that never completes, and installs both hooks. Error kOther: the runtime makes no
  // request. A missing hook in the runtime is only logged.
  Status connect();
  // Removes both hooks. Call it before the runtime finalizes.
  void disconnect();

 private:
  MPI_Request never_complete_ = MPI_REQUEST_NULL;
};

}  // namespace farside::pmpi

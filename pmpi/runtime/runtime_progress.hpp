// SPDX-License-Identifier: BSD-3-Clause
// Two that wait for each other: who waits in farside moves the runtime, and who waits in the runtime serves what others
// ask of this process.
//
// The first goes through MPI, on every runtime (MPI_Request_get_status). For the second MPI has no means, so it rests
// on what the runtimes are made of: Open MPI has a list of functions that its progress engine calls
// (opal_progress_register), and MPICH over UCX moves messages by calls of ucp_worker_progress, which farside redirects
// (imported_call.hpp). Where there is neither (MPICH over libfabric), the progress thread serves alone, as it does for
// those that compute.
#pragma once

#include <mpi.h>

#include "transport/base/result.hpp"

namespace farside::pmpi {

// Both ends of the connection. Only one object may be connected at a time (RuntimeResources owns it).
class RuntimeProgress {
 public:
  // Errors: the runtime makes no request.
  Status connect();
  // Called before the runtime finalizes. Afterwards neither side calls the other.
  void disconnect();

 private:
  MPI_Request never_complete_ = MPI_REQUEST_NULL;
};

}  // namespace farside::pmpi

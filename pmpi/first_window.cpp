// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/first_window.hpp"

#include <mutex>
#include <optional>

#include "pmpi/datatype.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

MPI_Comm alone = MPI_COMM_NULL;
MPI_Request never_complete = MPI_REQUEST_NULL;

// Moves messages of the runtime that this process owes to others. Asking for the status of a request that never
// completes enters the progress engine of both runtimes and touches no message; MPICH 4.0's MPI_Iprobe on
// MPI_COMM_SELF, or with MPI_PROC_NULL, does not enter it.
void progress_runtime() {
  int flag = 0;
  PMPI_Request_get_status(never_complete, &flag, MPI_STATUS_IGNORE);
}

std::optional<Error> take() {
  int world = 0;
  PMPI_Initialized(&world);
  if (world != 0) {
    int rank = -1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    Log::set_rank(rank);
  }
  if (PMPI_Comm_dup(MPI_COMM_SELF, &alone) != MPI_SUCCESS ||
      PMPI_Comm_set_errhandler(alone, MPI_ERRORS_RETURN) != MPI_SUCCESS) {
    return Error{ErrorKind::kOther, "the runtime made no communicator for farside"};
  }
  const auto query = [](void*, MPI_Status*) { return static_cast<int>(MPI_SUCCESS); };
  const auto release = [](void*) { return static_cast<int>(MPI_SUCCESS); };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  if (PMPI_Grequest_start(query, release, cancel, nullptr, &never_complete) != MPI_SUCCESS) {
    return Error{ErrorKind::kOther, "the runtime made no request to progress by"};
  }
  Process::instance().set_runtime_progress(progress_runtime);
  prepare_datatypes();
  return std::nullopt;
}

}  // namespace

Status wake_up() {
  static const std::optional<Error> failed = take();
  if (failed) return *failed;
  return Process::instance().settings().status();
}

MPI_Comm own_communicator() { return alone; }

void give_back() {
  if (never_complete == MPI_REQUEST_NULL) return;
  Process::instance().set_runtime_progress(nullptr);
  PMPI_Grequest_complete(never_complete);
  PMPI_Request_free(&never_complete);
  PMPI_Comm_free(&alone);
}

}  // namespace farside::pmpi

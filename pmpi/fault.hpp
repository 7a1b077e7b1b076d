// SPDX-License-Identifier: BSD-3-Clause
// The failure of a call in MPI's terms. Errors of the layers below have kinds, which this file translates into MPI's
// error classes; pmpi/ itself refuses calls with such a class.
#pragma once

#include <limits>
#include <string>
#include <utility>

#include <mpi.h>

#include "epochs/rules/epoch_table.hpp"
#include "transport/base/log.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

// An Error that is one of MPI's classes; its text has the mistake and its remedy.
struct Fault : Error {
  Fault(int error_class, std::string why)
      : Error{static_cast<ErrorKind>(static_cast<int>(ErrorKind::kOfMpi) + error_class), std::move(why)} {}
};
// Returns the class of any Error.
int class_of(const Error& error);

// The MPI call that a report names, and its target, if it has one.
struct MpiCall {
  static constexpr int kNoTarget = std::numeric_limits<int>::min();              // nor MPI_PROC_NULL
  MpiCall(const char* call, int rank = kNoTarget) : name(call), target(rank) {}  // NOLINT(google-explicit-constructor)
  const char* name;
  int target;
};

// Ends the text of a fault whose call FARSIDE_CHECK=warn carries out.
inline constexpr const char* kCarriedWithWarn = "; with FARSIDE_CHECK=warn the call is executed anyway";

Fault fault_of(const epochs::Violation& violation);
// Success if no rule is broken.
inline Status status_of(const epochs::Violation& violation) {
  return violation ? Status(fault_of(violation)) : Status();
}

// Reports the failure of a call without a communicator or window, on MPI_COMM_WORLD (MPI 3.1) or MPI_COMM_SELF (MPI
// 4.0). Returns the return code of the call.
int raise_without_object(const MpiCall& call, const Error& error);
// The same for a handle that is no window: MPI_ERR_WIN.
int raise_without_window(const MpiCall& call, const char* why);

// The same for a window of the runtime and a call that only farside has: MPI_ERR_UNSUPPORTED_OPERATION.
int raise_on_runtime_window(MPI_Win window, const MpiCall& call);

// Returns success, or an error of kind kPeer with the runtime's text for `code`. If the communicator's error handler is
// fatal, which is the default, a failing call of the runtime does not return.
Status status_of(int code, const char* call);

// Logs the error of a call; without memory for the line, only its text.
template <class Line>
void log_error(const char* call, const Error& error, Line&& line) {
  try {
    line();
  } catch (const std::bad_alloc&) {
    Log::write_parts({"farside: error: ", call, ": ", error.text, "\n"});
  }
}

// Reports on stderr and through the error handler of the communicator. Returns the return code of the call.
int raise_on(MPI_Comm communicator, const char* call, const Error& error);

}  // namespace farside::pmpi

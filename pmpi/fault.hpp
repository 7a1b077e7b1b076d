// SPDX-License-Identifier: BSD-3-Clause
// The failure of a call in MPI's terms: an error class and a text for the user. This file translates the errors of the
// layers below into MPI's error classes (class_of in fault.cpp has the table). A success allocates nothing. Values here
// are not shared between threads.
#pragma once

#include <limits>
#include <string>
#include <utility>

#include <mpi.h>

#include "epochs/rules/epoch_table.hpp"
#include "transport/base/log.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

struct Fault {
  int error_class = MPI_ERR_OTHER;
  std::string text;        // the mistake and its remedy
  int target = kNoTarget;  // the rank concerned, if the call has several targets or waits for other ranks
  static constexpr int kNoTarget = std::numeric_limits<int>::min();
};

// The MPI call that a report names, and its target, if it has one.
struct MpiCall {
  static constexpr int kNoTarget = Fault::kNoTarget;
  MpiCall(const char* call, int rank = kNoTarget) : name(call), target(rank) {}  // NOLINT(google-explicit-constructor)
  const char* name;
  int target;
};

inline Fault fault_without_memory{MPI_ERR_NO_MEM, "out of memory"};

// Success, or a Fault. One pointer wide.
class [[nodiscard]] Outcome {
 public:
  Outcome() = default;
  Outcome(Fault fault) : fault_(std::move(fault)) {}  // NOLINT(google-explicit-constructor)
  Outcome(const epochs::Violation& violation);        // NOLINT(google-explicit-constructor)
  Outcome(const Status& status);                      // NOLINT(google-explicit-constructor)
  bool ok() const { return fault_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Fault& fault() const { return *fault_; }

 private:
  Kept<Fault, fault_without_memory> fault_;
};

// Returns the first failure of two steps that were both carried out.
inline Outcome first_of(Outcome one, Outcome other) { return one ? std::move(other) : std::move(one); }

// Ends the text of a fault whose call FARSIDE_CHECK=warn carries out.
inline constexpr const char* kCarriedWithWarn = "; with FARSIDE_CHECK=warn the call is executed anyway";

Fault fault_of(const Error& error);
Fault fault_of(const epochs::Violation& violation);

inline Outcome::Outcome(const epochs::Violation& violation) {
  if (violation) *this = fault_of(violation);
}
inline Outcome::Outcome(const Status& status) {
  if (!status) *this = fault_of(status.error());
}

// Reports the failure of a call without a communicator or window, on MPI_COMM_WORLD (MPI 3.1) or MPI_COMM_SELF (MPI
// 4.0). Returns the return code of the call.
int raise_without_object(const MpiCall& call, const Fault& fault);
// The same for a handle that is no window: MPI_ERR_WIN.
int raise_without_window(const MpiCall& call, const char* why);

// The same for a window of the runtime and a call that only farside has: MPI_ERR_UNSUPPORTED_OPERATION.
int raise_on_runtime_window(MPI_Win window, const MpiCall& call);

// Returns success, or an error of kind kPeer with the runtime's text for `code`. If the communicator's error handler is
// fatal, which is the default, a failing call of the runtime does not return.
Status status_of(int code, const char* call);

// Logs the error of a call; without memory for the line, only its text.
template <class Line>
void log_error(const char* call, const Fault& fault, Line&& line) {
  try {
    line();
  } catch (const std::bad_alloc&) {
    Log::write_parts({"farside: error: ", call, ": ", fault.text, "\n"});
  }
}

// Reports on stderr and through the error handler of the communicator. Returns the return code of the call.
int raise_on(MPI_Comm communicator, const char* call, const Fault& fault);

}  // namespace farside::pmpi

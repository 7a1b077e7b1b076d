// SPDX-License-Identifier: BSD-3-Clause
// A call that went wrong, in MPI's terms: an error class, and what is told to the user. The layers below know their
// own kinds of errors; here is where they become MPI's.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include <mpi.h>

#include "epochs/rules/violation.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

struct Fault {
  int error_class = MPI_ERR_OTHER;
  std::string text;  // what is wrong, and what to do
  int target = kNoTarget;  // at which rank, of a call that is for many, or that waits for others than its target
  static constexpr int kNoTarget = std::numeric_limits<int>::min();
};

// The MPI call that a report names, and the target it was for, if it has one.
struct CallSite {
  static constexpr int kNoTarget = Fault::kNoTarget;
  CallSite(const char* call, int rank = kNoTarget) : name(call), target(rank) {}  // NOLINT(google-explicit-constructor)
  const char* name;
  int target;
};

// Success, or a Fault. One pointer wide.
class [[nodiscard]] Outcome {
 public:
  Outcome() = default;
  Outcome(Fault fault) : fault_(std::make_unique<Fault>(std::move(fault))) {}  // NOLINT(google-explicit-constructor)
  Outcome(const epochs::Violation& violation);                                 // NOLINT(google-explicit-constructor)
  Outcome(const Status& status);                                               // NOLINT(google-explicit-constructor)
  bool ok() const { return fault_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Fault& fault() const { return *fault_; }

 private:
  std::unique_ptr<Fault> fault_;
};

// Of two things that were both done: the first that went wrong.
inline Outcome first_of(Outcome one, Outcome other) { return one ? std::move(other) : std::move(one); }

Fault fault_of(const Error& error);
Fault fault_of(const epochs::Violation& violation);

inline Outcome::Outcome(const epochs::Violation& violation)
    : fault_(violation ? std::make_unique<Fault>(fault_of(violation)) : nullptr) {}
inline Outcome::Outcome(const Status& status)
    : fault_(status ? nullptr : std::make_unique<Fault>(fault_of(status.error()))) {}

// For a handle that is no window: there, errors belong to MPI_COMM_WORLD (MPI 3.1) or MPI_COMM_SELF (MPI 4.0).
int raise_without_window(const CallSite& call, const char* why);

// Success, or what a call of the runtime returned, in the runtime's words. Where the communicator's error handler is
// fatal, as it is by default, such a call does not return.
Status status_of(int code, const char* call);

// Reports on stderr and through the error handler of the communicator; returns what the call returns.
int raise_on(MPI_Comm communicator, const char* call, const Fault& fault);

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// How the epochs say that a call is against the rules of MPI: a Violation names the MPI error class, the rule
// that was broken, what to do instead, and where the standard says so. It is made of constants: no
// allocation.
#pragma once

#include <cstdint>

namespace farside::epochs {

// The MPI error classes that an epoch may yield; pmpi/ turns them into MPI_ERR_*.
enum class ErrorClass : std::uint8_t {
  kNone,
  kRmaSync,      // MPI_ERR_RMA_SYNC: invalid synchronization of RMA calls
  kRmaConflict,  // MPI_ERR_RMA_CONFLICT: conflicting accesses to a window
  kRank,         // MPI_ERR_RANK: the target is not a rank of the window
  kGroup,        // MPI_ERR_GROUP: a member of the group is not a process of the window
  kAssert,       // MPI_ERR_ASSERT: an assertion that is not true
  kLockType,     // MPI_ERR_LOCKTYPE
  kNoMemory,     // MPI_ERR_NO_MEM: farside's own bookkeeping could not grow
};

struct [[nodiscard]] Violation {
  ErrorClass error = ErrorClass::kNone;
  const char* what = "";    // the rule broken, lower case, no full stop
  const char* advice = "";  // what to do instead
  const char* section =
      "";  // of MPI 4.0 (chapter 12) and of 3.1 (chapter 11); empty if it is not the standard's rule

  // True if there is a violation.
  constexpr explicit operator bool() const { return error != ErrorClass::kNone; }
};

}  // namespace farside::epochs

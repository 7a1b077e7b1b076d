// SPDX-License-Identifier: BSD-3-Clause
// How the rules report a call that is against the rules of MPI. A Violation names the MPI error class, the broken
// rule, the remedy, and the section of the standard. It consists of constants and allocates nothing.
#pragma once

#include <cstdint>

namespace farside::epochs {

// The MPI error classes of violations; pmpi/ turns them into MPI_ERR_*.
enum class ErrorClass : std::uint8_t {
  kNone,
  kRmaSync,      // MPI_ERR_RMA_SYNC: invalid synchronization of RMA calls
  kRmaConflict,  // MPI_ERR_RMA_CONFLICT: conflicting accesses to a window
  kRank,         // MPI_ERR_RANK: the target is not a rank of the window
  kGroup,        // MPI_ERR_GROUP: a member of the group is not a process of the window
  kAssert,       // MPI_ERR_ASSERT: an assertion that is not true
  kLockType,     // MPI_ERR_LOCKTYPE
  kNoMemory,     // MPI_ERR_NO_MEM: no memory for farside's own bookkeeping
};

struct [[nodiscard]] Violation {
  ErrorClass error = ErrorClass::kNone;
  const char* what = "";     // the broken rule, in lower case, without a full stop
  const char* advice = "";   // the remedy
  const char* section = "";  // of MPI 4.0 (chapter 12) and of 3.1 (chapter 11); empty if the rule is not the standard's
  bool carried = false;      // refused, but carried out with FARSIDE_CHECK=warn

  // True if a rule is broken.
  constexpr explicit operator bool() const { return error != ErrorClass::kNone; }
};

}  // namespace farside::epochs

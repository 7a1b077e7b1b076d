// SPDX-License-Identifier: BSD-3-Clause
// The hints of a window (MPI 4.0 section 12.2.1 and 12.2.7): kept and reported back. farside does the same whatever
// they say, so no hint, true or false, can change a result; the only ones that are looked at say how memory is to be
// laid out when a window is made.
#pragma once

#include <map>
#include <string>

#include <mpi.h>

#include "pmpi/fault.hpp"

namespace farside::pmpi {

// Whether an info object, which may be MPI_INFO_NULL, says "true" for the key.
bool is_true(MPI_Info info, const char* key);

class Hints {
 public:
  // The defaults of a window of this flavor, and what the info object given at its creation says of them.
  Hints(int flavor, MPI_Info info);
  // Later hints replace earlier ones. Keys that mean nothing here and values that are none are ignored (MPI 4.0
  // section 10). How the memory was laid out does not change, but as in both runtimes the last word on it is reported.
  void take(MPI_Info info);
  // A new info object with all that is in effect, the caller's to free.
  Outcome report(MPI_Info* info) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace farside::pmpi

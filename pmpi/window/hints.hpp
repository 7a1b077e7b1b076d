// SPDX-License-Identifier: BSD-3-Clause
// The hints of a window (MPI 4.0 section 12.2.1 and 12.2.7). farside stores and reports them; none changes a result.
// Only alloc_shared_noncontig has an effect, on the layout of memory at creation (creation.cpp).
//
// Thread safety: one thread at a time (Window holds its guard). Errors: MPI_ERR_NO_MEM if the runtime makes no info.
#pragma once

#include <map>
#include <string>

#include <mpi.h>

#include "pmpi/fault.hpp"

namespace farside::pmpi {

// Whether an info object, which may be MPI_INFO_NULL, has the value "true" for the key.
bool is_true(MPI_Info info, const char* key);

class Hints {
 public:
  // Starts with the defaults of a window of this flavor, and takes the info object that was given at creation.
  Hints(int flavor, MPI_Info info);
  // Replaces earlier hints. Unknown keys and invalid values are ignored (MPI 4.0 section 10). A later value of
  // alloc_shared_noncontig is reported, as in both runtimes, although the memory stays as it is.
  void take(MPI_Info info);
  // Makes a new info object with all current hints. The caller frees it.
  Outcome report(MPI_Info* info) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace farside::pmpi

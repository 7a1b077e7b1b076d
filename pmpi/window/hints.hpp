// SPDX-License-Identifier: BSD-3-Clause
// The hints of a window (MPI 4.1 section 12.2.1 and 12.2.7). farside stores and reports them; none changes a result.
// Two have an effect at creation (creation.cpp): alloc_shared_noncontig on the layout of memory, and
// mpi_accumulate_granularity, with MPICH's which_accumulate_ops, on what combines 64-bit integers.
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

// Whether accumulates are of single elements by operations that adapters have: mpi_accumulate_granularity, in bytes, is
// at most that of a 64-bit integer (0, the default, leaves the choice to farside), and which_accumulate_ops, if it is
// given, lists sum, no_op and cswap only. `info` may be MPI_INFO_NULL.
bool tells_of_single_elements(MPI_Info info);

class Hints {
 public:
  // Starts with the defaults of a window of this flavor, and takes the info object that was given at creation.
  Hints(int flavor, MPI_Info info);
  // Replaces earlier hints. Unknown keys and invalid values are ignored (MPI 4.0 section 10). Later values of hints
  // that have an effect at creation are reported, as in both runtimes, although the window stays as it is.
  void take(MPI_Info info);
  // Makes a new info object with all current hints. The caller frees it.
  Outcome report(MPI_Info* info) const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace farside::pmpi

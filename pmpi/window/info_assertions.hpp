// SPDX-License-Identifier: BSD-3-Clause
// What the info of a window asserts about all ranks together (MPI 4.0 section 12.2.1), and the text of the error if it
// does not hold. Thread safety: any thread.
#pragma once

#include <mpi.h>

#include "pmpi/window/creation.hpp"
#include "transport/base/result.hpp"
#include "transport/space/group.hpp"

namespace farside::pmpi {

struct InfoAssertions {
  bool same_size = false;
  bool same_unit = false;  // same_disp_unit
};

// Returns nothing for MPI_INFO_NULL.
InfoAssertions info_assertions_in(MPI_Info info);

// Collective, after the ranks have seen that an assertion of some rank does not hold: fails with kAssertion on each
// rank whose arguments differ from rank 0's.
Status check_info_assertions(const CreationRequest& request, const InfoAssertions& broken, Group& group);

}  // namespace farside::pmpi

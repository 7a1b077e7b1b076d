// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_TRACE: what this rank recorded, as one file (transport/base/trace_format.hpp).
#pragma once

namespace farside::pmpi {

// Writes PREFIX.RANK.trace if FARSIDE_TRACE is set. Called before the runtime finalizes.
void write_trace();

}  // namespace farside::pmpi

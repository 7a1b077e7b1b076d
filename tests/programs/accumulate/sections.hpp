// SPDX-License-Identifier: BSD-3-Clause
// The sections of accumulate, by file, and their common parts.
#pragma once

#include "check.hpp"

namespace accumulate {

inline int rank;
inline int size;
inline MPI_Info hints = MPI_INFO_NULL;

struct Window : check::Window {
  Window(check::Memory memory, MPI_Aint bytes, int displacement_unit)
      : check::Window(memory, bytes, displacement_unit, MPI_COMM_WORLD, hints) {}
};

// swaps.cpp. The first of them names its own sections.
void every_swap(check::Memory memory);

// together.cpp
void counters(check::Memory memory);
void swap_counter(check::Memory memory);
void without_an_atomic(check::Memory memory);
void whole_structures(check::Memory memory);

// integers.cpp
void integer_rows_and_elements(check::Memory memory);

// shapes.cpp
void large_counts(check::Memory memory);
void rows_and_elements(check::Memory memory);
void rows_begin(check::Memory memory);
void exclusive_locks(check::Memory memory);
void ordered(check::Memory memory);
void shorter_origin(check::Memory memory);
void one_buffer(check::Memory memory);

}  // namespace accumulate

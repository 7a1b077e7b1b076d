// SPDX-License-Identifier: BSD-3-Clause
// Many ranks on one location lose no update. The operations of one origin on one location take effect in their order.
// (random_operations has every predefined operation on every predefined type.)
//
//   accumulate [create] [skip_swaps]                   skip_swaps is for runtimes that are wrong there by themselves
//   accumulate [create] only_integers                  rows and single elements of 64-bit integers
//   accumulate ... granularity N [differs]             mpi_accumulate_granularity of all windows (MPI 4.1 section
//                                                      12.2.1), in bytes; odd ranks give another one
#include <string>

#include "accumulate/sections.hpp"

int main(int argc, char** argv) {
  using namespace accumulate;  // NOLINT(google-build-using-namespace)
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Memory memory = program.memory();
  if (program.has("granularity")) {
    const int bytes = program.has("differs") && rank % 2 == 1 ? 1 << 20 : program.number("granularity", 8);
    CHECK_MPI(MPI_Info_create(&hints));
    CHECK_MPI(MPI_Info_set(hints, "mpi_accumulate_granularity", std::to_string(bytes).c_str()));
  }
  const check::Section<check::Memory> swaps[] = {
      {"compare_and_swap on every integer type", every_swap, "12.3.4"},
      {"a counter raised by compare_and_swap and by fetch_and_op", swap_counter, "12.7.1"},
  };
  const check::Section<check::Memory> integers[] = {
      {"rows and single elements of 64-bit integers", integer_rows_and_elements, "12.7.1"},
  };
  const check::Section<check::Memory> sections[] = {
      {"many ranks on one counter: int8 to int64, floating point", counters, "12.7.1"},
      {"many ranks on one location without an atomic for it", without_an_atomic, "12.7.1"},
      {"structures as bytes", whole_structures, "12.3.4"},
      {"100,000 doubles", large_counts, "12.3.4"},
      {"long rows and single elements in the same places", rows_and_elements, "12.7.1"},
      {"long rows that begin while others count", rows_begin, "12.7.1"},
      {"accumulates under an exclusive lock", exclusive_locks, "12.3.4"},
      {"accumulates of one origin are ordered", ordered, "12.7.2"},
      {"an origin with less than the target describes", shorter_origin, "12.3.4"},
      {"a result buffer that overlaps with the origin buffer", one_buffer},
  };
  check::run(integers, memory);
  if (!program.has("only_integers")) {
    if (!program.has("skip_swaps")) check::run(swaps, memory);
    check::run(sections, memory);
  }
  if (hints != MPI_INFO_NULL) CHECK_MPI(MPI_Info_free(&hints));
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
// What the hints of a window tell farside about its accumulates. One rank.
#include "pmpi/window/hints.hpp"

#include <cstdint>
#include <initializer_list>
#include <utility>

#include <catch2/catch.hpp>
#include <mpi.h>

#include "tests/support/catch_session.hpp"

using farside::pmpi::asserts_single_elements;

namespace {

bool tells(std::initializer_list<std::pair<const char*, const char*>> hints) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  for (const auto& [key, value] : hints) MPI_Info_set(info, key, value);
  const bool result = asserts_single_elements(info);
  MPI_Info_free(&info);
  return result;
}

}  // namespace

TEST_CASE("a granularity of up to one 64-bit integer tells of single elements") {
  constexpr const char* kKey = "mpi_accumulate_granularity";
  CHECK_FALSE(asserts_single_elements(MPI_INFO_NULL));
  CHECK_FALSE(tells({}));
  for (const char* const value : {"1", "4", "7", "8"}) CHECK(tells({{kKey, value}}));
  for (const char* const value : {"0", "9", "16", "1048576", "99999999999999999999", "-8", "8 bytes", "x"})
    CHECK_FALSE(tells({{kKey, value}}));
}

TEST_CASE("operations that adapters lack go to the handler, if the program says that there are such") {
  const auto with = [](const char* which) {
    return tells({{"mpi_accumulate_granularity", "8"}, {"which_accumulate_ops", which}});
  };
  for (const char* const which : {"sum", "sum,no_op", "cswap", "no_op,cswap,sum", "none"}) CHECK(with(which));
  for (const char* const which : {"max", "sum,max", "replace", "sum,", "any_op"}) CHECK_FALSE(with(which));
  CHECK_FALSE(tells({{"which_accumulate_ops", "sum"}}));
  // These say nothing of the number of elements.
  CHECK_FALSE(tells({{"accumulate_ops", "same_op"}, {"accumulate_ordering", "none"}}));
}

TEST_CASE("an alignment is a power of two; all else counts as none") {
  const auto alignment_of = [](const char* value) {
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_minimum_memory_alignment", value);
    const std::uint64_t result = farside::pmpi::minimum_alignment(info);
    MPI_Info_free(&info);
    return result;
  };
  CHECK(farside::pmpi::minimum_alignment(MPI_INFO_NULL) == 1);
  CHECK(alignment_of("1") == 1);
  CHECK(alignment_of("64") == 64);
  CHECK(alignment_of("9223372036854775808") == std::uint64_t{1} << 63);
  for (const char* const value : {"0", "3", "-8", "64 bytes", "64.0", "x", "18446744073709551616"})
    CHECK(alignment_of(value) == 1);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int result = run_catch(argc, argv);
  MPI_Finalize();
  return result;
}

// SPDX-License-Identifier: BSD-3-Clause
// Which runtime a process is for, by the libraries that its files need. (Whole processes: run_program -b.)
#include "pmpi/runtime/program_runtime.hpp"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace farside::pmpi;

namespace {

std::string other_library(const std::vector<LoadedFile>& files) { return find_other_runtime(files, "mpich").library; }

}  // namespace

TEST_CASE("MPI libraries are known by their names") {
  CHECK(runtime_of("libmpi.so.40") == "openmpi");
  CHECK(runtime_of("libmpi.so.40.30.4") == "openmpi");
  CHECK(runtime_of("libmpich.so.12") == "mpich");
  CHECK(runtime_of("libmpi.so.12") == "mpich");
  CHECK(runtime_of("libmpi.so.12.1.8") == "mpich");
  CHECK(runtime_of("libmpi_cray.so.12") == "mpich");
  CHECK(runtime_of("libmpi_gnu_123.so.12") == "mpich");
  CHECK(runtime_of("libmpi_abi.so.1") == "mpi_abi");
  CHECK(runtime_of("libmpifort_cray.so.12").empty());
  CHECK(runtime_of("libmpi_mpifh.so.40").empty());
  CHECK(runtime_of("libmpichfort.so.12").empty());
  CHECK(runtime_of("libc.so.6").empty());
}

TEST_CASE("the program decides if it needs an MPI library") {
  CHECK(other_library({{"the program", {"libmpich.so.12"}}}).empty());
  CHECK(other_library({{"the program", {"libmpi.so.40"}}}) == "libmpi.so.40");
  CHECK(other_library({{"the program", {"libmpi.so.40"}}, {"tool.so", {"libmpich.so.12"}}}) == "libmpi.so.40");
  CHECK(other_library({{"the program", {"libmpich.so.12"}}, {"io.so", {"libmpi.so.40"}}}).empty());
  CHECK(other_library({{"the program", {"libmpi.so.40", "libmpich.so.12"}}}).empty());
}

TEST_CASE("else the other files decide, and those that need this library's runtime go first") {
  CHECK(other_library({}).empty());
  CHECK(other_library({{"the program", {}}, {"libc.so.6", {}}}).empty());
  const OtherRuntime other = find_other_runtime({{"the program", {}}, {"MPI.so", {"libmpi.so.40"}}}, "mpich");
  CHECK(other.path == "MPI.so");
  CHECK(other.library == "libmpi.so.40");
  CHECK(other_library({{"the program", {}}, {"MPI.so", {"libmpi.so.40"}}, {"x.so", {"libmpich.so.12"}}}).empty());
}

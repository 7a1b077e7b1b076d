// SPDX-License-Identifier: BSD-3-Clause
// Maps the name by which files need a shared library to the MPI runtime of this library. Does not include mpi.h,
// because the `farside` command applies the same rule to programs that it has not started.
#pragma once

#include <string_view>

namespace farside::pmpi {

// Returns openmpi, mpich, or mpi_abi, which is the standard's binary interface (MPI 5.0 section 20) of either runtime.
// Empty if the library is no MPI library. libmpi.so.12 is the name of MPICH where it is built from source, and of
// libraries derived from it.
constexpr std::string_view runtime_of(std::string_view library) {
  if (library.starts_with("libmpi_abi.so")) return "mpi_abi";
  if (library.starts_with("libmpich.so") || library == "libmpi.so.12") return "mpich";
  return library.starts_with("libmpi.so") ? "openmpi" : "";
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// Maps the name by which files need a shared library to the MPI runtime of this library. Does not include mpi.h,
// because the `farside` command applies the same rule to programs that it has not started.
#pragma once

#include <string_view>

namespace farside::pmpi {

// Returns openmpi, mpich, or mpi_abi, which is the standard's binary interface (MPI 5.0 section 20) of either runtime.
// Empty if the library is no MPI library. libmpi.so.12 is the name of MPICH where it is built from source, and of
// libraries derived from it. Cray MPICH has a library for each compiler: libmpi_cray.so.12, libmpi_gnu_123.so.12. (Open
// MPI's other libraries, such as libmpi_mpifh.so.40, have higher numbers.)
constexpr std::string_view runtime_of(std::string_view library) {
  if (library.starts_with("libmpi_abi.so")) return "mpi_abi";
  const bool of_cray = library.starts_with("libmpi_") && library.find(".so.12") != std::string_view::npos;
  if (library.starts_with("libmpich.so") || library.starts_with("libmpi.so.12") || of_cray) return "mpich";
  return library.starts_with("libmpi.so") ? "openmpi" : "";
}

}  // namespace farside::pmpi

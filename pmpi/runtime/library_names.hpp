// SPDX-License-Identifier: BSD-3-Clause
// To which MPI runtime a shared library belongs, by the name with which other files ask for it. Knows no mpi.h: the
// `farside` command applies the same rule to programs that it has not started.
#pragma once

#include <string_view>

namespace farside::pmpi {

// Returns openmpi or mpich; empty if the library is no MPI library. libmpi.so.12 is the name of MPICH where it is built
// from source, and of libraries derived from it.
constexpr std::string_view runtime_of(std::string_view library) {
  if (library.starts_with("libmpich.so") || library == "libmpi.so.12") return "mpich";
  return library.starts_with("libmpi.so") ? "openmpi" : "";
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// Ends a process whose program is for another MPI runtime than this library. The handles of the runtimes differ, so
// every call that the library interposes would be wrong. A loaded library cannot leave the search order of the process.
// Therefore the library ends the process, with one line on stderr and kExitWrongRuntime, before MPI is initialised.
//
// The check reads which MPI library each file of the process needs (DT_NEEDED, elf(5)). If the program itself needs
// one, the program decides. Otherwise, for example in Python or if only a library of the program uses MPI, all other
// files decide except this library. If some of them need this library's runtime, or none needs any, the process
// continues.
//
// The check is made when the library is loaded and, for programs that load MPI later (dlopen(3)), in MPI_Init,
// MPI_Init_thread and MPI_Session_init. Thread safety: any thread. Cost: some ten microseconds, no system call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace farside::pmpi {

// Maps the name by which files need a shared library to the MPI runtime of this library: openmpi, mpich, or mpi_abi,
// which is the standard's binary interface (MPI 5.0 section 20) of either runtime. Empty if it is no MPI library. The
// `farside` command applies the same rule, so this header does not include mpi.h. libmpi.so.12 is
// the name of MPICH where it is built from source, and of libraries derived from it. Cray MPICH has a library for each
// compiler: libmpi_cray.so.12, libmpi_gnu_123.so.12. (Open MPI's other libraries, such as libmpi_mpifh.so.40, have
// higher numbers.)
constexpr std::string_view runtime_of(std::string_view library) {
  if (library.starts_with("libmpi_abi.so")) return "mpi_abi";
  const bool of_cray = library.starts_with("libmpi_") && library.find(".so.12") != std::string_view::npos;
  if (library.starts_with("libmpich.so") || library.starts_with("libmpi.so.12") || of_cray) return "mpich";
  return library.starts_with("libmpi.so") ? "openmpi" : "";
}

// The exit code of the dynamic linker if it cannot load a library.
constexpr int kExitWrongRuntime = 127;

// A file of a process, and the MPI libraries that it needs.
struct LoadedFile {
  std::string path;
  std::vector<std::string> mpi_libraries;
};

// Returns the file that decides, with the library of the other runtime; its path is empty if the process may continue.
// `files`: the program first, without farside's own library. `own`: the library's runtime.
struct OtherRuntime {
  std::string path;
  std::string library;
};
OtherRuntime find_other_runtime(const std::vector<LoadedFile>& files, std::string_view own);

// Ends the process if it has another runtime.
void refuse_other_runtime();

}  // namespace farside::pmpi

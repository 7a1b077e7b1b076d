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

// Finds the ranks of this job on this node that run without farside. The search needs no help of these ranks, because a
// rank without the library takes part in nothing that farside does. The launcher gives each rank its number in the
// environment, and the kernel shows environment and mapped files of the other processes of a user (proc(5)).
//
//   ranks       the children of this process's parent, the launcher, with the number of a rank of the same job
//   verdict     a process that has mapped an MPI library, and farside or not. A rank that has left MPI_Init has mapped
//               what it preloads, so the verdict does not depend on time
//
// A rank that cannot be seen (other users, PID namespaces, a launcher without such numbers, a script that waits for the
// rank) gets no verdict. Thread safety: any thread. Cost: some 10 us per rank of the node that names farside in
// LD_PRELOAD, 0.2 ms per other one.

// Ranks in MPI_COMM_WORLD, ascending.
struct NodeRanks {
  std::vector<int> with;  // includes this process
  std::vector<int> without;
};

// The inputs of the search: they are the same for all ranks of the job, or are those of the calling process. Tests pass
// other values.
struct NodeView {
  std::string proc = "/proc";
  int self = 0;         // the process's own id
  int launcher = 0;     // that of its parent
  std::string library;  // the file name of farside's library
  // The environment variables with the rank, that of the runtime's own launcher first.
  std::vector<std::string> rank_variables;
  static NodeView of_this_process();
};

// The file name of farside's library in this process; empty if it is unknown.
std::string own_file_name();

// `rank`: this process's rank in MPI_COMM_WORLD. If the environment says another one, there are no verdicts.
NodeRanks find_node_ranks(const NodeView& view, int rank);

}  // namespace farside::pmpi

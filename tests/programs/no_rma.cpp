// SPDX-License-Identifier: BSD-3-Clause
// Two-sided and collective communication only. Prints the number of threads and open files of each rank, and for which
// signals it has handlers; the runner compares them with a run without farside.
#include <dirent.h>
#include <fstream>
#include <string>

#include "check.hpp"

namespace {

int entries(const char* folder) {
  int count = 0;
  DIR* open = opendir(folder);
  CHECK(open != nullptr);
  while (const dirent* entry = readdir(open)) count += entry->d_name[0] != '.';
  closedir(open);
  return count;
}

// The mask of signals with handlers, in words of the kernel (proc(5)).
std::string handlers() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigCgt:", 0) == 0) return line;
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const int rank = check::rank();
  const int size = check::size();
  check::section("collectives");
  int sum = 0;
  CHECK_MPI(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK_EQ(sum, size * (size - 1) / 2);
  check::section("a ring of messages");
  std::vector<char> out(100000, static_cast<char>('a' + rank));
  std::vector<char> in(out.size());
  std::array<MPI_Request, 2> requests;
  const int previous = (rank + size - 1) % size;
  CHECK_MPI(MPI_Irecv(in.data(), static_cast<int>(in.size()), MPI_CHAR, previous, 0, MPI_COMM_WORLD, &requests[0]));
  CHECK_MPI(MPI_Isend(out.data(), static_cast<int>(out.size()), MPI_CHAR, (rank + 1) % size, 0, MPI_COMM_WORLD,
                      &requests[1]));
  CHECK_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
  CHECK_EQ(in.back(), static_cast<char>('a' + previous));
  check::section("memory, attributes and a communicator");
  void* memory = nullptr;
  CHECK_MPI(MPI_Alloc_mem(1000, MPI_INFO_NULL, &memory));
  std::memset(memory, 1, 1000);
  CHECK_MPI(MPI_Free_mem(memory));
  MPI_Comm half;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
  CHECK_MPI(MPI_Barrier(half));
  CHECK_MPI(MPI_Comm_free(&half));
  // One line per rank, in the order of ranks, so two runs print the same.
  for (int turn = 0; turn < size; ++turn) {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (turn != rank) continue;
    std::printf("rank %d: %d threads, %d files, %s\n", rank, entries("/proc/self/task"), entries("/proc/self/fd"),
                handlers().c_str());
    std::fflush(stdout);
  }
  return 0;
}

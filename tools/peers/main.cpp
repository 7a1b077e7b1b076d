// SPDX-License-Identifier: BSD-3-Clause
// farside-peers-openmpi, farside-peers-mpich: the MPI part of the commands that look at several ranks. The first word
// is the command that starts it:
//   mpirun.openmpi --host a,b build/bin/farside-peers-openmpi info [--json]
#include <cstdio>
#include <string_view>

#include "tools/doctor/examine.hpp"
#include "tools/peers/collectives.hpp"
#include "tools/peers/trials.hpp"

namespace {

using namespace farside;
using namespace farside::tools;

// Collective over one rank of each host. Prints the result at rank 0, and returns the exit code.
int try_hosts_of_ranks(MPI_Comm comm, bool as_json) {
  const Result<Settings> settings = read_settings();
  if (!at_all(settings.ok(), comm)) {
    if (!settings) std::fprintf(stderr, "farside info: %s\n", settings.error().text.c_str());
    return 2;
  }
  const Json matrix = try_hosts(settings.value(), comm);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) std::fputs((as_json ? json_text(matrix, 2) + '\n' : matrix_text(matrix)).c_str(), stdout);
  return matrix.at("all").at("provider") == "" ? 1 : 0;
}

// What farside takes between the hosts of the ranks, and why: one rank of each host tries libfabric's providers with
// each other host; MPI only brings them together.
int info(const std::vector<std::string_view>& words) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm hosts = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, is_first_of_node(MPI_COMM_WORLD) ? 0 : MPI_UNDEFINED, rank, &hosts);
  int exit_code = 0;
  if (hosts != MPI_COMM_NULL) {
    exit_code = try_hosts_of_ranks(hosts, !words.empty() && words[0] == "--json");
    MPI_Comm_free(&hosts);
  }
  sleeping_barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view task = argc > 1 ? argv[1] : "";
  const std::vector<std::string_view> words(argv + (argc > 1 ? 2 : 1), argv + argc);
  if (task == "info") return info(words);
  if (task == "doctor") return examine(words);
  std::fprintf(stderr, "%s: '%s' is no command that this program is a part of: info, doctor\n", argv[0],
               std::string(task).c_str());
  return 2;
}

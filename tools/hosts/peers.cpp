// SPDX-License-Identifier: BSD-3-Clause
// farside-peers-openmpi, farside-peers-mpich: what farside takes between the hosts of the ranks, and why. One rank of
// each host tries libfabric's providers with each other host; MPI only brings them together. `farside info` starts it.
//   mpirun.openmpi --host a,b build/bin/farside-peers-openmpi [--json]
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "tools/hosts/collectives.hpp"
#include "tools/hosts/host_facts.hpp"
#include "tools/hosts/matrix.hpp"
#include "tools/hosts/peer_trials.hpp"
#include "transport/base/settings.hpp"
#include "transport/fabric/adapters.hpp"

namespace {

using namespace farside;
using namespace farside::tools;
using Json = nlohmann::ordered_json;

Json own_facts() {
  Json facts = host_facts();
  for (Json& adapter : facts["adapters"]) adapter["trouble"] = adapter_trouble(adapter["adapter"]).value_or("");
  return facts;
}

// Collective over one rank of each host. Prints the result at rank 0, and returns the exit code.
int meet(MPI_Comm comm, bool as_json) {
  const Result<Settings> settings = read_settings();
  if (!at_all(settings.ok(), comm)) {
    if (!settings) std::fprintf(stderr, "farside info: %s\n", settings.error().text.c_str());
    return 2;
  }
  std::vector<Json> hosts;
  for (const std::string& text : gather_texts(own_facts().dump(), comm)) hosts.push_back(Json::parse(text));
  std::vector<ProviderTrials> trials;
  for (const std::string& provider : providers_to_try(settings.value()))
    trials.push_back(try_provider(provider, settings.value(), comm));
  const Json matrix = matrix_of(std::move(hosts), trials);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) std::fputs((as_json ? matrix.dump(2) + '\n' : matrix_text(matrix)).c_str(), stdout);
  return matrix.at("all").at("provider") == "" ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm hosts = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, is_first_of_node(MPI_COMM_WORLD) ? 0 : MPI_UNDEFINED, rank, &hosts);
  int exit_code = 0;
  if (hosts != MPI_COMM_NULL) {
    exit_code = meet(hosts, argc > 1 && std::string_view(argv[1]) == "--json");
    MPI_Comm_free(&hosts);
  }
  sleeping_barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return exit_code;
}

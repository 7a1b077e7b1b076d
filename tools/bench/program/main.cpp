// SPDX-License-Identifier: BSD-3-Clause
// farside-bench-openmpi, farside-bench-mpich: measure one-sided communication between two ranks. They are plain MPI
// programs that know nothing of farside but its header; `farside bench` runs them natively and with farside preloaded.
//   mpirun.openmpi -n 2 build/bin/farside-bench-openmpi --measures put_flush,fetch_and_op
#include <algorithm>
#include <cstdio>
#include <map>

#include "tools/bench/program/program.hpp"
#include "tools/common/collectives.hpp"
#include "tools/common/host.hpp"
#include "tools/common/launched_ranks.hpp"
#include "tools/common/text.hpp"

namespace farside::bench {
namespace {

std::map<std::string_view, Function>& functions() {
  static std::map<std::string_view, Function> all;
  return all;
}

}  // namespace

Registered::Registered(std::string_view name, Function function) { functions().emplace(name, function); }

Outcome run_measure(const MeasureInfo& info, const Pair& pair, const Options& options) {
  std::string_view name = info.name;
  for (const std::string_view suffix : {"_flush", "_sleep", "_compute"})
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  const std::string_view group = info.threads ? "threads" : std::string_view(info.group);
  auto found = functions().find(name);
  if (found == functions().end()) found = functions().find(group);
  return (found != functions().end() ? found->second : functions().at(name.substr(0, name.rfind('_'))))(info, pair,
                                                                                                        options);
}

}  // namespace farside::bench

namespace {

using namespace farside::bench;
using namespace farside::tools;

int ranks_of(const MeasureInfo& info, int size) { return info.ranks == kAllRanks ? size : info.ranks; }

void run_all(const Options& options, int rank, int size) {
  std::map<int, MPI_Comm> comms;  // of the first so many ranks
  for (const MeasureInfo* info : options.measures) comms[ranks_of(*info, size)] = MPI_COMM_NULL;
  for (auto& [ranks, comm] : comms) MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &comm);
  for (const MeasureInfo* info : options.measures) {
    const int ranks = ranks_of(*info, size);
    if (ranks > 2) sleeping_barrier(MPI_COMM_WORLD);  // the ranks from 2 on sleep until a measure needs them
    if (rank >= ranks) continue;
    const Pair pair{comms.at(ranks), rank == 0};
    if (pair.origin) print_begin(info->name);
    Outcome outcome = run_measure(*info, pair, options);
    if (!pair.origin) continue;
    if (outcome.wrong.empty())
      print_result(*info, std::move(outcome.values), outcome.preempted);
    else
      print_error(info->name, outcome.wrong);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 0;
  // All ranks have the same options. Help, and what is wrong with them, need no MPI.
  auto options = read_options(argc, argv, launched_rank() == 0, exit_code);
  if (!options) return exit_code;
  // MPI_THREAD_MULTIPLE has a cost, so it is requested only if a measure needs it.
  const bool threads = std::ranges::any_of(options->measures, [](const auto* info) { return info->threads; });
  int provided = 0;
  threads ? MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) : MPI_Init(nullptr, nullptr);
  const auto [rank, size] = Ranks(MPI_COMM_WORLD);
  if (size < 2) {
    std::fprintf(stderr, "farside-bench: needs at least two ranks; start it with: mpirun -n 2 %s\n", argv[0]);
    exit_code = 2;
  } else {
    const std::string facts = ranks_of_node(MPI_COMM_WORLD).mine == 0 ? json_text(host_facts()) : std::string();
    const std::vector<std::string> hosts = gather_texts(facts, MPI_COMM_WORLD);  // of each node
    if (rank == 0) print_hello(library_version(), hosts);
    std::erase_if(options->measures, [size = size](const MeasureInfo* info) { return info->ranks > size; });
    run_all(*options, rank, size);
    sleeping_barrier(MPI_COMM_WORLD);
    if (rank == 0) print_end();
  }
  MPI_Finalize();
  return exit_code;
}

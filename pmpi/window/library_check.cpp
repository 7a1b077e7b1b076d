// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/library_check.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/node_ranks.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/threads.hpp"

namespace farside::pmpi {
namespace {

constexpr const char* kRemedy = "load it on every rank (farside run; mpirun -x LD_PRELOAD)";

// "rank 3 of MPI_COMM_WORLD", "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more of MPI_COMM_WORLD"
std::string named(std::span<const int> ranks) {
  constexpr std::size_t kMost = 8;
  const std::span<const int> first = ranks.first(std::min(ranks.size(), kMost));
  std::string text = fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(first, ", "));
  if (ranks.size() > kMost) text += fmt::format(" and {} more", ranks.size() - kMost);
  return text + " of MPI_COMM_WORLD";
}

Error is_not_loaded_on(const std::string& ranks) {
  return {ErrorKind::kPeer, fmt::format("farside is not loaded on {}; {}", ranks, kRemedy)};
}

// The members of a communicator by their ranks in MPI_COMM_WORLD, ascending. None if it has other processes, or if the
// program has only sessions.
std::vector<int> world_ranks(MPI_Comm communicator) {
  std::vector<int> ranks, there;
  const TemporaryGroup all(MPI_COMM_WORLD), own(communicator);
  int count = 0;
  if (all && own && runtime().Group_size(own.handle, &count) == MPI_SUCCESS) {
    ranks.resize(static_cast<std::size_t>(count));
    there.resize(ranks.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    const int code = runtime().Group_translate_ranks(own.handle, count, ranks.data(), all.handle, there.data());
    if (code != MPI_SUCCESS) there.clear();
  }
  if (std::ranges::find(there, MPI_UNDEFINED) != there.end()) there.clear();
  std::ranges::sort(there);
  return there;
}

// The ranks of the node do not lose the library, so that a complete result stays. Per thread, so that no mutex is
// needed.
const NodeRanks& node_ranks(int rank) {
  std::optional<NodeRanks>& known = PerThread<std::optional<NodeRanks>>::here();
  if (!known || !known->complete || !known->without.empty()) known = find_node_ranks(NodeView::of_this_process(), rank);
  return *known;
}

std::vector<int> common(const std::vector<int>& some, const std::vector<int>& others) {
  std::vector<int> both;
  std::ranges::set_intersection(some, others, std::back_inserter(both));
  return both;
}

}  // namespace

Result<std::string> check_library_loaded(MPI_Comm communicator, CommunicatorGroup& group, const char* call) {
  std::string warning = fmt::format("{}: a rank has not made this call for 10 s", call);
  if (group.ranks() == 1) return warning;
  std::vector<int> members, unknown;
  if (library().resources->in_world()) {
    const int rank = library().resources->process_rank();
    if (rank < 0) return Error{ErrorKind::kPeer, "the runtime's MPI_Comm_rank failed"};
    members = world_ranks(communicator);
    const NodeRanks& known = node_ranks(rank);
    const std::vector<int> without = common(members, known.without);
    if (!without.empty()) return is_not_loaded_on(named(without));
    std::ranges::set_difference(members, known.with, std::back_inserter(unknown));
  }
  if (members.empty()) {
    warning += fmt::format("; is farside loaded there? If not, {}", kRemedy);
  } else if (unknown.empty()) {
    warning += "; farside is preloaded or loaded on all ranks of the communicator, so some rank is late";
  } else {
    warning += fmt::format("; is farside loaded on {}? If not, {}", named(unknown), kRemedy);
  }
  int highest = 0;
  Status carried = is_open_mpi() ? group.take_highest(highest, warning.c_str()) : Status();
  if (!carried) return carried.error();
  if (highest == 0) return warning;
  return is_not_loaded_on(unknown.empty()       ? std::string("some rank")
                          : unknown.size() == 1 ? named(unknown)
                                                : fmt::format("one or more of {}", named(unknown)));
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// Communication by MPI in the programs that farside starts on several hosts. All functions with a communicator are
// collective.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "transport/node/identity.hpp"

namespace farside::tools {

// The number of this rank of a communicator, and of all.
struct Ranks {
  int mine = 0, all = 1;
  explicit Ranks(MPI_Comm comm) {
    MPI_Comm_rank(comm, &mine);
    MPI_Comm_size(comm, &all);
  }
};

// Returns the texts that are not empty, in rank order, at all ranks.
inline std::vector<std::string> gather_texts(const std::string& mine, MPI_Comm comm) {
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(Ranks(comm).all));
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm);
  std::vector<int> begins(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), '\0');
  MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR, comm);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0)
      texts.push_back(all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i])));
  return texts;
}

inline bool at_all(bool holds, MPI_Comm comm) {
  int everywhere = holds ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &everywhere, 1, MPI_INT, MPI_LAND, comm);
  return everywhere != 0;
}

// Returns a communicator of the ranks of this node, which the caller frees. (MPI_Comm_split_type does not tell: from
// MPICH 5 on, MPI_COMM_TYPE_SHARED gives communicators of one rank each.)
inline MPI_Comm split_by_node(MPI_Comm comm) {
  const Ranks ranks(comm);
  std::vector<std::uint64_t> nodes(static_cast<std::size_t>(ranks.all));
  const std::uint64_t own = node_identity();
  MPI_Allgather(&own, 1, MPI_UINT64_T, nodes.data(), 1, MPI_UINT64_T, comm);
  const auto first = std::find(nodes.begin(), nodes.end(), own) - nodes.begin();
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split(comm, static_cast<int>(first), ranks.mine, &node);
  return node;
}

// The first line of the version of the MPI library: "Open MPI v4.1.4", "MPICH Version: 4.0.2".
inline std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  std::string text(version.data(), static_cast<std::size_t>(length));
  text.resize(std::min(text.find_first_of(",\n"), text.size()));
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

// Returns what the window's info says, such as farside_route, which only farside has; empty if it says nothing.
inline std::string window_info(MPI_Win window, const char* key) {
  MPI_Info info = MPI_INFO_NULL;
  if (MPI_Win_get_info(window, &info) != MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_INFO_VAL + 1> value{};
  int there = 0;
  MPI_Info_get(info, key, MPI_MAX_INFO_VAL, value.data(), &there);
  MPI_Info_free(&info);
  return there != 0 ? value.data() : "";
}

// The number of this rank among those of its node.
inline Ranks ranks_of_node(MPI_Comm comm) {
  MPI_Comm node = split_by_node(comm);
  const Ranks ranks(node);
  MPI_Comm_free(&node);
  return ranks;
}

// Waits that sleep between tests, so that a waiting rank leaves its core to other ranks.
inline void sleep_between_tests() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

inline void sleeping_wait(MPI_Request request, std::chrono::microseconds between = std::chrono::milliseconds(2)) {
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    std::this_thread::sleep_for(between);
  }
}

inline void sleeping_barrier(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm, &request);
  sleeping_wait(request);
}

}  // namespace farside::tools

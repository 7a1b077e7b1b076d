// SPDX-License-Identifier: BSD-3-Clause
#include "tools/doctor/between_nodes.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "tools/doctor/own_errors.hpp"
#include "tools/doctor/window_check.hpp"
#include "tools/hosts/collectives.hpp"
#include "transport/base/clock_offset.hpp"

namespace farside::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr int kLargeBytes = 1 << 20;
constexpr int kWarmUp = 3;
constexpr int kLeastPuts = 3;
constexpr int kMostPuts = 1000;

// The median time of a put with a flush, in microseconds; or the error.
struct PutTime {
  double median = 0;
  std::string trouble;
};
PutTime time_puts(MPI_Win window, int target, int bytes, std::chrono::milliseconds time) {
  const std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  std::vector<double> times;
  const Clock::time_point end = Clock::now() + time;
  for (int i = 0; i < kMostPuts && (i < kWarmUp + kLeastPuts || Clock::now() < end); ++i) {
    const Clock::time_point begin = Clock::now();
    int code = MPI_Put(data.data(), bytes, MPI_BYTE, target, 0, bytes, MPI_BYTE, window);
    if (code != MPI_SUCCESS) return {0, mpi_error("MPI_Put", code)};
    code = MPI_Win_flush(target, window);
    if (code != MPI_SUCCESS) return {0, mpi_error("MPI_Win_flush", code)};
    if (i >= kWarmUp) times.push_back(Microseconds(Clock::now() - begin).count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return {*middle, {}};
}

// In which of three rounds a node is the origin, so that it is no target in the same one.
int round_of(int node, int nodes) { return node == nodes - 1 && nodes % 2 == 1 ? 2 : node % 2; }

}  // namespace

Json measure_link(MPI_Comm nodes, Watchdog& watchdog) {
  int node = 0, count = 1;
  MPI_Comm_rank(nodes, &node);
  MPI_Comm_size(nodes, &count);
  const int next = (node + 1) % count;
  Json link{{"from", node}, {"to", next}, {"latency_us", 0.0}, {"megabytes_per_second", 0.0}};
  link["trouble"] = "";
  OwnErrors errors;
  void* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Comm_set_errhandler(nodes, MPI_ERRORS_RETURN);
  watchdog.at("MPI_Win_allocate");
  const int code = MPI_Win_allocate(kLargeBytes, 1, MPI_INFO_NULL, nodes, &base, &window);
  if (code != MPI_SUCCESS) {
    link["trouble"] = mpi_error("MPI_Win_allocate", code);
    return link;
  }
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  MPI_Win_lock_all(0, window);
  for (int round = 0; round < 3; ++round) {
    watchdog.at("MPI_Barrier");
    MPI_Barrier(nodes);
    if (round != round_of(node, count)) continue;
    watchdog.at("MPI_Win_flush");
    const PutTime small = time_puts(window, next, 8, std::chrono::milliseconds(50));
    const PutTime large =
        small.trouble.empty() ? time_puts(window, next, kLargeBytes, std::chrono::milliseconds(100)) : small;
    link["latency_us"] = small.median;
    if (large.median > 0) link["megabytes_per_second"] = kLargeBytes / large.median;  // bytes per microsecond
    link["trouble"] = large.trouble;
  }
  watchdog.at("MPI_Barrier");
  MPI_Barrier(nodes);
  watchdog.at("MPI_Win_unlock_all");
  MPI_Win_unlock_all(window);
  watchdog.at("MPI_Win_free");
  MPI_Win_free(&window);
  return link;
}

Json measure_clock(MPI_Comm nodes) {
  int node = 0, count = 1;
  MPI_Comm_rank(nodes, &node);
  MPI_Comm_size(nodes, &count);
  ClockOffset offset{0, 0};
  for (int other = 1; other < count; ++other) {
    if (node == 0) {
      const auto receive = [&](std::uint64_t& theirs) {
        return MPI_Recv(&theirs, 1, MPI_UINT64_T, other, 0, nodes, MPI_STATUS_IGNORE) == MPI_SUCCESS;
      };
      const auto send = [&](std::uint64_t mine) {
        return MPI_Send(&mine, 1, MPI_UINT64_T, other, 0, nodes) == MPI_SUCCESS;
      };
      answer_clock(receive, send);
    } else if (node == other) {
      const auto found = compare_clock([&](std::uint64_t mine, std::uint64_t& theirs) {
        return MPI_Sendrecv(&mine, 1, MPI_UINT64_T, 0, 0, &theirs, 1, MPI_UINT64_T, 0, 0, nodes, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS;
      });
      if (found) offset = *found;
    }
  }
  return {{"node", node}, {"ahead_ns", -offset.ahead}, {"uncertain_ns", offset.uncertain}};
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// The times of accumulates of 64-bit integers in a window of single elements, and in one without this hint.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "accumulate/sections.hpp"

namespace accumulate {
namespace {

constexpr int kMost = 1000, kRuns = 5;
constexpr MPI_Aint kStop = kMost;  // a word behind the elements

// In us per call, at least 0.1 s and 5 calls long.
double time_of(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::chrono::duration<double, std::micro> time{};
  int calls = 0;
  for (; calls < 5 || time.count() < 1e5; ++calls, time = Clock::now() - begin) call();
  return time.count() / calls;
}

void origin(const std::array<MPI_Win, 2>& windows) {
  static std::vector<std::int64_t> ones(kMost, 1), fetched(kMost);
  const auto accumulate = [](MPI_Win window, int count, MPI_Op op) {
    CHECK_MPI(MPI_Accumulate(ones.data(), count, MPI_INT64_T, 1, 0, count, MPI_INT64_T, op, window));
  };
  struct Measure {
    const char* name;
    std::function<void(MPI_Win)> call;
  };
  const std::vector<Measure> measures = {
      {"fetch_and_op 1",
       [](MPI_Win w) { CHECK_MPI(MPI_Fetch_and_op(ones.data(), fetched.data(), MPI_INT64_T, 1, 0, MPI_SUM, w)); }},
      {"accumulate 1", [&](MPI_Win w) { accumulate(w, 1, MPI_SUM); }},
      {"accumulate 8", [&](MPI_Win w) { accumulate(w, 8, MPI_SUM); }},
      {"accumulate 64", [&](MPI_Win w) { accumulate(w, 64, MPI_SUM); }},
      {"accumulate 1000", [&](MPI_Win w) { accumulate(w, 1000, MPI_SUM); }},
      {"accumulate 1, maximum", [&](MPI_Win w) { accumulate(w, 1, MPI_MAX); }},
  };
  for (const Measure& measure : measures) {
    std::array<std::vector<double>, 2> times;
    for (int run = 0; run < kRuns; ++run) {
      for (std::size_t i = 0; i < 2; ++i) {
        times[i].push_back(time_of([&] {
          measure.call(windows[i]);
          CHECK_MPI(MPI_Win_flush(1, windows[i]));
        }));
      }
    }
    for (auto& each : times) std::sort(each.begin(), each.end());
    std::printf("%-22s single elements %8.1f us (%.1f to %.1f), no hint %8.1f us (%.1f to %.1f)\n", measure.name,
                times[0][kRuns / 2], times[0].front(), times[0].back(), times[1][kRuns / 2], times[1].front(),
                times[1].back());
    std::fflush(stdout);
  }
}

}  // namespace

void measure(check::Memory memory) {
  MPI_Info single = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&single));
  CHECK_MPI(MPI_Info_set(single, "mpi_accumulate_granularity", "8"));
  const check::Window elements(memory, (kMost + 1) * 8, 8, MPI_COMM_WORLD, single);
  const check::Window rows(memory, (kMost + 1) * 8, 8);
  CHECK_MPI(MPI_Info_free(&single));
  for (const bool computes : {false, true}) {
    CHECK_MPI(MPI_Win_lock_all(0, elements));
    CHECK_MPI(MPI_Win_lock_all(0, rows));
    if (rank == 0) {
      std::printf("the target %s:\n", computes ? "computes" : "waits in MPI_Barrier");
      origin({elements, rows});
      const std::int64_t stop = 1;
      if (computes) CHECK_MPI(MPI_Put(&stop, 1, MPI_INT64_T, 1, kStop, 1, MPI_INT64_T, rows));
      CHECK_MPI(MPI_Win_flush(1, rows));
    }
    const volatile std::int64_t* const stopped = rows.as<std::int64_t>() + kStop;
    while (computes && rank == 1 && *stopped == 0) {
    }
    CHECK_MPI(MPI_Win_unlock_all(rows));
    CHECK_MPI(MPI_Win_unlock_all(elements));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
}

}  // namespace accumulate

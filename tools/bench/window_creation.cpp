// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/other_measures.hpp"
#include "tools/bench/sampler.hpp"
#include "tools/bench/window.hpp"

namespace farside::bench {

Outcome measure_window_creation(const MeasureInfo& info, const Pair& pair, const Options& options) {
  std::vector<char> memory(4096);
  const auto size = static_cast<MPI_Aint>(memory.size());
  const auto make_and_free = [&](bool first) {
    MPI_Win win = MPI_WIN_NULL;
    void* base = nullptr;
    if (info.name == "window_allocate") {
      MPI_Win_allocate(size, 1, MPI_INFO_NULL, pair.comm, &base, &win);
    } else if (info.name == "window_create") {
      MPI_Win_create(memory.data(), size, 1, MPI_INFO_NULL, pair.comm, &win);
    } else {
      MPI_Win_create_dynamic(MPI_INFO_NULL, pair.comm, &win);
    }
    if (first) say_route_of(win);
    MPI_Win_free(&win);
  };
  // Both ranks make as many windows as the origin announces before each batch.
  const auto announced = [&pair](long count) { return of_rank(0, count, pair.comm); };
  const auto batch = [&](long count) { return time_of(count, [&] { make_and_free(false); }); };
  Outcome outcome;
  if (!pair.origin) {
    while (const long count = announced(0)) batch(count);
    return outcome;
  }
  announced(1);
  make_and_free(true);  // sets up what a runtime or library needs once
  outcome.values = in_unit(info, 0, take_samples({.sample_seconds = options.sample_seconds}, [&](long count) {
                             return batch(announced(count));
                           }));
  announced(0);
  return outcome;
}

}  // namespace farside::bench

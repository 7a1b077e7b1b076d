// SPDX-License-Identifier: BSD-3-Clause
// What windows cost by themselves: to make and free them, and while they are idle.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include "tools/bench/program/measuring.hpp"
#include "tools/bench/program/program.hpp"

namespace farside::bench {
namespace {

struct Usage {  // of all threads of this process except the main thread
  double cpu_microseconds = 0;
  double wakeups = 0;  // voluntary context switches
  bool known = true;
};

// proc(5): /proc/PID/task/TID/schedstat begins with the ns on a CPU. (RUSAGE_SELF less RUSAGE_THREAD of getrusage(2) is
// too coarse: it showed 60 to 2000 us where this showed 0.)
Usage usage_of_other_threads() {
  Usage usage;
  const std::string main = std::to_string(getpid());
  std::error_code failed;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", failed)) {
    if (task.path().filename() == main) continue;
    double nanoseconds = 0;
    if (!(std::ifstream(task.path() / "schedstat") >> nanoseconds)) usage.known = false;
    usage.cpu_microseconds += nanoseconds / 1000;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      double count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) usage.wakeups += count;
    }
  }
  return usage;
}

}  // namespace

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
    if (first) print_route_of(win);
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

Outcome measure_first_window(const MeasureInfo& info, const Pair& pair, const Options& options) {
  MPI_Barrier(pair.comm);
  const Clock::time_point start = Clock::now();
  const Window window(pair, options.window, 8);
  if (pair.origin) {
    const std::int64_t value = 1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window.handle());
    MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, window.handle());
    MPI_Win_unlock(1, window.handle());
  }
  Outcome outcome;
  outcome.values = in_unit(info, 0, {seconds_since(start)});
  MPI_Barrier(pair.comm);
  return outcome;
}

Outcome measure_idle(const MeasureInfo& info, const Pair& pair, const Options& options) {
  const Window window(pair, options.window, 8);
  const int peer = pair.origin ? 1 : 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, peer, 0, window.handle());
    MPI_Put(&i, 1, MPI_INT64_T, peer, 0, 1, MPI_INT64_T, window.handle());
    MPI_Win_unlock(peer, window.handle());
  }
  MPI_Barrier(pair.comm);
  // The remaining work of this traffic must not count as idle.
  compute_until(Clock::now() + std::chrono::milliseconds(50));
  const Usage before = usage_of_other_threads();
  compute_until(Clock::now() + std::chrono::seconds(1));
  const Usage after = usage_of_other_threads();
  const double mine =
      info.name == "idle_cpu" ? after.cpu_microseconds - before.cpu_microseconds : after.wakeups - before.wakeups;
  double most = 0;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, pair.comm);
  const bool known = at_all_ranks(before.known && after.known, pair.comm);
  Outcome outcome;
  outcome.values.push_back(std::max(most, 0.0));
  if (!known && info.name == "idle_cpu") outcome.wrong = "this kernel does not tell a thread's time (schedstat)";
  return outcome;
}

}  // namespace farside::bench

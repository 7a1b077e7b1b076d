// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string_view>
#include <vector>

#include "tools/bench/other_measures.hpp"
#include "tools/bench/sampler.hpp"
#include "tools/bench/window.hpp"

namespace farside::bench {
namespace {

// What a row of measures varies. The other rounds lock exclusively and add 1.
struct Row {
  std::string_view name;
  unsigned readers = 0;     // percentage of rounds that only read
  bool lock_all = false;    // they read inside MPI_Win_lock_all instead of a shared lock
  bool fetches = false;     // adds by fetch_and_op instead of get, flush, put
  bool everywhere = false;  // a round's target is any of the ranks instead of rank 0
};
constexpr double kShareOfTime = 2.5;  // one period of so many times `sample_seconds`

constexpr std::array kRows{
    Row{.name = "contended_exclusive"},
    Row{.name = "contended_fetch_and_op", .fetches = true},
    Row{.name = "contended_readers_50", .readers = 50},
    Row{.name = "contended_readers_95", .readers = 95},
    Row{.name = "contended_targets", .everywhere = true},
    Row{.name = "contended_lock_all", .readers = 50, .lock_all = true},
};

struct Figures {            // of a row; at all ranks
  double microseconds = 0;  // per round and rank
  double fairness = 0;      // rounds of the slowest rank, divided by those of the fastest
  double longest_wait = 0;  // in microseconds
  bool right = true;
};

// The rounds of one rank. Each rank's window has a counter.
class Rounds {
 public:
  Rounds(const Row& row, int rank, int size, MPI_Win win)
      : row_(row),
        win_(win),
        random_(static_cast<unsigned>(rank) + 1),
        added_(static_cast<std::size_t>(size)),
        seen_(added_) {}

  void next() {
    const int target = row_.everywhere ? static_cast<int>(random_() % added_.size()) : 0;
    random_() % 100 < row_.readers ? read(target) : add(target);
  }
  void add(int target) {
    std::uint64_t before = 0;
    const Clock::time_point start = Clock::now();
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win_);
    if (row_.fetches) {
      const std::uint64_t one = 1;
      MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, target, 0, MPI_SUM, win_);
      MPI_Win_unlock(target, win_);
      waited_since(start);
    } else {
      get(before, target);
      MPI_Win_flush(target, win_);
      waited_since(start);
      const std::uint64_t after = before + 1;
      MPI_Put(&after, 1, MPI_UINT64_T, target, 0, 1, MPI_UINT64_T, win_);
      MPI_Win_unlock(target, win_);
    }
    see(before, target);
    ++seen_[static_cast<std::size_t>(target)];
    ++added_[static_cast<std::size_t>(target)];
  }
  void read(int target) {
    std::uint64_t value = 0;
    const Clock::time_point start = Clock::now();
    row_.lock_all ? MPI_Win_lock_all(0, win_) : MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win_);
    get(value, target);
    row_.lock_all ? MPI_Win_unlock_all(win_) : MPI_Win_unlock(target, win_);
    waited_since(start);
    see(value, target);
  }
  void forget_waits() { longest_wait_ = {}; }
  double longest_wait() const { return std::chrono::duration<double>(longest_wait_).count(); }
  // How often this rank has added to the counter of each rank.
  const std::vector<std::uint64_t>& added() const { return added_; }
  // Whether each value was at least the one that this rank knew of before.
  bool right() const { return right_; }

 private:
  void get(std::uint64_t& value, int target) { MPI_Get(&value, 1, MPI_UINT64_T, target, 0, 1, MPI_UINT64_T, win_); }
  void see(std::uint64_t value, int target) {
    std::uint64_t& seen = seen_[static_cast<std::size_t>(target)];
    right_ = right_ && value >= seen;
    seen = value;
  }
  void waited_since(Clock::time_point start) { longest_wait_ = std::max(longest_wait_, Clock::now() - start); }

  const Row& row_;
  MPI_Win win_;
  std::mt19937 random_;  // streams of linear congruences depend on one another
  std::vector<std::uint64_t> added_, seen_;
  Clock::duration longest_wait_{};
  bool right_ = true;
};

double over_ranks(double mine, MPI_Op operation, MPI_Comm comm) {
  MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, operation, comm);
  return mine;
}

Figures figures_of(const Row& row, const Pair& crowd, const Options& options) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(crowd.comm, &rank);
  MPI_Comm_size(crowd.comm, &size);
  const Window window(crowd, options.window, sizeof(std::uint64_t));
  Rounds rounds(row, rank, size, window.handle());
  for (int target = 0; target < (row.everywhere ? size : 1); ++target) rounds.add(target);  // connections
  if (row.readers > 0) rounds.read(0);
  MPI_Barrier(crowd.comm);
  rounds.forget_waits();
  double done = 0;
  const double limit = kShareOfTime * options.sample_seconds;
  const Clock::time_point start = Clock::now();
  double seconds = 0;
  do {
    rounds.next();
    ++done;
    seconds = seconds_since(start);
  } while (seconds < limit);

  const auto among = [&](double mine, MPI_Op operation) { return over_ranks(mine, operation, crowd.comm); };
  Figures figures;
  figures.microseconds = 1e6 * among(seconds, MPI_SUM) / among(done, MPI_SUM);
  figures.fairness = among(done, MPI_MIN) / among(done, MPI_MAX);
  figures.longest_wait = 1e6 * among(rounds.longest_wait(), MPI_MAX);
  std::vector<std::uint64_t> added = rounds.added();
  MPI_Allreduce(MPI_IN_PLACE, added.data(), size, MPI_UINT64_T, MPI_SUM, crowd.comm);
  MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window.handle());
  const bool counted = *window.as<std::uint64_t>() == added[static_cast<std::size_t>(rank)];
  MPI_Win_unlock(rank, window.handle());
  figures.right = at_all_ranks(counted && rounds.right(), crowd.comm);
  return figures;
}

}  // namespace

Outcome measure_contended(const MeasureInfo& info, const Pair& crowd, const Options& options) {
  const auto row =
      std::ranges::find_if(kRows, [&](const Row& one) { return std::string_view(info.name).starts_with(one.name); });
  // By row: its measures show the same rounds.
  static std::map<std::string_view, Figures> known;
  auto found = known.find(row->name);
  if (found == known.end()) found = known.emplace(row->name, figures_of(*row, crowd, options)).first;
  const Figures& figures = found->second;
  Outcome outcome;
  if (!figures.right) outcome.wrong = "a counter is not the sum of what was added, or fell";
  outcome.values = {info.name.ends_with("_fair")   ? figures.fairness
                    : info.name.ends_with("_wait") ? figures.longest_wait
                                                   : figures.microseconds};
  return outcome;
}

}  // namespace farside::bench

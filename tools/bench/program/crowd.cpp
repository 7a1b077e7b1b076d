// SPDX-License-Identifier: BSD-3-Clause
// The measures in which all ranks work at the same time, for `sample_seconds` in several rounds; each is a sample.
#include <cstdint>
#include <map>
#include <random>
#include <string_view>

#include "tools/bench/program/measuring.hpp"

namespace farside::bench {
namespace {

constexpr int kRounds = 8;

// Each round all ranks start together, and those that take part repeat `step`, which does some operations and returns
// their number. A sample is the sum over the ranks of figure(seconds, operations). Collective.
template <class Step, class Figure>
Outcome in_rounds(const Pair& crowd, bool takes_part, const Options& options, Step&& step, Figure&& figure) {
  Outcome outcome;
  for (int round = 0; round < kRounds; ++round) {
    MPI_Barrier(crowd.comm);
    double mine = 0, all = 0, operations = 0;
    if (takes_part) {
      const double seconds =
          repeat_for(options.sample_seconds / kRounds, [&] { operations += static_cast<double>(step()); });
      mine = figure(seconds, operations);
    }
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, crowd.comm);
    if (crowd.origin) outcome.values.push_back(all);
  }
  return outcome;
}

double rate(double seconds, double operations) { return operations / seconds; }

// contention: each rank locks the window of rank 0 exclusively, puts, and unlocks; if info.x is 1, only rank 1 does.
// The figure is the mean time over the ranks other than rank 0.
Outcome measure_contention(const MeasureInfo& info, const Pair& crowd, const Options& options) {
  const tools::Ranks ranks(crowd.comm);
  const Window window(crowd, options.window, sizeof(std::uint64_t));
  const bool takes_part = info.x > 1 || ranks.mine == 1;
  // The value names its writer and the number of the write.
  std::uint64_t value = static_cast<std::uint64_t>(ranks.mine) << 40;
  const auto step = [&] {
    ++value;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window.handle());
    MPI_Put(&value, 1, MPI_UINT64_T, 0, 0, 1, MPI_UINT64_T, window.handle());
    MPI_Win_unlock(0, window.handle());
    return 1;
  };
  if (takes_part) step();  // connections, page faults
  // The target's own locks contend with the others, but its own time would not show the latency of a remote lock.
  const int counted = info.x > 1 ? ranks.all - 1 : 1;
  Outcome outcome = in_rounds(crowd, takes_part, options, step, [&](double seconds, double operations) {
    return ranks.mine != 0 ? 1e6 * seconds / operations / counted : 0;
  });
  MPI_Win_lock(MPI_LOCK_SHARED, ranks.mine, 0, window.handle());
  const std::uint64_t last = of_rank(0, *window.as<std::uint64_t>(), crowd.comm);
  MPI_Win_unlock(ranks.mine, window.handle());
  if (tools::at_all(last != value, crowd.comm)) outcome.wrong = "what is in the window is not the last that a rank put";
  return outcome;
}

// rate: each rank puts 8 bytes to the next rank, 64 times per flush; if info.x is 1, only rank 0 does. fetch_rate: all
// ranks but rank 0 add to one word of rank 0 by fetch_and_op, likewise. The figure is the number of operations per
// second of all ranks.
template <bool fetches>
Outcome measure_rate(const MeasureInfo& info, const Pair& crowd, const Options& options) {
  constexpr int kEach = 64;
  const tools::Ranks ranks(crowd.comm);
  const Window window(crowd, options.window, kEach * sizeof(std::uint64_t));
  const bool takes_part = fetches ? !crowd.origin : info.x > 1 || crowd.origin;
  const int to = fetches ? 0 : (ranks.mine + 1) % ranks.all, from = (ranks.mine + ranks.all - 1) % ranks.all;
  std::array<std::uint64_t, kEach> values{};
  const std::uint64_t one = 1;
  std::uint64_t rounds = 0, expected = 0;
  bool right = true;
  const auto step = [&] {
    ++rounds;
    for (std::size_t k = 0; k < kEach; ++k) {
      if (fetches) {
        MPI_Fetch_and_op(&one, &values[k], MPI_UINT64_T, to, 0, MPI_SUM, window.handle());
        continue;
      }
      values[k] = rounds + k;
      MPI_Put(&values[k], 1, MPI_UINT64_T, to, static_cast<MPI_Aint>(8 * k), 1, MPI_UINT64_T, window.handle());
    }
    MPI_Win_flush(to, window.handle());
    // Operations of one origin on one word take effect in their order (MPI 4.0 section 12.7.2).
    right = right && std::ranges::is_sorted(values) && (!fetches || values.front() >= kEach * (rounds - 1));
    return kEach;
  };
  MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window.handle());
  if (takes_part) step();
  Outcome outcome = in_rounds(crowd, takes_part, options, step, rate);
  MPI_Win_unlock(to, window.handle());
  MPI_Barrier(crowd.comm);
  if (fetches)
    MPI_Reduce(&rounds, &expected, 1, MPI_UINT64_T, MPI_SUM, 0, crowd.comm);
  else
    MPI_Sendrecv(&rounds, 1, MPI_UINT64_T, to, 0, &expected, 1, MPI_UINT64_T, from, 0, crowd.comm, MPI_STATUS_IGNORE);
  MPI_Win_lock(MPI_LOCK_SHARED, ranks.mine, 0, window.handle());
  const auto* words = window.as<std::uint64_t>();
  if (expected != 0) right = right && (fetches ? *words == kEach * expected : counts_from(words, kEach, expected));
  MPI_Win_unlock(ranks.mine, window.handle());
  if (!tools::at_all(right, crowd.comm)) outcome.wrong = "a window does not have what was put or added";
  return outcome;
}

// ---- contended ----

// The parameters of a row of measures. The other rounds lock exclusively and add 1.
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

Figures figures_of(const Row& row, const Pair& crowd, const Options& options) {
  const tools::Ranks ranks(crowd.comm);
  const Window window(crowd, options.window, sizeof(std::uint64_t));
  Rounds rounds(row, ranks.mine, ranks.all, window.handle());
  for (int target = 0; target < (row.everywhere ? ranks.all : 1); ++target) rounds.add(target);  // connections
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

  const auto among = [&](double mine, MPI_Op operation) {
    MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, operation, crowd.comm);
    return mine;
  };
  Figures figures;
  figures.microseconds = 1e6 * among(seconds, MPI_SUM) / among(done, MPI_SUM);
  figures.fairness = among(done, MPI_MIN) / among(done, MPI_MAX);
  figures.longest_wait = 1e6 * among(rounds.longest_wait(), MPI_MAX);
  std::vector<std::uint64_t> added = rounds.added();
  MPI_Allreduce(MPI_IN_PLACE, added.data(), ranks.all, MPI_UINT64_T, MPI_SUM, crowd.comm);
  MPI_Win_lock(MPI_LOCK_SHARED, ranks.mine, 0, window.handle());
  const bool counted = *window.as<std::uint64_t>() == added[static_cast<std::size_t>(ranks.mine)];
  MPI_Win_unlock(ranks.mine, window.handle());
  figures.right = tools::at_all(counted && rounds.right(), crowd.comm);
  return figures;
}

// contended: all ranks of the job lock at the same time, in one period of 2.5 times `sample_seconds`. A round is: lock
// exclusively, get a counter, flush, put it incremented, unlock; or what the row of info.name has instead. The figure
// is the time per round and rank, or by the end of info.name
//   _fair: the rounds of the slowest rank, divided by those of the fastest
//   _wait: the longest time from a lock until its first access is complete, since runtimes may lock only then
// The first measure of a row runs, and the others show the same rounds.
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

const Registered kMeasures[] = {{"contention", measure_contention},
                                {"contended", measure_contended},
                                {"rate", measure_rate<false>},
                                {"fetch_rate", measure_rate<true>}};

}  // namespace
}  // namespace farside::bench

// SPDX-License-Identifier: BSD-3-Clause
// The lock at up to 65,536 ranks in simulated time, next to models of other locks; or the memory of a job (job.hpp).
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tests/unit/epochs/simulate/dec_lock.hpp"
#include "tests/unit/epochs/simulate/job.hpp"
#include "tests/unit/epochs/simulate/mcs_lock.hpp"
#include "tests/unit/epochs/simulate/report.hpp"
#include "tests/unit/epochs/simulate/rma_rw_lock.hpp"
#include "tests/unit/epochs/simulate/simulation.hpp"
#include "tools/common/text.hpp"

namespace farside::simulate {
namespace {

struct Options {
  Settings settings;
  std::vector<int> ranks{1024};
  std::vector<int> readers{0, 50, 95, 100};
  std::string arrival = "both";
  std::string protocol = "all";
  double latency_us = 1;
  double service_us = 0.05;
  double section_us = 1;
  double hand_off_us = 0;
  double busy_for_us = 100;
  double node_latency_us = 0.1;
  std::string json_file;
  std::string csv_file;
  std::string plot_file;
  JobSettings job;
  bool is_job = false;
  bool differ = false;  // of the job
};

// The operations of polling grow with the square of the ranks, so a lock is not followed beyond this many operations.
constexpr std::uint64_t kMostPerLock = 64;

struct Protocol {
  std::string_view name;
  Figures (*run)(const Settings&);
  bool has_lock_all;  // else it would lock every rank, which needs no simulation: MPICH sends 4 messages per rank
};
constexpr Protocol kProtocols[] = {{"farside", simulate<FarsideLock>, true}, {"polling", simulate<PollingLock>, true},
                                   {"queue", simulate<QueueLock>, false},    {"mcs", simulate<McsLock>, false},
                                   {"rma-rw", simulate<RmaRwLock>, false},   {"declock", simulate<DecLock>, false}};

Time nanoseconds(double microseconds) { return static_cast<Time>(microseconds * 1000); }

void run_protocol(const Protocol& protocol, Settings settings, std::vector<Run>& runs) {
  if (protocol.name != "farside") {
    const auto locks = static_cast<std::uint64_t>(settings.ranks) * static_cast<std::uint64_t>(settings.rounds);
    settings.most_operations = std::max<std::uint64_t>(2'000'000, kMostPerLock * locks);
  }
  runs.push_back({std::string(protocol.name), settings, protocol.run(settings)});
}

int run_job(const Options& options) {
  JobSettings settings = options.job;
  settings.ranks = options.ranks.front();
  settings.alike = !options.differ;
  const Result<JobFigures> figures = simulate_job(settings);
  if (!figures) {
    fmt::print(stderr, "simulate: {}\n", figures.error().text);
    return 1;
  }
  fmt::print("{}", table(settings, figures.value()));
  const std::string json = to_json(settings, figures.value()).dump(2) + "\n";
  return options.json_file.empty() || tools::write_file("simulate", options.json_file, json) ? 0 : 1;
}

int run(const Options& options) {
  if (options.is_job) return run_job(options);
  Settings settings = options.settings;
  settings.network.latency = nanoseconds(options.latency_us);
  settings.network.service = nanoseconds(options.service_us);
  settings.network.hand_off = nanoseconds(options.hand_off_us > 0 ? options.hand_off_us : 2.5 * options.latency_us);
  settings.network.busy_for = nanoseconds(options.busy_for_us);
  settings.network.node_latency = nanoseconds(options.node_latency_us);
  settings.section = nanoseconds(options.section_us);
  const bool on_terminal = isatty(STDERR_FILENO) != 0;
  std::vector<Run> runs;
  for (const int ranks : options.ranks) {
    for (const Arrival arrival : {Arrival::kOnce, Arrival::kSteady}) {
      if (options.arrival != "both" && (options.arrival == "once") != (arrival == Arrival::kOnce)) continue;
      for (const int readers : options.readers) {
        for (const Protocol& protocol : kProtocols) {
          if (options.protocol != "all" && options.protocol != protocol.name) continue;
          if (settings.lock_all && !protocol.has_lock_all) continue;
          if (settings.targets > ranks) {
            fmt::print(stderr, "simulate: more targets than the {} ranks\n", ranks);
            return 2;
          }
          settings.ranks = ranks;
          settings.arrival = arrival;
          settings.readers = readers;
          if (on_terminal) {
            fmt::print(stderr, "\r\033[K{} ranks, {}, {}% readers, {} ...", ranks,
                       arrival == Arrival::kOnce ? "all at once" : "steady", readers, protocol.name);
          }
          run_protocol(protocol, settings, runs);
        }
      }
    }
  }
  if (on_terminal) fmt::print(stderr, "\r\033[K");
  fmt::print("{}", table(runs));
  fmt::print(
      "\noperations: remote ones per acquisition, lock and unlock together; contended: the same per acquisition that "
      "met\n"
      "others; trips: waited for one after another; looks: reads of waiters; overtaken: by later ones in conflict, at "
      "most;\n"
      "bound: on that, of farside (epochs/lock.md); hot spot: operations at the busiest rank; bytes: per rank and "
      "window, + queue at the target; in all: simulated\n"
      "time; STUCK: a deadlock. A share less than 100% without it: stopped after {} operations per acquisition.\n",
      kMostPerLock);
  if (settings.lock_all) {
    fmt::print(
        "lock_all: contended is per word, as an exclusive lock of farside takes two, at global lock of the one that "
        "lock_all takes;\nthe queue at the target would send 4 messages per rank and lock_all, and the other locks "
        "would take every rank's.\n");
  }
  bool good = std::ranges::all_of(runs, [](const Run& each) {
    const bool whole = each.figures.acquisitions == each.figures.asked && each.figures.violations == 0;
    return whole || each.protocol != "farside";
  });
  if (!options.json_file.empty())
    good = tools::write_file("simulate", options.json_file, to_json(runs).dump(2) + "\n") && good;
  if (!options.csv_file.empty()) good = tools::write_file("simulate", options.csv_file, to_csv(runs)) && good;
  if (!options.plot_file.empty()) {
    const std::string problem = plot(runs, options.plot_file);
    fmt::print("{}: {}\n", problem.empty() ? "Plot" : "No plot", problem.empty() ? options.plot_file : problem);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace farside::simulate

int main(int argc, char** argv) {
  using namespace farside::simulate;
  Options options;
  CLI::App app("The lock among many ranks, in simulated time, next to others", "simulate");
  app.option_defaults()->always_capture_default();
  app.add_option("--ranks", options.ranks, "numbers of ranks")->delimiter(',')->check(CLI::Range(2, 65536));
  app.add_option("--readers", options.readers, "per cent of the locks that are shared")
      ->delimiter(',')
      ->check(CLI::Range(0, 100));
  app.add_option("--arrival", options.arrival, "once: all at time 0; steady: at random")
      ->check(CLI::IsMember({"once", "steady", "both"}));
  app.add_option("--protocol", options.protocol,
                 "farside; polling: foMPI's and osc/rdma's; queue: MPICH's, at the target; mcs: a list by swap; "
                 "rma-rw: counters and lists per node; declock: an array at the target")
      ->check(CLI::IsMember({"all", "farside", "polling", "queue", "mcs", "rma-rw", "declock"}));
  app.add_option("--rounds", options.settings.rounds, "locks per rank")->check(CLI::Range(1, 10000));
  app.add_option("--targets", options.settings.targets, "lock words; each lock takes one of them")
      ->check(CLI::Range(1, 65536));
  app.add_flag("--lock-all", options.settings.lock_all, "readers do lock_all, writers lock any rank exclusively");
  app.add_option("--section", options.section_us, "us inside the lock")->check(CLI::Range(0.0, 1e6));
  app.add_option("--load", options.settings.load, "of --arrival steady: above 1 the queue grows")
      ->check(CLI::Range(0.001, 1000.0));
  app.add_option("--latency", options.latency_us, "us, one way")->check(CLI::Range(0.01, 1e5));
  app.add_option("--jitter", options.settings.network.jitter, "latency is up to this share longer")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--service", options.service_us, "us of the target's NIC per operation")
      ->check(CLI::Range(0.0, 1000.0));
  app.add_option("--hand-off", options.hand_off_us, "us, what pauses of far waiters count in (default: 2.5 latencies)")
      ->check(CLI::Range(0.1, 1e6))
      ->default_str("");
  app.add_option("--busy", options.settings.network.busy, "share of time in which a target handles no message (queue)")
      ->check(CLI::Range(0.0, 0.999));
  app.add_option("--busy-for", options.busy_for_us, "us at a stretch")->check(CLI::Range(0.1, 1e7));
  app.add_option("--ranks-per-node", options.settings.network.ranks_per_node,
                 "that reach each other in --node-latency; 1: all are --latency apart")
      ->check(CLI::Range(1, 512));
  app.add_option("--node-latency", options.node_latency_us, "us, one way")->check(CLI::Range(0.001, 1e5));
  app.add_option("--near-hand-offs", options.settings.network.near_hand_offs,
                 "farside's, in a row, within a node: a place in the queue stands for at most 1 more locks")
      ->check(CLI::Range(0, 254));
  app.add_option("--seed", options.settings.seed, "the same seed gives the same figures");
  app.add_flag("--job", options.is_job,
               "not the lock, but what a job of --ranks needs: memory, collectives, visited targets");
  app.add_option("--per-node", options.job.per_node, "of --job: ranks per node; those of one node really exist")
      ->check(CLI::Range(1, 512));
  app.add_option("--windows", options.job.windows, "of --job: windows beside the first one")
      ->check(CLI::Range(1, 10000));
  app.add_option("--touched", options.job.touched, "of --job: targets of other nodes that each rank reaches")
      ->check(CLI::Range(0, 10000));
  app.add_flag("--differ", options.differ,
               "of --job: the ranks' sizes and memory keys differ (default: they are alike)");
  app.add_option("--json", options.json_file, "write the figures to this file");
  app.add_option("--csv", options.csv_file, "write the figures to this file");
  app.add_option("--plot", options.plot_file, "draw them, by gnuplot: a .png or .svg file");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}

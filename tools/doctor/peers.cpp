// SPDX-License-Identifier: BSD-3-Clause
// farside-peers-openmpi, farside-peers-mpich: the part of `farside doctor` that runs on every rank, a plain MPI program
// into which the command preloads farside. Rank 0 prints what it finds, part by part, as lines of JSON, so that the
// command has them if the ranks die or hang (take_line()).
//   mpirun.openmpi -n 2 build/bin/farside-peers-openmpi [--time-limit SECONDS]
//
// The steps: the facts of each rank, and, unless these already forbid it, the trial of the providers between the hosts,
// windows inside each node and between them, puts to the next node. Until the ranks are known to load the same
// farside, none makes a window. Exit code: 0; 1: a step took too long; 2: wrong words.
#include "tools/doctor/peers.hpp"

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "tools/common/child.hpp"
#include "tools/common/collectives.hpp"
#include "tools/common/launched_ranks.hpp"
#include "tools/doctor/examination.hpp"
#include "transport/base/settings.hpp"
#include "transport/base/timing.hpp"
#include "transport/space/provider_agreement.hpp"

namespace farside::tools {

// Collects at rank 0 what the ranks have found. Waiting ranks sleep between tests, so that they leave their cores to
// others, and rank 0 can list at any time which ranks have not answered. All functions are collective; not thread-safe,
// except missing().
class RankCollector {
 public:
  RankCollector() : ranks_(MPI_COMM_WORLD) { MPI_Comm_dup(MPI_COMM_WORLD, &comm_); }

  int rank() const { return ranks_.mine; }
  int ranks() const { return ranks_.all; }

  // Returns the texts of all ranks at rank 0, in rank order; nothing at the others.
  std::vector<std::string> collect(const std::string& mine) {
    const int tag = round_++;
    if (ranks_.mine != 0) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, 0, tag, comm_, &request);
      sleeping_wait(request);
      return {};
    }
    std::vector<std::string> texts(static_cast<std::size_t>(ranks_.all));
    texts[0] = mine;
    {
      const std::scoped_lock held(mutex_);
      answered_.assign(texts.size(), false);
      answered_[0] = true;
    }
    for (int left = ranks_.all - 1; left > 0;) {
      int there = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &there, &status);
      if (there == 0) {
        sleep_between_tests();
        continue;
      }
      int length = 0;
      MPI_Get_count(&status, MPI_CHAR, &length);
      const auto from = static_cast<std::size_t>(status.MPI_SOURCE);
      texts[from].resize(static_cast<std::size_t>(length));
      MPI_Recv(texts[from].data(), length, MPI_CHAR, status.MPI_SOURCE, tag, comm_, MPI_STATUS_IGNORE);
      const std::scoped_lock held(mutex_);
      answered_[from] = true;
      --left;
    }
    const std::scoped_lock held(mutex_);
    answered_.clear();
    return texts;
  }
  // Returns the number of rank 0.
  int share(int number) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(&number, 1, MPI_INT, 0, comm_, &request);
    sleeping_wait(request);
    return number;
  }
  // At rank 0 during collect(), returns the ranks that have not answered, in ascending order. Otherwise returns none.
  std::vector<int> missing() const {
    const std::scoped_lock held(mutex_);
    std::vector<int> all;
    for (std::size_t i = 0; i < answered_.size(); ++i)
      if (!answered_[i]) all.push_back(static_cast<int>(i));
    return all;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  const Ranks ranks_;
  int round_ = 0;  // of collect(): the tag of its messages
  mutable std::mutex mutex_;
  std::vector<bool> answered_;  // empty: no collect() is running
};

// ---- examine ----

namespace {

using std::chrono::seconds;

// When a step has timed out, the other ranks first print on stderr which call they are in; then rank 0 ends, and its
// launcher ends the others.
constexpr seconds kGraceOfRank0{2};
constexpr seconds kGraceOfOthers{0};
// FARSIDE_PEER_TIMEOUT of the windows, unless it is set. The trial before them has found that the hosts reach each
// other.
constexpr const char* kPeerTimeout = "15";

void print_line(const Json& part) {
  const std::string line = json_text(part) + '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

// The place of this rank among the nodes.
struct Place {
  int node = 0;  // the number of its node
  int nodes = 1;
  int index = 0;  // its number on its node
  MPI_Comm on_node = MPI_COMM_NULL;
  MPI_Comm leaders = MPI_COMM_NULL;  // the first ranks of the nodes; null at other ranks
};

class Examiner {
 public:
  Examiner(Json own, Watchdog& watchdog, seconds limit) : own_(std::move(own)), watchdog_(watchdog), limit_(limit) {}

  const RankCollector& collector() const { return collector_; }

  void run() {
    step("nodes", limit_);
    find_place();
    // Without this, libfabric takes the first interface that is up, although all ranks are on one machine.
    if (place_.nodes == 1) setenv("FI_TCP_IFACE", "lo", 0);
    own_["node"] = place_.node;
    own_["rank"] = collector_.rank();
    gather("ranks", {own_});
    const bool sound = collector_.rank() == 0 && allows_windows(causes_of(found_));
    if (collector_.share(sound ? 1 : 0) == 0) return;
    setenv("FARSIDE_PEER_TIMEOUT", kPeerTimeout, 0);
    settings_ = read_settings().value();
    const bool reachable = try_providers();
    make_windows(reachable);
    if (reachable && place_.nodes > 1) measure_nodes();
  }

  void step(const std::string& name, seconds limit) {
    watchdog_.begin(name, limit);
    if (collector_.rank() == 0) print_line({{"step", name}});
  }

  // Prints all parts again, at the end, when the ranks print nothing else: mpirun of Open MPI 5 (PRRTE 3.0) at times
  // writes what ranks print to stdout to stderr, if they print there at the same time.
  void print_again() const {
    for (const auto& [part, found] : found_.items()) print_found(part.c_str());
  }

 private:
  void find_place() {
    const int rank = collector_.rank();
    watchdog_.at("MPI_Allgather or MPI_Comm_split");
    place_.on_node = split_by_node(MPI_COMM_WORLD);
    place_.index = Ranks(place_.on_node).mine;
    MPI_Comm_split(MPI_COMM_WORLD, place_.index == 0 ? 0 : MPI_UNDEFINED, rank, &place_.leaders);
    std::array<int, 2> node{0, 1};
    if (place_.leaders != MPI_COMM_NULL) {
      const Ranks leaders(place_.leaders);
      node = {leaders.mine, leaders.all};
    }
    MPI_Bcast(node.data(), 2, MPI_INT, 0, place_.on_node);
    place_.node = node[0];
    place_.nodes = node[1];
  }

  // Collects entries of all ranks at rank 0, which adds them to a part of the examination, and prints it.
  void gather(const char* part, const std::vector<Json>& own) {
    Json& found = found_[part];
    for (const std::string& text : collector_.collect(json_text(own)))
      for (const Json& entry : parse_json(text)) found.push_back(entry);
    print_found(part);
  }
  void print_found(const char* part) const {
    if (collector_.rank() == 0) print_line({{part, found_.at(part)}});
  }

  // Returns whether libfabric reaches all hosts.
  bool try_providers() {
    int works = 0;
    if (settings_.allows(RouteKind::kFabric)) {
      const auto providers = static_cast<int>(providers_to_try(settings_).size());
      step("libfabric between the hosts", limit_ + providers * (place_.nodes - 1) * 2 * Timing::kTrial);
      watchdog_.at("the trial of the providers");
      if (place_.leaders != MPI_COMM_NULL) {
        const Json between = try_hosts(settings_, place_.leaders);
        works = between.at("all").at("provider") == "" ? 0 : 1;
        found_["between"] = between;
        print_found("between");
      }
      collector_.collect("");
    }
    return collector_.share(works) != 0;
  }

  // The routes of windows inside a node that FARSIDE_ROUTES allows; empty: none.
  std::string route_inside(RouteKind wanted) const {
    for (const RouteKind kind : {wanted, RouteKind::kFabric})
      if (settings_.allows(kind) && (kind == RouteKind::kFabric || settings_.allows(RouteKind::kMapped)))
        return farside::info(kind).name;
    return {};
  }

  Json check(const WindowRole& role) {
    Json entry = check_window(role, watchdog_);
    entry["rank"] = collector_.rank();
    return entry;
  }

  void make_windows(bool reachable) {
    step("windows inside the nodes", limit_);
    std::vector<Json> made;
    const int ranks = Ranks(place_.on_node).all;
    for (const auto& [call, kind] :
         {std::pair("MPI_Win_allocate", RouteKind::kMapped), std::pair("MPI_Win_create", RouteKind::kCma)}) {
      const std::string wanted = route_inside(kind);
      if (ranks < 2 || wanted.empty()) continue;
      WindowRole role{call, "node", wanted, place_.on_node, (place_.index + 1) % ranks, true};
      made.push_back(check(role));
    }
    gather("windows", made);
    if (!reachable || place_.nodes < 2) return;
    step("windows of all ranks", limit_);
    WindowRole role{"MPI_Win_allocate", "all",         farside::info(RouteKind::kFabric).name,
                    MPI_COMM_WORLD,     MPI_PROC_NULL, false};
    find_counterparts(role);
    gather("windows", {check(role)});
  }

  // The target is the rank of the same number on the next node, if there is one.
  void find_counterparts(WindowRole& role) const {
    const std::size_t own = static_cast<std::size_t>(collector_.rank());
    std::vector<std::array<int, 2>> places(static_cast<std::size_t>(collector_.ranks()));
    places[own] = {place_.node, place_.index};
    MPI_Allgather(MPI_IN_PLACE, 2, MPI_INT, places.data(), 2, MPI_INT, MPI_COMM_WORLD);
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
      const auto& [node, index] = places[rank];
      if (index != place_.index) continue;
      if (node == (place_.node + 1) % place_.nodes) role.target = static_cast<int>(rank);
      if ((node + 1) % place_.nodes == place_.node) role.has_origin = true;
    }
  }

  void measure_nodes() {
    step("puts to the next node", limit_);
    std::vector<Json> links;
    if (place_.leaders != MPI_COMM_NULL) links.push_back(measure_link(place_.leaders, watchdog_));
    gather("links", links);
  }

  Json own_;
  Watchdog& watchdog_;
  const seconds limit_;
  RankCollector collector_;
  Place place_;
  Settings settings_;
  Json found_ = Json::object();  // at rank 0
};

// The reason that rank 0 gives for a step that has timed out. `collector` is null until the runtime has started.
std::string timeout_text(const RankCollector* collector, int limit, const std::string& place) {
  const std::string text = fmt::format("not within {} s", limit);
  if (collector == nullptr) return text + ": the MPI runtime by itself has not started on all ranks";
  if (const std::vector<int> missing = collector->missing(); !missing.empty())
    return fmt::format("{}; no answer from {} {}", text, missing.size() == 1 ? "rank" : "ranks", rank_list(missing));
  return place.empty() ? text : fmt::format("{}; rank 0 is in {}", text, place);
}

int examine(seconds limit) {
  prepare_for_children();
  Json own = rank_facts();
  forget_children();

  const int rank = launched_rank();
  const std::string host = own.at("host");
  const UniqueFd errors(dup(STDERR_FILENO));  // which OwnErrors does not keep
  std::atomic<const Examiner*> examiner{nullptr};
  const auto on_timeout = [&](const std::string& step, int limit_seconds, const std::string& place) {
    const Examiner* known = examiner.load();
    const RankCollector* collector = known == nullptr ? nullptr : &known->collector();
    const int number = collector == nullptr ? rank : collector->rank();
    if (number == 0) {
      print_line({{"ended", {{"step", step}, {"reason", timeout_text(collector, limit_seconds, place)}}}});
      return;
    }
    dprintf(errors.get(), "farside-peers: rank %d on %s is in %s\n", number, host.c_str(),
            place.empty() ? step.c_str() : place.c_str());
    std::this_thread::sleep_for(kGraceOfRank0 * 2);
  };
  Watchdog watchdog(on_timeout, [&] {
    const Examiner* known = examiner.load();
    if ((known == nullptr ? rank : known->collector().rank()) == 0) print_line(Json::object());
  });
  watchdog.set_grace(rank == 0 ? kGraceOfRank0 : kGraceOfOthers);
  watchdog.begin("MPI_Init", limit);
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  own["mpi"] = mpi_version(library_version());

  Examiner all(std::move(own), watchdog, limit);
  examiner = &all;
  watchdog.set_grace(all.collector().rank() == 0 ? kGraceOfRank0 : kGraceOfOthers);
  all.run();
  all.step("MPI_Finalize", limit);
  sleeping_barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  watchdog.end();
  if (all.collector().rank() == 0) {
    all.print_again();
    print_line({{"done", true}});
  }
  return 0;
}

}  // namespace
}  // namespace farside::tools

int main(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  const int limit = argc == 1 ? 60 : argc == 3 && option == "--time-limit" ? std::atoi(argv[2]) : 0;
  if (limit > 0) return farside::tools::examine(std::chrono::seconds(limit));
  std::fprintf(stderr, "farside-peers: the only option is --time-limit SECONDS\n");
  return 2;
}

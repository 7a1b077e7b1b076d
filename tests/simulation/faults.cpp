// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/faults.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include "tests/simulation/host.hpp"
#include "tests/simulation/network/objects.hpp"
#include "tests/simulation/survivors.hpp"

namespace simulation::faults {

namespace {

constexpr Time kMillisecond = 1000 * kMicrosecond;
constexpr Time kToEnd = 30 * kSecond;   // after a death
constexpr Time kFaults = 20 * kSecond;  // later there are none, so that the program comes to its end

struct State {
  Plan plan;
  int count = 0;
  bool explained = false;               // some rank has reported an error that names a peer which a fault has met
  std::set<std::pair<int, int>> met{};  // by a fault: rank and peer
  bool strict = false;                  // lines have the numbers of MPI_COMM_WORLD
  bool shortage = false;                // there was one
  std::string journal;
} state;

Time within(Time time) { return static_cast<Time>(scheduler->random().below(static_cast<std::uint64_t>(time))); }

void add(const std::string& text) {
  char time[32];
  std::snprintf(time, sizeof time, "%12.6f s: ", static_cast<double>(scheduler->now()) / 1e9);
  state.journal += time + text + "\n";
}

std::vector<Rank*> living() {
  std::vector<Rank*> found;
  for (Rank& each : job.ranks)
    if (each.end == Rank::End::kNone) found.push_back(&each);
  return found;
}
Rank& any_living() {
  const auto all = living();
  return *all[scheduler->random().below(all.size())];
}

void stop_now(Rank& rank, Time time) {
  add("rank " + std::to_string(rank.index) + " stops");
  scheduler->at(scheduler->now() + time, [&rank] { proceed(rank); });
  stop(rank);
}

bool stop_one(Time mean) {
  const Time time = within(scheduler->random().one_in(8) ? 400 * kMillisecond : std::min(20 * kMillisecond, 10 * mean));
  if (scheduler->random().one_in(2)) return stop_now(any_living(), time), true;
  scheduler->on_swap([time](const volatile void* word) {
    if (!is_shared(const_cast<const void*>(word))) return false;
    return stop_now(this_rank(), time), true;
  });
  return true;
}

// A launcher ends the job when a rank has died, but leaves the others time. Until then they may wait in the runtime, or
// for a dead rank of their node in a fence (epochs/synchronization.md).
void end_after_death() {
  if (!state.strict) accept("others wait for the dead");
}

bool kill_one(Time) {
  if (living().size() < 2 || living().size() * 2 < job.ranks.size()) return false;
  Rank& rank = any_living();
  if (rank.main->ended) return false;
  add("rank " + std::to_string(rank.index) + " dies");
  for (const Rank& each : job.ranks) meet(each.index, rank.index);
  die(rank);
  scheduler->at(scheduler->now() + kToEnd, end_after_death);
  return true;
}

// As long as the others are not too few.
bool lose_host(Time) {
  const int node = any_living().node;
  const auto on_it = [node](const Rank& each) { return each.node == node; };
  const auto all = living();
  const auto others = std::ranges::count_if(all, [&](const Rank* each) { return !on_it(*each); });
  if (others < 2 || others * 2 < std::ssize(job.ranks)) return false;
  if (std::ranges::any_of(job.ranks, [&](const Rank& each) { return on_it(each) && each.main->ended; })) return false;
  add("node " + std::to_string(node) + " is lost");
  network::network().silences[node] = {scheduler->now(), kNever};
  for (Rank& rank : job.ranks) {
    if (!on_it(rank) || rank.end != Rank::End::kNone) continue;
    for (const Rank& each : job.ranks) meet(each.index, rank.index);
    die(rank);
  }
  scheduler->at(scheduler->now() + kToEnd, end_after_death);
  return true;
}

// At both ends. That a connection breaks while it is made is no interruption for one of them
// (transport/fabric/connections.md), so that a wait for a notification may have no end.
network::Endpoint* any_connected() {
  std::vector<network::Endpoint*> connected;
  for (const auto& [id, each] : network::network().endpoints) {
    const network::Endpoint* const other = network::find_endpoint(each->peer);
    if (other != nullptr && other->peer == id && !each->ended) connected.push_back(each);
  }
  return connected.empty() ? nullptr : connected[scheduler->random().below(connected.size())];
}
void add(const network::Endpoint& of, const char* what) {
  add("ranks " + std::to_string(of.rank) + " and " + std::to_string(of.peer_rank) + ": " + what);
  meet(of.rank, of.peer_rank);
}

bool break_one(Time) {
  network::Endpoint* const chosen = any_connected();
  if (chosen == nullptr) return false;
  add(*chosen, "the connection breaks");
  network::break_connection(*chosen);
  return true;
}

bool fail_one(Time) {
  network::Endpoint* const chosen = any_connected();
  if (chosen == nullptr || !network::fail_one(*chosen)) return false;
  add(*chosen, "an operation completes with an error");
  return true;
}

bool run_short(Time mean) {
  Rank& rank = any_living();
  const bool memory = scheduler->random().one_in(2);
  add("rank " + std::to_string(rank.index) + (memory ? " lacks memory" : " lacks descriptors"));
  (memory ? rank.short_of_memory : rank.short_of_files) =
      scheduler->now() + within(std::min(20 * kMillisecond, 4 * mean));
  state.shortage = true;
  return true;
}

bool refuse(Time mean) {
  const int node = any_living().node;
  add("node " + std::to_string(node) + " refuses connections");
  network::network().refusals[node] = scheduler->now() + within(std::min(20 * kMillisecond, mean));
  return true;
}

bool silence_one(Time mean) {
  const int node = any_living().node;
  const char* const timeout = std::getenv("FARSIDE_PEER_TIMEOUT");
  Time time = within(std::min(kSecond, 20 * mean));
  if (scheduler->random().one_in(16)) time = std::atoi(timeout) * within(3 * kSecond);
  network::Silence& silence = network::network().silences[node];
  if (silence.until > scheduler->now()) return false;
  silence = {scheduler->now(), scheduler->now() + time};
  add("node " + std::to_string(node) + " is silent until " + std::to_string(static_cast<double>(silence.until) / 1e9) +
      " s");
  for (const Rank& each : job.ranks)
    for (const Rank& other : job.ranks)
      if (time >= std::atoi(timeout) * kSecond / 2 && each.node == node && other.node != node)
        meet(each.index, other.index);
  return true;
}

constexpr std::pair<std::string_view, bool (*)(Time)> kKinds[] = {
    {"stop", stop_one},  {"death", kill_one}, {"host", lose_host},      {"break", break_one},
    {"error", fail_one}, {"refusal", refuse}, {"silence", silence_one}, {"shortage", run_short},
};

void draw_next(bool (*kind)(Time), Time mean) {
  scheduler->at(scheduler->now() + 1 + within(2 * mean), [=] {
    if (state.count == state.plan.most || scheduler->now() > kFaults) return;
    if (kind(mean)) ++state.count;
    draw_next(kind, mean);
  });
}

// Whether the line names a rank that a fault has met, from this rank's view; or from any, if that rank tells of it. In
// other communicators it has other numbers, so there any number counts. Or a shortage that there was.
bool explains(int rank, std::string_view line) {
  const auto has = [line](std::string_view text) { return line.find(text) != line.npos; };
  if (state.shortage && (has("Cannot allocate memory") || has("Too many open files") || has("could not make") ||
                         has("Connection refused")))
    return true;
  if (has("could not notify") || has("have left their places in queues")) return !state.met.empty();
  const bool tells = has("operations of rank");
  for (const std::string_view word : {"target ", "rank "}) {
    for (auto at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
      const int number = std::atoi(line.data() + at + word.size());
      if (std::ranges::any_of(state.met, [&](const auto& each) {
            return (each.first == rank || tells) && (!state.strict || each.second == number);
          }))
        return true;
    }
  }
  return false;
}

std::map<int, int> meetings;  // of survivors.cpp: how often each rank was there

}  // namespace

void meet(int rank, int peer) {
  state.met.insert({rank, peer});
  state.met.insert({peer, rank});
}

std::string Plan::text() const {
  std::string text;
  for (const auto& [kind, mean] : means) text += (text.empty() ? "" : ",") + kind + ":" + std::to_string(mean);
  return text;
}

bool read(std::string_view text, Plan& plan) {
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const std::string_view kind = one.substr(0, one.find(':'));
    int mean = 0;
    if (kind.size() < one.size()) std::from_chars(one.data() + kind.size() + 1, one.data() + one.size(), mean);
    if (mean <= 0 ||
        std::ranges::find(kKinds, kind, &std::pair<std::string_view, bool (*)(Time)>::first) == std::end(kKinds))
      return false;
    plan.means[std::string(kind)] = mean;
  }
  return true;
}

void start(const Plan& plan) {
  state.plan = plan;
  if (!plan.means.empty()) setenv("FARSIDE_PEER_TIMEOUT", "2", 0);
  for (const auto& [kind, run] : kKinds)
    if (const auto found = plan.means.find(std::string(kind)); found != plan.means.end())
      draw_next(run, found->second * kMicrosecond);
}

int count() { return state.count; }

void note(std::string_view line) {
  if (state.plan.means.empty() || line.find("error: ") == line.npos) return;
  const bool explained = explains(current()->rank, line);
  if (state.strict && !explained) host::fail("an error names no peer that a fault has met: " + std::string(line), true);
  state.explained = state.explained || explained;
}

std::string journal() {
  constexpr std::size_t kLast = 2000;
  return state.journal.size() > kLast ? state.journal.substr(state.journal.find('\n', state.journal.size() - kLast) + 1)
                                      : state.journal;
}

void end_job(const std::string& why) {
  // The rank whose operation has failed may be the last to know: a fence fails at the origin only.
  for (int i = 0; i < 100 && !state.explained && !state.met.empty() && !state.strict; ++i) simulation_sleep();
  if (state.explained) accept(why);
  host::fail(why, true);
}

void accept(const std::string& why) {
  std::printf("simulation: %d faults, %.6f s of virtual time, trace %016llx: %s\n", state.count,
              static_cast<double>(scheduler->now()) / 1e9, static_cast<unsigned long long>(scheduler->trace()),
              why.c_str());
  count_run();
  host::leave(0);
}

}  // namespace simulation::faults

using namespace simulation;

extern "C" {
void* simulation_board() {
  static std::array<std::uint64_t, (1 << 20) / 8> board{};
  faults::state.strict = true;
  return board.data();
}
bool simulation_lives(int rank) { return job.ranks[static_cast<std::size_t>(rank)].end == Rank::End::kNone; }
bool simulation_has_met_a_fault(int rank) {
  return std::ranges::any_of(faults::state.met, [rank](const auto& each) { return each.first == rank; });
}
void simulation_meet() {
  const int own = ++faults::meetings[current()->rank];
  const auto here = [own](const Rank* each) { return faults::meetings[each->index] >= own; };
  do simulation_sleep();
  while (!std::ranges::all_of(faults::living(), here));
}
void simulation_sleep() { scheduler->sleep(kSecond / 10 - scheduler->now() % (kSecond / 10)); }
void simulation_end_faults() { faults::state.plan.most = faults::state.count; }
}

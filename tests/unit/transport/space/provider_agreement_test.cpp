// SPDX-License-Identifier: BSD-3-Clause
// Groups of ranks of a job choose a provider, one group after the other: their choices and the cost. Two endpoints over
// tcp represent an adapter and tcp, and the test decides which trials fail.
#include "transport/space/provider_agreement.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/routes/fabric_route_fixture.hpp"
#include "tests/unit/transport/space/space_fixture.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/process.hpp"

namespace farside::provider_agreement_test {

using namespace farside::testing;

namespace {

using Members = std::vector<int>;
constexpr Providers kAdapter = 1, kTcp = 2;

// The state that a process keeps of all groups, as in pmpi/window/creation.cpp.
struct Kept {
  struct Directory {
    Members members;
    PeerAddresses addresses;
    bool best;
  };
  std::vector<Directory> directories;
};

class JobGroup final : public RankGroup {
 public:
  JobGroup(Ranks& ranks, Members members, Kept& kept)
      : RankGroup(ranks, members), members_(std::move(members)), kept_(kept) {}

  int at(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  Status combine(std::span<std::uint64_t> words) override {
    Status combined = RankGroup::combine(words);
    if (const auto act = std::exchange(then, nullptr)) act();
    return combined;
  }
  std::function<void()> then;  // called once, directly after the next reduction

 private:
  PeerAddresses find_addresses(std::uint64_t identity) override {
    for (const Kept::Directory& each : kept_.directories) {
      auto there = places(members_, each.members);
      if (!there || (!each.best && each.members.size() != members_.size())) continue;
      if (each.addresses.of((*there)[static_cast<std::size_t>(rank())]).identity == identity)
        return each.addresses.of_group(std::move(*there));
    }
    return {};
  }
  void keep(const PeerAddresses& directory, bool best) override {
    kept_.directories.insert(kept_.directories.begin(), {members_, directory, best});
  }
  static std::optional<Members> places(const Members& sought, const Members& all) {
    Members there;
    for (const int each : sought) {
      const auto found = std::ranges::find(all, each);
      if (found == all.end()) return {};
      there.push_back(static_cast<int>(found - all.begin()));
    }
    return there;
  }
  const Members members_;
  Kept& kept_;
};

// One process of the job.
class Job {
 public:
  // With the adapter, and with tcp or without.
  explicit Job(Ranks& ranks, bool with_tcp = true) : ranks_(ranks) {
    use_routes("fabric", "");
    std::vector<Candidate> all;
    for (std::size_t i = 0; i < (with_tcp ? 2 : 1); ++i) all.push_back({i, std::move(find_provider("tcp").value())});
    Process::instance().provider_choice().take(std::move(all));
  }
  std::function<void()> once_agreed;     // called once, when the ranks have agreed on what to try
  std::string error;                     // of the last choice that failed
  std::set<std::pair<int, int>> broken;  // trials of the first with the second one fail
  int cannot_open = -1;                  // this rank cannot register memory over the adapter
  int trials = 0;                        // of this rank
  int warnings = 0;

  // Collective over all ranks: some ranks make a window. Checks the provider that they choose, and the number of trials
  // of this rank.
  void takes(Providers wanted, int wanted_trials, const Members& members, Line line = Line::here()) {
    RankGroup::Message message;
    message.last = true;
    if (std::ranges::find(members, ranks_.rank()) == members.end()) {
      while (true) {
        const auto all = ranks_.all_gather(RankGroup::Message());
        if (all[static_cast<std::size_t>(members.front())].last) return;
      }
    }
    trials = 0;
    const Providers taken = choose(members);
    ranks_.check(taken == wanted, fmt::format("provider {} is taken, not {}", wanted, taken), line);
    ranks_.check(trials == wanted_trials, fmt::format("{} trials are made, not {}", wanted_trials, trials), line);
    ranks_.all_gather(message);
  }

 private:
  Providers choose(const Members& members) {
    JobGroup group(ranks_, members, kept_);
    const std::uint64_t id = group.handshake({}).value();
    Nodes nodes = std::move(group.find_nodes(Process::instance()).value());
    group.join(std::move(nodes.own), nodes.partner, id);
    const UsedEndpoint used = group.find_endpoint(Process::instance().endpoints_in_use());
    // Two ranks never know different results.
    std::uint64_t known = used.endpoint != nullptr ? used.provider : 4;
    REQUIRE(group.combine({&known, 1}).ok());
    group.then = std::exchange(once_agreed, nullptr);
    OpenEndpoint* opened = nullptr;
    ProviderAgreement step;
    step.used = known == 4 ? 0 : static_cast<Providers>(known);
    step.id = id;
    step.open = [&](Endpoint& endpoint) -> Status {
      opened = static_cast<OpenEndpoint*>(&endpoint);
      const bool by_adapter = (Process::instance().provider_choice().offer().usable & kAdapter) != 0 && !refused_;
      refused_ = by_adapter && ranks_.rank() == cannot_open;
      if (refused_) return Error{ErrorKind::kNoMemory, "no locked memory"};
      return {};
    };
    step.close = [] {};
    step.trial = [&](int other) -> Status {
      ++trials;
      if (!broken.contains({ranks_.rank(), group.at(other)})) return {};
      return Error{ErrorKind::kPeer, "no answer"};
    };
    const int saved = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
    dup2(file, STDERR_FILENO);
    const Result<bool> done = step.carry_out(group);
    dup2(saved, STDERR_FILENO);
    std::array<char, 4096> text{};
    const ssize_t bytes = pread(file, text.data(), text.size(), 0);
    warnings += static_cast<int>(std::count(text.begin(), text.begin() + std::max<ssize_t>(bytes, 0), '\n'));
    close(saved);
    close(file);
    refused_ = false;
    if (!done) {
      error = done.error().text;
      return 0;
    }
    for (const UsedEndpoint& each : Process::instance().endpoints_in_use()) {
      if (each.endpoint == opened) return each.provider;
    }
    return 0;
  }
  Ranks& ranks_;
  Kept kept_;
  bool refused_ = false;
};

}  // namespace

TEST_CASE("a group takes the best provider that works for its ranks, whatever other groups take") {
  expect_well(run_processes(4, [](Ranks& ranks) {
    Job job(ranks);
    job.broken = {{1, 2}};
    job.takes(kAdapter, 1, {0, 1});
    job.takes(kTcp, 1, {0, 1, 2, 3});
    job.takes(kAdapter, 0, {0, 1});
    job.takes(kAdapter, 0, {1, 0});
    job.takes(kAdapter, 1, {2, 3});
    job.takes(kAdapter, 1, {2, 3, 0});
    // Rank 1, whose trial has failed, offers the adapter to no other group.
    job.takes(kTcp, 0, {1, 2});
    job.takes(kTcp, 0, {2, 1, 0});
    job.takes(kTcp, 0, {3, 2, 1, 0});
    job.takes(kTcp, 0, {1, 2, 3});
    job.takes(kTcp, 0, {0, 1, 3});
    // {1, 2} and {1, 2, 3} have the same rank 0.
    ranks.check(job.warnings == (ranks.rank() < 3 ? 1 : 0), "each process says the reason once");
    Process::instance().shut_down();
  }));
}

TEST_CASE("a rank that cannot use an adapter does not keep others from it, and is not asked again") {
  expect_well(run_processes(4, [](Ranks& ranks) {
    Job job(ranks);
    job.cannot_open = 3;
    job.takes(kTcp, 0, {0, 1, 2, 3});
    job.takes(kTcp, 0, {2, 3});
    job.takes(kAdapter, 1, {0, 1, 2});
    job.takes(kTcp, 0, {3, 1, 2, 0});
    job.takes(kAdapter, 0, {2, 0});
    Process::instance().shut_down();
  }));
}

TEST_CASE("where no rank can do better, the groups of some ranks take what all have") {
  expect_well(run_processes(3, [](Ranks& ranks) {
    Job job(ranks);
    job.takes(kAdapter, 1, {0, 1, 2});
    job.broken = {{0, 1}, {1, 2}};
    job.takes(kAdapter, 0, {0, 1});
    job.takes(kAdapter, 0, {2, 1});
    ranks.check(job.warnings == 0, "nothing is to be said");
    Process::instance().shut_down();
  }));
}

TEST_CASE("the ranks take the provider that they have agreed on, or none of them does") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    Job job(ranks);
    if (ranks.rank() == 0) {
      job.once_agreed = [] {  // by another thread
        ProviderChoice& choice = Process::instance().provider_choice();
        choice.leave(*choice.try_best(kAdapter).value(), "no locked memory");
      };
    }
    job.takes(kTcp, 0, {0, 1});
    Process::instance().shut_down();
  }));
}

TEST_CASE("where the ranks have only a provider whose trial has failed, they do not try it again, and say why") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    Job job(ranks, false);
    job.broken = {{0, 1}};
    for (const int trials : {1, 0}) {
      job.takes(0, trials, {0, 1});
      ranks.check(job.error.find("no libfabric provider in common: not verbs: ") != std::string::npos, job.error);
      ranks.check(job.error.find("with rank 1: no answer") != std::string::npos, job.error);
    }
    Process::instance().shut_down();
  }));
}

// ---- the trial of a provider between two ranks, over an endpoint in this process that makes mistakes ----------------

namespace {

// Runs a trial of rank 0 with rank 1, and returns its error, or an empty text.
std::string run(FakeEndpoint& endpoint) {
  endpoint.loops = true;
  endpoint.chosen_keys = false;
  NoProgress progress;
  std::string error;
  {
    ProviderTrial trial(endpoint, 0, 2, 42);
    REQUIRE(trial.begin().ok());
    const Status done = trial.run(1, FakeEndpoint::address_of(1), progress);
    CHECK((done || done.error().kind == ErrorKind::kPeer));
    if (!done) error = done.error().text;
  }
  CHECK(endpoint.published(42) == nullptr);
  return error;
}

std::map<CallKind, int> calls_of(FakeEndpoint& endpoint) {
  std::map<CallKind, int> counts;
  for (const Call& call : endpoint.take_calls()) ++counts[call.kind];
  return counts;
}

}  // namespace

TEST_CASE("a trial writes, reads and sends messages, adds where the adapter has atomics, and leaves nothing behind") {
  using enum CallKind;
  for (const bool atomics : {true, false}) {
    FakeEndpoint endpoint;
    endpoint.atomics = atomics;
    CHECK(run(endpoint).empty());
    std::map<CallKind, int> expected{{kDescription, ProviderTrial::kMessages}, {kWrite, 2}, {kRead, 2}};
    if (atomics) expected[kControl] = 3;
    CHECK(calls_of(endpoint) == expected);
  }
}

TEST_CASE("each wrong result fails a trial, whichever it is") {
  struct Case {
    CallKind kind;
    std::vector<int> results;  // from 1 on
    const char* error;
  };
  using enum CallKind;
  const Case cases[] = {{kControl, {1, 2, 3}, "a fetch-add of the adapter gave a wrong result"},
                        {kRead, {1, 2}, "a read of data that were written before gave a wrong result"},
                        {kDescription, {1, 2, ProviderTrial::kMessages}, "a message gave a wrong result"}};
  for (const Case& each : cases) {
    for (const int bad : each.results) {
      for (const bool last : {false, true}) {
        FakeEndpoint endpoint;
        endpoint.atomics = true;
        endpoint.spoil = [&, number = 0](CallKind kind, std::byte* data, std::size_t bytes) mutable {
          if (kind == each.kind && ++number == bad) data[last ? bytes - 1 : 0] ^= std::byte{1};
        };
        CHECK(run(endpoint) == each.error);
      }
    }
  }
}

TEST_CASE("an operation that fails, at once or later, fails a trial") {
  for (const int which : {1, 30, ProviderTrial::kMessages}) {
    for (const bool at_once : {true, false}) {
      FakeEndpoint endpoint;
      endpoint.fail_next(CallKind::kDescription, at_once, which - 1);
      CHECK(run(endpoint) == "lost");
      CHECK_FALSE(calls_of(endpoint).contains(CallKind::kWrite));
    }
  }
}

}  // namespace farside::provider_agreement_test

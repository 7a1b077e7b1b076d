// SPDX-License-Identifier: BSD-3-Clause
// The epoch state machine: every call in every state against expectations written from the standard, what is
// legal stays legal, a violation changes nothing, and random call sequences against a second, plainer model.
#include "epochs/epoch_state.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace {

using namespace farside::epochs;

constexpr int kRanks = 70;   // more than one word of bits
constexpr int kMember = 65;  // locked, or in the start group, where such a state is made
constexpr int kOther = 3;
const std::vector<int> kGroup = {1, kMember};
constexpr FenceAssert kNoAssert{};
constexpr FenceAssert kNoPrecede{.no_precede = true};
constexpr FenceAssert kNoSucceed{.no_succeed = true};

// States in short: access none, open (fence open), active, started, locked, all; exposure none, fence,
// posted.
const std::vector<std::string> kAccessNames = {"none", "open", "active", "started", "locked", "all"};
const std::vector<std::string> kExposureNames = {"none", "fence", "posted"};

std::string name(Access state) { return kAccessNames[static_cast<std::size_t>(state)]; }
std::string name(Exposure state) { return kExposureNames[static_cast<std::size_t>(state)]; }

// A window in the given states, by legal calls only.
EpochState make(const std::string& access, const std::string& exposure) {
  EpochState state(kRanks);
  const bool by_fence = access == "open" || access == "active";
  if (by_fence || exposure == "fence") REQUIRE(!state.fence(kNoAssert));
  if (exposure == "posted") REQUIRE(!state.post(kGroup));
  if (exposure == "none" && by_fence) {  // a posted epoch ends the exposure of the fence
    REQUIRE(!state.post(kGroup));
    state.exposure_ended();
  }
  if (access == "active") REQUIRE(!state.operation(kMember));
  if (access == "started") REQUIRE(!state.start(kGroup));
  if (access == "locked") {
    REQUIRE(!state.lock(1, LockType::kShared));
    REQUIRE(!state.lock(kMember, LockType::kExclusive));
  }
  if (access == "all") REQUIRE(!state.lock_all());
  if (access == "none" && exposure == "fence") {
    REQUIRE(!state.lock_all());
    REQUIRE(!state.unlock_all());
  }
  REQUIRE(name(state.access()) == access);
  REQUIRE(name(state.exposure()) == exposure);
  return state;
}

char type_held(std::optional<LockType> type) { return !type ? '-' : *type == LockType::kShared ? 's' : 'x'; }

// All that can be seen of a state: its accessors, and which targets it permits.
std::string seen(const EpochState& state) {
  std::ostringstream out;
  const auto text = [](const char* s) { return s == nullptr ? "-" : s; };
  out << name(state.access()) << ' ' << name(state.exposure()) << ' ' << state.locks_held() << ' '
      << text(state.opened_by()) << ' ' << text(state.closed_by()) << ' ' << text(state.exposure_opened_by())
      << ' ' << text(state.exposure_closed_by()) << " started";
  for (int rank : state.started_group()) out << ' ' << rank;
  out << " posted";
  for (int rank : state.posted_group()) out << ' ' << rank;
  for (int rank = -1; rank <= state.ranks(); ++rank) {
    EpochState copy = state;
    out << ' ' << !copy.request_operation(rank) << !copy.operation(rank) << !copy.flush(rank);
    out << type_held(state.locked(rank));
  }
  return out.str();
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

// A call as the expectations below name it.
Violation make_call(EpochState& state, const std::string& call) {
  if (call == "operation-member") return state.operation(kMember);
  if (call == "operation-other") return state.operation(kOther);
  if (call == "request-member") return state.request_operation(kMember);
  if (call == "request-other") return state.request_operation(kOther);
  if (call == "flush-member") return state.flush(kMember);
  if (call == "flush-other") return state.flush(kOther);
  if (call == "flush_all") return state.flush_all();
  if (call == "sync") return state.sync();
  if (call == "fence") return state.fence(kNoAssert);
  if (call == "fence-noprecede") return state.fence(kNoPrecede);
  if (call == "fence-nosucceed") return state.fence(kNoSucceed);
  if (call == "fence-both") return state.fence({.no_precede = true, .no_succeed = true});
  if (call == "fence-harmless") return state.fence({.no_store = true, .no_put = true});
  if (call == "post") return state.post(kGroup);
  if (call == "post-empty") return state.post({});
  if (call == "start") return state.start(kGroup);
  if (call == "start-empty") return state.start({});
  if (call == "complete") return state.complete();
  if (call == "wait") return state.wait();
  if (call == "test") return state.test();
  if (call == "lock-member") return state.lock(kMember, LockType::kShared);
  if (call == "lock-other") return state.lock(kOther, LockType::kExclusive);
  if (call == "unlock-member") return state.unlock(kMember);
  if (call == "unlock-other") return state.unlock(kOther);
  if (call == "lock_all") return state.lock_all();
  if (call == "unlock_all") return state.unlock_all();
  if (call == "free") return state.free();
  FAIL("no such call: " << call);
  return {};
}

// What MPI 4.0 says, read call by call: the next state, "=" for the same one, or the section of chapter 12
// that the call violates (2.5 free, 3.5 request-based operations, 5 epochs are disjoint, 5.1 to 5.5).
// clang-format off
const char* const kAccessExpected[] = {
    // call             none     open     active  started  locked  all
    "operation-member   5        active   =       =        =       =",
    "operation-other    5        active   =       5.2      5.3     =",
    "request-member     3.5      3.5      3.5     3.5      =       =",
    "request-other      3.5      3.5      3.5     3.5      5.3     =",
    "flush-member       5.4      5.4      5.4     5.4      =       =",
    "flush-other        5.4      5.4      5.4     5.4      5.3     =",
    "flush_all          5.4      5.4      5.4     5.4      =       =",
    "sync               =        =        =       =        =       =",
    "fence              open     open     open    5        5       5",
    "fence-noprecede    open     open     5.5     5        5       5",
    "fence-nosucceed    none     none     none    5        5       5",
    "fence-both         none     none     5.5     5        5       5",
    "fence-harmless     open     open     open    5        5       5",
    "post               =        =        =       =        =       5.3",
    "post-empty         =        =        =       =        =       5.3",
    "start              started  started  5       5        5       5",
    "start-empty        started  started  5       5        5       5",
    "complete           5.2      5.2      5.2     none     5.2     5.2",
    "wait               =        =        =       =        =       =",
    "test               =        =        =       =        =       =",
    "lock-member        locked   locked   5       5        5.3     5",
    "lock-other         locked   locked   5       5        =       5",
    "unlock-member      5.3      5.3      5.3     5.3      =       5.3",
    "unlock-other       5.3      5.3      5.3     5.3      5.3     5.3",
    "lock_all           all      all      5       5        5       5",
    "unlock_all         5.3      5.3      5.3     5.3      5.3     none",
    "free               none     none     2.5     2.5      2.5     2.5",
};

const char* const kExposureExpected[] = {
    // call             none     fence    posted
    "operation-member   =        =        =",
    "operation-other    =        =        =",
    "request-member     =        =        =",
    "request-other      =        =        =",
    "flush-member       =        =        =",
    "flush-other        =        =        =",
    "flush_all          =        =        =",
    "sync               =        =        =",
    "fence              fence    fence    5",
    "fence-noprecede    fence    fence    5",
    "fence-nosucceed    none     none     5",
    "fence-both         none     none     5",
    "fence-harmless     fence    fence    5",
    "post               posted   posted   5",
    "post-empty         posted   posted   5",
    "start              =        =        =",
    "start-empty        =        =        =",
    "complete           =        =        =",
    "wait               5.2      5.2      =",
    "test               5.2      5.2      =",
    "lock-member        =        =        =",
    "lock-other         =        =        =",
    "unlock-member      =        =        =",
    "unlock-other       =        =        =",
    "lock_all           =        =        5.3",
    "unlock_all         =        =        =",
    "free               none     none     2.5",
};
// clang-format on

bool is_section(const std::string& cell) { return cell[0] >= '0' && cell[0] <= '9'; }

}  // namespace

TEST_CASE("every call in every pair of states does what MPI says", "[epochs]") {
  REQUIRE(std::size(kAccessExpected) == std::size(kExposureExpected));
  int pairs = 0;
  for (std::size_t row = 0; row < std::size(kAccessExpected); ++row) {
    const auto on_access = words(kAccessExpected[row]);
    const auto on_exposure = words(kExposureExpected[row]);
    REQUIRE(on_access.size() == 1 + kAccessStates);
    REQUIRE(on_exposure.size() == 1 + kExposureStates);
    REQUIRE(on_access[0] == on_exposure[0]);
    for (std::size_t a = 0; a < kAccessStates; ++a) {
      for (std::size_t e = 0; e < kExposureStates; ++e) {
        const std::string access = kAccessNames[a];
        const std::string exposure = kExposureNames[e];
        if (access == "all" && exposure == "posted") continue;  // no legal way leads there
        EpochState state = make(access, exposure);
        const std::string before = seen(state);
        INFO(on_access[0] << " in access " << access << ", exposure " << exposure);
        const Violation violation = make_call(state, on_access[0]);
        const std::string want_access = on_access[1 + a];
        const std::string want_exposure = on_exposure[1 + e];
        ++pairs;
        if (is_section(want_access) || is_section(want_exposure)) {
          const std::string want = is_section(want_access) ? want_access : want_exposure;
          REQUIRE(violation);
          CHECK(violation.section == "MPI 4.0 section 12." + want + " (3.1: 11." + want + ")");
          CHECK(violation.error == (want == "5.5" ? ErrorClass::kAssert : ErrorClass::kRmaSync));
          CHECK(seen(state) == before);
        } else {
          REQUIRE(!violation);
          CHECK(name(state.access()) == (want_access == "=" ? access : want_access));
          CHECK(name(state.exposure()) == (want_exposure == "=" ? exposure : want_exposure));
        }
      }
    }
  }
  CHECK(pairs == 27 * 17);
}

// The same, but a single target is locked, and where none is, one was.
EpochState make_used(const std::string& access, const std::string& exposure) {
  EpochState state = make(access, exposure);
  if (access == "locked") REQUIRE(!state.unlock(kMember));
  if (access != "none") return state;
  REQUIRE(!state.lock(kOther, LockType::kExclusive));
  REQUIRE(!state.unlock(kOther));
  return state;
}

TEST_CASE("the quick ways say yes only where the tables do, and then move the state as they do", "[epochs]") {
  struct Pair {
    const char* name;
    bool (*quickly)(EpochState&, int);
    Violation (*in_general)(EpochState&, int);
  };
  const Pair pairs[] = {
      {"operation", [](EpochState& s, int rank) { return s.operation_quickly(rank); },
       [](EpochState& s, int rank) { return s.operation(rank); }},
      {"flush", [](EpochState& s, int rank) { return s.flush_quickly(rank); },
       [](EpochState& s, int rank) { return s.flush(rank); }},
      {"lock shared", [](EpochState& s, int rank) { return s.lock_quickly(rank, LockType::kShared); },
       [](EpochState& s, int rank) { return s.lock(rank, LockType::kShared); }},
      {"lock exclusive", [](EpochState& s, int rank) { return s.lock_quickly(rank, LockType::kExclusive); },
       [](EpochState& s, int rank) { return s.lock(rank, LockType::kExclusive); }},
      {"unlock", [](EpochState& s, int rank) { return s.unlock_quickly(rank); },
       [](EpochState& s, int rank) { return s.unlock(rank); }},
  };
  for (const Pair& pair : pairs) {
    int taken = 0;
    for (const std::string& access : kAccessNames) {
      for (const std::string& exposure : kExposureNames) {
        if (access == "all" && exposure == "posted") continue;  // there is no such state
        for (const int rank : {-1, 0, 1, kOther, kMember, kRanks - 1, kRanks}) {
          for (const bool fresh : {true, false}) {
            EpochState quick = fresh ? make(access, exposure) : make_used(access, exposure);
            EpochState general = quick;
            const std::string before = seen(quick);
            INFO(pair.name << " of " << rank << " in " << access << ", " << exposure);
            if (pair.quickly(quick, rank)) {
              ++taken;
              CHECK(!pair.in_general(general, rank));
              CHECK(seen(quick) == seen(general));
              CHECK(quick.describe_access() == general.describe_access());
              // What comes after is the same as well.
              for (const int next : {1, kOther, kMember}) {
                CHECK(!quick.unlock(next) == !general.unlock(next));
                CHECK(seen(quick) == seen(general));
              }
              CHECK(!quick.lock(rank, LockType::kShared) == !general.lock(rank, LockType::kShared));
              CHECK(seen(quick) == seen(general));
            } else {
              CHECK(seen(quick) == before);
            }
          }
        }
      }
    }
    // They are there for something: what is done in a used window is done quickly.
    INFO(pair.name);
    CHECK(taken > 0);
  }
  EpochState state = make("none", "none");
  CHECK(state.lock_quickly(1, LockType::kExclusive));
  CHECK(state.locked(1) == LockType::kExclusive);
  CHECK(!state.lock(kMember, LockType::kShared));
  CHECK(!state.unlock_quickly(1));
  CHECK(!state.unlock(1));
  CHECK(state.locked(1) == std::nullopt);
  CHECK(!state.lock(kOther, LockType::kExclusive));
  CHECK(state.locked(kMember) == LockType::kShared);
  CHECK(state.locked(kOther) == LockType::kExclusive);
  CHECK(state.locks_held() == 2);
  CHECK(!state.unlock(kMember));
  CHECK(state.unlock_quickly(kOther));
  CHECK(state.access() == Access::kNone);
}

TEST_CASE("a violation names the rule, the advice and the section", "[epochs]") {
  CHECK(!violation(Rule::kNone));
  std::set<std::string> rules;
  for (std::size_t i = 1; i < kRules; ++i) {
    const Violation& v = violation(static_cast<Rule>(i));
    CHECK(v);
    CHECK(rules.insert(v.what).second);
    CHECK(std::string(v.advice) != "");
  }
  EpochState state = make("locked", "none");
  CHECK(std::string(state.lock(kMember, LockType::kShared).what) ==
        "lock of a target that this process has already locked");
  CHECK(std::string(state.operation(kOther).what) == "the target is not locked");
  CHECK(std::string(state.start(kGroup).what) == "start while this process holds locks");
  CHECK(std::string(state.unlock_all().what) == "unlock_all of locks taken by MPI_Win_lock");
}

TEST_CASE("a target outside the window is refused in every state", "[epochs]") {
  for (const std::string& access : kAccessNames) {
    EpochState state = make(access, "none");
    const std::string before = seen(state);
    for (const int target : {-1, -2147483647 - 1, kRanks, kRanks + 1, 2147483647}) {
      CHECK(state.operation(target).error == ErrorClass::kRank);
      CHECK(state.request_operation(target).error == ErrorClass::kRank);
      CHECK(state.flush(target).error == ErrorClass::kRank);
      CHECK(state.lock(target, LockType::kExclusive).error == ErrorClass::kRank);
      CHECK(state.unlock(target).error == ErrorClass::kRank);
      CHECK(!state.locked(target));
      const std::vector<int> group = {0, target};
      CHECK(state.start(group).error == ErrorClass::kGroup);
      CHECK(state.post(group).error == ErrorClass::kGroup);
    }
    CHECK(seen(state) == before);
  }
}

TEST_CASE("the first and the last rank are targets", "[epochs]") {
  for (const int ranks : {1, 2, 63, 64, 65, 128, 1000}) {
    for (const int target : {0, ranks - 1}) {
      EpochState state(ranks);
      REQUIRE(!state.lock(target, LockType::kExclusive));
      CHECK(!state.operation(target));
      CHECK(!state.unlock(target));
      CHECK(!state.start(std::vector<int>{target}));
      CHECK(!state.operation(target));
      CHECK(!state.complete());
      CHECK(!state.fence(kNoAssert));
      CHECK(!state.operation(target));
      CHECK(!state.fence(kNoSucceed));
      CHECK(!state.lock_all());
      CHECK(!state.request_operation(target));
      CHECK(!state.unlock_all());
    }
  }
}

TEST_CASE("a fence that nothing followed leaves room for any other epoch", "[epochs]") {
  const auto fenced = [] { return make("open", "fence"); };
  SECTION("lock, after which the fence epoch is over") {
    EpochState state = fenced();
    CHECK(!state.lock(0, LockType::kShared));
    CHECK(!state.operation(0));
    CHECK(!state.unlock(0));
    CHECK(state.operation(0).error ==
          ErrorClass::kRmaSync);  // as MPICH's errors/rma/win_sync_lock_fence wants
    CHECK(!state.fence(kNoAssert));
    CHECK(!state.free());
  }
  SECTION("start") {
    EpochState state = fenced();
    CHECK(!state.start(kGroup));
    CHECK(!state.operation(1));
    CHECK(!state.complete());
    CHECK(!state.free());
  }
  SECTION("lock_all") {
    EpochState state = fenced();
    CHECK(!state.lock_all());
    CHECK(!state.unlock_all());
    CHECK(!state.fence(kNoPrecede));
  }
  SECTION("post") {
    EpochState state = fenced();
    CHECK(!state.post(kGroup));
    CHECK(!state.wait());
    state.exposure_ended();
    CHECK(!state.free());
  }
}

TEST_CASE("several targets may be locked at once, each with its type", "[epochs]") {
  EpochState state(kRanks);
  CHECK(!state.lock(0, LockType::kExclusive));
  CHECK(!state.lock(64, LockType::kShared));
  CHECK(!state.lock(69, LockType::kExclusive));
  CHECK(state.locks_held() == 3);
  CHECK(state.locked(0) == LockType::kExclusive);
  CHECK(state.locked(64) == LockType::kShared);
  CHECK(state.locked(69) == LockType::kExclusive);
  CHECK(!state.locked(1));
  CHECK(!state.unlock(0));
  CHECK(state.operation(0));
  CHECK(!state.operation(64));
  CHECK(!state.lock(0, LockType::kShared));
  CHECK(state.locked(0) == LockType::kShared);  // nothing is left of the exclusive lock
  CHECK(!state.unlock(64));
  CHECK(!state.unlock(0));
  CHECK(state.access() == Access::kLocked);
  CHECK(!state.unlock(69));
  CHECK(state.access() == Access::kNone);
  CHECK(state.locks_held() == 0);
  CHECK(!state.lock_all());
  CHECK(state.locked(5) == LockType::kShared);
  CHECK(state.locks_held() == 0);
}

TEST_CASE("a process may post and start at once, to itself too, in either order", "[epochs]") {
  EpochState state(2);
  const std::vector<int> both = {0, 1};
  for (int round = 0; round < 3; ++round) {
    CHECK(!state.post(both));
    CHECK(!state.start(both));
    CHECK(!state.operation(0));
    CHECK(!state.operation(1));
    CHECK(!state.test());  // false: nothing changes
    CHECK(state.exposure() == Exposure::kPosted);
    CHECK(!state.complete());
    CHECK(!state.test());
    state.exposure_ended(Call::kTest);
    CHECK(state.exposure() == Exposure::kNone);
    CHECK(std::string(state.exposure_closed_by()) == "MPI_Win_test");
    CHECK(state.wait());  // a test that was true was the wait
  }
  CHECK(!state.start(both));
  CHECK(!state.post(both));
  CHECK(!state.wait());
  state.exposure_ended();
  CHECK(!state.complete());
}

TEST_CASE("a posted process may lock another target", "[epochs]") {
  EpochState state(4);
  CHECK(!state.post(std::vector<int>{1}));
  CHECK(!state.lock(2, LockType::kShared));
  CHECK(!state.operation(2));
  CHECK(!state.unlock(2));
  CHECK(!state.wait());
  state.exposure_ended();
}

TEST_CASE("an epoch with an empty group permits no target and must be closed", "[epochs]") {
  EpochState state(kRanks);
  CHECK(!state.start({}));
  for (int target = 0; target < kRanks; ++target) CHECK(state.operation(target));
  CHECK(state.start({}));
  CHECK(!state.complete());
  CHECK(!state.post({}));
  CHECK(state.post({}));
  CHECK(!state.wait());
}

TEST_CASE("a start group leaves nothing behind for the next epoch", "[epochs]") {
  EpochState state(kRanks);
  CHECK(!state.start(std::vector<int>{2, 66}));
  CHECK(!state.complete());
  CHECK(std::vector<int>(state.started_group().begin(), state.started_group().end()) ==
        std::vector<int>{2, 66});
  CHECK(!state.start(std::vector<int>{3}));
  CHECK(state.operation(2));
  CHECK(state.operation(66));
  CHECK(!state.operation(3));
  CHECK(!state.complete());
  CHECK(!state.lock(5, LockType::kShared));
  CHECK(state.operation(3));
}

TEST_CASE("what a protocol finds refused was never open", "[epochs]") {
  for (const std::string access : {"none", "open"}) {
    for (const std::string exposure : {"none", "fence"}) {
      INFO(access << ", " << exposure);
      EpochState state = make(access, exposure);
      const std::string before = seen(state);
      REQUIRE(!state.lock(kMember, LockType::kExclusive));
      state.lock_refused(kMember);
      CHECK(seen(state) == before);
      REQUIRE(!state.lock_all());
      state.lock_all_refused();
      CHECK(seen(state) == before);
      REQUIRE(!state.start({}));
      state.start_refused();
      CHECK(seen(state) == before);
      const char* const opened_by = state.exposure_opened_by();
      REQUIRE(!state.post(kGroup));
      state.post_refused();
      CHECK(name(state.exposure()) == exposure);
      CHECK(state.exposure_opened_by() == opened_by);
      CHECK(state.wait());
    }
  }
}

TEST_CASE("a refused start leaves no member behind", "[epochs]") {
  EpochState state(kRanks);
  REQUIRE(!state.start(kGroup));
  state.start_refused();
  REQUIRE(!state.lock(0, LockType::kShared));
  CHECK(state.operation(kMember));
}

TEST_CASE("a lock refused while another is held leaves the other", "[epochs]") {
  EpochState state = make("open", "fence");
  REQUIRE(!state.lock(1, LockType::kShared));
  REQUIRE(!state.lock(2, LockType::kExclusive));
  state.lock_refused(2);
  CHECK(state.operation(2));
  CHECK(!state.operation(1));
  CHECK(state.locks_held() == 1);
  REQUIRE(!state.lock(2, LockType::kShared));
  REQUIRE(!state.unlock(1));
  state.lock_refused(2);  // the fence epoch ended with the lock of 1
  CHECK(state.access() == Access::kNone);
}

TEST_CASE("a target that promised MPI_MODE_NOPUT is not updated until the epoch ends, and may be read") {
  EpochState state(kRanks);
  const auto refused = [&](int target) {
    const std::string before = seen(state);
    const Violation v = state.operation(target, true);
    return std::string(v.what) == violation(Rule::kNoPut).what && seen(state) == before;
  };
  // By fence: from the first operation on and later, whoever else is accessed.
  REQUIRE(!state.fence(kNoAssert));
  state.promised_no_put(kMember);
  CHECK(refused(kMember));
  CHECK(state.access() == Access::kFenceOpen);
  CHECK(!state.operation(kMember, false));
  CHECK(!state.operation(kOther, true));
  CHECK(refused(kMember));
  CHECK(!state.operation(kMember, false));
  CHECK(state.operation(kRanks, false).error == ErrorClass::kRank);
  REQUIRE(!state.fence(kNoAssert));
  CHECK(!state.operation(kMember, true));
  REQUIRE(!state.fence(kNoSucceed));
  // By start.
  REQUIRE(!state.start(kGroup));
  state.promised_no_put(1);
  CHECK(refused(1));
  CHECK(!state.operation(1, false));
  CHECK(!state.operation(kMember, true));
  CHECK(std::string(state.operation(kOther, true).what) == violation(Rule::kNotInGroup).what);
  REQUIRE(!state.complete());
  REQUIRE(!state.start(kGroup));
  CHECK(!state.operation(1, true));
  REQUIRE(!state.complete());
  // A promise of a fence that nothing followed says nothing of locks.
  REQUIRE(!state.fence(kNoAssert));
  state.promised_no_put(kMember);
  REQUIRE(!state.lock(kMember, LockType::kShared));
  CHECK(!state.operation(kMember, true));
  CHECK(!state.flush(kMember));
  REQUIRE(!state.unlock(kMember));
}

TEST_CASE("the calls that opened and closed an epoch are known", "[epochs]") {
  EpochState state(kRanks);
  CHECK(state.opened_by() == nullptr);
  CHECK(state.closed_by() == nullptr);
  CHECK(state.describe_access() == "no access epoch is open");
  CHECK(state.describe_exposure() == "the window is not exposed");
  CHECK(!state.fence(kNoPrecede));
  CHECK(state.closed_by() == nullptr);
  CHECK(!state.operation(1));
  CHECK(std::string(state.opened_by()) == "MPI_Win_fence");
  CHECK(!state.fence(kNoSucceed));
  CHECK(state.opened_by() == nullptr);
  CHECK(std::string(state.closed_by()) == "MPI_Win_fence with MPI_MODE_NOSUCCEED");
  CHECK(state.describe_access() ==
        "no access epoch is open (the last was closed by MPI_Win_fence with MPI_MODE_NOSUCCEED)");
  CHECK(!state.lock(1, LockType::kShared));
  CHECK(std::string(state.opened_by()) == "MPI_Win_lock");
  CHECK(state.describe_access() == "1 target is locked (MPI_Win_lock)");
  CHECK(!state.lock(2, LockType::kShared));
  CHECK(state.describe_access() == "2 targets are locked (MPI_Win_lock)");
  CHECK(!state.unlock(1));
  CHECK(!state.unlock(2));
  CHECK(std::string(state.closed_by()) == "MPI_Win_unlock");
  CHECK(!state.post(kGroup));
  CHECK(std::string(state.exposure_opened_by()) == "MPI_Win_post");
  CHECK(state.describe_exposure() == "the window is posted to 2 origins (MPI_Win_post)");
  state.exposure_ended();
  CHECK(state.exposure_opened_by() == nullptr);
  CHECK(state.describe_exposure() ==
        "the window is not exposed (the last exposure was closed by MPI_Win_wait)");
}

namespace {

// The standard once more, in another shape: facts about the past instead of states. No table.
struct PlainModel {
  int ranks;
  bool fenced = false;  // the last synchronization on the access side was a fence that may be followed
  int issued = 0;       // operations since then
  bool started = false;
  std::set<int> group;
  std::map<int, LockType> locks;
  bool all = false;
  bool posted = false;

  bool active_access() const { return started || !locks.empty() || all; }
  bool epoch_may_open() const { return !active_access() && !(fenced && issued > 0); }
  bool passive_for(int target) const { return all || locks.count(target) != 0; }

  bool operation(int target) {
    if (fenced && !active_access()) {
      ++issued;
      return true;
    }
    return passive_for(target) || (started && group.count(target) != 0);
  }
  bool flush_all() const { return all || !locks.empty(); }
  bool fence(bool no_precede, bool no_succeed) {
    if (active_access() || posted || (no_precede && fenced && issued > 0)) return false;
    fenced = !no_succeed;
    issued = 0;
    return true;
  }
  bool post() {
    if (posted || all) return false;
    return posted = true;
  }
  bool start(const std::vector<int>& targets) {
    if (!epoch_may_open()) return false;
    fenced = false;
    group = {targets.begin(), targets.end()};
    return started = true;
  }
  bool complete() { return std::exchange(started, false); }
  bool wait(bool ends) {
    if (!posted) return false;
    posted = !ends;
    return true;
  }
  bool lock(int target, LockType type) {
    if ((locks.empty() && !epoch_may_open()) || locks.count(target) != 0) return false;
    fenced = false;
    locks[target] = type;
    return true;
  }
  bool unlock(int target) { return locks.erase(target) == 1; }
  bool lock_all() {
    if (!epoch_may_open() || posted) return false;
    fenced = false;
    return all = true;
  }
  bool unlock_all() { return std::exchange(all, false); }
  char type_held(int target) const {
    const auto held = locks.find(target);
    if (held != locks.end()) return held->second == LockType::kShared ? 's' : 'x';
    return all ? 's' : '-';
  }
  bool free_allowed() const { return epoch_may_open() && !posted; }
};

}  // namespace

TEST_CASE("random sequences agree with a plain model of the standard", "[epochs]") {
  std::mt19937 random(20240607);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int allowed = 0;
  int refused = 0;
  for (int sequence = 0; sequence < 20000; ++sequence) {
    const int ranks = sequence % 10 == 0 ? 130 : 1 + below(4);
    EpochState state(ranks);
    PlainModel model{.ranks = ranks, .group = {}, .locks = {}};
    std::string history;
    const auto check = [&](const char* call, const Violation& violation, bool legal) {
      history += std::string(" ") + call;
      (legal ? allowed : refused) += 1;
      if (bool(violation) != legal) return;
      INFO("after" << history);
      FAIL((legal ? "refused: " : "allowed, against the model") << violation.what);
    };
    for (int step = 0; step < 40; ++step) {
      const int target = below(ranks);
      const auto type = below(2) == 0 ? LockType::kShared : LockType::kExclusive;
      std::vector<int> group;
      for (int rank = 0; rank < ranks; ++rank)
        if (below(2) == 0) group.push_back(rank);
      std::shuffle(group.begin(), group.end(), random);
      switch (below(20)) {
        case 0:
        case 1:
        case 2:
          check("operation", state.operation(target), model.operation(target));
          break;
        case 3:
          check("request", state.request_operation(target), model.passive_for(target));
          break;
        case 4:
          check("flush", state.flush(target), model.passive_for(target));
          break;
        case 5:
          check("flush_all", state.flush_all(), model.flush_all());
          break;
        case 6:
          check("sync", state.sync(), true);
          break;
        case 7:
        case 8: {
          const FenceAssert assert{.no_precede = below(3) == 0,
                                   .no_succeed = below(3) == 0,
                                   .no_store = below(2) == 0,
                                   .no_put = below(2) == 0};
          check("fence", state.fence(assert), model.fence(assert.no_precede, assert.no_succeed));
          break;
        }
        case 9:
          check("post", state.post(group), model.post());
          break;
        case 10:
          check("start", state.start(group), model.start(group));
          break;
        case 11:
        case 12:
          check("complete", state.complete(), model.complete());
          break;
        case 13: {
          const bool legal = model.wait(true);
          check("wait", state.wait(), legal);
          if (legal) state.exposure_ended();
          break;
        }
        case 14: {
          const bool answer = below(2) == 0;
          const bool legal = model.wait(answer);
          check("test", state.test(), legal);
          if (legal && answer) state.exposure_ended(Call::kTest);
          break;
        }
        case 15: {
          const bool was_legal = PlainModel(model).lock(target, type);
          if (was_legal && below(4) == 0) {  // the protocol refuses it
            const std::string before = seen(state);
            check("lock-refused", state.lock(target, type), true);
            state.lock_refused(target);
            if (seen(state) != before) FAIL("a refused lock left a trace after" << history);
            break;
          }
          check("lock", state.lock(target, type), model.lock(target, type));
          break;
        }
        case 16:
        case 17:
          check("unlock", state.unlock(target), model.unlock(target));
          break;
        case 18:
          check("lock_all", state.lock_all(), model.lock_all());
          break;
        default:
          if (below(2) == 0) {
            check("unlock_all", state.unlock_all(), model.unlock_all());
          } else {
            EpochState copy = state;
            check("free", copy.free(), model.free_allowed());
          }
      }
      if (state.locks_held() != static_cast<int>(model.locks.size()))
        FAIL("locks held differ after" << history);
      if (type_held(state.locked(target)) != model.type_held(target))
        FAIL("the type of a lock differs after" << history);
    }
  }
  CHECK(allowed > 100000);
  CHECK(refused > 100000);
}

namespace {

template <class State>
std::string shown(const Cell<State>& cell, State column, std::map<Rule, int>& numbers) {
  using Kind = typename Cell<State>::Kind;
  const auto refers = [&](Rule rule) {
    const auto next = static_cast<int>(numbers.size()) + 1;
    return "**" + std::to_string(numbers.emplace(rule, next).first->second) + "**";
  };
  const std::string to = cell.next == column ? "same" : name(cell.next);
  switch (cell.kind) {
    case Kind::kGo:
      return to;
    case Kind::kRefuse:
      return refers(cell.rule);
    case Kind::kIfMember:
      return to + " or " + refers(cell.rule);
    case Kind::kIfNotMember:
      return to + " or " + refers(cell.rule);
    case Kind::kLeave:
      return to + ", last: none, or " + refers(cell.rule);
    case Kind::kFence:
      return to + (cell.rule == Rule::kNone ? "" : " or " + refers(cell.rule));
  }
  return "";
}

std::string shown_row(Call call, bool access, std::map<Rule, int>& numbers) {
  std::string row = "| " + std::string(call_name(call)) + " |";
  for (std::size_t i = 0; i < (access ? kAccessStates : kExposureStates); ++i)
    row += " " +
           (access ? shown(cell(call, static_cast<Access>(i)), static_cast<Access>(i), numbers)
                   : shown(cell(call, static_cast<Exposure>(i)), static_cast<Exposure>(i), numbers)) +
           " |";
  return row + "\n";
}

}  // namespace

TEST_CASE("the README of epochs shows the table as it is", "[epochs]") {
  std::map<Rule, int> numbers;
  std::string expected =
      "| call | none | open | active | started | locked | all |\n|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < kCalls; ++i) {
    const auto call = static_cast<Call>(i);
    if (call == Call::kWait || call == Call::kTest) continue;  // no concern of the access side
    expected += shown_row(call, true, numbers);
  }
  expected += "\n| call | none | fence | posted |\n|---|---|---|---|\n";
  for (const Call call : {Call::kFence, Call::kPost, Call::kWait, Call::kTest, Call::kLockAll, Call::kFree})
    expected += shown_row(call, false, numbers);
  for (const Rule rule : {Rule::kBadTarget, Rule::kBadGroup, Rule::kNoPut})
    numbers.emplace(rule, static_cast<int>(numbers.size()) + 1);
  std::map<int, Rule> by_number;
  for (const auto& [rule, number] : numbers) by_number[number] = rule;
  expected += "\n";
  for (const auto& [number, rule] : by_number) {
    const Violation& v = violation(rule);
    const char* error = v.error == ErrorClass::kRmaSync  ? "MPI_ERR_RMA_SYNC"
                        : v.error == ErrorClass::kAssert ? "MPI_ERR_ASSERT"
                        : v.error == ErrorClass::kRank   ? "MPI_ERR_RANK"
                                                         : "MPI_ERR_GROUP";
    expected +=
        std::to_string(number) + ". " + v.what + ": " + v.advice + ". `" + error + "`, " + v.section + "\n";
  }
  std::ifstream file(FARSIDE_SOURCE_DIR "/epochs/README.md");
  std::stringstream readme;
  readme << file.rdbuf();
  INFO("the README should contain:\n" << expected);
  CHECK(readme.str().find(expected) != std::string::npos);
}

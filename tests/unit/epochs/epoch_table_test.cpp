// SPDX-License-Identifier: BSD-3-Clause
// The table of the epoch state machine. Every call in every pair of states is compared with expectations written from
// the standard, a violation changes nothing, and the fast path agrees with the table.
#include <cstddef>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/epochs/epoch_states.hpp"

namespace farside::epoch_table_test {

using namespace farside::epochs;
using namespace farside::epochs::testing;

namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

// Makes the call with this name of the expectations below.
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

// The expectations of MPI 4.0, call by call: the next state, "=" for the same state, or the section of chapter 12
// that the call violates (2.5 free, 3.5 request-based operations, 5 epochs are disjoint, 5.1 to 5.5).
// clang-format off
const char* const kAccessExpected[] = {
    // call             none     open     active  starting  started  locked  locking all  all
    "operation-member   5        active   =       5.2       =        =       5.3          =",
    "operation-other    5        active   =       5.2       5.2      5.3     5.3          =",
    "request-member     3.5      3.5      3.5     3.5       3.5      =       5.3          =",
    "request-other      3.5      3.5      3.5     3.5       3.5      5.3     5.3          =",
    "flush-member       5.4      5.4      5.4     5.4       5.4      =       5.3          =",
    "flush-other        5.4      5.4      5.4     5.4       5.4      5.3     5.3          =",
    "flush_all          5.4      5.4      5.4     5.4       5.4      =       5.3          =",
    "sync               =        =        =       =         =        =       =            =",
    "fence              open     open     open    5         5        5       5            5",
    "fence-noprecede    open     open     5.5     5         5        5       5            5",
    "fence-nosucceed    none     none     none    5         5        5       5            5",
    "fence-both         none     none     5.5     5         5        5       5            5",
    "post               =        =        =       =         =        =       5.3          5.3",
    "post-empty         =        =        =       =         =        =       =            =",
    "start              started  started  5       5         5        5       5            5",
    "start-empty        =        =        =       =         =        =       =            =",
    "complete           5.2      5.2      5.2     5.2       none     5.2     5.2          5.2",
    "wait               =        =        =       =         =        =       =            =",
    "test               =        =        =       =         =        =       =            =",
    "lock-member        locked   locked   5       5         5        5.3     5.3          5",
    "lock-other         locked   locked   5       5         5        =       5.3          5",
    "unlock-member      5.3      5.3      5.3     5.3       5.3      =       5.3          5.3",
    "unlock-other       5.3      5.3      5.3     5.3       5.3      5.3     5.3          5.3",
    "lock_all           all      all      5       5         5        5       5.3          5",
    "unlock_all         5.3      5.3      5.3     5.3       5.3      5.3     5.3          none",
    "free               none     none     2.5     5.2       2.5      2.5     5.3          2.5",
};

const char* const kExposureExpected[] = {
    // call             none     fence    posting  posted   waiting
    "operation-member   =        =        =        =        =",
    "operation-other    =        =        =        =        =",
    "request-member     =        =        =        =        =",
    "request-other      =        =        =        =        =",
    "flush-member       =        =        =        =        =",
    "flush-other        =        =        =        =        =",
    "flush_all          =        =        =        =        =",
    "sync               =        =        =        =        =",
    "fence              fence    fence    5        5        5",
    "fence-noprecede    fence    fence    5        5        5",
    "fence-nosucceed    none     none     5        5        5",
    "fence-both         none     none     5        5        5",
    "post               posted   posted   5        5        5",
    "post-empty         =        =        =        =        =",
    "start              =        =        =        =        =",
    "start-empty        =        =        =        =        =",
    "complete           =        =        =        =        =",
    "wait               5.2      5.2      5.2      =        5.2",
    "test               5.2      5.2      5.2      =        5.2",
    "lock-member        =        =        =        =        =",
    "lock-other         =        =        =        =        =",
    "unlock-member      =        =        =        =        =",
    "unlock-other       =        =        =        =        =",
    "lock_all           =        =        5.3      5.3      5.3",
    "unlock_all         =        =        =        =        =",
    "free               none     none     5.2      2.5      5.2",
};
// clang-format on

bool is_section(const std::string& cell) { return cell[0] >= '0' && cell[0] <= '9'; }

// As make(), but with a single locked or started target, and posted to that target; or with such an epoch in the
// past.
EpochState make_used(const std::string& access, const std::string& exposure) {
  const std::vector<int> peer = {kOther};
  EpochState state = make(access, exposure);
  if (access == "locked") REQUIRE(!state.unlock(kMember));
  if (access == "started") {
    REQUIRE(!state.complete());
    REQUIRE(!state.start(peer));
  }
  if (exposure == "posted") {
    state.exposure_ended();
    REQUIRE(!state.post(peer));
  }
  if (access != "none") return state;
  REQUIRE(!state.lock(kOther, LockType::kExclusive));
  REQUIRE(!state.unlock(kOther));
  REQUIRE(!state.start(peer));
  REQUIRE(!state.complete());
  if (exposure != "none") return state;
  REQUIRE(!state.post(peer));
  REQUIRE(!state.wait());
  state.exposure_ended();
  return state;
}

// The fast path in one call: allows_fast and, if allowed, the move.
template <Call kCall>
bool try_fast(EpochState& state, int peer) {
  if (!state.allows_fast(kCall, peer)) return false;
  state.pass_fast(kCall, peer);
  if (kCall == Call::kWait) state.exposure_ended();
  return true;
}
// The target of a lock must be a rank.
bool try_lock(EpochState& state, int target) {
  return target >= 0 && target < kRanks && try_fast<Call::kLock>(state, target);
}
Violation wait_in_general(EpochState& state, int) {
  const Violation violation = state.wait();
  if (!violation) state.exposure_ended();
  return violation;
}

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
        if (locks_all(access) && is_posted(exposure)) continue;  // no sequence of legal calls leads there
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
          CHECK(name(state.exposure().state) == (want_exposure == "=" ? exposure : want_exposure));
        }
      }
    }
  }
  CHECK(pairs == 26 * (8 * 5 - 2 * 3));
}

TEST_CASE("with reports only, a call that breaks a rule is carried out, or ends as the table says", "[epochs]") {
  // "call: state": what ends, on the one side or the other. An exclusive lock of what is locked shared is tested below.
  const std::set<std::string> ends = {
      "start: starting",         "start: started",  "complete: starting", "lock-member: locking all",
      "lock-other: locking all", "lock-other: all", "lock_all: locked",   "lock_all: locking all",
      "unlock_all: locking all", "free: starting",  "free: locking all",  "free: posting",
      "free: waiting",           "post: posting",   "post: posted",       "post: waiting",
      "wait: posting",           "wait: waiting",   "test: posting",      "test: waiting"};
  for (std::size_t row = 0; row < std::size(kAccessExpected); ++row) {
    const auto on_access = words(kAccessExpected[row]);
    const auto on_exposure = words(kExposureExpected[row]);
    for (std::size_t a = 0; a < kAccessStates; ++a) {
      for (std::size_t e = 0; e < kExposureStates; ++e) {
        const std::string access = kAccessNames[a], exposure = kExposureNames[e], call = on_access[0];
        if (locks_all(access) && is_posted(exposure)) continue;
        const bool breaks = is_section(on_access[1 + a]) || is_section(on_exposure[1 + e]);
        if (!breaks) continue;
        INFO(call << " in access " << access << ", exposure " << exposure);
        EpochState checked = make(access, exposure), state = make(access, exposure);
        int reports = 0;
        const EpochState::Report report = [&](const Violation&, int) { ++reports; };
        const bool ended = ends.contains(call + ": " + access) || ends.contains(call + ": " + exposure);
        CHECK(make_call(checked, call).carried == !ended);
        state.report_only(report);
        const bool refused = static_cast<bool>(make_call(state, call));
        CHECK(refused == ended);
        CHECK(reports == (ended ? 0 : 1));
        const bool opens = !ended && is_section(on_access[1 + a]) && (call.starts_with("lock") || call == "start") &&
                           access != "locked" && !locks_all(access);
        const std::string opened = call == "start" ? "started" : call == "lock_all" ? "all" : "locked";
        if (call.starts_with("fence-") && access == "active") continue;  // the fence of MPI_MODE_NOPRECEDE is one
        CHECK(name(state.access()) == (opens ? opened
                                       : is_section(on_access[1 + a]) || ended || on_access[1 + a] == "="
                                           ? access
                                           : on_access[1 + a]));
      }
    }
  }
}

TEST_CASE("the fast-path checks say yes only where the tables do, and then move the state as they do", "[epochs]") {
  struct Pair {
    const char* name;
    bool (*fast)(EpochState&, int);
    Violation (*in_general)(EpochState&, int);
  };
  const Pair pairs[] = {
      {"operation", try_fast<Call::kOperation>, [](EpochState& s, int rank) { return s.operation(rank); }},
      {"flush", try_fast<Call::kFlush>, [](EpochState& s, int rank) { return s.flush(rank); }},
      {"lock", try_lock, [](EpochState& s, int rank) { return s.lock(rank, LockType::kShared); }},
      {"unlock", try_fast<Call::kUnlock>, [](EpochState& s, int rank) { return s.unlock(rank); }},
      {"start", try_fast<Call::kStart>, [](EpochState& s, int rank) { return s.start(std::vector<int>{rank}); }},
      {"complete", try_fast<Call::kComplete>, [](EpochState& s, int) { return s.complete(); }},
      {"post", try_fast<Call::kPost>, [](EpochState& s, int rank) { return s.post(std::vector<int>{rank}); }},
      {"fence", try_fast<Call::kFence>, [](EpochState& s, int) { return s.fence({}); }},
      {"wait", try_fast<Call::kWait>, wait_in_general},
  };
  for (const Pair& pair : pairs) {
    int taken = 0;
    for (const std::string& access : kAccessNames) {
      for (const std::string& exposure : kExposureNames) {
        if (locks_all(access) && is_posted(exposure)) continue;  // there is no such state
        for (const int rank : {-1, 0, 1, kOther, kMember, kRanks - 1, kRanks}) {
          for (const bool fresh : {true, false}) {
            EpochState fast = fresh ? make(access, exposure) : make_used(access, exposure);
            EpochState general = fast;
            const std::string before = seen(fast);
            INFO(pair.name << " of " << rank << " in " << access << ", " << exposure);
            if (pair.fast(fast, rank)) {
              ++taken;
              CHECK(!pair.in_general(general, rank));
              CHECK(seen(fast) == seen(general));
              CHECK(fast.describe_access() == general.describe_access());
              CHECK(fast.exposure().describe() == general.exposure().describe());
              // The following calls have the same effect.
              for (const int next : {1, kOther, kMember}) {
                CHECK(!fast.operation(next) == !general.operation(next));
                CHECK(!fast.unlock(next) == !general.unlock(next));
                CHECK(seen(fast) == seen(general));
              }
              CHECK(!fast.lock(rank, LockType::kShared) == !general.lock(rank, LockType::kShared));
              CHECK(seen(fast) == seen(general));
            } else {
              CHECK(seen(fast) == before);
            }
          }
        }
      }
    }
    // The fast path is reached in some state.
    INFO(pair.name);
    CHECK(taken > 0);
  }
  // An assertion of MPI_MODE_NOPUT by the only target takes operations off the fast path.
  EpochState started = make_used("started", "none");
  CHECK(started.allows_fast(Call::kOperation, kOther));
  started.asserted_no_put(kOther);
  CHECK(!started.allows_fast(Call::kOperation, kOther));
  CHECK(started.operation(kOther));
  CHECK(!started.operation(kOther, false));
  CHECK(!started.allows_fast(Call::kComplete));
  CHECK(!started.complete());
  CHECK(started.allows_fast(Call::kStart, kOther));

  EpochState state = make("none", "none");
  CHECK(try_lock(state, 1));
  CHECK(state.locked(1));
  CHECK(!state.lock(kMember, LockType::kShared));
  CHECK(!try_fast<Call::kUnlock>(state, 1));
  CHECK(!state.unlock(1));
  CHECK(!state.locked(1));
  CHECK(!state.lock(kOther, LockType::kExclusive));
  CHECK(state.locked(kMember));
  CHECK(state.locked(kOther));
  CHECK(state.locks_held() == 2);
  CHECK(!state.unlock(kMember));
  CHECK(try_fast<Call::kUnlock>(state, kOther));
  CHECK(state.access() == Access::kNone);
}

}  // namespace farside::epoch_table_test

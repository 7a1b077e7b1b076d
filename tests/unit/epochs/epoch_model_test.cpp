// SPDX-License-Identifier: BSD-3-Clause
// Random sequences of calls: the epoch state machine against a second, simpler model.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/support/seeds.hpp"
#include "tests/unit/epochs/epoch_states.hpp"

namespace farside::epoch_model_test {

using namespace farside::epochs;
using namespace farside::epochs::testing;
using farside::testing::named;
using farside::testing::seeds;

namespace {

// The standard in another form: facts about past calls instead of states, and no table.
struct PlainModel {
  int ranks;
  bool fenced = false;  // the last synchronization of the access side was a fence without MPI_MODE_NOSUCCEED
  int issued = 0;       // operations since that fence
  bool started = false;
  std::set<int> group;
  std::map<int, LockType> locks;
  bool all = false;
  bool posted = false;
  bool empty_start = false, empty_post = false;  // not yet completed, not yet waited for

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
  bool post(bool empty = false) {
    if (empty) return empty_post = true;
    if (posted || all) return false;
    return posted = true;
  }
  bool start(const std::vector<int>& targets) {
    if (targets.empty()) return empty_start = true;
    if (!epoch_may_open()) return false;
    fenced = false;
    group = {targets.begin(), targets.end()};
    return started = true;
  }
  bool complete() { return std::exchange(started ? started : empty_start, false); }
  bool wait(bool ends) {
    if (!posted) return ends ? std::exchange(empty_post, false) : empty_post;
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
  bool free_allowed() const { return epoch_may_open() && !posted; }
};

}  // namespace

TEST_CASE("random sequences agree with a plain model of the standard", "[epochs]") {
  const std::uint32_t seed = GENERATE(from_range(seeds({20240607})));
  INFO(named(seed));
  std::mt19937 random(seed);
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
      const bool fast = below(2) == 0;
      const auto type = below(2) == 0 ? LockType::kShared : LockType::kExclusive;
      std::vector<int> group;
      for (int rank = 0; rank < ranks; ++rank)
        if (below(2) == 0) group.push_back(rank);
      std::shuffle(group.begin(), group.end(), random);
      switch (below(20)) {
        case 0:
        case 1:
        case 2: check("operation", state.operation(target), model.operation(target)); break;
        case 3: check("request", state.request_operation(target), model.passive_for(target)); break;
        case 4: check("flush", state.flush(target), model.passive_for(target)); break;
        case 5: check("flush_all", state.flush_all(), model.flush_all()); break;
        case 6: check("sync", state.sync(), true); break;
        case 7:
        case 8: {
          const FenceAssert assert{.no_precede = below(3) == 0, .no_succeed = below(3) == 0};
          if (fast && state.allows_fast(Call::kFence) && below(2) == 0) {
            state.pass_fast(Call::kFence);
            check("fence-fast", {}, model.fence(false, false));
            break;
          }
          check("fence", state.fence(assert), model.fence(assert.no_precede, assert.no_succeed));
          break;
        }
        case 9:
          if (fast && group.size() == 1 && state.allows_fast(Call::kPost, group[0])) {
            state.pass_fast(Call::kPost);
            check("post-fast", {}, model.post());
            break;
          }
          check("post", state.post(group), model.post(group.empty()));
          break;
        case 10:
          if (fast && group.size() == 1 && state.allows_fast(Call::kStart, group[0])) {
            state.pass_fast(Call::kStart, group[0]);
            check("start-fast", {}, model.start(group));
            break;
          }
          check("start", state.start(group), model.start(group));
          break;
        case 11:
        case 12:
          if (fast && state.allows_fast(Call::kComplete)) {
            state.pass_fast(Call::kComplete);
            check("complete-fast", {}, model.complete());
            break;
          }
          check("complete", state.complete(), model.complete());
          break;
        case 13: {
          const bool posted = model.posted, legal = model.wait(true);
          if (fast && state.allows_fast(Call::kWait)) {
            check("wait-fast", {}, legal);
            state.exposure_ended();
            break;
          }
          check("wait", posted ? state.wait() : state.begin_wait(), legal);
          if (posted) state.exposure_ended();
          break;
        }
        case 14: {
          const bool answer = below(2) == 0;
          const bool posted = model.posted, legal = model.wait(answer);
          check("test", state.test(), legal);
          if (!legal || !answer) break;
          if (posted) {
            state.exposure_ended(Call::kTest);
          } else {
            CHECK(!state.begin_wait());
          }
          break;
        }
        case 15: {
          const bool was_legal = PlainModel(model).lock(target, type);
          if (was_legal && below(4) == 0) {  // the protocol refuses the lock
            const std::string before = seen(state);
            check("lock-refused", state.lock(target, type), true);
            state.refused(Call::kLock, target);
            if (seen(state) != before) FAIL("a refused lock left a trace after" << history);
            break;
          }
          check("lock", state.lock(target, type), model.lock(target, type));
          break;
        }
        case 16:
        case 17: check("unlock", state.unlock(target), model.unlock(target)); break;
        case 18: check("lock_all", state.lock_all(), model.lock_all()); break;
        default:
          if (below(2) == 0) {
            check("unlock_all", state.unlock_all(), model.unlock_all());
          } else {
            EpochState copy = state;
            check("free", copy.free(), model.free_allowed());
          }
      }
      if (state.locks_held() != static_cast<int>(model.locks.size())) FAIL("locks held differ after" << history);
      if (state.locked(target) != model.passive_for(target)) FAIL("a lock differs after" << history);
    }
  }
  CHECK(allowed > 100000);
  CHECK(refused > 100000);
}

}  // namespace farside::epoch_model_test

// SPDX-License-Identifier: BSD-3-Clause
// Posts, concurrent with locks of the posting rank and with lock_alls that take its lock, in all interleavings of a few
// ranks. Variants that distinguish these with one defect each, which must be found.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>

#include "epochs/protocols/exposure.hpp"
#include "epochs/protocols/lock.hpp"
#include "tests/unit/epochs/explorer.hpp"

namespace farside::lock_all_exposure_explorer_test {

namespace {

using namespace farside::explore;
using farside::epochs::ControlBlock;
using farside::epochs::LockOf;
using farside::epochs::LockType;
using farside::epochs::LockWord;
namespace epochs = farside::epochs;

constexpr int kTarget = 0;

// "S" and "E": a shared and an exclusive lock of rank 0; "L": the part of a lock_all that concerns rank 0. At rank 0
// only: "P", a post, and after it "W", a wait, unless the post was refused.
class LockAllExposureProgram {
  using Acquire = epochs::AcquireLock<Memory>;
  using Release = epochs::ReleaseLock<Memory>;
  using Mark = epochs::ExposureMark<Memory>;
  enum class Step : std::uint8_t { kBegin, kAcquire, kRelease };

 public:
  struct Shared {
    std::int8_t locked[kActors] = {};  // by an MPI_Win_lock of this rank, held or awaited
    std::int8_t lock_alls[kActors] = {};
    std::int8_t exposed = 0;
    std::int8_t met_exposure[kActors] = {};  // at the arrival
  };
  struct Found {
    bool post_refused = false, post_beside_lock_all = false, lock_saw_exposure = false, lock_all_saw_exposure = false;
  };

  LockAllExposureProgram() = default;
  LockAllExposureProgram(const std::string* script, Found* found) : script_(script), found_(found) {}

  bool over() const { return position_ == script_->size(); }
  bool begins() const { return step_ == Step::kBegin; }

  void step(Memory& memory, Shared& shared) {
    const char what = (*script_)[position_];
    const LockType type = what == 'E' ? LockType::kExclusive : LockType::kShared;
    const LockOf of = what == 'L' ? LockOf::kAll : LockOf::kTarget;
    switch (step_) {
      case Step::kBegin: {
        if (what == 'W') {
          Mark::clear(memory);
          shared.exposed = 0;
          return next(memory);
        }
        if (what != 'P') {
          running_.begin<Acquire>(memory, memory.rank(), kTarget, type, 0U, of);
          step_ = Step::kAcquire;
          return step(memory, shared);
        }
        const bool set = Mark::set(memory);
        if (set == any(shared.locked)) {
          memory.broken(set ? "a post does not see a lock of its rank"
                            : "a post is refused, and nobody has locked its rank");
        }
        if (!set) {
          found_->post_refused = true;
          ++position_;  // no wait follows
          return next(memory);
        }
        if (any(shared.lock_alls)) found_->post_beside_lock_all = true;
        shared.exposed = 1;
        return next(memory);
      }
      case Step::kAcquire:
        if (!running_.get<Acquire>().advance()) return;
        if (running_.get<Acquire>().saw_exposure() != (shared.met_exposure[memory.index()] != 0)) {
          memory.broken("a lock and an exposure have not seen each other");
        }
        if (shared.met_exposure[memory.index()] != 0)
          (what == 'L' ? found_->lock_all_saw_exposure : found_->lock_saw_exposure) = true;
        token_ = running_.get<Acquire>().token();
        running_.end();
        memory.retire_operations();
        running_.begin<Release>(memory, kTarget, type, token_, of);
        step_ = Step::kRelease;
        return;
      case Step::kRelease:
        if (running_.get<Release>().advance()) next(memory);
        return;
    }
  }

  void effect(const Request& request, Memory& memory, Shared& shared) {
    const auto self = static_cast<std::size_t>(memory.index());
    if (request.kind != Kind::kFetchAdd || request.rank != kTarget) return;
    const bool word = request.word == ControlBlock::kLock;
    std::int8_t& present = (*script_)[position_] == 'L' ? shared.lock_alls[self] : shared.locked[self];
    if (step_ == Step::kAcquire && word && (request.operand & LockWord::kTicket) != 0) {
      present = 1;
      shared.met_exposure[self] = shared.exposed;
    } else if (step_ == Step::kRelease && (word || epochs::DrainWord::departed(request.operand) > 0)) {
      present = 0;
    }
  }

  std::uint64_t hash(std::uint64_t seed) const {
    seed = running_.hash(mix(seed, position_ * 8 + static_cast<std::uint64_t>(step_)));
    return hash_bytes(seed, &token_, sizeof token_);
  }
  static bool own_word(std::uint32_t word) {
    return word >= ControlBlock::kWake && word < ControlBlock::kWake + 8 * ControlBlock::kWakeWords;
  }
  static void check_end(const MemoryState& memory_state, const Shared&, std::string& failure) {
    if (memory_state.at(kTarget, ControlBlock::kLock) % LockWord::kTicket != 0)
      failure = "in the end someone is left in the lock word";
  }
  std::string describe_position() const {
    static constexpr const char* kNames[] = {"begins", "acquires", "releases"};
    return over() ? "" : std::string(" (") + (*script_)[position_] + " " + kNames[static_cast<int>(step_)] + ")";
  }
  std::string describe(int actor) const {
    return "then actor " + std::to_string(actor) + (over() ? " is done" : " is at" + describe_position());
  }

 private:
  static bool any(const std::int8_t (&flags)[kActors]) {
    for (const std::int8_t flag : flags) {
      if (flag != 0) return true;
    }
    return false;
  }
  void next(Memory& memory) {
    running_.end();
    memory.retire_operations();
    token_ = {};
    step_ = Step::kBegin;
    ++position_;
  }

  const std::string* script_ = nullptr;
  Found* found_ = nullptr;
  std::uint64_t position_ = 0;
  epochs::LockToken token_;
  Step step_ = Step::kBegin;
  Running<Acquire, Release> running_;
};
static_assert(std::has_unique_object_representations_v<LockAllExposureProgram::Shared>);

Report explore(const std::vector<std::string>& scripts, const Options& options, LockAllExposureProgram::Found& found) {
  std::vector<LockAllExposureProgram> programs;
  for (const std::string& script : scripts) programs.emplace_back(&script, &found);
  return Explorer<LockAllExposureProgram>(programs, options).run();
}

LockAllExposureProgram::Found must_hold(const std::vector<std::string>& scripts) {
  LockAllExposureProgram::Found found;
  for (const bool late : {false, true}) {
    const Report report = explore(scripts, {.late = late}, found);
    for (const std::string& script : scripts) UNSCOPED_INFO(script);
    INFO(report.text());
    CHECK(report.failure.empty());
    CHECK(report.complete);
    CHECK(report.ends > 0);
  }
  return found;
}

std::string fault(const std::vector<std::string>& scripts, const Sabotage& sabotage) {
  LockAllExposureProgram::Found found;
  return explore(scripts, {.sabotage = sabotage}, found).failure;
}

const std::string kAccused = "a post is refused, and nobody has locked its rank";

}  // namespace

TEST_CASE("a lock_all and a post never refuse each other") {
  const auto found = must_hold({"PWPW", "LL", "L"});
  CHECK(!found.post_refused);
  CHECK(found.post_beside_lock_all);
  CHECK(found.lock_all_saw_exposure);  // which is no violation
}

TEST_CASE("a post is refused exactly while its rank is locked, whatever lock_alls are there, or wait, or have left") {
  CHECK(must_hold({"PW", "S"}).post_refused);
  CHECK(must_hold({"PW", "E"}).lock_saw_exposure);
  for (const std::vector<std::string>& scripts : {std::vector<std::string>{"PWPW", "SL", "LS"},
                                                  {"PWPW", "EL", "L"},
                                                  {"PWPW", "LE", "SL"},
                                                  {"PW", "L", "L", "E"},
                                                  {"PW", "L", "S", "E"},
                                                  // Between two writers: the second one takes the lock_all off.
                                                  {"PW", "E", "L", "E"}}) {
    const auto found = must_hold(scripts);
    CHECK(found.post_refused);
    CHECK(found.post_beside_lock_all);
  }
}

TEST_CASE("a lock_all that is not told apart from a lock is caught") {
  CHECK(fault({"PW", "L"}, [](Request& r) {
          if (r.word == ControlBlock::kLock && r.operand == LockWord::arrive(LockType::kShared, LockOf::kAll)) {
            r.operand = LockWord::arrive(LockType::kShared);
          }
        }) == kAccused);
}

TEST_CASE("a lock_all that leaves its mark behind is caught, wherever it leaves") {
  CHECK(fault({"PW", "L"}, [](Request& r) {
          if (r.word == ControlBlock::kLock && r.operand == LockWord::depart(LockType::kShared, LockOf::kAll)) {
            r.operand = LockWord::depart(LockType::kShared);
          }
        }) != "");
  CHECK(fault({"PW", "E", "LE", "L"},
              [](Request& r) { r.dropped = r.word == ControlBlock::kLock && r.operand == -LockWord::kLockAll; }) != "");
}

TEST_CASE("a post that sees no locks is caught") {
  CHECK(fault({"PW", "S"}, [](Request& r) {
          if (r.kind == Kind::kFetchAdd && r.operand == LockWord::arrive(LockType::kShared)) {
            r.operand = LockWord::arrive(LockType::kShared, LockOf::kAll);
          }
        }) == "a post does not see a lock of its rank");
}

}  // namespace farside::lock_all_exposure_explorer_test

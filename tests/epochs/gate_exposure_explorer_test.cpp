// SPDX-License-Identifier: BSD-3-Clause
// lock_alls and posts that look for each other at the gate, among exclusive locks, in all interleavings of a few ranks; and
// ways to look that are wrong in one point, each of which must be caught.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>

#include "epochs/gate_exposure.hpp"
#include "epochs/lock.hpp"
#include "tests/epochs/explorer.hpp"

namespace {

using namespace farside::explore;
using farside::epochs::ControlBlock;
using farside::epochs::LockType;
using farside::epochs::LockWord;
namespace epochs = farside::epochs;

constexpr int kHome = 0;

// "L": lock_all and unlock_all, "E": an exclusive lock, as far as the gate goes, "P": post and wait. What is refused ends
// at once.
class GateExposureProgram {
  using Enter = epochs::AcquireLock<Memory, epochs::Gate>;
  using Leave = epochs::ReleaseLock<Memory, epochs::Gate>;
  using Look = epochs::LookForExposures<Memory>;
  using Expose = epochs::ExposeAtGate<Memory>;
  using Conceal = epochs::ConcealAtGate<Memory>;
  enum class Step : std::uint8_t { kBegin, kEnter, kLook, kLeave, kExpose, kConceal };

 public:
  struct Shared {
    std::int8_t present[kAgents] = {};  // as a lock_all, from the effect of coming to that of leaving
    std::int8_t inside[kAgents] = {};   // as a lock_all that has seen nobody exposed
    std::int8_t exposed[kAgents] = {};  // by a post that has seen no lock_all, though it could
    std::int8_t seen[kAgents] = {};     // whether a lock_all was present when a post looked
    std::int8_t doubt[kAgents] = {};    // whether an exclusive lock was there, too, when it looked at the gate
  };
  struct Found {
    bool post_refused = false, lock_all_refused = false;
  };

  GateExposureProgram() = default;
  GateExposureProgram(const std::string* script, Found* found) : script_(script), found_(found) {}

  bool over() const { return position_ == script_->size(); }
  bool begins() const { return step_ == Step::kBegin; }

  void step(Memory& memory, Shared& shared) {
    const int self = memory.index();
    const char what = (*script_)[position_];
    const LockType type = what == 'L' ? LockType::kShared : LockType::kExclusive;
    switch (step_) {
      case Step::kBegin:
        if (what == 'P') {
          running_.begin<Expose>(memory, kHome);
          shared.seen[self] = 0;
          step_ = Step::kExpose;
          return step(memory, shared);
        }
        running_.begin<Enter>(memory, memory.rank(), kHome, type);
        step_ = Step::kEnter;
        [[fallthrough]];
      case Step::kEnter:
        if (!running_.get<Enter>().advance()) return;
        hold_ = running_.get<Enter>().hold();
        end_protocol(memory);
        if (what == 'E') return leave(memory, type);
        running_.begin<Look>(memory, kHome);
        step_ = Step::kLook;
        return;
      case Step::kLook:
        if (!running_.get<Look>().advance()) return;
        if (running_.get<Look>().any()) {
          found_->lock_all_refused = true;
        } else {
          shared.inside[self] = 1;
          if (any(shared.exposed)) memory.broken("a lock_all and an exposure have not seen each other");
        }
        end_protocol(memory);
        return leave(memory, type);
      case Step::kLeave:
        if (running_.get<Leave>().advance()) next(memory);
        return;
      case Step::kExpose:
        if (!running_.get<Expose>().advance()) return;
        if (!running_.get<Expose>().exposed()) {
          found_->post_refused = true;
          if (shared.seen[self] == 0) memory.broken("a post is refused, and there was no lock_all");
          return next(memory);
        }
        shared.exposed[self] = shared.doubt[self] == 0 ? 1 : 0;
        if (shared.exposed[self] != 0 && any(shared.inside)) memory.broken("a lock_all and an exposure have not seen each other");
        end_protocol(memory);
        running_.begin<Conceal>(memory, kHome);
        step_ = Step::kConceal;
        return;
      case Step::kConceal:
        if (running_.get<Conceal>().advance()) next(memory);
        return;
    }
  }

  void effect(const Request& request, Memory& memory, Shared& shared) {
    const int self = memory.index();
    const char what = (*script_)[position_];
    const bool gate = request.word == ControlBlock::kGate;
    const bool drain = request.word == ControlBlock::kGateDrain || request.word == ControlBlock::kGateDrain + 8;
    if (what == 'L' && step_ == Step::kLeave && request.kind == Kind::kFetchAdd && (gate || drain)) {
      shared.present[self] = shared.inside[self] = 0;
    } else if (what == 'L' && step_ == Step::kEnter && request.kind == Kind::kFetchAdd && gate &&
               static_cast<std::int64_t>(request.operand) > 0) {
      shared.present[self] = 1;
    } else if (what == 'P' && request.kind == Kind::kRead) {
      if (any(shared.present)) shared.seen[self] = 1;
      if (request.word == ControlBlock::kGate) {
        shared.doubt[self] = LockWord::writers(memory.world().at(kHome, ControlBlock::kGate)) != 0 ? 1 : 0;
      }
    } else if (step_ == Step::kConceal) {
      shared.exposed[self] = 0;
    }
  }

  std::uint64_t hash(std::uint64_t seed) const {
    seed = running_.hash(mix(seed, position_ * 8 + static_cast<std::uint64_t>(step_)));
    return hash_bytes(seed, &hold_, sizeof hold_);
  }
  static bool own_word(std::uint32_t word) {
    return word >= ControlBlock::kWake && word < ControlBlock::kWake + 8 * ControlBlock::kWakeWords;
  }
  static void check_end(const World& world, const Shared&, std::string& failure) {
    if (world.at(kHome, ControlBlock::kGateExposed) != 0) failure = "in the end an exposure is left";
    if (world.at(kHome, ControlBlock::kGate) % LockWord::kTicket != 0) failure = "in the end someone is left at the gate";
  }
  std::string describe_position() const {
    static constexpr const char* kNames[] = {"begins", "enters", "looks", "leaves", "exposes", "conceals"};
    return over() ? "" : std::string(" (") + (*script_)[position_] + " " + kNames[static_cast<int>(step_)] + ")";
  }
  std::string describe(int agent) const {
    return "then agent " + std::to_string(agent) + (over() ? " is done" : " is at" + describe_position());
  }

 private:
  static bool any(const std::int8_t (&flags)[kAgents]) {
    for (const std::int8_t flag : flags) {
      if (flag != 0) return true;
    }
    return false;
  }
  void end_protocol(Memory& memory) {
    running_.end();
    memory.retire_operations();
  }
  void leave(Memory& memory, LockType type) {
    running_.begin<Leave>(memory, kHome, type, hold_);
    step_ = Step::kLeave;
  }
  void next(Memory& memory) {
    end_protocol(memory);
    hold_ = {};
    step_ = Step::kBegin;
    ++position_;
  }

  const std::string* script_ = nullptr;
  Found* found_ = nullptr;
  std::uint64_t position_ = 0;
  epochs::Hold hold_;
  Step step_ = Step::kBegin;
  Running<Enter, Leave, Look, Expose, Conceal> running_;
};
static_assert(std::has_unique_object_representations_v<GateExposureProgram::Shared>);

Report explore(const std::vector<std::string>& scripts, const Options& options, GateExposureProgram::Found& found) {
  std::vector<GateExposureProgram> programs;
  for (const std::string& script : scripts) programs.emplace_back(&script, &found);
  return Explorer<GateExposureProgram>(programs, options).run();
}

GateExposureProgram::Found must_hold(const std::vector<std::string>& scripts) {
  GateExposureProgram::Found found;
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
  GateExposureProgram::Found found;
  return explore(scripts, {.sabotage = sabotage}, found).failure;
}

const std::string kUnseen = "a lock_all and an exposure have not seen each other";

}  // namespace

TEST_CASE("of a lock_all and a post that come together one is refused, and either may be") {
  const auto found = must_hold({"L", "P"});
  CHECK(found.lock_all_refused);
  CHECK(found.post_refused);
  must_hold({"LPL", "PLP"});
  must_hold({"LL", "PP", "LP"});
}

TEST_CASE("posts do not refuse each other, and exclusive locks elsewhere do not refuse them") {
  const auto found = must_hold({"PE", "EP", "PP"});
  CHECK_FALSE(found.lock_all_refused);
  CHECK_FALSE(found.post_refused);
}

TEST_CASE("a post is refused for lock_alls that are there only, whatever exclusive locks wait for them or let them in") {
  CHECK(must_hold({"L", "E", "P"}).post_refused);
  must_hold({"LE", "EL", "P"});
  must_hold({"L", "L", "E", "P"});
  must_hold({"E", "L", "E", "P"});
}

TEST_CASE("a post that does not count itself is caught") {
  CHECK(fault({"L", "P"}, [](Request& r) { r.dropped = r.word == ControlBlock::kGateExposed && r.operand == 1; }) == kUnseen);
}

TEST_CASE("a post that does not look for lock_alls is caught") {
  CHECK(fault({"L", "P"}, [](Request& r) {
          if (r.kind == Kind::kRead && r.word == ControlBlock::kGate) r.word = ControlBlock::kGateRing;
        }) == kUnseen);
}

TEST_CASE("a lock_all that does not look for exposures is caught") {
  CHECK(fault({"L", "P"}, [](Request& r) {
          if (r.kind == Kind::kRead && r.word == ControlBlock::kGateExposed) r.word = ControlBlock::kGateRing;
        }) == kUnseen);
}

TEST_CASE("an exposure that is not taken back, or twice, is caught") {
  const auto taken_back = [](const Request& r) { return r.word == ControlBlock::kGateExposed && r.operand == -std::uint64_t{1}; };
  CHECK(fault({"L", "P"}, [&](Request& r) { r.dropped = taken_back(r); }) == "in the end an exposure is left");
  CHECK(fault({"L", "P"}, [&](Request& r) { if (taken_back(r)) --r.operand; }) != "");
}

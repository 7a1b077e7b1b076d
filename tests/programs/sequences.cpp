// SPDX-License-Identifier: BSD-3-Clause
// Random sequences of calls, legal and not, against a plain model of the standard: each call must succeed or
// be refused as the model says, a refusal is reported in one line, a success in none, and nothing hangs. All
// ranks draw the same sequence and know what the others do: a call that would wait is made only when the
// model says that it can end, and a collective one by all. The model is written from the text of MPI 4.0,
// chapter 12, and shares nothing with epochs/.
//
//   sequences [create] [seed S] [sequences N] [only Q]      Q: one sequence, to see a failure again
#include <fcntl.h>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sys/mman.h>

#include "check.hpp"

namespace {

constexpr int kInts = 16;
constexpr int kSteps = 150;  // of a sequence; then all epochs are ended

// ---- the model

// What the standard says of a call: the error classes that apply; none: it must succeed.
using Classes = std::set<int>;

struct Process {
  // Access side. A fence epoch may begin after a fence, until another synchronization on this side (12.5.1).
  bool fenced = false;
  int issued = 0;  // operations since the fence
  std::optional<std::set<int>> started;
  std::map<int, int> locks;  // target to lock type
  bool all = false;
  // Exposure side.
  std::optional<std::set<int>> posted;
  bool posted_no_put = false;
  std::set<int> completed;  // of the posted group
  bool fenced_no_put = false;
  // Those that have posted to this process, which it has not started yet.
  std::set<int> waiting_posts;

  bool passive() const { return all || !locks.empty(); }
  bool passive_to(int target) const { return all || locks.count(target) != 0; }
  bool fence_epoch() const { return fenced && issued > 0; }
  bool access_epoch() const { return passive() || started || fence_epoch(); }
};

struct Model {
  explicit Model(int ranks) : processes(static_cast<std::size_t>(ranks)) {}
  std::vector<Process> processes;
  Process& of(int rank) { return processes[static_cast<std::size_t>(rank)]; }
  int ranks() const { return static_cast<int>(processes.size()); }
  bool is_rank(int rank) const { return rank >= 0 && rank < ranks(); }

  // Is the memory of this process exposed to somebody by a post, or locked by somebody (12.5.3)?
  bool exposed(int rank) { return of(rank).posted && !of(rank).posted->empty(); }
  // A lock_all through a gate looks at no other rank: it sees what is exposed to its own, and no post sees it.
  bool something_exposed(int to) {
    if (check::lock_all_has_gate()) return !of(to).waiting_posts.empty();
    for (int rank = 0; rank < ranks(); ++rank)
      if (exposed(rank)) return true;
    return false;
  }
  bool locked(int rank) {
    for (const Process& each : processes)
      if (each.passive_to(rank) && !(each.all && check::lock_all_has_gate())) return true;
    return false;
  }
  // May this process have such a lock without waiting?
  bool lock_is_free(int by, int target, int type) {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank == by || !of(rank).passive_to(target)) continue;
      if (type == MPI_LOCK_EXCLUSIVE || (!of(rank).all && of(rank).locks.at(target) == MPI_LOCK_EXCLUSIVE))
        return false;
    }
    return true;
  }
};

// ---- the calls

enum class Kind {
  kPut,
  kGet,
  kAccumulate,
  kFetchAndOp,
  kRput,
  kRget,  // operations first
  kFlush,
  kFlushAll,
  kFlushLocal,
  kSync,
  kFence,
  kPost,
  kStart,
  kComplete,
  kWait,
  kTest,
  kLock,
  kUnlock,
  kLockAll,
  kUnlockAll,
  kFree,
};
constexpr int kKinds = static_cast<int>(Kind::kFree) + 1;
constexpr const char* kNames[kKinds] = {
    "MPI_Put",       "MPI_Get",       "MPI_Accumulate",    "MPI_Fetch_and_op",    "MPI_Rput",
    "MPI_Rget",      "MPI_Win_flush", "MPI_Win_flush_all", "MPI_Win_flush_local", "MPI_Win_sync",
    "MPI_Win_fence", "MPI_Win_post",  "MPI_Win_start",     "MPI_Win_complete",    "MPI_Win_wait",
    "MPI_Win_test",  "MPI_Win_lock",  "MPI_Win_unlock",    "MPI_Win_lock_all",    "MPI_Win_unlock_all",
    "MPI_Win_free",
};

// Something wrong with an argument, whatever the epoch.
enum class Flaw { kNone, kCount, kType, kDisplacement, kRange, kOp, kAssert, kLockType, kGroup };

struct Step {
  int actor = 0;  // kEverybody: collective
  Kind kind = Kind::kSync;
  int target = 0;
  int lock_type = MPI_LOCK_SHARED;
  int assert = 0;
  std::set<int> group;
  Flaw flaw = Flaw::kNone;

  static constexpr int kEverybody = -1;
  bool is_operation() const { return kind <= Kind::kRget; }
  bool is_request() const { return kind == Kind::kRput || kind == Kind::kRget; }
  bool updates() const { return kind != Kind::kGet && kind != Kind::kRget; }
  bool has_target() const {
    return is_operation() || kind == Kind::kFlush || kind == Kind::kFlushLocal || kind == Kind::kLock ||
           kind == Kind::kUnlock;
  }
  std::string text() const {
    std::string out = actor == kEverybody ? "all: " : "rank " + std::to_string(actor) + ": ";
    out += kNames[static_cast<int>(kind)];
    if (has_target()) out += " target " + std::to_string(target);
    if (kind == Kind::kLock) out += lock_type == MPI_LOCK_SHARED ? " shared" : " exclusive";
    if (kind == Kind::kPost || kind == Kind::kStart) {
      out += " {";
      for (int rank : group) out += " " + std::to_string(rank);
      out += " }";
    }
    if (assert != 0) out += " assert " + std::to_string(assert);
    if (flaw != Flaw::kNone) out += " flaw " + std::to_string(static_cast<int>(flaw));
    return out;
  }
};

// What is wrong with the call of this rank, in the present state of all.
Classes judge(Model& model, const Step& step, int rank) {
  Classes wrong;
  Process& me = model.of(rank);
  const bool to_nobody = step.has_target() && step.target == MPI_PROC_NULL;
  switch (step.flaw) {
    case Flaw::kNone:
      break;
    case Flaw::kCount:
      wrong.insert(MPI_ERR_COUNT);
      break;
    case Flaw::kType:
      wrong.insert(MPI_ERR_TYPE);
      break;
    case Flaw::kDisplacement:
      wrong.insert(MPI_ERR_DISP);
      break;
    case Flaw::kRange:
      wrong.insert(MPI_ERR_RMA_RANGE);
      break;
    case Flaw::kOp:
      wrong.insert(MPI_ERR_OP);
      break;
    case Flaw::kAssert:
      wrong.insert(MPI_ERR_ASSERT);
      break;
    case Flaw::kLockType:
      wrong.insert(MPI_ERR_LOCKTYPE);
      break;
    case Flaw::kGroup:
      wrong.insert(MPI_ERR_GROUP);
      break;
  }
  if (to_nobody) return wrong;  // 12.3: a call to MPI_PROC_NULL does nothing, anywhere
  if (step.has_target() && !model.is_rank(step.target)) {
    wrong.insert(MPI_ERR_RANK);
    return wrong;
  }
  const auto needs = [&](bool condition, int error_class = MPI_ERR_RMA_SYNC) {
    if (!condition) wrong.insert(error_class);
  };
  switch (step.kind) {
    case Kind::kPut:
    case Kind::kGet:
    case Kind::kAccumulate:
    case Kind::kFetchAndOp: {
      const bool in_start = me.started && me.started->count(step.target) != 0;
      const bool in_fence = me.fenced && !me.started && !me.passive();
      needs(me.passive_to(step.target) || in_start || in_fence);
      if (step.updates() && in_start) needs(!model.of(step.target).posted_no_put);
      if (step.updates() && in_fence) needs(!model.of(step.target).fenced_no_put);
      break;
    }
    case Kind::kRput:
    case Kind::kRget:
    case Kind::kFlush:
    case Kind::kFlushLocal:
      needs(me.passive_to(step.target));
      break;
    case Kind::kFlushAll:
      needs(me.passive());
      break;
    case Kind::kSync:
      break;
    case Kind::kFence:
      needs(!me.started && !me.passive() && !me.posted);
      if ((step.assert& MPI_MODE_NOPRECEDE) != 0) needs(!me.fence_epoch(), MPI_ERR_ASSERT);
      break;
    case Kind::kPost:
      needs(!me.posted && !me.all);
      needs(step.group.empty() || !model.locked(rank), MPI_ERR_RMA_CONFLICT);
      break;
    case Kind::kStart:
      needs(!me.access_epoch());
      break;
    case Kind::kComplete:
      needs(me.started.has_value());
      break;
    case Kind::kWait:
    case Kind::kTest:
      needs(me.posted.has_value());
      break;
    case Kind::kLock:
      needs(!me.started && !me.all && !me.fence_epoch() && me.locks.count(step.target) == 0);
      needs(!model.exposed(step.target), MPI_ERR_RMA_CONFLICT);
      break;
    case Kind::kUnlock:
      needs(me.locks.count(step.target) != 0);
      break;
    case Kind::kLockAll:
      needs(!me.access_epoch() && !me.posted);
      needs(!model.something_exposed(rank), MPI_ERR_RMA_CONFLICT);
      break;
    case Kind::kUnlockAll:
      needs(me.all);
      break;
    case Kind::kFree:
      needs(!me.access_epoch() && !me.posted);
      break;
  }
  return wrong;
}

// Whether a legal call of this rank ends without anything that is still to come; nothing may be left without
// a way out either: who has been posted to must be able to start.
bool can_end(Model& model, const Step& step, int rank) {
  Process& me = model.of(rank);
  if (step.has_target() && step.target == MPI_PROC_NULL) return true;
  switch (step.kind) {
    case Kind::kPut:
    case Kind::kGet:
    case Kind::kAccumulate:
    case Kind::kFetchAndOp:
      // A fence epoch that begins now needs a fence of all before this rank can start.
      return me.started || me.passive() || me.waiting_posts.empty();
    case Kind::kPost:
      for (int origin : step.group)
        if (model.of(origin).fence_epoch()) return false;
      return true;
    case Kind::kStart:
      return std::includes(me.waiting_posts.begin(), me.waiting_posts.end(), step.group.begin(),
                           step.group.end());
    case Kind::kWait:
      return me.completed == *me.posted;
    case Kind::kLock:
      return model.lock_is_free(rank, step.target, step.lock_type);
    case Kind::kLockAll:
      for (int each = 0; each < model.ranks(); ++each)
        if (!model.lock_is_free(rank, each, MPI_LOCK_SHARED)) return false;
      return true;
    case Kind::kFence:
    case Kind::kFree:
      return step.actor == Step::kEverybody;
    default:
      return true;
  }
}

// A legal call of this rank has been made; `flag` is the answer of a test.
void move(Model& model, const Step& step, int rank) {
  Process& me = model.of(rank);
  if (step.has_target() && step.target == MPI_PROC_NULL) return;
  const auto exposure_ends = [&] {
    me.posted.reset();
    me.posted_no_put = false;
    me.completed.clear();
  };
  switch (step.kind) {
    case Kind::kPut:
    case Kind::kGet:
    case Kind::kAccumulate:
    case Kind::kFetchAndOp:
      if (!me.started && !me.passive()) ++me.issued;
      break;
    case Kind::kFence:
      me.fenced = (step.assert& MPI_MODE_NOSUCCEED) == 0;
      me.fenced_no_put = (step.assert& MPI_MODE_NOPUT) != 0;
      me.issued = 0;
      break;
    case Kind::kPost:
      me.posted = step.group;
      me.posted_no_put = (step.assert& MPI_MODE_NOPUT) != 0;
      for (int origin : step.group) model.of(origin).waiting_posts.insert(rank);
      break;
    case Kind::kStart:
      me.started = step.group;
      me.fenced = false;
      for (int target : step.group) me.waiting_posts.erase(target);
      break;
    case Kind::kComplete:
      for (int target : *me.started) model.of(target).completed.insert(rank);
      me.started.reset();
      break;
    case Kind::kWait:
      exposure_ends();
      break;
    case Kind::kTest:
      if (me.completed == *me.posted) exposure_ends();
      break;
    case Kind::kLock:
      me.locks[step.target] = step.lock_type;
      me.fenced = false;
      break;
    case Kind::kUnlock:
      me.locks.erase(step.target);
      break;
    case Kind::kLockAll:
      me.all = true;
      me.fenced = false;
      break;
    case Kind::kUnlockAll:
      me.all = false;
      break;
    default:
      break;
  }
}

// ---- drawing

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  std::mt19937 random_;
};

Step draw(Dice& dice, Model& model) {
  Step step;
  const int ranks = model.ranks();
  step.kind = static_cast<Kind>(dice.below(kKinds));
  step.actor = dice.below(ranks);
  Process& me = model.of(step.actor);
  step.target = dice.one_in(20)   ? MPI_PROC_NULL
                : dice.one_in(40) ? ranks
                : dice.one_in(60) ? -7
                                  : dice.below(ranks);
  step.lock_type = dice.one_in(2) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE;
  // Half the starts have a chance to begin.
  if (step.kind == Kind::kStart && dice.one_in(2)) {
    step.group = me.waiting_posts;
  } else {
    for (int rank = 0; rank < ranks; ++rank)
      if (dice.one_in(2)) step.group.insert(rank);
  }
  if (step.kind == Kind::kFence) {
    for (int bit : {MPI_MODE_NOSTORE, MPI_MODE_NOPUT, MPI_MODE_NOPRECEDE, MPI_MODE_NOSUCCEED})
      if (dice.one_in(4)) step.assert |= bit;
    // A fourth rank's promise does not travel to all.
    if (ranks > 3) step.assert &= ~MPI_MODE_NOPUT;
  }
  if (step.kind == Kind::kPost) {
    for (int bit : {MPI_MODE_NOSTORE, MPI_MODE_NOPUT})
      if (dice.one_in(4)) step.assert |= bit;
  }
  if (dice.one_in(15)) {
    if (step.is_operation()) {
      const Flaw flaws[] = {Flaw::kCount, Flaw::kType, Flaw::kDisplacement, Flaw::kRange, Flaw::kOp};
      step.flaw = flaws[dice.below(step.kind == Kind::kAccumulate ? 5 : 4)];
      if (step.kind == Kind::kFetchAndOp && step.flaw == Flaw::kCount) step.flaw = Flaw::kOp;
      // Nobody's window is not looked at: counts are, types and places are not.
      if (step.target == MPI_PROC_NULL && step.flaw != Flaw::kOp) step.flaw = Flaw::kNone;
      if (step.target == MPI_PROC_NULL && step.kind == Kind::kFetchAndOp) step.flaw = Flaw::kNone;
    } else if (step.kind == Kind::kLock) {
      step.flaw = dice.one_in(2) ? Flaw::kLockType : Flaw::kAssert;
    } else if (step.kind == Kind::kFence || step.kind == Kind::kLockAll) {
      step.flaw = Flaw::kAssert;
    } else if (step.kind == Kind::kPost || step.kind == Kind::kStart) {
      step.flaw = dice.one_in(2) ? Flaw::kGroup : Flaw::kAssert;
    }
  }
  if (step.kind == Kind::kFence && step.flaw == Flaw::kNone) {
    // By all, if all may.
    bool all_may = true;
    for (int rank = 0; rank < ranks; ++rank) all_may = all_may && judge(model, step, rank).empty();
    if (all_may) step.actor = Step::kEverybody;
  }
  return step;
}

// ---- doing

class Stage {
 public:
  Stage(check::Memory memory, int rank) : rank_(rank), memory_(memory) {
    check::section(section_);
    heard_ = memfd_create("stderr", MFD_CLOEXEC);
    before_ = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  }
  void begin(std::string name) {
    name_ = std::move(name);
    history_.clear();
    if (memory_ == check::Memory::kAllocate) {
      void* base = nullptr;
      CHECK_MPI(
          MPI_Win_allocate(kInts * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window_));
    } else {
      CHECK_MPI(MPI_Win_create(memory_of_window_, sizeof memory_of_window_, sizeof(int), MPI_INFO_NULL,
                               MPI_COMM_WORLD, &window_));
    }
    CHECK_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
  }

  // Everyone's step: who is to act does, all wait for it, and the model goes on.
  void make(Model& model, const Step& step) {
    history_.push_back(step.text());
    // A rank that hangs says where.
    std::snprintf(section_, sizeof section_, "%s, step %zu, %s", name_.c_str(), history_.size(),
                  history_.back().c_str());
    const bool mine = step.actor == Step::kEverybody || step.actor == rank_;
    if (mine) act(model, step);
    for (int rank = 0; rank < model.ranks(); ++rank) {
      if (step.actor != Step::kEverybody && step.actor != rank) continue;
      if (judge(model, step, rank).empty()) {
        move(model, step, rank);
        ++allowed_;
      } else {
        ++refused_;
      }
    }
    if (step.kind != Kind::kFree || step.actor != Step::kEverybody) CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  long allowed() const { return allowed_; }
  long refused() const { return refused_; }

 private:
  void act(Model& model, const Step& step) {
    const Classes wrong = judge(model, step, rank_);
    Process& me = model.of(rank_);
    const bool answer = me.posted && me.completed == *me.posted;
    dup2(heard_, STDERR_FILENO);
    const int code = check::class_of(call(step));
    dup2(before_, STDERR_FILENO);
    const std::string said = heard();
    if (wrong.empty() ? code != MPI_SUCCESS : wrong.count(code) == 0) {
      std::string wanted;
      for (int each : wrong) wanted += " " + check::class_name(each);
      fail("gave " + check::class_name(code) + ", but the model says" + (wrong.empty() ? " success" : wanted),
           said);
    }
    if (std::count(said.begin(), said.end(), '\n') != (wrong.empty() ? 0 : 1))
      fail("is not reported once", said);
    if (step.kind == Kind::kTest && wrong.empty() && (flag_ != 0) != answer) {
      fail(answer ? "says that the exposure has not ended" : "says that the exposure has ended", said);
    }
  }

  int call(const Step& step) {
    const bool bad_assert = step.flaw == Flaw::kAssert;
    const int count = step.flaw == Flaw::kCount ? -1 : 1;
    const MPI_Datatype type = step.flaw == Flaw::kType ? MPI_DATATYPE_NULL : MPI_INT;
    const MPI_Aint at = step.flaw == Flaw::kDisplacement ? -1 : step.flaw == Flaw::kRange ? kInts : rank_;
    const MPI_Op op = step.flaw == Flaw::kOp ? MPI_OP_NULL : MPI_SUM;
    const int lock_type = step.flaw == Flaw::kLockType ? 4711 : step.lock_type;
    const std::vector<int> members(step.group.begin(), step.group.end());
    const int out = 1;
    MPI_Request request = MPI_REQUEST_NULL;
    const auto wait = [&](int code) {
      return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
    };
    switch (step.kind) {
      case Kind::kPut:
        return MPI_Put(&value_, count, type, step.target, at, count, type, window_);
      case Kind::kGet:
        return MPI_Get(&result_, count, type, step.target, at, count, type, window_);
      case Kind::kAccumulate:
        return MPI_Accumulate(&value_, count, type, step.target, at, count, type, op, window_);
      case Kind::kFetchAndOp:
        return MPI_Fetch_and_op(&value_, &result_, type, step.target, at, op, window_);
      case Kind::kRput:
        return wait(MPI_Rput(&out, count, type, step.target, at, count, type, window_, &request));
      case Kind::kRget:
        return wait(MPI_Rget(&result_, count, type, step.target, at, count, type, window_, &request));
      case Kind::kFlush:
        return MPI_Win_flush(step.target, window_);
      case Kind::kFlushAll:
        return MPI_Win_flush_all(window_);
      case Kind::kFlushLocal:
        return MPI_Win_flush_local(step.target, window_);
      case Kind::kSync:
        return MPI_Win_sync(window_);
      case Kind::kFence:
        return MPI_Win_fence(bad_assert ? MPI_MODE_NOCHECK : step.assert, window_);
      case Kind::kPost:
        if (step.flaw == Flaw::kGroup) return MPI_Win_post(MPI_GROUP_NULL, 0, window_);
        return MPI_Win_post(check::Group(members), bad_assert ? MPI_MODE_NOPRECEDE : step.assert, window_);
      case Kind::kStart:
        if (step.flaw == Flaw::kGroup) return MPI_Win_start(MPI_GROUP_NULL, 0, window_);
        return MPI_Win_start(check::Group(members), bad_assert ? MPI_MODE_NOPUT : 0, window_);
      case Kind::kComplete:
        return MPI_Win_complete(window_);
      case Kind::kWait:
        return MPI_Win_wait(window_);
      case Kind::kTest:
        return MPI_Win_test(window_, &flag_);
      case Kind::kLock:
        return MPI_Win_lock(lock_type, step.target, bad_assert ? MPI_MODE_NOSTORE : 0, window_);
      case Kind::kUnlock:
        return MPI_Win_unlock(step.target, window_);
      case Kind::kLockAll:
        return MPI_Win_lock_all(bad_assert ? MPI_MODE_NOSUCCEED : 0, window_);
      case Kind::kUnlockAll:
        return MPI_Win_unlock_all(window_);
      case Kind::kFree:
        return MPI_Win_free(&window_);
    }
    return MPI_SUCCESS;
  }

  // What was written on stderr since the last time.
  std::string heard() {
    const off_t bytes = lseek(heard_, 0, SEEK_END);
    if (bytes <= 0) return {};
    std::string text(static_cast<std::size_t>(bytes), '\0');
    if (pread(heard_, text.data(), text.size(), 0) != bytes) text.clear();
    if (ftruncate(heard_, 0) != 0 || lseek(heard_, 0, SEEK_SET) != 0) text += "(stderr is lost)";
    return text;
  }

  [[noreturn]] void fail(const std::string& what, const std::string& said) {
    std::string text = name_ + ", step " + std::to_string(history_.size()) + ": " + history_.back() + " " +
                       what + "; it said: " + (said.empty() ? "nothing\n" : said) + "before it:\n";
    const std::size_t from = history_.size() > 25 ? history_.size() - 25 : 0;
    for (std::size_t i = from; i < history_.size(); ++i) text += "  " + history_[i] + "\n";
    check::fail(__FILE__, __LINE__, text);
  }

  int rank_;
  check::Memory memory_;
  int heard_ = -1;
  int before_ = -1;
  MPI_Win window_ = MPI_WIN_NULL;
  int memory_of_window_[kInts] = {};
  int value_ = 1;
  int result_ = 0;
  int flag_ = 0;
  std::string name_;
  char section_[200] = "";
  std::vector<std::string> history_;
  long allowed_ = 0;
  long refused_ = 0;
};

// Ends all epochs, by calls that are all legal, and frees the window.
void end(Stage& stage, Model& model) {
  const auto make = [&](int actor, Kind kind, int target = 0, std::set<int> group = {}, int assert = 0) {
    Step step;
    step.actor = actor;
    step.kind = kind;
    step.target = target;
    step.group = std::move(group);
    step.assert = assert;
    stage.make(model, step);
  };
  for (int rank = 0; rank < model.ranks(); ++rank) {
    if (model.of(rank).started) make(rank, Kind::kComplete);
    if (model.of(rank).all) make(rank, Kind::kUnlockAll);
    while (!model.of(rank).locks.empty()) make(rank, Kind::kUnlock, model.of(rank).locks.begin()->first);
  }
  for (int rank = 0; rank < model.ranks(); ++rank) {
    if (model.of(rank).waiting_posts.empty()) continue;
    make(rank, Kind::kStart, 0, model.of(rank).waiting_posts);
    make(rank, Kind::kComplete);
  }
  for (int rank = 0; rank < model.ranks(); ++rank)
    if (model.of(rank).posted) make(rank, Kind::kWait);
  make(Step::kEverybody, Kind::kFence, 0, {}, MPI_MODE_NOSUCCEED);
  make(Step::kEverybody, Kind::kFree);
}

void run(Stage& stage, std::uint32_t seed, int sequence, int ranks) {
  stage.begin("seed " + std::to_string(seed) + ", only " + std::to_string(sequence));
  Dice dice(seed * 1000003U + static_cast<std::uint32_t>(sequence));
  Model model(ranks);
  for (int i = 0; i < kSteps; ++i) {
    // Mostly something that may be done, else few epochs would ever open.
    Step step;
    for (int tries = dice.one_in(3) ? 1 : 6; tries > 0; --tries) {
      step = draw(dice, model);
      if (judge(model, step, std::max(step.actor, 0)).empty()) break;
    }
    // A conflict is found at the target, after waiting for what a legal call would wait for.
    const int judged = std::max(step.actor, 0);
    Classes found_here = judge(model, step, judged);
    found_here.erase(MPI_ERR_RMA_CONFLICT);
    if (found_here.empty() && !can_end(model, step, judged)) continue;
    stage.make(model, step);
  }
  end(stage, model);
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const auto seed = static_cast<std::uint32_t>(program.number("seed", 1));
  const int only = program.number("only", -1);
  const int sequences = program.number("sequences", 100);
  const int rank = check::rank();
  const int ranks = check::size();
  Stage stage(program.memory(), rank);
  if (rank == 0) std::printf("seed %u, %d sequences\n", seed, only < 0 ? sequences : 1);
  for (int sequence = 0; sequence < sequences; ++sequence)
    if (only < 0 || only == sequence) run(stage, seed, sequence, ranks);
  if (rank == 0) std::printf("%ld calls allowed, %ld refused\n", stage.allowed(), stage.refused());
  return 0;
}

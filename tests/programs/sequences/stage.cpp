// SPDX-License-Identifier: BSD-3-Clause
#include "sequences/stage.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "stderr.hpp"

namespace sequences {

void Stage::begin(std::string name) {
  name_ = std::move(name);
  history_.clear();
  if (memory_ == check::Memory::kAllocate) {
    void* base = nullptr;
    CHECK_MPI(MPI_Win_allocate(kInts * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window_));
  } else {
    CHECK_MPI(MPI_Win_create(memory_of_window_, sizeof memory_of_window_, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                             &window_));
  }
  CHECK_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
}

void Stage::make(Model& model, const Step& step) {
  history_.push_back(step.text());
  // A rank that hangs prints its section.
  std::snprintf(section_, sizeof section_, "%s, step %zu, %s", name_.c_str(), history_.size(), history_.back().c_str());
  const bool mine = step.actor == Step::kEverybody || step.actor == rank_;
  if (mine) act(model, step);
  for (int rank = 0; rank < model.ranks(); ++rank) {
    if (step.actor != Step::kEverybody && step.actor != rank) continue;
    if (expected_errors(model, step, rank).empty()) {
      update_model(model, step, rank);
      ++allowed_;
    } else {
      ++refused_;
    }
  }
  if (step.kind != Kind::kFree || step.actor != Step::kEverybody) CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void Stage::act(Model& model, const Step& step) {
  const Classes wrong = expected_errors(model, step, rank_);
  Process& me = model.of(rank_);
  const bool tests = step.kind == Kind::kTest && wrong.empty();
  const bool completed = !me.posted || me.completed == *me.posted;  // a test of a post to nobody is true
  const std::vector<Beside> others = besides(model, step);
  std::atomic<long> refused_beside = 0;
  int code = MPI_SUCCESS;
  check::Stderr captured;
  const auto make_call = [&] {
    code = call(step);
    // The notification of a complete that has returned may still be on its way, so the call is repeated.
    while (tests && completed && code == MPI_SUCCESS && flag_ == 0) {
      std::this_thread::yield();
      code = call(step);
    }
  };
  callers_.run(make_call, [&](std::size_t thread) { refused_beside += make_besides(others, thread); });
  code = check::class_of(code);
  const std::string text = captured.end();
  calls_beside_ += static_cast<long>(others.size()) * kRoundsBeside * std::max<long>(callers_.count() - 1, 0);
  if (wrong.empty() ? code != MPI_SUCCESS : wrong.count(code) == 0) {
    std::string wanted;
    for (int each : wrong) wanted += " " + check::class_name(each);
    fail("gave " + check::class_name(code) + ", but the model says" + (wrong.empty() ? " success" : wanted), text);
  }
  if (std::count(text.begin(), text.end(), '\n') != (wrong.empty() ? 0 : 1) + refused_beside)
    fail("is not reported once", text);
  if (tests && flag_ != 0 && !completed) fail("says that the exposure has ended", text);
}

std::vector<Stage::Beside> Stage::besides(Model& model, const Step& step) const {
  std::vector<Beside> found;
  if (callers_.count() == 0 || step.kind == Kind::kFree) return found;
  Model after = model;
  if (expected_errors(model, step, rank_).empty()) update_model(after, step, rank_);
  for (const Kind kind : {Kind::kGet, Kind::kFlush}) {
    for (int target = 0; target < model.ranks(); ++target) {
      Step beside;
      beside.actor = rank_;
      beside.kind = kind;
      beside.target = target;
      const Classes before = expected_errors(model, beside, rank_);
      if (before.empty() != expected_errors(after, beside, rank_).empty()) continue;
      // The first operation after a fence opens its epoch.
      const auto opens = [&](Model& in) { return in.of(rank_).fenced && in.of(rank_).issued == 0; };
      if (kind == Kind::kGet && (opens(model) || opens(after))) continue;
      found.push_back({beside, before});
    }
  }
  return found;
}

// Where no step changes a window.
constexpr MPI_Aint kUnchanged = kInts - 1;

long Stage::make_besides(const std::vector<Beside>& besides, std::size_t thread) {
  long refused = 0;
  for (int round = 0; round < kRoundsBeside; ++round) {
    for (const Beside& beside : besides) {
      const int target = beside.step.target;
      const int code =
          check::class_of(beside.step.kind == Kind::kGet ? MPI_Get(&fetched_[thread][static_cast<std::size_t>(target)],
                                                                   1, MPI_INT, target, kUnchanged, 1, MPI_INT, window_)
                                                         : MPI_Win_flush(target, window_));
      refused += beside.wrong.empty() ? 0 : 1;
      if (beside.wrong.empty() == (code == MPI_SUCCESS)) continue;
      check::fail(
          __FILE__, __LINE__,
          name_ + ": beside " + history_.back() + ", " + beside.step.text() + " gave " + check::class_name(code));
    }
  }
  return refused;
}

int Stage::call(const Step& step) {
  const bool bad_assert = step.flaw == Flaw::kAssert;
  const int count = step.flaw == Flaw::kCount ? -1 : 1;
  const MPI_Datatype type = step.flaw == Flaw::kType ? MPI_DATATYPE_NULL : MPI_INT;
  const MPI_Aint at = step.flaw == Flaw::kDisplacement ? -1 : step.flaw == Flaw::kRange ? kInts : rank_;
  const MPI_Op op = step.flaw == Flaw::kOp ? MPI_OP_NULL : MPI_SUM;
  const int lock_type = step.flaw == Flaw::kLockType ? 4711 : step.lock_type;
  const std::vector<int> members(step.group.begin(), step.group.end());
  const int out = 1;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto wait = [&](int code) { return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code; };
  switch (step.kind) {
    case Kind::kPut: return MPI_Put(&value_, count, type, step.target, at, count, type, window_);
    case Kind::kGet: return MPI_Get(&results_.emplace_back(), count, type, step.target, at, count, type, window_);
    case Kind::kAccumulate: return MPI_Accumulate(&value_, count, type, step.target, at, count, type, op, window_);
    case Kind::kFetchAndOp:
      return MPI_Fetch_and_op(&value_, &results_.emplace_back(), type, step.target, at, op, window_);
    case Kind::kRput: return wait(MPI_Rput(&out, count, type, step.target, at, count, type, window_, &request));
    case Kind::kRget:
      return wait(MPI_Rget(&results_.emplace_back(), count, type, step.target, at, count, type, window_, &request));
    case Kind::kFlush: return MPI_Win_flush(step.target, window_);
    case Kind::kFlushAll: return MPI_Win_flush_all(window_);
    case Kind::kFlushLocal: return MPI_Win_flush_local(step.target, window_);
    case Kind::kSync: return MPI_Win_sync(window_);
    case Kind::kFence: return MPI_Win_fence(bad_assert ? MPI_MODE_NOCHECK : step.assert, window_);
    case Kind::kPost:
      if (step.flaw == Flaw::kGroup) return MPI_Win_post(MPI_GROUP_NULL, 0, window_);
      return MPI_Win_post(check::Group(members), bad_assert ? MPI_MODE_NOPRECEDE : step.assert, window_);
    case Kind::kStart:
      if (step.flaw == Flaw::kGroup) return MPI_Win_start(MPI_GROUP_NULL, 0, window_);
      return MPI_Win_start(check::Group(members), bad_assert ? MPI_MODE_NOPUT : 0, window_);
    case Kind::kComplete: return MPI_Win_complete(window_);
    case Kind::kWait: return MPI_Win_wait(window_);
    case Kind::kTest: return MPI_Win_test(window_, &flag_);
    case Kind::kLock: return lock(lock_type, step.target, bad_assert ? MPI_MODE_NOSTORE : 0);
    case Kind::kUnlock: return MPI_Win_unlock(step.target, window_);
    case Kind::kLockAll: return MPI_Win_lock_all(bad_assert ? MPI_MODE_NOSUCCEED : 0, window_);
    case Kind::kUnlockAll: return MPI_Win_unlock_all(window_);
    case Kind::kFree: return MPI_Win_free(&window_);
  }
  return MPI_SUCCESS;
}

// The lock may be deferred until an operation needs it. The operation here forces that, because the model has only
// locks that are held.
int Stage::lock(int type, int target, int assert) {
  int seen = 0;
  int code = MPI_Win_lock(type, target, assert, window_);
  if (code != MPI_SUCCESS || target < 0) return code;
  code = MPI_Get(&seen, 1, MPI_INT, target, 0, 1, MPI_INT, window_);
  return code != MPI_SUCCESS ? code : MPI_Win_flush(target, window_);
}

void Stage::fail(const std::string& what, const std::string& captured) {
  std::string text = name_ + ", step " + std::to_string(history_.size()) + ": " + history_.back() + " " + what +
                     "; it said: " + (captured.empty() ? "nothing\n" : captured) + "before it:\n";
  const std::size_t from = history_.size() > 25 ? history_.size() - 25 : 0;
  for (std::size_t i = from; i < history_.size(); ++i) text += "  " + history_[i] + "\n";
  check::fail(__FILE__, __LINE__, text);
}

}  // namespace sequences

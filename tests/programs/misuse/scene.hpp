// SPDX-License-Identifier: BSD-3-Clause
// The environment of a mistake: a window of two ranks, the check of the call's return code and of its output on stderr,
// and the check that the window still works.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "check.hpp"
#include "stderr.hpp"

namespace misuse {

class Scene;

// The epoch that is opened before a mistake and closed after it.
enum Within { kNowhere, kInFence, kLocked, kAllLocked, kStarted, kPosted };

struct Case {
  const char* name;  // the wrong call, a comma, and the mistake
  Within within;
  int right;          // the error class
  int right_as_well;  // another class that the standard allows; farside gives the first
  const char* words;  // in farside's report: the mistake, and the beginning of the remedy
  void (*run)(Scene&);

  std::string call() const { return std::string(name, std::string_view(name).find(',')); }
};

// Returns the name of an error class, as the standard writes it.
inline std::string name_of(int error_class) {
  const std::pair<int, const char*> names[] = {
      {MPI_ERR_RMA_SYNC, "RMA_SYNC"},
      {MPI_ERR_RMA_CONFLICT, "RMA_CONFLICT"},
      {MPI_ERR_RMA_RANGE, "RMA_RANGE"},
      {MPI_ERR_RMA_ATTACH, "RMA_ATTACH"},
      {MPI_ERR_RMA_FLAVOR, "RMA_FLAVOR"},
      {MPI_ERR_RMA_SHARED, "RMA_SHARED"},
      {MPI_ERR_ASSERT, "ASSERT"},
      {MPI_ERR_LOCKTYPE, "LOCKTYPE"},
      {MPI_ERR_RANK, "RANK"},
      {MPI_ERR_DISP, "DISP"},
      {MPI_ERR_COUNT, "COUNT"},
      {MPI_ERR_TYPE, "TYPE"},
      {MPI_ERR_OP, "OP"},
      {MPI_ERR_WIN, "WIN"},
      {MPI_ERR_INFO, "INFO"},
      {MPI_ERR_BASE, "BASE"},
      {MPI_ERR_SIZE, "SIZE"},
      {MPI_ERR_ARG, "ARG"},
      {MPI_ERR_GROUP, "GROUP"},
      {MPI_ERR_COMM, "COMM"},
      {MPI_ERR_BUFFER, "BUFFER"},
      {MPI_ERR_TRUNCATE, "TRUNCATE"},
      {MPI_ERR_OTHER, "OTHER"},
      {MPI_ERR_INTERN, "INTERN"},
      {MPI_ERR_UNKNOWN, "UNKNOWN"},
      {MPI_ERR_UNSUPPORTED_OPERATION, "UNSUPPORTED_OPERATION"},
  };
  for (const auto& [each, name] : names)
    if (each == error_class) return std::string("MPI_ERR_") + name;
  return "class " + std::to_string(error_class);
}

class Scene {
 public:
  static constexpr int kInts = 64;
  static constexpr int kNoTarget = -12345;

  // `report`: print the runtime's reaction, instead of checking farside's.
  Scene(check::Memory memory, bool report)
      : report_(report),
        rank(check::rank()),
        size(check::size()),
        next((rank + 1) % size),
        to_next({next}),
        to_self({rank}),
        to_nobody({}),
        owned_(std::in_place, memory, kInts * sizeof(int), static_cast<int>(sizeof(int))),
        window(*owned_),
        mine(owned_->as<int>()) {
    CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    CHECK_MPI(MPI_Win_set_name(window, "misused"));
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  void run(const Case& which) {
    case_ = &which;
    mistakes_ = 0;
    check::section(which.name);
    barrier();
    open(which.within);
    which.run(*this);
    close(which.within);
    CHECK(mistakes_ > 0 || rank != 0);
    works();
  }

  // Makes the mistake of the case; returns true if it was refused. `where`: the target that the report must name.
  bool mistake(const std::function<int()>& call, int where = kNoTarget) {
    ++mistakes_;
    if (report_) {
      const int got = check::class_of(call());
      const bool right = got == case_->right || (case_->right_as_well != 0 && got == case_->right_as_well);
      std::printf("rank %d: %s\n", rank,
                  got == MPI_SUCCESS ? "silent"
                  : right            ? "right"
                                     : ("other: " + name_of(got)).c_str());
      std::fflush(stdout);
      return got != MPI_SUCCESS;
    }
    check::Stderr captured;
    const int code = call();
    const std::string text = captured.end();
    const auto wrong = [&](const std::string& what) {
      check::fail(__FILE__, __LINE__, what + "; it said: " + (text.empty() ? "nothing" : text));
    };
    if (check::class_of(code) != case_->right) {
      wrong("class " + check::class_name(check::class_of(code)) + ", not " + check::class_name(case_->right));
    }
    const auto says = [&](const std::string& part) {
      if (text.find(part) == std::string::npos) wrong("'" + part + "' is not said");
    };
    if (std::count(text.begin(), text.end(), '\n') != 1) wrong("not one line");
    says("farside[" + std::to_string(rank) + "]: error: " + (instead_ != nullptr ? instead_ : case_->call()));
    says(case_->words);
    if (with_window_) {
      says("on window 'misused'");
      const bool of_epochs =
          case_->right == MPI_ERR_RMA_SYNC || case_->right == MPI_ERR_RMA_CONFLICT || case_->right == MPI_ERR_ASSERT;
      if (of_epochs != (text.find("; here ") != std::string::npos)) wrong(of_epochs ? "no state" : "a state");
    }
    says("(MPI 4.");
    says("; called from ");
    if (where != kNoTarget) says(", target " + std::to_string(where) + ":");
    return true;
  }
  // The same for calls without a window: the report has no name and no epoch.
  bool mistake_without_window(const std::function<int()>& call) {
    with_window_ = false;
    const bool refused = mistake(call);
    with_window_ = true;
    return refused;
  }

  // A lock that must be refused; if it is deferred, its unlock must be.
  void mistake_of_lock(int type) {
    const auto lock = [&] {
      const int code = MPI_Win_lock(type, next, 0, window);
      if (code != MPI_SUCCESS) return code;
      instead_ = "MPI_Win_unlock";
      return MPI_Win_unlock(next, window);
    };
    mistake(lock, next);
    instead_ = nullptr;
  }

  void mistake_of_request(const std::function<int()>& call, int where) {
    if (!mistake(call, where)) MPI_Wait(&request, MPI_STATUS_IGNORE);
  }

  // Checks that the window is unchanged, and works by fence, by lock, and by post and start.
  void works() {
    const int value = 4711;
    const int one = 1;
    int before = 0;
    barrier();
    for (int i = 0; i < kInts; ++i) CHECK_EQ(mine[i], 0);
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 3, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
    for (int i = 0; i < kInts; ++i) CHECK_EQ(mine[i], i == 3 ? value : 0);
    barrier();
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window));
    CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT, next, 3, MPI_SUM, window));
    CHECK_MPI(MPI_Win_unlock(next, window));
    CHECK_EQ(before, value);
    barrier();
    const int nothing[4] = {};
    CHECK_MPI(MPI_Win_post(to_next, 0, window));
    CHECK_MPI(MPI_Win_start(to_next, 0, window));
    CHECK_MPI(MPI_Put(nothing, 4, MPI_INT, next, 0, 4, MPI_INT, window));
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
    for (int i = 0; i < kInts; ++i) CHECK_EQ(mine[i], 0);
    barrier();
  }

  void barrier() const { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }
  // An operation of one int on the next rank, allowed in a fence epoch, a start epoch, and under a lock. It changes
  // nothing.
  void add_nothing() {
    static const int zero = 0;
    CHECK_MPI(MPI_Accumulate(&zero, 1, MPI_INT, next, 0, 1, MPI_INT, MPI_SUM, window));
  }
  // Open and close a pair of epochs, in which each rank is exposed to the other and accesses it.
  void post() { CHECK_MPI(MPI_Win_post(to_next, 0, window)); }
  void start() { CHECK_MPI(MPI_Win_start(to_next, 0, window)); }
  void post_and_start() {
    post();
    start();
  }
  void complete_and_wait() {
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
  }
  // The operations on one int at the start of the target's window.
  int put(int target) { return MPI_Put(values, 1, MPI_INT, target, 0, 1, MPI_INT, window); }
  int get(int target) { return MPI_Get(result, 1, MPI_INT, target, 0, 1, MPI_INT, window); }
  int accumulate(int target) { return MPI_Accumulate(values, 1, MPI_INT, target, 0, 1, MPI_INT, MPI_SUM, window); }
  int get_accumulate(int target) {
    return MPI_Get_accumulate(values, 1, MPI_INT, result, 1, MPI_INT, target, 0, 1, MPI_INT, MPI_SUM, window);
  }
  int fetch_and_op(int target) { return MPI_Fetch_and_op(values, result, MPI_INT, target, 0, MPI_SUM, window); }
  int compare_and_swap(int target) {
    return MPI_Compare_and_swap(values, values + 1, result, MPI_INT, target, 0, window);
  }
  int rput(int target) { return MPI_Rput(values, 1, MPI_INT, target, 0, 1, MPI_INT, window, &request); }
  int rget(int target) { return MPI_Rget(result, 1, MPI_INT, target, 0, 1, MPI_INT, window, &request); }
  int raccumulate(int target) {
    return MPI_Raccumulate(values, 1, MPI_INT, target, 0, 1, MPI_INT, MPI_SUM, window, &request);
  }
  int rget_accumulate(int target) {
    return MPI_Rget_accumulate(values, 1, MPI_INT, result, 1, MPI_INT, target, 0, 1, MPI_INT, MPI_SUM, window,
                               &request);
  }
  // A lock that is held, not deferred.
  void lock_now(int type) {
    CHECK_MPI(MPI_Win_lock(type, next, 0, window));
    CHECK_MPI(get(next));
    CHECK_MPI(MPI_Win_flush(next, window));
  }
  void lock() { CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window)); }
  void unlock() { CHECK_MPI(MPI_Win_unlock(next, window)); }
  void lock_all() { CHECK_MPI(MPI_Win_lock_all(0, window)); }
  void unlock_all() { CHECK_MPI(MPI_Win_unlock_all(window)); }
  // Frees a copy of the handle, because the window must stay.
  int free() {
    MPI_Win copy = window;
    return MPI_Win_free(&copy);
  }
  // Begin a fence epoch with an operation, and end it.
  void fence_and_use() {
    CHECK_MPI(MPI_Win_fence(0, window));
    add_nothing();
  }
  void fence_off() { CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window)); }

 private:
  void open(Within epoch) {
    switch (epoch) {
      case kNowhere: break;
      case kInFence: fence_and_use(); break;
      case kLocked: lock(); break;
      case kAllLocked: lock_all(); break;
      case kStarted: post_and_start(); break;
      case kPosted: post(); break;
    }
  }
  void close(Within epoch) {
    switch (epoch) {
      case kNowhere: break;
      case kInFence: fence_off(); break;
      case kLocked: unlock(); break;
      case kAllLocked: unlock_all(); break;
      case kPosted: start(); [[fallthrough]];
      case kStarted: complete_and_wait(); break;
    }
  }

  bool report_;

 public:
  const int rank;
  const int size;
  const int next;
  const check::Group to_next;
  const check::Group to_self;
  const check::Group to_nobody;

 private:
  std::optional<check::Window> owned_;
  const Case* case_ = nullptr;
  const char* instead_ = nullptr;  // the refused call, if it is not the case's
  int mistakes_ = 0;
  bool with_window_ = true;

 public:
  const MPI_Win window;
  int* const mine;
  int result[4 * kInts] = {};
  int values[4 * kInts] = {};
  MPI_Request request = MPI_REQUEST_NULL;
  int flag = 0;
};

// The mistake of a case, made by every rank that gets here. MISTAKE_AT: with a target that the report must name.
#define MISTAKE(call) s.mistake([&] { return (call); })
#define MISTAKE_AT(target, call) s.mistake([&] { return (call); }, (target))
#define MISTAKE_REQUEST(target, call) s.mistake_of_request([&] { return (call); }, (target))
#define MISTAKE_WITHOUT_WINDOW(call) s.mistake_without_window([&] { return (call); })

}  // namespace misuse

// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_CHECK=warn: what breaks a rule without harm is carried out, and reported once per place; what would wait
// for itself is refused as always. At least two ranks.
//
//   warned [create]   everything
//   warned native N   the N-th program with misplaced synchronization (from 1), on a runtime alone
#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "check.hpp"
#include "stderr.hpp"

namespace {

constexpr int kTimes = 20;

int lines_with(const std::string& text, const std::string& words) {
  int count = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

[[gnu::noinline]] void put(const int& value, int target, MPI_Win window) {
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, target, 0, 1, MPI_INT, window));
}

[[gnu::noinline]] void put_elsewhere(const int& value, int target, MPI_Win window) {
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, target, 1, 1, MPI_INT, window));
}

void outside_epochs(const check::Window& window) {
  check::section("operations and flushes outside epochs arrive, and each place is reported once");
  const int next = (check::rank() + 1) % check::size(), previous = (check::rank() + check::size() - 1) % check::size();
  check::Stderr captured;
  std::array<int, kTimes> values{};
  for (int i = 0; i < kTimes; ++i) {
    values[static_cast<std::size_t>(i)] = 100 * check::rank() + i;
    put(values[static_cast<std::size_t>(i)], next, window);
    put_elsewhere(values[static_cast<std::size_t>(i)], next, window);
    CHECK_MPI(MPI_Win_flush(next, window));
  }
  const int one = 1;
  int before = -1;
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT, next, 2, MPI_SUM, window));
  CHECK_MPI(MPI_Win_flush_all(window));
  CHECK_EQ(before, 0);
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Rput(&one, 1, MPI_INT, next, 3, 1, MPI_INT, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Win_flush(next, window));
  const std::string text = captured.end();
  CHECK_EQ(lines_with(text, "MPI_Put on window 'warned', target " + std::to_string(next) +
                                ": operation outside any access epoch; open one first"),
           2);
  CHECK_EQ(lines_with(text, "MPI_Win_flush on window 'warned'"), 2);
  CHECK_EQ(lines_with(text, "MPI_Fetch_and_op on"), 1);
  CHECK_EQ(lines_with(text, "MPI_Win_flush_all on"), 1);
  CHECK_EQ(lines_with(text, "MPI_Rput on"), 2);  // breaks two rules
  CHECK_EQ(lines_with(text, "executed anyway; called from "), 8);
  CHECK_EQ(lines_with(text, ": error: "), 0);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_sync(window));
  CHECK_EQ(window.as<int>()[0], 100 * previous + kTimes - 1);
  CHECK_EQ(window.as<int>()[1], 100 * previous + kTimes - 1);
  CHECK_EQ(window.as<int>()[2], 1);
  CHECK_EQ(window.as<int>()[3], 1);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void assertions(const check::Window& window) {
  check::section("false and unknown assertions are reported");
  const int next = (check::rank() + 1) % check::size(), previous = (check::rank() + check::size() - 1) % check::size();
  const int value = 7 + check::rank();
  check::Stderr captured;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
  CHECK_EQ(window.as<int>()[0], 7 + previous);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPUT, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 1, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOCHECK | MPI_MODE_NOSUCCEED, window));
  CHECK_EQ(window.as<int>()[1], 7 + previous);
  const std::string text = captured.end();
  CHECK_EQ(lines_with(text, "MPI_MODE_NOPRECEDE, but operations were issued"), 1);
  // Of MPI_MODE_NOPUT not each origin hears, on several nodes.
  const int puts = lines_with(text, "MPI_Put on window 'warned'");
  const char* const route = std::getenv("TEST_ROUTE");
  CHECK(puts == 1 || (puts == 0 && route != nullptr && std::string(route) == "hosts"));
  CHECK_EQ(lines_with(text, "is not one of this call"), 1);
  CHECK_EQ(lines_with(text, "executed anyway"), 2 + puts);
}

void broken_promises(const check::Window& window) {
  check::section("assertions that not all ranks give, and info that is untrue, are reported, and change nothing");
  const int rank = check::rank(), next = (rank + 1) % check::size();
  const int previous = (rank + check::size() - 1) % check::size(), value = 70 + rank;
  check::Stderr captured;
  for (const int assert : {MPI_MODE_NOSUCCEED, MPI_MODE_NOPRECEDE}) {
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 5, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_MPI(MPI_Win_fence(rank == 0 ? assert : 0, window));
    CHECK_EQ(window.as<int>()[5], 70 + previous);
  }
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  MPI_Info info;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "same_size", "true"));
  CHECK_MPI(MPI_Info_set(info, "same_disp_unit", "true"));
  int* base = nullptr;
  MPI_Win own = MPI_WIN_NULL;
  const int unit = rank == 0 ? 4 : 8;
  CHECK_MPI(MPI_Win_allocate(16 * unit, unit, info, MPI_COMM_WORLD, &base, &own));
  CHECK_MPI(MPI_Info_free(&info));
  CHECK_EQ(check::hint(own, "same_size") + check::hint(own, "same_disp_unit"), std::string("falsefalse"));
  CHECK_MPI(MPI_Win_fence(0, own));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 15, 1, MPI_INT, own));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, own));
  CHECK_EQ(base[15 * unit / 4], 70 + previous);
  CHECK_MPI(MPI_Win_free(&own));
  const std::string text = captured.end();
  // Not each rank hears of another one's assertion.
  if (rank == 0) CHECK(lines_with(text, "was given to this fence by rank 0 but not by rank") >= 2);
  CHECK_EQ(lines_with(text, "same_disp_unit was promised, but rank"), rank == 0 ? 0 : 1);
}

// Programs with misplaced synchronization, whose data must be right. Each rank puts to the next one.
struct Scene {
  int rank = check::rank(), size = check::size();
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  check::Group to{{(check::rank() + 1) % check::size()}};
  check::Group from{{(check::rank() + check::size() - 1) % check::size()}};
  std::array<int, 16> memory{};
  MPI_Win window = MPI_WIN_NULL;
  int values[4] = {rank, 100 + rank, 200 + rank, 300 + rank};

  Scene() {
    memory.fill(-1);
    CHECK_MPI(MPI_Win_create(memory.data(), sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    CHECK_MPI(MPI_Win_set_name(window, "misplaced"));
    barrier();
  }
  void barrier() const { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }
  // The operations `first` to `last` of the previous rank have arrived.
  void arrived(int first, int last) {
    if (window != MPI_WIN_NULL) CHECK_MPI(MPI_Win_sync(window));
    for (int i = first; i <= last; ++i) CHECK_EQ(memory[static_cast<std::size_t>(i)], 100 * i + previous);
  }
  void free() { CHECK_MPI(MPI_Win_free(&window)); }

  // Carries out the steps, each call from a place of its own: a word each, of rank 0 alone behind "0:", and of the
  // others behind "!0:". A digit at the end is the number of the operation, or of the last one that has arrived.
  void run(const std::string& steps) {
    int code = MPI_SUCCESS;
    const std::map<std::string, std::function<void(int)>> calls = {
        {"put", [&](int i) { code = MPI_Put(&values[i], 1, MPI_INT, next, i, 1, MPI_INT, window); }},
        {"replace",
         [&](int i) { code = MPI_Accumulate(&values[i], 1, MPI_INT, next, i, 1, MPI_INT, MPI_REPLACE, window); }},
        {"fence", [&](int) { code = MPI_Win_fence(0, window); }},
        {"last_fence", [&](int) { code = MPI_Win_fence(MPI_MODE_NOSUCCEED | MPI_MODE_NOPUT, window); }},
        {"lock", [&](int) { code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window); }},
        {"lock_rank", [&](int i) { code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, i, 0, window); }},
        {"share", [&](int) { code = MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window); }},
        {"unlock", [&](int) { code = MPI_Win_unlock(next, window); }},
        {"lock_all", [&](int) { code = MPI_Win_lock_all(0, window); }},
        {"lock_all_nocheck", [&](int) { code = MPI_Win_lock_all(MPI_MODE_NOCHECK, window); }},
        {"unlock_all", [&](int) { code = MPI_Win_unlock_all(window); }},
        {"flush", [&](int) { code = MPI_Win_flush(next, window); }},
        {"flush_all", [&](int) { code = MPI_Win_flush_all(window); }},
        {"post", [&](int) { code = MPI_Win_post(from, 0, window); }},
        {"start", [&](int) { code = MPI_Win_start(to, 0, window); }},
        {"complete", [&](int) { code = MPI_Win_complete(window); }},
        {"wait", [&](int) { code = MPI_Win_wait(window); }},
        {"test",
         [&](int) {
           int flag = 0;
           code = MPI_Win_test(window, &flag);
           CHECK_EQ(flag, 1);
         }},
        {"barrier", [&](int) { code = MPI_Barrier(MPI_COMM_WORLD); }},
        {"free", [&](int) { code = MPI_Win_free(&window); }},
        // Other code than for "free", which a compiler would merge with it.
        {"free_waited", [&](int) { code = std::max(MPI_Win_free(&window), int{MPI_SUCCESS}); }},
        {"arrived", [&](int last) { arrived(0, last); }},
        {"arrived_one", [&](int i) { arrived(i, i); }},
    };
    std::istringstream words(steps);
    for (std::string word; words >> word;) {
      const std::size_t colon = word.find(':');
      if (colon != std::string::npos && (word[0] == '!') == (rank == 0)) continue;
      std::string name = word.substr(colon == std::string::npos ? 0 : colon + 1);
      int number = 0;
      if (std::isdigit(name.back()) != 0) {
        number = name.back() - '0';
        name.pop_back();
      }
      calls.at(name)(number);
      if (code != MPI_SUCCESS) check::fail(__FILE__, __LINE__, word + ": " + check::class_name(check::class_of(code)));
    }
  }
};

// A place is reported once per rule: the scene that is to see the report comes first, or makes a call of its own.
struct Misplaced {
  const char* name;
  const char* reported;  // in one line, or more with `more`
  int more;
  const char* steps;  // Scene::run()
};

const Misplaced kMisplaced[] = {
    {"a fence while a target is locked", "MPI_Win_fence on window 'misplaced': fence while this process holds locks", 0,
     "lock put0 replace3 put1 put2 fence arrived3 unlock"},
    {"fences while all targets are locked", "fence while this process holds locks", 1,
     "lock_all put0 put1 fence arrived1 put2 replace3 last_fence arrived3 flush_all unlock_all"},
    {"a fence in an epoch of start", "fence while an epoch of MPI_Win_start is open", 0,
     "post start put0 fence arrived0 put1 complete wait arrived1"},
    {"a fence while posted", "fence while the own window is posted", 0, "post fence start put0 complete wait arrived0"},
    {"lock_all twice", "lock_all while all targets are already locked", 0,
     "lock_all put0 lock_all_nocheck put1 unlock_all barrier arrived1 barrier put2 unlock_all barrier arrived2 "
     "barrier"},
    {"a lock in a fence epoch", "lock while operations of a fence epoch are open", 0,
     "fence put0 lock put1 replace3 unlock put2 fence arrived3"},
    {"lock_all in a fence epoch", "lock while operations of a fence epoch are open", 0,
     "fence put0 lock_all put1 unlock_all put2 fence arrived2"},
    {"a start in a fence epoch", "start while operations of a fence epoch are open", 0,
     "fence put0 post start put1 complete wait arrived_one1 put2 fence arrived2"},
    {"a lock while all targets are locked", "lock while all targets are locked", 0,
     "lock_all put0 share put1 unlock barrier arrived1 barrier put2 unlock_all barrier arrived2 barrier"},
    {"a lock of a target that is locked", "lock of a target that this process has already locked", 0,
     "lock put0 share put1 unlock put2 unlock barrier arrived2 barrier"},
    {"a lock of a target that is posted", "lock of a target whose window is exposed by its MPI_Win_post", 0,
     "post barrier lock put0 flush unlock start put1 complete wait arrived1"},
    // The lock of a posted target is reported, too.
    {"a lock in an epoch of start", "lock while an epoch of MPI_Win_start is open", 1,
     "post start put0 lock put1 unlock put2 complete wait arrived2"},
    {"lock_all in an epoch of start", "lock while an epoch of MPI_Win_start is open", 0,
     "post start put0 lock_all put1 unlock_all put2 complete wait arrived2"},
    {"a post of a window that is locked", "post while the own window is locked by some rank", 0,
     "share put0 flush barrier post barrier unlock start put1 complete wait arrived1"},
    // The post of a locked window is reported, too.
    {"a start while a target is locked", "start while this process holds locks", 1,
     "share put0 flush barrier post start put1 unlock put2 complete wait arrived2"},
    {"lock_all while posted", "lock_all, which locks the own window too, while that is posted", 0,
     "post lock_all put0 unlock_all start put1 complete wait arrived1"},
    {"a post while all targets are locked", "post while the own window is locked by this process's MPI_Win_lock_all", 0,
     "lock_all put0 post unlock_all start put1 complete wait arrived1"},
    {"an unlock of one target while all are locked", "unlock of one target while all are locked by MPI_Win_lock_all", 0,
     "lock_all put0 unlock barrier arrived0 barrier put1 unlock_all barrier arrived1 barrier"},
    {"a complete without a start", "complete without a start", 0, "fence put0 complete barrier arrived0 barrier fence"},
    {"an unlock without a lock", "unlock of a target that is not locked", 0,
     "fence put0 unlock barrier arrived0 barrier fence"},
    {"unlock_all without a lock_all", "unlock_all without a lock_all", 0,
     "fence put0 unlock_all barrier arrived0 barrier fence"},
    {"a wait and a test without a post", "wait or test without a post", 1, "wait test"},
    {"a free in a fence epoch", "free while operations of a fence epoch are open", 0,
     "fence put0 replace3 put1 put2 free arrived3"},
    {"a free while all targets are locked", "free while this process holds locks", 0, "lock_all put0 free arrived0"},
    {"a free of a window whose locks others wait for", "free while this process holds locks", 0,
     "0:lock 0:put0 0:flush barrier !0:lock !0:put0 !0:lock_rank1 free_waited arrived0"},
    {"a free while posted and started", "free while an epoch of MPI_Win_start is open", 0,
     "post start put0 free arrived0"},
    {"a free while posted", "free while the own window is posted", 0, "post start put0 complete free arrived0"},
};

void misplaced(const Misplaced& each) {
  check::section(each.name);
  Scene scene;
  check::Stderr captured;
  scene.run(each.steps);
  const std::string text = captured.end();
  const int lines = lines_with(text, each.reported);
  CHECK(lines >= 1 && lines <= 1 + each.more);
  CHECK(lines_with(text, "executed anyway; called from ") <= 1 + each.more);
  CHECK_EQ(lines_with(text, ": error: "), 0);
  if (scene.window == MPI_WIN_NULL) return;
  // The window works as before.
  const int value = 1000 + scene.rank;
  scene.barrier();
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, scene.next, 0, scene.window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, scene.next, 5, 1, MPI_INT, scene.window));
  CHECK_MPI(MPI_Win_unlock(scene.next, scene.window));
  CHECK_MPI(MPI_Win_fence(0, scene.window));
  CHECK_EQ(scene.memory[5], 1000 + scene.previous);
  scene.free();
}

void refused(const check::Window& window) {
  check::section("what would wait for itself, and ranges, are judged as always");
  const int next = (check::rank() + 1) % check::size();
  const check::Group to{{next}}, from{{(check::rank() + check::size() - 1) % check::size()}};
  const int value = 1;
  check::Stderr captured;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  CHECK_EQ(check::class_of(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window)), MPI_ERR_RMA_SYNC);
  CHECK_EQ(check::class_of(MPI_Win_lock_all(0, window)), MPI_ERR_RMA_SYNC);
  CHECK_EQ(check::class_of(MPI_Put(&value, 1, MPI_INT, next, 4096, 1, MPI_INT, window)), MPI_ERR_RMA_RANGE);
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_EQ(check::class_of(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window)), MPI_ERR_RMA_SYNC);
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_post(from, 0, window));
  CHECK_EQ(check::class_of(MPI_Win_post(from, 0, window)), MPI_ERR_RMA_SYNC);
  CHECK_MPI(MPI_Win_start(to, 0, window));
  CHECK_EQ(check::class_of(MPI_Win_start(to, 0, window)), MPI_ERR_RMA_SYNC);
  CHECK_MPI(MPI_Win_complete(window));
  CHECK_MPI(MPI_Win_wait(window));
  const std::string text = captured.end();
  CHECK_EQ(lines_with(text, "executed anyway"), 0);
  CHECK_EQ(lines_with(text, "carries the call out"), 0);
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (check::size() < 2) return check::kSkipped;
  if (program.has("native")) {
    const Misplaced& each = kMisplaced[program.number("native", 1) - 1];
    check::section(each.name);
    if (check::rank() == 0) std::printf("%s\n", each.name);
    std::fflush(stdout);
    Scene scene;
    scene.run(each.steps);
    if (scene.window != MPI_WIN_NULL) scene.free();
    return 0;
  }
  const check::Window window(program.memory(), 16 * sizeof(int), sizeof(int));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Win_set_name(window, "warned"));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  outside_epochs(window);
  assertions(window);
  broken_promises(window);
  for (const Misplaced& each : kMisplaced) misplaced(each);
  refused(window);
}

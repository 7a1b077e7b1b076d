// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_CHECK=warn: what breaks a rule without harm is carried out, and reported once per place; what would wait
// for itself is refused as always. At least two ranks.
//
//   warned [create]   everything
//   warned native N   the N-th program with misplaced synchronization (from 1), on a runtime alone
#include <array>
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
  CHECK_EQ(lines_with(text, "carried out all the same, called from "), 8);
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
  CHECK_EQ(lines_with(text, "carried out all the same"), 2 + puts);
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
  // The operation number i. Number 3 combines.
  void put(int i) {
    if (i == 3) {
      CHECK_MPI(MPI_Accumulate(&values[3], 1, MPI_INT, next, 3, 1, MPI_INT, MPI_REPLACE, window));
    } else {
      CHECK_MPI(MPI_Put(&values[i], 1, MPI_INT, next, i, 1, MPI_INT, window));
    }
  }
  // Operations 0 to `last` of the previous rank have arrived.
  void arrived(int last) {
    if (window != MPI_WIN_NULL) CHECK_MPI(MPI_Win_sync(window));
    for (int i = 0; i <= last; ++i) CHECK_EQ(memory[static_cast<std::size_t>(i)], 100 * i + previous);
  }
  void arrived_everywhere(int last) {
    barrier();
    arrived(last);
    barrier();
  }
  void free() { CHECK_MPI(MPI_Win_free(&window)); }
};

struct Misplaced {
  const char* name;
  const char* reported;  // in one line, or more with `more`
  int more;
  void (*run)(Scene& s);
};

const Misplaced kMisplaced[] = {
    {"a fence while a target is locked", "MPI_Win_fence on window 'misplaced': fence while this process holds locks", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       s.put(0);
       s.put(3);
       s.put(1);
       s.put(2);
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.arrived(3);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
     }},
    {"fences while all targets are locked", "fence while this process holds locks", 1,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       for (int i = 0; i < 2; ++i) s.put(i);
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.arrived(1);
       for (int i = 2; i < 4; ++i) s.put(i);
       CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED | MPI_MODE_NOPUT, s.window));
       s.arrived(3);
       CHECK_MPI(MPI_Win_flush_all(s.window));
       CHECK_MPI(MPI_Win_unlock_all(s.window));
     }},
    {"a fence in an epoch of start", "fence while an epoch of MPI_Win_start is open", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.arrived(0);
       s.put(1);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(1);
     }},
    {"a fence while posted", "fence while the own window is posted", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_fence(0, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(0);
     }},
    {"lock_all twice", "lock_all while all targets are already locked", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       s.arrived_everywhere(1);
       s.put(2);
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       s.arrived_everywhere(2);
     }},
    {"a lock in a fence epoch", "lock while operations of a fence epoch are open", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       s.put(1);
       s.put(3);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       s.put(2);
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.arrived(3);
     }},
    {"lock_all in a fence epoch", "lock while operations of a fence epoch are open", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       s.put(2);
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.arrived(2);
     }},
    {"a start in a fence epoch", "start while operations of a fence epoch are open", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       CHECK_EQ(s.memory[1], 100 + s.previous);
       s.put(2);
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.arrived(2);
     }},
    {"a lock while all targets are locked", "lock while all targets are locked", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       s.arrived_everywhere(1);
       s.put(2);
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       s.arrived_everywhere(2);
     }},
    {"a lock of a target that is locked", "lock of a target that this process has already locked", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       s.put(2);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       s.arrived_everywhere(2);
     }},
    {"a lock in an epoch of start", "lock while an epoch of MPI_Win_start is open", 1,  // and of a posted target
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       s.put(2);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(2);
     }},
    {"lock_all in an epoch of start", "lock while an epoch of MPI_Win_start is open", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       s.put(2);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(2);
     }},
    {"a start while a target is locked", "start while this process holds locks", 1,  // and a post of a locked window
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_flush(s.next, s.window));  // so that no lock is deferred
       s.barrier();
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       s.put(2);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(2);
     }},
    {"lock_all while posted", "lock_all, which locks the own window too, while that is posted", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(1);
     }},
    {"a post while all targets are locked", "post while the own window is locked by this process's MPI_Win_lock_all", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(1);
     }},
    {"a lock of a target that is posted", "lock of a target whose window is exposed by its MPI_Win_post", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       s.barrier();
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_flush(s.next, s.window));
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(1);
     }},
    {"a post of a window that is locked", "post while the own window is locked by some rank", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_flush(s.next, s.window));
       s.barrier();
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       s.barrier();
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(1);
       CHECK_MPI(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
       s.arrived(1);
     }},
    {"an unlock of one target while all are locked", "unlock of one target while all are locked by MPI_Win_lock_all", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       s.arrived_everywhere(0);
       s.put(1);
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       s.arrived_everywhere(1);
     }},
    {"a complete without a start", "complete without a start", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_complete(s.window));
       s.arrived_everywhere(0);
       CHECK_MPI(MPI_Win_fence(0, s.window));
     }},
    {"an unlock without a lock", "unlock of a target that is not locked", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_unlock(s.next, s.window));
       s.arrived_everywhere(0);
       CHECK_MPI(MPI_Win_fence(0, s.window));
     }},
    {"unlock_all without a lock_all", "unlock_all without a lock_all", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_unlock_all(s.window));
       s.arrived_everywhere(0);
       CHECK_MPI(MPI_Win_fence(0, s.window));
     }},
    {"a wait and a test without a post", "wait or test without a post", 1,
     [](Scene& s) {
       int flag = 0;
       CHECK_MPI(MPI_Win_wait(s.window));
       CHECK_MPI(MPI_Win_test(s.window, &flag));
       CHECK_EQ(flag, 1);
     }},
    {"a free in a fence epoch", "free while operations of a fence epoch are open", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.put(0);
       s.put(3);
       s.put(1);
       s.put(2);
       s.free();
       s.arrived(3);
     }},
    {"a free while all targets are locked", "free while this process holds locks", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock_all(0, s.window));
       s.put(0);
       s.free();
       s.arrived(0);
     }},
    {"a free of a window whose locks others wait for", "free while this process holds locks", 0,
     [](Scene& s) {
       if (s.rank == 0) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       if (s.rank == 0) s.put(0);
       if (s.rank == 0) CHECK_MPI(MPI_Win_flush(s.next, s.window));
       s.barrier();
       if (s.rank != 0) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       if (s.rank != 0) s.put(0);
       if (s.rank != 0) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, s.window));
       s.free();
       s.arrived(0);
     }},
    {"a free while posted and started", "free while an epoch of MPI_Win_start is open", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(0);
       s.free();
       s.arrived(0);
     }},
    {"a free while posted", "free while the own window is posted", 0,
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.from, 0, s.window));
       CHECK_MPI(MPI_Win_start(s.to, 0, s.window));
       s.put(0);
       CHECK_MPI(MPI_Win_complete(s.window));
       s.free();
       s.arrived(0);
     }},
};

void misplaced(const Misplaced& each) {
  check::section(each.name);
  Scene scene;
  check::Stderr captured;
  each.run(scene);
  const std::string text = captured.end();
  const int lines = lines_with(text, each.reported);
  CHECK(lines >= 1 && lines <= 1 + each.more);
  CHECK(lines_with(text, "carried out all the same, called from ") <= 1 + each.more);
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
  CHECK_EQ(lines_with(text, "carried out all the same"), 0);
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
    each.run(scene);
    if (scene.window != MPI_WIN_NULL) scene.free();
    return 0;
  }
  const check::Window window(program.memory(), 16 * sizeof(int), sizeof(int));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Win_set_name(window, "warned"));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  outside_epochs(window);
  assertions(window);
  for (const Misplaced& each : kMisplaced) misplaced(each);
  refused(window);
}

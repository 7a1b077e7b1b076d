// SPDX-License-Identifier: BSD-3-Clause
// Calls without memory. This program's operator new fails at the n-th allocation in a call, for each n that the call
// reaches. The call then has not happened and returns MPI_ERR_NO_MEM, or it has happened as a whole; no exception
// leaves it, the epoch is as before, and the same call succeeds afterwards. The runtimes do not use operator new.
#include <cstdlib>
#include <functional>
#include <new>
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"

namespace {

thread_local int left = 0;  // allocations until the one that fails; 0: none does
thread_local bool failed = false;
int failures = 0;  // of all calls

void* allocate(std::size_t bytes, std::size_t alignment) {
  while (left > 0 && --left == 0) {
    failed = true;
    const std::new_handler handler = std::get_new_handler();
    handler != nullptr ? handler() : throw std::bad_alloc();
  }
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment + alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
// The standard library's calls the above; a sanitizer's does not.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

int rank, size, next;
constexpr int kInts = 1 << 14;
constexpr int kMost = 400;  // allocations in one call

// Makes the call with each of its allocations failing once, and at last without a failure. `prepare` is called before
// each attempt, `finish` after each successful one.
void with_each_failing(const std::function<int()>& call, const std::function<void()>& prepare = {},
                       const std::function<void()>& finish = {}) {
  for (int n = 1; n <= kMost; ++n) {
    if (prepare) prepare();
    failed = false;
    left = n;
    int code = call();
    left = 0;
    if (failed) ++failures;
    if (code != MPI_SUCCESS) {
      int error_class = MPI_SUCCESS;
      CHECK(failed);
      CHECK_MPI(MPI_Error_class(code, &error_class));
      CHECK_EQ(error_class, static_cast<int>(MPI_ERR_NO_MEM));
      CHECK_MPI(call());
    }
    if (finish) finish();
    if (!failed) return;
  }
  CHECK(false);
}

// A type of `count` ints with gaps, in more levels than the cursors of farside keep without memory.
MPI_Datatype spread(int count) {
  MPI_Datatype type, outer;
  CHECK_MPI(MPI_Type_vector(count, 1, 2, MPI_INT, &type));
  for (int level = 0; level < 9; ++level) {
    const int lengths[2] = {1, 1};
    MPI_Aint lower = 0, extent = 0;
    CHECK_MPI(MPI_Type_get_extent(type, &lower, &extent));
    const MPI_Aint places[2] = {0, extent + 4};
    const MPI_Datatype types[2] = {type, MPI_INT};
    CHECK_MPI(MPI_Type_create_struct(2, lengths, places, types, &outer));
    CHECK_MPI(MPI_Type_free(&type));
    type = outer;
  }
  CHECK_MPI(MPI_Type_commit(&type));
  return type;
}

void operations(MPI_Win window, const int* mine) {
  constexpr int kCount = 1000;
  constexpr int kElements = kCount + 9;
  std::vector<int> ones(4 * kElements, 1), fetched(4 * kElements);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int times = 0;
  const auto renew = [&] { type = spread(kCount); };
  const auto drop = [&] {
    CHECK_MPI(MPI_Win_flush(next, window));
    CHECK_MPI(MPI_Type_free(&type));
    ++times;
  };
  const auto check = [&](const char* what) {
    check::section(what);
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    int theirs = 0;
    const int before = (rank + size - 1) % size;
    CHECK_MPI(
        MPI_Sendrecv(&times, 1, MPI_INT, next, 0, &theirs, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_MPI(MPI_Win_lock_all(0, window));
    // Whole operations only. A failed one that was repeated has changed nothing the first time.
    for (int i = 0; i < kElements; ++i) CHECK_EQ(mine[i], theirs);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  };
  CHECK_MPI(MPI_Win_lock_all(0, window));
  with_each_failing([&] { return MPI_Accumulate(ones.data(), 1, type, next, 0, kElements, MPI_INT, MPI_SUM, window); },
                    renew, drop);
  check("accumulate");
  with_each_failing(
      [&] {
        return MPI_Get_accumulate(ones.data(), kElements, MPI_INT, fetched.data(), 1, type, next, 0, kElements, MPI_INT,
                                  MPI_SUM, window);
      },
      renew, drop);
  check("get_accumulate");
  MPI_Request request = MPI_REQUEST_NULL;
  with_each_failing(
      [&] { return MPI_Raccumulate(ones.data(), 1, type, next, 0, kElements, MPI_INT, MPI_SUM, window, &request); },
      renew,
      [&] {
        with_each_failing([&] { return MPI_Wait(&request, MPI_STATUS_IGNORE); });
        drop();
      });
  check("raccumulate");
  int one = 1, old = 0;
  with_each_failing([&] { return MPI_Put(&one, 1, MPI_INT, next, kInts - 1, 1, MPI_INT, window); });
  with_each_failing([&] { return MPI_Win_flush(next, window); });
  with_each_failing([&] { return MPI_Get(&old, 1, MPI_INT, next, kInts - 1, 1, MPI_INT, window); });
  with_each_failing([&] { return MPI_Win_flush_all(window); });
  CHECK_EQ(old, 1);
  with_each_failing([&] { return MPI_Get(fetched.data(), 1, type, next, 0, kElements, MPI_INT, window); }, renew,
                    [&] {
                      CHECK_MPI(MPI_Win_flush(next, window));
                      CHECK_MPI(MPI_Type_free(&type));
                    });
  with_each_failing([&] { return MPI_Fetch_and_op(&one, &old, MPI_INT, next, kInts - 2, MPI_REPLACE, window); });
  with_each_failing([&] { return MPI_Compare_and_swap(&one, &one, &old, MPI_INT, next, kInts - 2, window); });
  with_each_failing([&] { return MPI_Win_flush_local_all(window); });
  with_each_failing([&] { return MPI_Win_sync(window); });
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void locks(MPI_Win window) {
  check::section("locks");
  for (const int type : {MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED}) {
    with_each_failing([&] { return MPI_Win_lock(type, next, 0, window); }, {},
                      [&] { CHECK_MPI(MPI_Win_unlock(next, window)); });
  }
  // All targets at once: more locks than there is room for at first.
  for (int target = 0; target + 1 < size; ++target) CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
  with_each_failing([&] { return MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, window); }, {},
                    [&] { CHECK_MPI(MPI_Win_unlock(size - 1, window)); });
  for (int target = 0; target + 1 < size; ++target) CHECK_MPI(MPI_Win_unlock(target, window));
  with_each_failing([&] { return MPI_Win_lock_all(0, window); }, {}, [&] { CHECK_MPI(MPI_Win_unlock_all(window)); });
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// Rank 0 lacks memory, and repeats the call; the others wait for it.
void collectives(MPI_Win window) {
  constexpr int kRounds = 20;
  check::section("fence");
  const auto fails_at = [&](int n, const std::function<int()>& call) {
    failed = false;
    left = rank == 0 ? n : 0;
    const int code = call();
    left = 0;
    if (failed) ++failures;
    if (code != MPI_SUCCESS) CHECK(failed);
    if (code != MPI_SUCCESS) CHECK_MPI(call());
  };
  for (int n = 1; n <= kRounds; ++n) fails_at(n, [&] { return MPI_Win_fence(0, window); });
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  check::section("post and start");
  MPI_Group all, group;
  CHECK_MPI(MPI_Win_get_group(window, &all));
  for (int n = 1; n <= kRounds; ++n) {
    CHECK_MPI(MPI_Group_excl(all, 0, nullptr, &group));
    fails_at(n, [&] { return MPI_Win_post(group, 0, window); });
    fails_at(n, [&] { return MPI_Win_start(group, 0, window); });
    fails_at(n, [&] { return MPI_Win_complete(window); });
    fails_at(n, [&] { return MPI_Win_wait(window); });
    CHECK_MPI(MPI_Group_free(&group));
  }
  CHECK_MPI(MPI_Group_free(&all));
}

void queries(MPI_Win window) {
  check::section("queries");
  MPI_Info info = MPI_INFO_NULL;
  with_each_failing([&] { return MPI_Win_get_info(window, &info); }, {}, [&] { CHECK_MPI(MPI_Info_free(&info)); });
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "accumulate_ordering", "rar,raw"));
  with_each_failing([&] { return MPI_Win_set_info(window, info); });
  CHECK_MPI(MPI_Info_free(&info));
  with_each_failing([&] { return MPI_Win_set_name(window, "a name that is longer than a short string"); });
  MPI_Group group = MPI_GROUP_NULL;
  with_each_failing([&] { return MPI_Win_get_group(window, &group); }, {}, [&] { CHECK_MPI(MPI_Group_free(&group)); });
  // An error without memory for its line.
  for (int n = 1; n < 20; ++n) {
    left = n;
    const int code = MPI_Win_unlock(size, window);
    left = 0;
    CHECK(code != MPI_SUCCESS);
  }
  void* memory = nullptr;
  with_each_failing([&] { return MPI_Alloc_mem(100, MPI_INFO_NULL, &memory); }, {},
                    [&] { CHECK_MPI(MPI_Free_mem(memory)); });
  CHECK_MPI(MPI_Alloc_mem(1 << 20, MPI_INFO_NULL, &memory));
  with_each_failing([&] {
    static_cast<char*>(memory)[0] = 1;
    const pid_t child = fork();
    if (child == 0) _exit(static_cast<char*>(memory)[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 1);
    return static_cast<int>(MPI_SUCCESS);
  });
  CHECK_MPI(MPI_Free_mem(memory));
  MPI_Win dynamic;
  std::array<int, 100> attached{};
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
  CHECK_MPI(MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN));
  // The peers can read the table of regions, whatever failed before.
  const auto read_next = [&] {
    MPI_Aint mine = 0, theirs = 0;
    int seen = 0;
    attached.fill(rank + 1);
    CHECK_MPI(MPI_Get_address(attached.data(), &mine));
    CHECK_MPI(MPI_Sendrecv(&mine, 1, MPI_AINT, (rank + size - 1) % size, 0, &theirs, 1, MPI_AINT, next, 0,
                           MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, dynamic));
    CHECK_MPI(MPI_Get(&seen, 1, MPI_INT, next, theirs, 1, MPI_INT, dynamic));
    CHECK_MPI(MPI_Win_unlock(next, dynamic));
    CHECK_EQ(seen, next + 1);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  };
  for (int n = 1; n <= 10; ++n) {
    for (const bool attaches : {true, false}) {
      const auto call = [&] {
        return attaches ? MPI_Win_attach(dynamic, attached.data(), sizeof attached)
                        : MPI_Win_detach(dynamic, attached.data());
      };
      failed = false;
      left = n;
      const int code = call();
      left = 0;
      if (failed) ++failures;
      if (code != MPI_SUCCESS) CHECK(failed);
      if (code != MPI_SUCCESS) CHECK_MPI(call());
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
      if (attaches) read_next();
    }
  }
  CHECK_MPI(MPI_Win_free(&dynamic));
}

// Rank 0 lacks memory. All ranks get the window, or none does.
void creations() {
  check::section("creation");
  void* base = nullptr;
  std::vector<int> memory(100);
  const auto each = [&](const std::function<int(MPI_Win*)>& make) {
    for (int n = 1;; ++n) {
      CHECK(n <= kMost);
      MPI_Win window = MPI_WIN_NULL;
      failed = false;
      left = rank == 0 ? n : 0;
      const int code = make(&window);
      left = 0;
      if (failed) ++failures;
      int made[2] = {code == MPI_SUCCESS, code != MPI_SUCCESS}, more = failed;
      CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, made, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
      CHECK_MPI(MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD));
      CHECK(made[0] == size || made[1] == size);
      if (code == MPI_SUCCESS) {
        CHECK_MPI(MPI_Win_free(&window));
      } else {
        int error_class = MPI_SUCCESS;
        CHECK_MPI(MPI_Error_class(code, &error_class));
        CHECK_EQ(error_class, static_cast<int>(MPI_ERR_NO_MEM));
      }
      if (more == 0) return;
    }
  };
  for (const bool first : {true, false}) {
    MPI_Comm comm = MPI_COMM_WORLD;
    const auto renew = [&] {
      if (first) CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    };
    const auto drop = [&] {
      if (first) CHECK_MPI(MPI_Comm_free(&comm));
    };
    each([&](MPI_Win* window) {
      const int before = left;
      left = 0;
      renew();
      CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
      left = before;
      const int code = MPI_Win_allocate(64, 1, MPI_INFO_NULL, comm, &base, window);
      left = 0;
      drop();
      return code;
    });
    each([&](MPI_Win* window) { return MPI_Win_create(memory.data(), 400, 1, MPI_INFO_NULL, MPI_COMM_WORLD, window); });
    each([&](MPI_Win* window) { return MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, window); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  next = (rank + 1) % size;
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  {
    const check::Window window(program.memory(), kInts * sizeof(int), sizeof(int));
    CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    queries(window);
    locks(window);
    operations(window, window.as<int>());
    collectives(window);
  }
  creations();
  std::printf("%d allocations failed\n", failures);
  CHECK(failures > 10);
  return 0;
}

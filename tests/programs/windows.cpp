// SPDX-License-Identifier: BSD-3-Clause
// Windows as objects: on any memory of any size, their attributes, names, info, error handlers and group, on any
// communicator, many windows one after the other and at once.
#include <cstdlib>
#include <string>

#include "check.hpp"
#include "usage.hpp"

namespace {

int rank;
int size;

template <class T>
T attribute(MPI_Win window, int keyval) {
  T* value = nullptr;
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(window, keyval, &value, &found));
  CHECK(found);
  return *value;
}

void check_attributes(MPI_Win window, const void* base, MPI_Aint bytes, int unit, int flavor) {
  void* address = nullptr;
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(window, MPI_WIN_BASE, &address, &found));
  CHECK(found);
  if (bytes > 0) CHECK_EQ(static_cast<const void*>(address), base);
  CHECK_EQ(attribute<MPI_Aint>(window, MPI_WIN_SIZE), bytes);
  CHECK_EQ(attribute<int>(window, MPI_WIN_DISP_UNIT), unit);
  CHECK_EQ(attribute<int>(window, MPI_WIN_CREATE_FLAVOR), flavor);
  const int model = attribute<int>(window, MPI_WIN_MODEL);
  CHECK(model == MPI_WIN_UNIFIED || model == MPI_WIN_SEPARATE);
}

// Passes one value round the ring through the first bytes of the windows of a communicator.
void check_works(MPI_Win window, void* base, MPI_Comm comm) {
  int me = 0;
  int all = 0;
  CHECK_MPI(MPI_Comm_rank(comm, &me));
  CHECK_MPI(MPI_Comm_size(comm, &all));
  const int value = 500 + me;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, (me + 1) % all, 0, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(*static_cast<int*>(base), 500 + (me + all - 1) % all);
}

// Makes, uses and frees a window of a communicator.
void make_and_use(MPI_Comm comm, MPI_Aint bytes) {
  void* base = nullptr;
  MPI_Win window;
  CHECK_MPI(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, comm, &base, &window));
  check_works(window, base, comm);
  CHECK_MPI(MPI_Win_free(&window));
}

// The resources of the first window and its connections. (A sanitizer's library uses more.)
void footprint() {
  constexpr std::int64_t kMost = 40 << 10;
  if (std::getenv("ASAN_OPTIONS") != nullptr || std::getenv("TSAN_OPTIONS") != nullptr) return;
  const check::Usage before = check::usage();
  check::Window window(check::Memory::kAllocate, sizeof(int), sizeof(int));
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
    int value = -1;
    CHECK_MPI(MPI_Get(&value, 1, MPI_INT, target, 0, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
    CHECK_EQ(value, 0);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const char* const route = std::getenv("TEST_ROUTE");
  if (route != nullptr && std::string(route) != "native") CHECK(check::usage().kilobytes - before.kilobytes < kMost);
}

// Sizes and units that differ per rank, some sizes are 0; each rank is accessible up to its own last byte.
void sizes_and_units() {
  const auto bytes_of = [](int r, int round) { return (r + round) % 3 == 0 ? 0 : 1000 * (r + 1) + round; };
  const auto unit_of = [](int r) { return 1 << (r % 4); };
  for (int round = 0; round < 4; ++round) {
    const MPI_Aint bytes = bytes_of(rank, round);
    for (bool allocated : {true, false}) {
      std::vector<char> own(static_cast<std::size_t>(bytes) + 1);
      void* base = own.data();
      MPI_Win window;
      if (allocated) {
        CHECK_MPI(MPI_Win_allocate(bytes, unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
      } else {
        CHECK_MPI(
            MPI_Win_create(bytes > 0 ? base : nullptr, bytes, unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &window));
      }
      check_attributes(window, base, bytes, unit_of(rank), allocated ? MPI_WIN_FLAVOR_ALLOCATE : MPI_WIN_FLAVOR_CREATE);
      if (bytes > 0) std::memset(base, 0, static_cast<std::size_t>(bytes));
      CHECK_MPI(MPI_Win_fence(0, window));
      const int target = (rank + 1) % size;
      const MPI_Aint there = bytes_of(target, round);
      const char mark = static_cast<char>(1 + rank);
      if (there > 0) {
        // The last whole unit.
        const MPI_Aint last = there / unit_of(target) - 1;
        CHECK_MPI(MPI_Put(&mark, 1, MPI_CHAR, target, last, 1, MPI_CHAR, window));
      } else {
        CHECK_MPI(MPI_Put(&mark, 0, MPI_CHAR, target, 0, 0, MPI_CHAR, window));
      }
      CHECK_MPI(MPI_Win_fence(0, window));
      if (bytes > 0) {
        const MPI_Aint last = (bytes / unit_of(rank) - 1) * unit_of(rank);
        for (MPI_Aint i = 0; i < bytes; ++i) {
          CHECK_EQ(+static_cast<char*>(base)[i], i == last ? 1 + (rank + size - 1) % size : 0);
        }
      }
      CHECK_MPI(MPI_Win_free(&window));
      CHECK(window == MPI_WIN_NULL);
    }
  }
}

char static_memory[4096];

void kinds_of_memory() {
  char stack_memory[4096] = {};
  void* runtime_memory = nullptr;
  CHECK_MPI(MPI_Alloc_mem(4096, MPI_INFO_NULL, &runtime_memory));
  std::memset(runtime_memory, 0, 4096);
  std::vector<char> heap_memory(4096);
  // Each memory also from its middle, because a window may be a part of an allocation.
  for (void* memory : {static_cast<void*>(static_memory), static_cast<void*>(stack_memory), runtime_memory,
                       static_cast<void*>(heap_memory.data())}) {
    for (int offset : {0, 1024}) {
      char* base = static_cast<char*>(memory) + offset;
      MPI_Win window;
      CHECK_MPI(MPI_Win_create(base, 2048, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
      check_attributes(window, base, 2048, 4, MPI_WIN_FLAVOR_CREATE);
      check_works(window, base, MPI_COMM_WORLD);
      CHECK_MPI(MPI_Win_free(&window));
    }
  }
  CHECK_MPI(MPI_Free_mem(runtime_memory));
  // Two windows over the same memory.
  MPI_Win one;
  MPI_Win other;
  CHECK_MPI(MPI_Win_create(static_memory, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &one));
  CHECK_MPI(MPI_Win_create(static_memory, 128, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &other));
  check_works(one, static_memory, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, one));
  check_works(other, static_memory, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_free(&one));
  check_works(other, static_memory, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_free(&other));
}

int deleted = 0;
void* seen_base = nullptr;

int when_deleted(MPI_Win window, int, void* value, void* extra) {
  ++deleted;
  CHECK_EQ(*static_cast<int*>(value), 11);
  CHECK_EQ(*static_cast<int*>(extra), 22);
  // The window is still valid here.
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(window, MPI_WIN_BASE, &seen_base, &found));
  CHECK(found);
  return MPI_SUCCESS;
}

void user_attributes() {
  int value = 11;
  int extra = 22;
  int keyval = MPI_KEYVAL_INVALID;
  CHECK_MPI(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, when_deleted, &keyval, &extra));
  void* base = nullptr;
  MPI_Win window;
  CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  void* got = nullptr;
  int found = 1;
  CHECK_MPI(MPI_Win_get_attr(window, keyval, &got, &found));
  CHECK(!found);
  CHECK_MPI(MPI_Win_set_attr(window, keyval, &value));
  CHECK_MPI(MPI_Win_get_attr(window, keyval, &got, &found));
  CHECK(found);
  CHECK_EQ(got, static_cast<void*>(&value));
  CHECK_MPI(MPI_Win_delete_attr(window, keyval));
  CHECK_EQ(deleted, 1);
  CHECK_EQ(seen_base, base);
  seen_base = nullptr;
  CHECK_MPI(MPI_Win_set_attr(window, keyval, &value));
  check_works(window, base, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_EQ(deleted, 2);
  CHECK_EQ(seen_base, base);
  CHECK_MPI(MPI_Win_free_keyval(&keyval));
}

// A delete callback that fails in MPI_Win_free. If the runtime then keeps the handle (MPICH), the window works, and the
// other ranks still wait for this one.
void failing_delete_callback() {
  int failures = 0;
  int keyval = MPI_KEYVAL_INVALID;
  const auto fail_once = [](MPI_Win, int, void* left, void*) {
    int& failures_left = *static_cast<int*>(left);
    return failures_left > 0 && failures_left-- > 0 ? static_cast<int>(MPI_ERR_OTHER) : static_cast<int>(MPI_SUCCESS);
  };
  CHECK_MPI(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, fail_once, &keyval, nullptr));
  for (const bool on_all_ranks : {true, false}) {
    void* base = nullptr;
    MPI_Win window;
    CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    failures = on_all_ranks || rank == 0 ? 1 : 0;
    const bool fails = failures > 0;
    CHECK_MPI(MPI_Win_set_attr(window, keyval, &failures));
    if (MPI_Win_free(&window) != MPI_SUCCESS) {
      CHECK(fails);
      CHECK(window != MPI_WIN_NULL);
      CHECK_EQ(attribute<MPI_Aint>(window, MPI_WIN_SIZE), MPI_Aint{64});
      if (on_all_ranks) {
        check_works(window, base, MPI_COMM_WORLD);
        CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
      }
      CHECK_MPI(MPI_Win_free(&window));
    }
    CHECK_EQ(window, MPI_WIN_NULL);
  }
  CHECK_MPI(MPI_Win_free_keyval(&keyval));
}

void hints() {
  const std::vector<std::pair<const char*, const char*>> given = {
      {"no_locks", "true"},        {"accumulate_ordering", "rar,waw"}, {"accumulate_ops", "same_op"},
      {"epochs_used", "lock_all"}, {"mpi_assert_something", "true"},
  };
  const std::vector<std::pair<const char*, const char*>> of_creation = {
      {"same_size", "true"},
      {"same_disp_unit", "true"},
      {"which_accumulate_ops", "sum,no_op"},
      {"mpi_accumulate_granularity", "16"},
  };
  const std::vector<std::pair<const char*, const char*>> defaults = {
      {"no_locks", "false"},
      {"accumulate_ordering", "rar,raw,war,waw"},
      {"accumulate_ops", "same_op_no_op"},
      {"same_size", "false"},
      {"same_disp_unit", "false"},
      {"mpi_accumulate_granularity", "0"},
      {"mpi_memory_alloc_kinds", "mpi,system"},
  };
  const auto make_info = [](const std::vector<std::pair<const char*, const char*>>& hints) {
    MPI_Info info;
    CHECK_MPI(MPI_Info_create(&info));
    for (const auto& [key, value] : hints) CHECK_MPI(MPI_Info_set(info, key, value));
    return info;
  };
  void* base = nullptr;
  MPI_Win window;
  CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  for (const auto& [key, value] : defaults) CHECK_EQ(check::hint(window, key), std::string(value));
  const char* const given_route = std::getenv("TEST_ROUTE");
  if (const std::string route = given_route != nullptr ? given_route : ""; route != "native" && route != "") {
    // The program's own memory is accessed with a thread of the target, for operations of many fragments at least.
    static char own[64];
    MPI_Win created;
    CHECK_MPI(MPI_Win_create(own, sizeof own, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &created));
    CHECK_EQ(check::hint(created, "farside_progress"), std::string(check::size() > 1 ? "thread" : "origin"));
    CHECK_MPI(MPI_Win_free(&created));
    const bool far = check::size() > 1 && (route == "fabric" || route == "hosts");
    const std::string known = check::hint(window, "farside_route");
    CHECK_EQ(check::hint(window, "farside_progress"), std::string(far ? "thread" : "origin"));
    CHECK_EQ(known.substr(known.rfind(',') + 1), std::string(far ? "fabric" : check::size() > 1 ? "mapped" : "self"));
  }
  MPI_Info info = make_info(given);
  CHECK_MPI(MPI_Win_set_info(window, info));
  CHECK_MPI(MPI_Info_free(&info));
  for (const auto& [key, value] : given) CHECK_EQ(check::hint(window, key), std::string(value));
  // Hints of the creation have no effect later, and are not reported.
  info = make_info(of_creation);
  CHECK_MPI(MPI_Win_set_info(window, info));
  CHECK_MPI(MPI_Info_free(&info));
  for (const auto& [key, value] : of_creation) {
    if (given_route != nullptr && std::string(given_route) != "native") CHECK(check::hint(window, key) != value);
  }
  check_works(window, base, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  // Invalid values change nothing; unknown keys are not reported.
  info = make_info({{"no_locks", "perhaps"},
                    {"accumulate_ordering", "rar,wow"},
                    {"accumulate_ops", "any"},
                    {"mpi_accumulate_granularity", "-8"},
                    {"mpi_memory_alloc_kinds", "mpi,system,cuda"},
                    {"nobody_knows", "42"},
                    {"alloc_shared_noncontig", "true"}});
  CHECK_MPI(MPI_Win_set_info(window, info));
  CHECK_MPI(MPI_Info_free(&info));
  for (const auto& [key, value] : given) CHECK_EQ(check::hint(window, key), std::string(value));
  CHECK_EQ(check::hint(window, "mpi_memory_alloc_kinds"), std::string("mpi,system"));
  CHECK_EQ(check::hint(window, "nobody_knows"), std::string());
  CHECK_EQ(check::hint(window, "alloc_shared_noncontig"), std::string());
  // Nor do they at creation, where Open MPI refuses some.
  info = make_info({{"no_locks", "perhaps"},
                    {"accumulate_ordering", "rar,wow"},
                    {"accumulate_ops", "any"},
                    {"same_size", "maybe"},
                    {"same_disp_unit", "yes"},
                    {"alloc_shared_noncontig", "7"},
                    {"mpi_accumulate_granularity", "-8"}});
  MPI_Win other;
  CHECK_MPI(MPI_Win_allocate(64, 1, info, MPI_COMM_WORLD, &base, &other));
  CHECK_MPI(MPI_Info_free(&info));
  for (const auto& [key, value] : defaults) CHECK_EQ(check::hint(other, key), std::string(value));
  CHECK_MPI(MPI_Win_free(&other));
  info = make_info(defaults);
  CHECK_MPI(MPI_Win_set_info(window, info));
  CHECK_MPI(MPI_Info_free(&info));
  for (const auto& [key, value] : defaults) CHECK_EQ(check::hint(window, key), std::string(value));
  if (given_route != nullptr && std::string(given_route) != "native") {
    CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_Info none;  // no handle of either runtime
    std::memset(static_cast<void*>(&none), sizeof none == sizeof(int) ? 0x5a : 0, sizeof none);
    for (MPI_Info bad : {none, MPI_INFO_NULL}) CHECK_EQ(check::class_of(MPI_Win_set_info(window, bad)), MPI_ERR_INFO);
    MPI_Win refused = MPI_WIN_NULL;
    CHECK_EQ(check::class_of(MPI_Win_allocate(64, 1, none, MPI_COMM_WORLD, &base, &refused)), MPI_ERR_INFO);
    CHECK_EQ(check::class_of(MPI_Win_create_dynamic(none, MPI_COMM_WORLD, &refused)), MPI_ERR_INFO);
    CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  }
  // Locks work, although the info ruled them out.
  CHECK_MPI(MPI_Win_free(&window));
  info = make_info(of_creation);
  CHECK_MPI(MPI_Win_allocate(64, 1, info, MPI_COMM_WORLD, &base, &window));
  CHECK_MPI(MPI_Info_free(&info));
  for (const auto& [key, value] : of_creation) CHECK_EQ(check::hint(window, key), std::string(value));
  CHECK_MPI(MPI_Win_free(&window));
  info = make_info({{"no_locks", "true"}, {"accumulate_ordering", "none"}, {"mpi_accumulate_granularity", "8"}});
  CHECK_MPI(MPI_Win_allocate(64, 1, info, MPI_COMM_WORLD, &base, &window));
  CHECK_MPI(MPI_Info_free(&info));
  CHECK_EQ(check::hint(window, "no_locks"), std::string("true"));
  CHECK_EQ(check::hint(window, "accumulate_ordering"), std::string("none"));
  CHECK_EQ(check::hint(window, "mpi_accumulate_granularity"), std::string("8"));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
  CHECK_MPI(MPI_Win_unlock(0, window));
  CHECK_MPI(MPI_Win_free(&window));
}

// The smallest address that ranks of different wishes get is the one that each has asked for, also in memory that an
// on-node peer maps.
void alignment() {
  constexpr const char* kKey = "mpi_minimum_memory_alignment";
  const auto info_of = [](const std::string& value) {
    MPI_Info info;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, kKey, value.c_str()));
    return info;
  };
  const auto offset = [](const void* address, std::uintptr_t of) {
    return reinterpret_cast<std::uintptr_t>(address) % of;
  };
  MPI_Comm node = check::node_communicator();
  int node_rank = 0;
  int node_size = 0;
  CHECK_MPI(MPI_Comm_rank(node, &node_rank));
  CHECK_MPI(MPI_Comm_size(node, &node_size));
  unsigned char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  for (const std::uintptr_t asked : {1, 64, 4096, 8192, 1 << 21, 1 << 26}) {
    const std::uintptr_t own = std::max<std::uintptr_t>(asked >> rank, 1);
    MPI_Info info = info_of(std::to_string(own));
    CHECK_MPI(MPI_Win_allocate(rank == 1 ? 0 : 100 + rank, 1, info, MPI_COMM_WORLD, &base, &window));
    if (rank != 1) CHECK_EQ(offset(base, own), 0U);
    CHECK_EQ(check::hint(window, kKey), own > 1 ? std::to_string(own) : std::string());
    CHECK_MPI(MPI_Win_free(&window));
    // Later values are not reported, since the memory stays where it is.
    CHECK_MPI(MPI_Win_allocate(100, 1, info, MPI_COMM_WORLD, &base, &window));
    MPI_Info later = info_of("4");
    CHECK_MPI(MPI_Win_set_info(window, later));
    CHECK_MPI(MPI_Info_free(&later));
    CHECK_EQ(check::hint(window, kKey), own > 1 ? std::to_string(own) : std::string());
    CHECK_EQ(offset(base, own), 0U);
    check_works(window, base, MPI_COMM_WORLD);
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
    CHECK_MPI(MPI_Win_free(&window));
    for (const char* const apart : {"false", "true"}) {
      CHECK_MPI(MPI_Info_set(info, "alloc_shared_noncontig", apart));
      // Of contiguous memory the first rank with any has the alignment; here that is the second, if there is one.
      const bool empty = node_rank == 0 && node_size > 1;
      CHECK_MPI(MPI_Win_allocate_shared(empty ? 0 : 100, 1, info, node, &base, &window));
      const bool aligned = apart == std::string("true") ? !empty : node_rank == (node_size > 1 ? 1 : 0);
      if (aligned) CHECK_EQ(offset(base, own), 0U);
      CHECK_MPI(MPI_Win_free(&window));
    }
    CHECK_MPI(MPI_Info_free(&info));
  }
  // The key has no meaning for memory of the program, and other values than powers of two have none at all.
  MPI_Info info = info_of("8192");
  static int own = 0;
  CHECK_MPI(MPI_Win_create(&own, sizeof own, 1, info, MPI_COMM_WORLD, &window));
  CHECK_EQ(check::hint(window, kKey), std::string());
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Win_create_dynamic(info, MPI_COMM_WORLD, &window));
  CHECK_EQ(check::hint(window, kKey), std::string());
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Info_free(&info));
  for (const char* const bad : {"0", "-4096", "4095", "page", "99999999999999999999"}) {
    info = info_of(bad);
    CHECK_MPI(MPI_Win_allocate(8, 1, info, MPI_COMM_WORLD, &base, &window));
    CHECK_EQ(check::hint(window, kKey), std::string());
    CHECK_MPI(MPI_Win_free(&window));
    CHECK_MPI(MPI_Info_free(&info));
  }
  // What no address space has is refused on all ranks.
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  for (const std::uint64_t huge : {std::uint64_t{1} << 62, std::uint64_t{1} << 63}) {
    info = info_of(std::to_string(rank == 0 ? huge : 64));
    CHECK_REFUSED(MPI_Win_allocate(8, 1, info, MPI_COMM_WORLD, &base, &window), MPI_ERR_NO_MEM);
    CHECK_MPI(MPI_Info_free(&info));
  }
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  CHECK_MPI(MPI_Comm_free(&node));
}

void names() {
  void* base = nullptr;
  MPI_Win window;
  CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = -1;
  CHECK_MPI(MPI_Win_get_name(window, name, &length));
  CHECK(length >= 0);
  CHECK_MPI(MPI_Win_set_name(window, "the far side"));
  CHECK_MPI(MPI_Win_get_name(window, name, &length));
  CHECK_EQ(std::string(name), std::string("the far side"));
  CHECK_EQ(length, 12);
  check_works(window, base, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_free(&window));
}

int handled = 0;
MPI_Win handled_window;
int handled_class = MPI_SUCCESS;

void handler(MPI_Win* window, int* code, ...) {
  ++handled;
  handled_window = *window;
  handled_class = check::class_of(*code);
}

void error_handlers() {
  void* base = nullptr;
  MPI_Win window;
  CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  MPI_Errhandler current;
  CHECK_MPI(MPI_Win_get_errhandler(window, &current));
  CHECK(current == MPI_ERRORS_ARE_FATAL);
  CHECK_MPI(MPI_Errhandler_free(&current));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Win_get_errhandler(window, &current));
  CHECK(current == MPI_ERRORS_RETURN);
  CHECK_MPI(MPI_Errhandler_free(&current));
  const int value = 1;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_REFUSED(MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, window), MPI_ERR_RANK);
  MPI_Errhandler mine;
  CHECK_MPI(MPI_Win_create_errhandler(handler, &mine));
  CHECK_MPI(MPI_Win_set_errhandler(window, mine));
  CHECK_MPI(MPI_Errhandler_free(&mine));
  const int code = MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, window);
  CHECK_EQ(handled, 1);
  CHECK(handled_window == window);
  CHECK_EQ(handled_class, MPI_ERR_RANK);
  CHECK(code != MPI_SUCCESS);
  CHECK_MPI(MPI_Win_call_errhandler(window, MPI_ERR_OTHER));
  CHECK_EQ(handled, 2);
  CHECK_EQ(handled_class, MPI_ERR_OTHER);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  check_works(window, base, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_EQ(handled, 2);
}

void check_group(MPI_Win window, MPI_Comm comm) {
  MPI_Group expected;
  CHECK_MPI(MPI_Comm_group(comm, &expected));
  for (int i = 0; i < 3; ++i) {
    MPI_Group group;
    CHECK_MPI(MPI_Win_get_group(window, &group));
    int relation = -1;
    CHECK_MPI(MPI_Group_compare(group, expected, &relation));
    CHECK_EQ(relation, MPI_IDENT);
    CHECK_MPI(MPI_Group_free(&group));
  }
  CHECK_MPI(MPI_Group_free(&expected));
}

void communicators() {
  // Reversed order, halves, single ranks, and a duplicate that is freed before the window is used.
  for (int kind = 0; kind < 4; ++kind) {
    MPI_Comm comm;
    if (kind == 0) CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &comm));
    if (kind == 1) CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm));
    if (kind == 2) comm = MPI_COMM_SELF;
    if (kind == 3) CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    std::vector<int> own(16);
    void* base = nullptr;
    MPI_Win allocated;
    MPI_Win created;
    CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, comm, &base, &allocated));
    CHECK_MPI(MPI_Win_create(own.data(), 64, 1, MPI_INFO_NULL, comm, &created));
    check_group(allocated, comm);
    check_group(created, comm);
    MPI_Comm used = comm;
    if (kind == 3) {
      CHECK_MPI(MPI_Comm_free(&comm));
      used = MPI_COMM_WORLD;
    }
    for (int round = 0; round < 3; ++round) {
      check_works(allocated, base, used);
      check_works(created, own.data(), used);
    }
    CHECK_MPI(MPI_Win_free(&allocated));
    CHECK_MPI(MPI_Win_free(&created));
    if (kind < 2) CHECK_MPI(MPI_Comm_free(&comm));
  }
  // A communicator without some of the ranks.
  MPI_Comm some;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, rank, &some));
  if (rank != 0) {
    make_and_use(some, 64);
    CHECK_MPI(MPI_Comm_free(&some));
  }
}

// Two halves make and free windows at their own pace, then all ranks do so together.
void disjoint_communicators() {
  MPI_Comm half;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
  for (int i = 0; i < (rank % 2 == 0 ? 5 : 9); ++i) make_and_use(half, 4096);
  CHECK_MPI(MPI_Comm_free(&half));
}

// Each with several windows, one of which some rank refuses; some end before their windows. What farside keeps of a
// communicator must come and go with it.
void communicators_come_and_go() {
  for (int round = 0; round < 40; ++round) {
    MPI_Comm comm;
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    const int refused = round % 4;  // the window that is refused; with none in the last round of four
    const bool refuses = rank == round % size;
    std::vector<MPI_Win> windows;
    std::vector<int*> bases;
    for (int i = 0; i < 3; ++i) {
      int* base = nullptr;
      MPI_Win window;
      const MPI_Aint bytes = i == refused && refuses ? -1 : 64;
      const int code = MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, comm, &base, &window);
      CHECK((code != MPI_SUCCESS) == (i == refused));
      if (code != MPI_SUCCESS) continue;
      windows.push_back(window);
      bases.push_back(base);
    }
    MPI_Comm own;
    CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &own));
    if (round % 2 == 0) CHECK_MPI(MPI_Comm_free(&comm));
    for (std::size_t i = 0; i < windows.size(); ++i) check_works(windows[i], bases[i], own);
    for (MPI_Win& window : windows) CHECK_MPI(MPI_Win_free(&window));
    if (round % 2 != 0) CHECK_MPI(MPI_Comm_free(&comm));
    CHECK_MPI(MPI_Comm_free(&own));
  }
}

void several_at_once() {
  constexpr int kWindows = 12;
  std::vector<MPI_Win> windows(kWindows);
  std::vector<int*> bases(kWindows);
  std::vector<int> values(kWindows);
  const int target = (rank + 1) % size;
  const int origin = (rank + size - 1) % size;
  for (int i = 0; i < kWindows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CHECK_MPI(MPI_Win_allocate(256, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &bases[at], &windows[at]));
  }
  for (MPI_Win window : windows) CHECK_MPI(MPI_Win_fence(0, window));
  for (std::size_t i = 0; i < kWindows; ++i) {
    values[i] = static_cast<int>(i) * 10 + rank;
    CHECK_MPI(MPI_Put(&values[i], 1, MPI_INT, target, 3, 1, MPI_INT, windows[i]));
  }
  for (std::size_t i = kWindows; i-- > 0;) CHECK_MPI(MPI_Win_fence(0, windows[i]));
  for (std::size_t i = 0; i < kWindows; ++i) CHECK_EQ(bases[i][3], static_cast<int>(i) * 10 + origin);
  // Freed in another order than made, while the others are in use.
  for (std::size_t i = 1; i < kWindows; i += 2) CHECK_MPI(MPI_Win_free(&windows[i]));
  for (std::size_t i = 0; i < kWindows; i += 2) check_works(windows[i], bases[i], MPI_COMM_WORLD);
  for (std::size_t i = 0; i < kWindows; i += 2) CHECK_MPI(MPI_Win_free(&windows[i]));
}

void many_rounds() {
  for (int round = 0; round < 200; ++round) {
    void* base = nullptr;
    std::vector<int> own(1024);
    MPI_Win window;
    if (round % 2 == 0) {
      CHECK_MPI(MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    } else {
      base = own.data();
      CHECK_MPI(MPI_Win_create(base, 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    }
    check_works(window, base, MPI_COMM_WORLD);
    CHECK_MPI(MPI_Win_free(&window));
  }
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Section<> sections[] = {
      {"footprint", footprint},
      {"sizes and units", sizes_and_units},
      {"kinds of memory", kinds_of_memory},
      {"user attributes", user_attributes},
      {"failing delete callback", failing_delete_callback},
      {"hints", hints},
      {"alignment", alignment},
      {"names", names},
      {"error handlers", error_handlers},
      {"communicators", communicators},
      {"disjoint communicators", disjoint_communicators},
      {"communicators come and go", communicators_come_and_go},
      {"several at once", several_at_once},
      {"many rounds", many_rounds},
  };
  check::run(sections);
  return 0;
}

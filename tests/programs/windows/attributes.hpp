// SPDX-License-Identifier: BSD-3-Clause
// Attributes, hints, names and error handlers.
#pragma once

#include <cstdlib>

#include "common.hpp"

namespace windows {

inline int deleted = 0;
inline void* seen_base = nullptr;

inline int when_deleted(MPI_Win window, int, void* value, void* extra) {
  ++deleted;
  CHECK_EQ(*static_cast<int*>(value), 11);
  CHECK_EQ(*static_cast<int*>(extra), 22);
  // The window is still valid here.
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(window, MPI_WIN_BASE, &seen_base, &found));
  CHECK(found);
  return MPI_SUCCESS;
}

inline void user_attributes() {
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
inline void failing_delete_callback() {
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

inline void hints() {
  const std::vector<std::pair<const char*, const char*>> given = {
      {"no_locks", "true"},        {"accumulate_ordering", "rar,waw"}, {"accumulate_ops", "same_op"},
      {"epochs_used", "lock_all"}, {"mpi_assert_something", "true"},   {"same_size", "true"},
      {"same_disp_unit", "true"},
  };
  const std::vector<std::pair<const char*, const char*>> of_creation = {
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
  CHECK_MPI(MPI_Win_free(&window));
  for (const auto& hints : {given, of_creation}) {
    info = make_info(hints);
    CHECK_MPI(MPI_Win_allocate(64, 1, info, MPI_COMM_WORLD, &base, &window));
    CHECK_MPI(MPI_Info_free(&info));
    for (const auto& [key, value] : hints) CHECK_EQ(check::hint(window, key), std::string(value));
    CHECK_MPI(MPI_Win_free(&window));
  }
  // What is untrue of a window is not reported either.
  const int unit = check::rank() == 0 ? 1 : 2;
  CHECK_MPI(MPI_Win_allocate(64 * unit, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  info = make_info(given);
  CHECK_MPI(MPI_Win_set_info(window, info));
  CHECK_MPI(MPI_Info_free(&info));
  const std::string alike = check::size() == 1 ? "true" : "false";
  CHECK_EQ(check::hint(window, "same_size"), alike);
  CHECK_EQ(check::hint(window, "same_disp_unit"), alike);
  CHECK_MPI(MPI_Win_free(&window));
  // Locks work, although the info ruled them out.
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

inline void names() {
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

inline int handled = 0;
inline MPI_Win handled_window;
inline int handled_class = MPI_SUCCESS;

inline void handler(MPI_Win* window, int* code, ...) {
  ++handled;
  handled_window = *window;
  handled_class = check::class_of(*code);
}

inline void error_handlers() {
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

}  // namespace windows

// SPDX-License-Identifier: BSD-3-Clause
// What tools for MPI see (support/tool.cpp), wherever they are in the search order: together each call of the program
// once. The program makes all interposed calls but those that start processes and sessions.
//
//   profiled            the calls
//   profiled threads    and from four threads at once
//   profiled left_out   the tool gets only the start and the end of MPI
#include <link.h>
#include <map>
#include <mutex>
#include <regex>
#include <thread>

#include "check.hpp"

namespace {

using Counts = std::map<std::string, long>;

Counts made;
std::mutex guard;

// Makes the call MPI_<name>, and counts it.
#define CALL(name, ...)                  \
  ([&] {                                 \
    {                                    \
      const std::lock_guard lock(guard); \
      ++made["MPI_" #name];              \
    }                                    \
    CHECK_MPI(MPI_##name(__VA_ARGS__));  \
  }())
#if MPI_VERSION >= 4
#define CALL_LARGE(name, ...) CALL(name##_c, __VA_ARGS__)
#else
#define CALL_LARGE(name, ...) void()
#endif

// Returns what all tools of the process have counted.
Counts seen;
int add_tool(dl_phdr_info* info, std::size_t, void* tools) {
  if (std::strstr(info->dlpi_name, "libtool-") == nullptr) return 0;
  ++*static_cast<int*>(tools);
  void* const tool = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  using Each = void(const char*, long);
  const auto each = reinterpret_cast<void (*)(Each*)>(dlsym(tool, "tool_each"));
  each([](const char* name, long count) { seen[name] += count; });
  return 0;
}

int other;  // rank

// An epoch of passive target, with requests completed in all ways.
void passive(MPI_Win win, int displacement) {
  long value = 1, result = 0;
  const MPI_Aint at = displacement;
  const auto put = [&](MPI_Request& request) {
    CALL(Rput, &value, 1, MPI_LONG, other, at, 1, MPI_LONG, win, &request);
  };
  MPI_Request one = MPI_REQUEST_NULL;
  std::array<MPI_Request, 2> two{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::array<int, 2> indices{};
  int flag = 0, index = 0;
  CALL(Put, &value, 1, MPI_LONG, other, at, 1, MPI_LONG, win);
  CALL(Win_flush, other, win);
  CALL(Win_flush_local, other, win);
  CALL(Get, &result, 1, MPI_LONG, other, at, 1, MPI_LONG, win);
  CALL(Win_flush_all, win);
  CALL(Win_flush_local_all, win);
  CHECK_EQ(result, value);
  put(one);
  CALL(Wait, &one, MPI_STATUS_IGNORE);
  CALL(Rget, &result, 1, MPI_LONG, other, at, 1, MPI_LONG, win, &one);
  for (flag = 0; flag == 0;) CALL(Test, &one, &flag, MPI_STATUS_IGNORE);
  CALL(Raccumulate, &value, 1, MPI_LONG, other, at, 1, MPI_LONG, MPI_REPLACE, win, two.data());
  put(two[1]);
  CALL(Waitall, 2, two.data(), MPI_STATUSES_IGNORE);
  CALL(Rget_accumulate, &value, 1, MPI_LONG, &result, 1, MPI_LONG, other, at, 1, MPI_LONG, MPI_REPLACE, win,
       two.data());
  for (flag = 0; flag == 0;) CALL(Testall, 2, two.data(), &flag, MPI_STATUSES_IGNORE);
  put(two[0]);
  CALL(Waitany, 2, two.data(), &index, MPI_STATUS_IGNORE);
  put(two[0]);
  for (flag = 0; flag == 0;) CALL(Testany, 2, two.data(), &index, &flag, MPI_STATUS_IGNORE);
  put(two[0]);
  CALL(Waitsome, 2, two.data(), &index, indices.data(), MPI_STATUSES_IGNORE);
  put(two[0]);
  for (index = 0; index == 0;) CALL(Testsome, 2, two.data(), &index, indices.data(), MPI_STATUSES_IGNORE);
  put(one);
  for (flag = 0; flag == 0;) CALL(Request_get_status, one, &flag, MPI_STATUS_IGNORE);
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  CALL(Request_get_status_any, 1, &one, &index, &flag, MPI_STATUS_IGNORE);
  CALL(Request_get_status_all, 1, &one, &flag, MPI_STATUSES_IGNORE);
  CALL(Request_get_status_some, 1, &one, &index, indices.data(), MPI_STATUSES_IGNORE);
#endif
  CALL(Wait, &one, MPI_STATUS_IGNORE);
  CALL(Win_sync, win);
}

void active(MPI_Win win) {
  std::array<long, 3> value{1, 2, 3}, result{};
  CALL(Win_fence, 0, win);
  CALL(Accumulate, value.data(), 1, MPI_LONG, other, 0, 1, MPI_LONG, MPI_SUM, win);
  CALL(Get_accumulate, value.data(), 1, MPI_LONG, result.data(), 1, MPI_LONG, other, 0, 1, MPI_LONG, MPI_SUM, win);
  CALL(Fetch_and_op, value.data(), result.data(), MPI_LONG, other, 0, MPI_SUM, win);
  CALL(Compare_and_swap, &value[1], value.data(), result.data(), MPI_LONG, other, 1, win);
  CALL_LARGE(Put, value.data(), 1, MPI_LONG, other, 2, 1, MPI_LONG, win);
  CALL_LARGE(Accumulate, value.data(), 1, MPI_LONG, other, 0, 1, MPI_LONG, MPI_SUM, win);
  CALL(Win_fence, 0, win);
  MPI_Group all = MPI_GROUP_NULL, peer = MPI_GROUP_NULL;
  CALL(Win_get_group, win, &all);
  MPI_Group_incl(all, 1, &other, &peer);
  for (const bool test : {false, true}) {
    CALL(Win_post, peer, 0, win);
    CALL(Win_start, peer, 0, win);
    CALL(Win_complete, win);
    if (!test) CALL(Win_wait, win);
    for (int flag = 0; test && flag == 0;) CALL(Win_test, win, &flag);
  }
  CALL(Group_free, &peer);
  CALL(Group_free, &all);
}

// The calls of windows of each flavor, and those that concern no operation.
void windows(MPI_Info info) {
  void* memory = nullptr;
  void* found = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  MPI_Aint size = 0;
  int unit = 0, flag = 0;
  MPI_Info given = MPI_INFO_NULL;
  CALL(Alloc_mem, 64, info, &memory);
  CALL(Win_create, memory, 64, 8, info, MPI_COMM_WORLD, &win);
  CALL(Win_set_name, win, "created");
  CALL(Win_set_info, win, info);
  CALL(Win_get_info, win, &given);
  MPI_Info_free(&given);
  CALL(Win_get_attr, win, MPI_WIN_BASE, &found, &flag);
  CHECK(flag != 0 && found == memory);
  CALL(Win_free, &win);
  CALL(Win_create_dynamic, info, MPI_COMM_WORLD, &win);
  CALL(Win_attach, win, memory, 64);
  CALL(Win_detach, win, memory);
  CALL(Win_free, &win);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  CALL(Win_allocate_shared, 64, 8, info, node, &found, &win);
  CALL(Win_shared_query, win, 0, &size, &unit, &found);
  CALL(Win_free, &win);
#if MPI_VERSION >= 4
  MPI_Aint large_unit = 0;
  CALL_LARGE(Win_create, memory, 64, 8, info, MPI_COMM_WORLD, &win);
  CALL(Win_free, &win);
  CALL_LARGE(Win_allocate_shared, 64, 8, info, node, &found, &win);
  CALL_LARGE(Win_shared_query, win, 0, &size, &large_unit, &found);
  CALL(Win_free, &win);
  CALL_LARGE(Win_allocate, 64, 8, info, MPI_COMM_WORLD, &found, &win);
  long value = 1, result = 0;
  std::array<MPI_Request, 4> requests{};
  CALL(Win_lock_all, 0, win);
  CALL_LARGE(Get, &value, 1, MPI_LONG, other, 0, 1, MPI_LONG, win);
  CALL_LARGE(Get_accumulate, &value, 1, MPI_LONG, &result, 1, MPI_LONG, other, 0, 1, MPI_LONG, MPI_SUM, win);
  CALL_LARGE(Rput, &value, 1, MPI_LONG, other, 1, 1, MPI_LONG, win, requests.data());
  CALL_LARGE(Rget, &value, 1, MPI_LONG, other, 2, 1, MPI_LONG, win, &requests[1]);
  CALL_LARGE(Raccumulate, &value, 1, MPI_LONG, other, 3, 1, MPI_LONG, MPI_SUM, win, &requests[2]);
  CALL_LARGE(Rget_accumulate, &value, 1, MPI_LONG, &result, 1, MPI_LONG, other, 4, 1, MPI_LONG, MPI_SUM, win,
             &requests[3]);
  CALL(Waitall, 4, requests.data(), MPI_STATUSES_IGNORE);
  CALL(Win_unlock_all, win);
  CALL(Win_free, &win);
#endif
  MPI_Comm_free(&node);
  CALL(Free_mem, memory);
  int message = 0;
  MPI_Request sent = MPI_REQUEST_NULL, received = MPI_REQUEST_NULL;
  MPI_Irecv(&message, 1, MPI_INT, other, 0, MPI_COMM_WORLD, &received);
  MPI_Isend(&unit, 1, MPI_INT, other, 0, MPI_COMM_WORLD, &sent);
  CALL(Wait, &received, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  CALL(Request_free, &sent);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "threads") {
    int provided = 0;
    CALL(Init_thread, &argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE) return check::kSkipped;
  } else {
    CALL(Init, &argc, &argv);
  }
  check::state.rank = check::rank();
  CHECK_EQ(check::size(), 2);
  other = 1 - check::rank();
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  void* memory = nullptr;
  MPI_Win win = MPI_WIN_NULL;
  CALL(Win_allocate, 64, 8, info, MPI_COMM_WORLD, &memory, &win);
  active(win);
  MPI_Barrier(MPI_COMM_WORLD);
  CALL(Win_lock, MPI_LOCK_EXCLUSIVE, other, 0, win);
  CALL(Win_unlock, other, win);
  CALL(Win_lock_all, 0, win);
  std::vector<std::thread> threads;
  for (int i = 0; i < (mode == "threads" ? 4 : 0); ++i) threads.emplace_back([=] { passive(win, 3 + i); });
  for (std::thread& each : threads) each.join();
  passive(win, 2);
  CALL(Win_unlock_all, win);
  CALL(Win_free, &win);
  windows(info);
  MPI_Info_free(&info);
  CALL(Finalize, );

  int tools = 0;
  dl_iterate_phdr(add_tool, &tools);
  bool right = tools > 0;
  const auto check = [&](bool condition, const std::string& name, const char* what) {
    if (condition) return;
    right = false;
    std::fprintf(stderr, "rank %d: %s: %s (made %ld, seen %ld)\n", check::state.rank, name.c_str(), what, made[name],
                 seen[name]);
  };
  for (const auto& [name, count] : seen) {
    const bool starts = std::regex_search(name, std::regex("Init|spawn|Session"));
    const bool passed_on = mode != "left_out" || name == "MPI_Init" || name == "MPI_Finalize";
    check(made.contains(name) || starts, name, "not made");
    check(count == (passed_on ? made[name] : 0), name, "not seen once");
  }
  for (const auto& each : Counts(made)) check(seen.contains(each.first), each.first, "not interposed");
  return right ? 0 : 1;
}

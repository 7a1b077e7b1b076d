// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/first_window.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/runtime/runtime_progress.hpp"
#include "pmpi/observe/statistics_file.hpp"
#include "pmpi/window/window.hpp"
#include "pmpi/window/window_table.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

MPI_Comm alone = MPI_COMM_NULL;
bool spawned = false;

std::atomic<bool> world_over{false};

bool in_world() {
  int begun = 0;
  return PMPI_Initialized(&begun) == MPI_SUCCESS && begun != 0 && !world_over.load(std::memory_order_relaxed);
}

#if FARSIDE_HAS_SESSIONS
std::mutex session_mutex;
std::vector<MPI_Session> sessions;  // that have begun and not ended

MPI_Session some_session() {
  const std::scoped_lock held(session_mutex);
  return sessions.empty() ? MPI_SESSION_NULL : sessions.back();
}

// Of this process alone, or of all processes.
MPI_Group group_from(MPI_Session session, const char* set) {
  MPI_Group group = MPI_GROUP_NULL;
  const bool got = session != MPI_SESSION_NULL && PMPI_Group_from_session_pset(session, set, &group) == MPI_SUCCESS;
  return got ? group : MPI_GROUP_NULL;
}

// A session with MPI_THREAD_MULTIPLE has begun. It stays so: windows do not go back.
std::atomic<bool> threads_by_session{false};

// MPI 4.0 section 11.3.1: what the runtime provides stands in the info of the session.
bool provides_threads(MPI_Session session) {
  MPI_Info info = MPI_INFO_NULL;
  if (PMPI_Session_get_info(session, &info) != MPI_SUCCESS) return false;
  bool threads = false;
  // The second is Open MPI's name for it.
  for (const char* key : {"thread_level", "mpi_thread_support_level"}) {
    std::array<char, 64> level{};
    int found = 0;
    PMPI_Info_get(info, key, static_cast<int>(level.size()) - 1, level.data(), &found);
    threads = threads || (found != 0 && std::string_view(level.data()) == "MPI_THREAD_MULTIPLE");
  }
  PMPI_Info_free(&info);
  return threads;
}

MPI_Session source = MPI_SESSION_NULL;  // of what was taken; null: MPI_COMM_WORLD's
#endif

int make_communicator() {
#if FARSIDE_HAS_SESSIONS
  source = in_world() ? MPI_SESSION_NULL : some_session();
  if (MPI_Group self = group_from(source, "mpi://SELF"); self != MPI_GROUP_NULL) {
    const int code = PMPI_Comm_create_from_group(self, "farside", MPI_INFO_NULL, MPI_ERRORS_RETURN, &alone);
    (void)PMPI_Group_free(&self);  // else it is lost, and nothing else
    return code;
  }
#endif
  return PMPI_Comm_dup(MPI_COMM_SELF, &alone);
}

std::optional<Error> take() {
  Log::set_rank(process_rank());
  if (in_world()) {
    MPI_Comm parent = MPI_COMM_NULL;
    spawned = PMPI_Comm_get_parent(&parent) == MPI_SUCCESS && parent != MPI_COMM_NULL;
  }
  if (make_communicator() != MPI_SUCCESS || PMPI_Comm_set_errhandler(alone, MPI_ERRORS_RETURN) != MPI_SUCCESS) {
    return Error{ErrorKind::kOther, "the runtime made no communicator for farside"};
  }
  if (Status connected = connect_progress(); !connected) return connected.error();
  prepare_datatypes();
  begin_statistics();
  return std::nullopt;
}

// Nobody waits with it, and what is called under it talks to nobody.
std::mutex waking;
bool awake = false;
std::optional<Error> failed;

// What farside has is about to end. `others`: some other part of MPI goes on, to take it from.
void release_runtime(bool others) {
  if (alone != MPI_COMM_NULL) {
    disconnect_progress();
    // If it is not freed, it goes with the runtime, which is about to end.
    if (PMPI_Comm_free(&alone) != MPI_SUCCESS) alone = MPI_COMM_NULL;
  }
  awake = others;
  if (others) failed = take();
}

}  // namespace

Status start_runtime() {
  {
    const std::scoped_lock held(waking);
    if (!awake) failed = take();
    awake = true;
    if (failed) return *failed;
  }
  return Process::instance().settings().status();
}

MPI_Comm own_communicator() { return alone; }

bool was_spawned() { return spawned; }

int process_rank() {
  int rank = -1;
  if (in_world()) {
    return PMPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS ? rank : -1;
  }
#if FARSIDE_HAS_SESSIONS
  if (MPI_Group all = group_from(some_session(), "mpi://WORLD"); all != MPI_GROUP_NULL) {
    if (PMPI_Group_rank(all, &rank) != MPI_SUCCESS) rank = -1;
    (void)PMPI_Group_free(&all);
  }
#endif
  return rank;
}

bool is_threaded() {
#if FARSIDE_HAS_SESSIONS
  if (threads_by_session.load(std::memory_order_relaxed)) return true;
#endif
  int level = MPI_THREAD_SINGLE;
  // An unknown level is taken for several threads, which is right in any case.
  return PMPI_Query_thread(&level) != MPI_SUCCESS || level == MPI_THREAD_MULTIPLE;
}

#if FARSIDE_HAS_SESSIONS
void world_ends() {
  world_over.store(true, std::memory_order_relaxed);
  const std::scoped_lock held(waking);
  if (awake && source == MPI_SESSION_NULL) release_runtime(some_session() != MPI_SESSION_NULL);
}

void session_begins(MPI_Session session) {
  const bool by_session = provides_threads(session);
  const bool before = is_threaded();
  {
    const std::scoped_lock held(session_mutex);
    sessions.push_back(session);
  }
  if (!by_session || before) return;
  threads_by_session.store(true, std::memory_order_relaxed);
  for (Window* window : WindowTable::instance().all()) window->expect_threads();
}

bool is_last(MPI_Session session) {
  if (in_world()) return false;
  const std::scoped_lock held(session_mutex);
  return sessions.size() == 1 && sessions.front() == session;
}

void session_ends(MPI_Session session) {
  {
    const std::scoped_lock held(session_mutex);
    std::erase(sessions, session);
  }
  const std::scoped_lock held(waking);
  if (awake && source == session) release_runtime(in_world() || some_session() != MPI_SESSION_NULL);
}
#else
void world_ends() {
  world_over.store(true, std::memory_order_relaxed);
  const std::scoped_lock held(waking);
  if (awake) release_runtime(false);
}
#endif

}  // namespace farside::pmpi

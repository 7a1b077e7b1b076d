// SPDX-License-Identifier: BSD-3-Clause
// Everything that farside takes from the MPI runtime, with one owner: a communicator of this process alone, the keys of
// the attributes by which it caches, the hooks between its progress and the runtime's (runtime_progress.hpp), and what
// is known of the world model and of sessions. (The functions of the runtime are in runtime.hpp; they are never given
// back.)
//
//   start    the first window of the process: start()
//   end      MPI_Finalize, or the end of the session that the communicator was made from: world_ends(), session_ends()
//   restart  at once, if another session or the world model goes on; else with the next window, if there is one
//
// Thread safety: every function may be called by any thread; start() and the ends exclude each other. The mutex is held
// across calls of the runtime that are local, never across one that communicates.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include <mpi.h>

#include "pmpi/runtime/runtime_progress.hpp"
#include "pmpi/runtime/sessions.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

class RuntimeResources {
 public:
  // Never destroyed: objects of the application may be freed, and call back, until the process exits.
  static RuntimeResources& instance();
  RuntimeResources(const RuntimeResources&) = delete;
  RuntimeResources& operator=(const RuntimeResources&) = delete;

  // Takes what is listed above, unless it is taken, and reads the settings. Called while a window is being made, where
  // the runtime would make a communicator as well. Errors: those of the runtime, and of a bad setting; the same at each
  // call.
  Status start();

  // The communicator of this process alone, whose errors are returned: for questions to the runtime that may fail.
  // Precondition of this and of was_spawned(): start().
  MPI_Comm own_communicator() const { return communicator_; }
  // Whether MPI_Comm_spawn started this process, which then shares its rank with a process that was not spawned.
  bool was_spawned() const { return spawned_; }
  // The rank in MPI_COMM_WORLD or, where a program has sessions only, among the processes of mpi://WORLD; -1 if
  // unknown.
  int process_rank() const;
  // Whether several threads may be in MPI at once: by the world model, or by a session that has begun.
  bool is_threaded() const;

  // The key of the attribute of datatypes or communicators under which farside keeps what it has found out about them.
  // Made at the first call, with the function that deletes an attribute; MPI_KEYVAL_INVALID if the runtime makes none.
  int datatype_key(MPI_Type_delete_attr_function* delete_attribute, void* extra);
  int communicator_key(MPI_Comm_delete_attr_function* delete_attribute);

  // Called before the runtime ends the world model.
  void world_ends();
#if FARSIDE_HAS_SESSIONS
  // Called after the runtime has begun a session. True: by it several threads may be in MPI at once, which could not
  // before.
  bool session_begins(MPI_Session session);
  // Whether MPI ends with this session, which has not ended yet (MPI 4.0 section 11.3).
  bool is_last(MPI_Session session) const;
  // Called before the runtime ends a session.
  void session_ends(MPI_Session session);
#endif

 private:
  RuntimeResources() = default;
  bool in_world() const;
  template <class Make>
  int key(std::atomic<int>& kept, Make&& make);
  int make_communicator();
  // Both with mutex_ held. `others`: some other part of MPI goes on, to take everything from.
  std::optional<Error> take();
  void release(bool others);

  mutable std::mutex mutex_;  // of what follows, to the keys
  bool started_ = false;
  std::optional<Error> failed_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  bool spawned_ = false;
  RuntimeProgress progress_;
  std::atomic<int> datatype_key_{MPI_KEYVAL_INVALID};  // read without the mutex
  std::atomic<int> communicator_key_{MPI_KEYVAL_INVALID};

  std::atomic<bool> world_over_{false};
#if FARSIDE_HAS_SESSIONS
  MPI_Session some_session() const;
  MPI_Session source_ = MPI_SESSION_NULL;        // of the communicator; null: the world model. Of mutex_
  mutable std::mutex session_mutex_;             // of sessions_
  std::vector<MPI_Session> sessions_;            // that have begun and not ended
  std::atomic<bool> threads_by_session_{false};  // it stays so: windows do not go back
#endif
};

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// The owner of everything that farside takes from the MPI runtime: a communicator of this process alone, the attribute
// keys under which farside caches, the progress hooks, and the state of the world model and of
// sessions. (The functions of the runtime are in runtime.hpp; they are never released.)
//
//   start    the first window of the process: start(); the communicator perhaps in MPI_Init: world_begins()
//   end      MPI_Finalize, or the end of the session that the communicator was made from: world_ends(), session_ends()
//   restart  at once, if another session or the world model continues; else with the next window
//
// Thread safety: any thread may call any function; start() and the ends exclude each other. The mutex is held across
// local calls of the runtime, never across one that communicates.
// Cost: no remote operation. is_threaded() and process_rank() call the runtime each time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <mpi.h>

#include "pmpi/runtime/runtime.hpp"
#include "transport/base/result.hpp"
#include "transport/node/node_group.hpp"

namespace farside::pmpi {

// A group of the runtime, which is freed with this object. A failure only loses memory.
struct TemporaryGroup {
  TemporaryGroup() = default;
  // The members of a communicator; MPI_GROUP_NULL if the runtime fails.
  explicit TemporaryGroup(MPI_Comm communicator);
  TemporaryGroup(TemporaryGroup&& other) noexcept : handle(std::exchange(other.handle, MPI_GROUP_NULL)) {}
  ~TemporaryGroup();
  explicit operator bool() const { return handle != MPI_GROUP_NULL; }
  MPI_Group handle = MPI_GROUP_NULL;
};

// The addresses of the processes of a group (transport/node/node_group.hpp), by their ranks in it. `best`: no
// process of it could use a better provider.
struct KnownDirectory {
  std::shared_ptr<const TemporaryGroup> group;
  PeerAddresses directory;
  bool best = true;
};

class RuntimeResources {
 public:
  // Takes the resources unless they are taken, and reads the settings. Called while a window is being made, where the
  // runtime may make a communicator too. Errors: kOther if the runtime fails, kBadSetting; the same at each call.
  Status start();

  // The communicator of this process alone, with MPI_ERRORS_RETURN, for queries to the runtime that may fail.
  // Precondition of this function and of was_spawned(): start().
  MPI_Comm own_communicator() const { return communicator_; }
  // Whether MPI_Comm_spawn started this process. Its rank is then also the rank of a process that was not spawned.
  bool was_spawned() const { return spawned_; }
  // Whether the world model has begun and not ended.
  bool in_world() const {
    int begun = 0;
    return runtime().Initialized(&begun) == MPI_SUCCESS && begun != 0 && !world_over_.load(std::memory_order_relaxed);
  }
  // The rank in MPI_COMM_WORLD or, in a program with sessions only, in mpi://WORLD; -1 if unknown.
  int process_rank() const {
    int rank = -1;
    const TemporaryGroup all = all_processes();
    return all && runtime().Group_rank(all.handle, &rank) == MPI_SUCCESS ? rank : -1;
  }
  // The number of processes there; 0 if unknown.
  int process_count() const {
    int count = 0;
    const TemporaryGroup all = all_processes();
    return all && runtime().Group_size(all.handle, &count) == MPI_SUCCESS ? count : 0;
  }
  // The ranks of the `count` members of a group among all processes; -1 for those that are none of them
  // (MPI_Comm_spawn), or unknown.
  std::vector<int> process_ranks_of(MPI_Group group, int count) const;
  // Whether the communicator has all these processes, in any order.
  bool has_all_processes(MPI_Comm communicator) const;
  // Whether the world model or a session that has begun provides MPI_THREAD_MULTIPLE.
  bool is_threaded() const;

  // The key of the attribute under which farside caches a translation of a datatype, or what it knows of the processes
  // of a communicator. Made at the first call, with the function that deletes an attribute; MPI_KEYVAL_INVALID if the
  // runtime makes none.
  int datatype_key(MPI_Type_delete_attr_function* delete_attribute, void* extra) {
    return key(datatype_key_, [&](int* made) {
      return runtime().Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete_attribute, made, extra);
    });
  }
  int communicator_key(MPI_Comm_delete_attr_function* delete_attribute) {
    return key(communicator_key_, [&](int* made) {
      return runtime().Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_attribute, made, nullptr);
    });
  }

  // The directories of this process, the newest first, until the resources are released.
  std::vector<KnownDirectory> directories() const {
    const std::scoped_lock held(mutex_);
    return {directories_.rbegin(), directories_.rend()};
  }
  // Keeps the directory; drops the smallest one if there are kMostDirectories. A group whose directory was dropped
  // gathers the addresses again.
  static constexpr std::size_t kMostDirectories = 16;
  void add_directory(KnownDirectory known);

  // Called after the runtime has begun the world model. With threads of Open MPI it makes the communicator already.
  void world_begins();
  // Called before the runtime ends the world model.
  void world_ends();
#if FARSIDE_HAS_SESSIONS
  // Called after the runtime has begun a session. Returns true if this session is the first to provide
  // MPI_THREAD_MULTIPLE.
  bool session_begins(MPI_Session session);
  // Called first at the end of a session. Returns whether MPI ends with it: all other sessions have ended, or other
  // threads are ending them (MPI 4.0 section 11.3).
  bool begin_end(MPI_Session session);
  // Called before the runtime ends a session.
  void session_ends(MPI_Session session);
#endif

 private:
  TemporaryGroup all_processes() const;  // none if unknown
  template <class Make>
  int key(std::atomic<int>& kept, Make&& make) {
    if (const int known = kept.load(std::memory_order_relaxed); known != MPI_KEYVAL_INVALID) return known;
    const std::scoped_lock held(mutex_);
    int made = kept.load(std::memory_order_relaxed);
    if (made == MPI_KEYVAL_INVALID && make(&made) == MPI_SUCCESS) kept.store(made, std::memory_order_relaxed);
    return kept.load(std::memory_order_relaxed);
  }
  int make_communicator();
  // Both with mutex_ held. `others`: another session or the world model continues, from which release() takes the
  // resources again.
  std::optional<Error> take();
  void release(bool others);

  mutable std::mutex mutex_;  // guards the members from here to the keys
  bool started_ = false;
  std::optional<Error> failed_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  bool spawned_ = false;
  std::vector<KnownDirectory> directories_;
  std::atomic<int> datatype_key_{MPI_KEYVAL_INVALID};  // read without the mutex
  std::atomic<int> communicator_key_{MPI_KEYVAL_INVALID};

  std::atomic<bool> world_over_{false};
#if FARSIDE_HAS_SESSIONS
  MPI_Session some_session() const {
    const std::scoped_lock held(session_mutex_);
    return sessions_.empty() ? MPI_SESSION_NULL : sessions_.back();
  }
  MPI_Session source_ = MPI_SESSION_NULL;        // of the communicator; null: the world model. Guarded by mutex_
  mutable std::mutex session_mutex_;             // guards sessions_ and ending_
  std::vector<MPI_Session> sessions_;            // begun and not ended
  std::vector<MPI_Session> ending_;              // those of them that threads are ending
  std::atomic<bool> threads_by_session_{false};  // never reset, because windows do not return to the fast path
#endif
};

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/runtime_resources.hpp"

#include <algorithm>
#include <numeric>

#include "pmpi/library/library.hpp"
#include "transport/base/imported_call.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {

namespace {

// Progress in both directions: a thread that waits in farside moves the runtime's messages, by MPI_Request_get_status,
// and a thread that waits in the runtime serves the requests of other processes at farside's endpoint. For the second
// MPI offers no hook. Open MPI has a list of functions that its progress engine calls (opal_progress_register). MPICH
// over UCX moves messages by calls of ucp_worker_progress, which farside redirects (imported_call.hpp). With neither,
// the progress thread serves alone. The runtime may call the hook from any thread, and several at once.

// Moves the runtime's messages. MPI_Request_get_status on a request that never completes enters the progress engine of
// both runtimes and touches no message. MPICH 4.0's MPI_Iprobe on MPI_COMM_SELF, or with MPI_PROC_NULL, does not enter
// the engine.
void move_runtime() {
  int flag = 0;
  // The runtime reports an error of a message to the owner of that message, so the result here says nothing.
  (void)runtime().Request_get_status(library().progressed_by, &flag, MPI_STATUS_IGNORE);
}

// Returns the number of events: the engine may yield if there are none. Any thread that is in MPI calls it, also
// several at once.
int serve_endpoint() { return Process::instance().poll_from_runtime() ? 1 : 0; }

// From opal/runtime/opal_progress.h of Open MPI 1.3 to 6.0. Returns false if there is no such function.
using Registration = int(int (*)());
bool change_open_mpi(const char* name) {
  auto* const change = reinterpret_cast<Registration*>(find_behind_if_there(name));
  if (change != nullptr) change(serve_endpoint);
  return change != nullptr;
}

// unsigned ucp_worker_progress(ucp_worker_h), since UCX 1.0. It returns nonzero if something moved.
using MoveWorker = unsigned(void*);
constexpr const char* kMoveWorker = "ucp_worker_progress";

std::atomic<MoveWorker*> move_worker{nullptr};  // the function to which the runtime's calls went before

unsigned move_and_serve(void* worker) {
  const unsigned moved = move_worker.load(std::memory_order_acquire)(worker);
  return Process::instance().poll_from_runtime() ? moved + 1 : moved;
}

// The calls of the runtime's library only: another user of UCX may have another copy of it, with its own workers.
ImportedCall& engine_call() {
  static ImportedCall call(reinterpret_cast<const void*>(runtime().Finalize), kMoveWorker);
  return call;
}

bool redirect_mpich() {
  move_worker.store(reinterpret_cast<MoveWorker*>(engine_call().original()), std::memory_order_release);
  return engine_call().redirect(reinterpret_cast<void*>(move_and_serve));
}

// Makes a generalized request that never completes, and installs both hooks. A missing hook is only logged.
Status connect_progress() {
  const auto query = [](void*, MPI_Status*) { return static_cast<int>(MPI_SUCCESS); };
  const auto release = [](void*) { return static_cast<int>(MPI_SUCCESS); };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  if (runtime().Grequest_start(query, release, cancel, nullptr, &library().progressed_by) != MPI_SUCCESS) {
    library().progressed_by = {};
    return Error{ErrorKind::kOther, "the runtime made no request to progress by"};
  }
  Process::instance().set_runtime_progress(move_runtime);
  if (is_open_mpi() ? change_open_mpi("opal_progress_register") : redirect_mpich()) return {};
  log(LogLevel::kInfo, "the runtime has no {}: threads that wait in MPI do not serve windows, the progress thread does",
      is_open_mpi() ? "opal_progress_register" : kMoveWorker);
  return {};
}

// Removes both hooks, before the runtime finalizes.
void disconnect_progress() {
  if (library().progressed_by == MPI_Request{}) return;
  is_open_mpi() ? void(change_open_mpi("opal_progress_unregister")) : engine_call().restore();
  Process::instance().set_runtime_progress(nullptr);
  MPI_Request request = std::exchange(library().progressed_by, {});
  // MPI_Wait would not return for a request that is not complete.
  if (runtime().Grequest_complete(request) != MPI_SUCCESS) return;
  // MPI_Wait on a complete request does not enter the progress engine; MPI_Request_free does. If the engine answers an
  // on-node peer that is in MPI_Finalize already, MPICH's MPI_Finalize over UCX's tcp never ends at this rank.
  (void)runtime().Wait(&request, MPI_STATUS_IGNORE);
}

#if FARSIDE_HAS_SESSIONS
// Returns the group of a process set, mpi://SELF or mpi://WORLD; MPI_GROUP_NULL on failure.
MPI_Group group_from(MPI_Session session, const char* set) {
  MPI_Group group = MPI_GROUP_NULL;
  const bool got =
      session != MPI_SESSION_NULL && runtime().Group_from_session_pset(session, set, &group) == MPI_SUCCESS;
  return got ? group : MPI_GROUP_NULL;
}

// The info of a session contains the provided thread level (MPI 4.0 section 11.3.1).
bool provides_threads(MPI_Session session) {
  MPI_Info info = MPI_INFO_NULL;
  if (runtime().Session_get_info(session, &info) != MPI_SUCCESS) return false;
  const auto is_multiple = [&](const char* key) { return value_of(info, key) == "MPI_THREAD_MULTIPLE"; };
  const bool threads = is_multiple("thread_level") || is_multiple("mpi_thread_support_level");  // Open MPI's key
  runtime().Info_free(&info);
  return threads;
}
#endif

}  // namespace

TemporaryGroup::TemporaryGroup(MPI_Comm communicator) {
  if (runtime().Comm_group(communicator, &handle) != MPI_SUCCESS) handle = MPI_GROUP_NULL;
}

TemporaryGroup::~TemporaryGroup() {
  if (handle != MPI_GROUP_NULL) (void)runtime().Group_free(&handle);
}

int RuntimeResources::make_communicator() {
#if FARSIDE_HAS_SESSIONS
  source_ = in_world() ? MPI_SESSION_NULL : some_session();
  if (MPI_Group self = group_from(source_, "mpi://SELF"); self != MPI_GROUP_NULL) {
    const int code =
        runtime().Comm_create_from_group(self, "farside", MPI_INFO_NULL, MPI_ERRORS_RETURN, &communicator_);
    (void)runtime().Group_free(&self);  // a failure only loses memory
    return code;
  }
#endif
  return runtime().Comm_dup(MPI_COMM_SELF, &communicator_);
}

std::optional<Error> RuntimeResources::take() {
  Log::set_rank(process_rank());
  if (in_world()) {
    MPI_Comm parent = MPI_COMM_NULL;
    spawned_ = runtime().Comm_get_parent(&parent) == MPI_SUCCESS && parent != MPI_COMM_NULL;
  }
  if ((communicator_ == MPI_COMM_NULL && make_communicator() != MPI_SUCCESS) ||
      runtime().Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN) != MPI_SUCCESS)
    return Error{ErrorKind::kOther, "the runtime made no communicator for farside"};
  if (Status connected = connect_progress(); !connected) return connected.error();
  return std::nullopt;
}

void RuntimeResources::release(bool others) {
  if (communicator_ != MPI_COMM_NULL) {
    disconnect_progress();
    // A communicator that cannot be freed ends with the runtime.
    if (runtime().Comm_free(&communicator_) != MPI_SUCCESS) communicator_ = MPI_COMM_NULL;
  }
  directories_.clear();
  if (!others) {
    // The runtime deletes the remaining attributes with their objects (MPI 4.0 section 7.7.2).
    if (int key = datatype_key_.exchange(MPI_KEYVAL_INVALID); key != MPI_KEYVAL_INVALID)
      (void)runtime().Type_free_keyval(&key);
    if (int key = communicator_key_.exchange(MPI_KEYVAL_INVALID); key != MPI_KEYVAL_INVALID) {
      (void)runtime().Comm_free_keyval(&key);
    }
  }
  started_ = others;
  if (others) failed_ = take();
}

Status RuntimeResources::start() {
  {
    const std::scoped_lock held(mutex_);
    if (!started_) failed_ = take();
    started_ = true;
    if (failed_) return *failed_;
  }
  Status settings = Process::instance().settings().status();
  // One rank warns for all; farside doctor shows the variables of each.
  if (settings && Log::is_new("names of settings") && process_rank() <= 0) warn_of_unknown_settings();
  return settings;
}

void RuntimeResources::add_directory(KnownDirectory known) {
  KnownDirectory dropped;  // freed without the mutex
  const std::scoped_lock held(mutex_);
  if (directories_.size() == kMostDirectories) {
    const auto smallest =
        std::ranges::min_element(directories_, {}, [](const KnownDirectory& each) { return each.directory.size(); });
    dropped = std::move(*smallest);
    directories_.erase(smallest);
  }
  directories_.push_back(std::move(known));
}

TemporaryGroup RuntimeResources::all_processes() const {
  if (in_world()) return TemporaryGroup(MPI_COMM_WORLD);
  TemporaryGroup all;
#if FARSIDE_HAS_SESSIONS
  all.handle = group_from(some_session(), "mpi://WORLD");
#endif
  return all;
}

std::vector<int> RuntimeResources::process_ranks_of(MPI_Group group, int count) const {
  std::vector<int> ranks(static_cast<std::size_t>(count)), there(ranks.size(), -1);
  std::iota(ranks.begin(), ranks.end(), 0);
  const TemporaryGroup all = all_processes();
  if (all) (void)runtime().Group_translate_ranks(group, count, ranks.data(), all.handle, there.data());
  std::ranges::replace(there, MPI_UNDEFINED, -1);
  return there;
}

bool RuntimeResources::has_all_processes(MPI_Comm communicator) const {
  const TemporaryGroup all = all_processes(), group(communicator);
  int result = MPI_UNEQUAL;
  return all && group && runtime().Group_compare(all.handle, group.handle, &result) == MPI_SUCCESS &&
         result != MPI_UNEQUAL;
}

bool RuntimeResources::is_threaded() const {
#if FARSIDE_HAS_SESSIONS
  if (threads_by_session_.load(std::memory_order_relaxed)) return true;
#endif
  int level = MPI_THREAD_SINGLE;
  // With an unknown level, several threads are the safe assumption.
  return runtime().Query_thread(&level) != MPI_SUCCESS || level == MPI_THREAD_MULTIPLE;
}

// While a communicator is being made, Open MPI 4 makes none whose parent has a higher id. Threads that make windows use
// the communicator between the steps that they take with other processes, and must not wait there for such a step.
void RuntimeResources::world_begins() {
  const std::scoped_lock held(mutex_);
  if (is_open_mpi() && is_threaded() && communicator_ == MPI_COMM_NULL) (void)make_communicator();
}

void RuntimeResources::world_ends() {
  world_over_.store(true, std::memory_order_relaxed);
  const std::scoped_lock held(mutex_);
#if FARSIDE_HAS_SESSIONS
  if (source_ == MPI_SESSION_NULL) release(started_ && some_session() != MPI_SESSION_NULL);
#else
  release(false);
#endif
}

#if FARSIDE_HAS_SESSIONS
bool RuntimeResources::session_begins(MPI_Session session) {
  const bool by_session = provides_threads(session);
  const bool before = is_threaded();
  {
    const std::scoped_lock held(session_mutex_);
    sessions_.push_back(session);
  }
  if (!by_session || before) return false;
  threads_by_session_.store(true, std::memory_order_relaxed);
  return true;
}

bool RuntimeResources::begin_end(MPI_Session session) {
  const std::scoped_lock held(session_mutex_);
  if (std::ranges::find(sessions_, session) == sessions_.end()) return false;
  ending_.push_back(session);
  return !in_world() && ending_.size() == sessions_.size();
}

void RuntimeResources::session_ends(MPI_Session session) {
  {
    const std::scoped_lock held(session_mutex_);
    std::erase(sessions_, session);
    std::erase(ending_, session);
  }
  const std::scoped_lock held(mutex_);
  if (started_ && source_ == session) release(in_world() || some_session() != MPI_SESSION_NULL);
}
#endif

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
// Groups, communicators, attributes, and error handlers.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/simulation/faults.hpp"
#include "tests/simulation/mpi/objects.hpp"

namespace simulation::mpi {

Runtime runtime;

namespace {

const std::vector<int>& ranks_of(MPI_Group handle) {
  static const std::vector<int> kEmpty;
  return handle == MPI_GROUP_EMPTY ? kEmpty : runtime.groups.at(handle).ranks;
}

MPI_Group make_group(std::vector<int> ranks) {
  if (ranks.empty()) return MPI_GROUP_EMPTY;
  return runtime.groups.add(std::make_unique<Group>(Group{std::move(ranks)}));
}

int index_of(const std::vector<int>& ranks, int wanted) {
  const auto found = std::ranges::find(ranks, wanted);
  return found != ranks.end() ? static_cast<int>(found - ranks.begin()) : MPI_UNDEFINED;
}

// Gives the members of a new communicator its handle, and the handler of the old one.
void make_comm(Comm& parent, std::vector<int> ranks, Contributions& all) {
  auto made = std::make_unique<Comm>();
  Comm& comm = *made;
  comm.ranks = std::move(ranks);
  comm.members.resize(comm.ranks.size());
  comm.handle = runtime.comms.add(std::move(made));
  for (const Contribution& each : all) {
    const int in_world = parent.ranks[static_cast<std::size_t>(each.rank)];
    const int own = comm.rank_of(in_world);
    if (own == MPI_UNDEFINED) continue;
    *each.made = comm.handle;
    comm.members[static_cast<std::size_t>(own)].handler = parent.members[static_cast<std::size_t>(each.rank)].handler;
  }
}

// A communicator for each color, its ranks in the order of their keys.
void split(Comm& parent, Contributions& all) {
  std::map<int, std::vector<std::pair<int, int>>> by_color;  // key, rank in the parent
  for (const Contribution& each : all) {
    *each.made = MPI_COMM_NULL;
    if (each.color != MPI_UNDEFINED) by_color[each.color].push_back({each.key, each.rank});
  }
  for (auto& [color, members] : by_color) {
    std::ranges::sort(members);
    std::vector<int> ranks;
    for (const auto& [key, rank] : members) ranks.push_back(parent.ranks[static_cast<std::size_t>(rank)]);
    make_comm(parent, std::move(ranks), all);
  }
}

int join_and_wait(Comm& comm, const Contribution& own, const std::function<void(Contributions&)>& execute,
                  const std::vector<int>& members = {}, int tag = -1) {
  MPI_Request request = join(comm, own, execute, members, tag);
  return wait(request, MPI_STATUS_IGNORE);
}

int delete_attribute(MPI_Comm handle, int key, void* value) {
  const Keyval& keyval = runtime.keyvals.at(key);
  return keyval.delete_of_comm != nullptr ? keyval.delete_of_comm(handle, key, value, keyval.extra) : MPI_SUCCESS;
}

int call_handler(MPI_Errhandler handle, int code, const char* where, const std::function<void(Errhandler&)>& call) {
  if (handle == MPI_ERRORS_RETURN) return code;
  if (handle == MPI_ERRORS_ARE_FATAL) faults::end_job("MPI: error class " + std::to_string(code) + where);
  call(runtime.handlers.at(handle));
  return code;
}

}  // namespace

void start() {
  const auto fill = [](Comm& comm, MPI_Comm handle, std::vector<int> ranks) {
    comm.handle = handle;
    comm.ranks = std::move(ranks);
    comm.members.resize(comm.ranks.size());
  };
  std::vector<int> all;
  for (const Rank& each : job.ranks) all.push_back(each.index);
  runtime.processes.resize(all.size());
  runtime.self.resize(all.size());
  for (const int rank : all) fill(runtime.self[static_cast<std::size_t>(rank)], MPI_COMM_SELF, {rank});
  fill(runtime.world, MPI_COMM_WORLD, all);
}

int Comm::rank_of(int in_world) const { return index_of(ranks, in_world); }

Comm* find_comm(MPI_Comm handle) {
  if (handle == MPI_COMM_WORLD) return &runtime.world;
  if (handle == MPI_COMM_SELF) return &runtime.self[static_cast<std::size_t>(current()->rank)];
  return runtime.comms.find(handle);
}

Comm& comm_at(MPI_Comm handle) {
  if (Comm* const found = find_comm(handle)) return *found;
  host::fail("MPI: there is no communicator " + std::to_string(handle), true);
}

void delete_attributes(Comm& comm) {
  for (const auto& [key, value] : std::exchange(comm.own().attributes, {})) delete_attribute(comm.handle, key, value);
}

int raise(MPI_Comm handle, int error_class, const char* call) {
  return call_handler(comm_at(handle).own().handler, error_class, call,
                      [&](Errhandler& own) { own.of_comm(&handle, &error_class); });
}

}  // namespace simulation::mpi

using namespace simulation;
using namespace simulation::mpi;

SIMULATED(Group_size)
int PMPI_Group_size(MPI_Group group, int* size) {
  *size = static_cast<int>(ranks_of(group).size());
  return MPI_SUCCESS;
}
SIMULATED(Group_rank)
int PMPI_Group_rank(MPI_Group group, int* rank) {
  *rank = index_of(ranks_of(group), current()->rank);
  return MPI_SUCCESS;
}
SIMULATED(Group_incl)
int PMPI_Group_incl(MPI_Group group, int count, const int* chosen, MPI_Group* made) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(ranks_of(group).at(static_cast<std::size_t>(chosen[i])));
  *made = make_group(std::move(ranks));
  return MPI_SUCCESS;
}
SIMULATED(Group_excl)
int PMPI_Group_excl(MPI_Group group, int count, const int* left_out, MPI_Group* made) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < ranks_of(group).size(); ++i)
    if (std::find(left_out, left_out + count, static_cast<int>(i)) == left_out + count)
      ranks.push_back(ranks_of(group)[i]);
  *made = make_group(std::move(ranks));
  return MPI_SUCCESS;
}
SIMULATED(Group_compare)
int PMPI_Group_compare(MPI_Group a, MPI_Group b, int* result) {
  std::vector<int> of_a = ranks_of(a), of_b = ranks_of(b);
  *result = of_a == of_b ? MPI_IDENT : MPI_UNEQUAL;
  std::ranges::sort(of_a);
  std::ranges::sort(of_b);
  if (*result == MPI_UNEQUAL && of_a == of_b) *result = MPI_SIMILAR;
  return MPI_SUCCESS;
}
SIMULATED(Group_translate_ranks)
int PMPI_Group_translate_ranks(MPI_Group from, int count, const int* ranks, MPI_Group to, int* result) {
  for (int i = 0; i < count; ++i) {
    result[i] = ranks[i] == MPI_PROC_NULL
                    ? MPI_PROC_NULL
                    : index_of(ranks_of(to), ranks_of(from).at(static_cast<std::size_t>(ranks[i])));
  }
  return MPI_SUCCESS;
}
SIMULATED(Group_free)
int PMPI_Group_free(MPI_Group* group) {
  if (*group != MPI_GROUP_EMPTY) runtime.groups.erase(*group);
  *group = MPI_GROUP_NULL;
  return MPI_SUCCESS;
}

SIMULATED(Comm_rank)
int PMPI_Comm_rank(MPI_Comm comm, int* rank) {
  *rank = comm_at(comm).own_rank();
  return MPI_SUCCESS;
}
SIMULATED(Comm_size)
int PMPI_Comm_size(MPI_Comm comm, int* size) {
  *size = static_cast<int>(comm_at(comm).ranks.size());
  return MPI_SUCCESS;
}
SIMULATED(Comm_group)
int PMPI_Comm_group(MPI_Comm comm, MPI_Group* group) {
  *group = make_group(comm_at(comm).ranks);
  return MPI_SUCCESS;
}
SIMULATED(Comm_test_inter)
int PMPI_Comm_test_inter(MPI_Comm comm, int* flag) {
  *flag = 0;
  return find_comm(comm) != nullptr ? MPI_SUCCESS : raise(MPI_COMM_WORLD, MPI_ERR_COMM, " in MPI_Comm_test_inter");
}
SIMULATED(Comm_get_parent)
int PMPI_Comm_get_parent(MPI_Comm* parent) {
  *parent = MPI_COMM_NULL;
  return MPI_SUCCESS;
}
SIMULATED(Comm_split)
int PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  Contribution own;
  own.call = "MPI_Comm_split";
  own.color = color;
  own.key = key;
  own.made = made;
  Comm& parent = comm_at(comm);
  return join_and_wait(parent, own, [&parent](Contributions& all) { split(parent, all); });
}
SIMULATED(Comm_dup)
int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  const int code = PMPI_Comm_split(comm, 0, 0, made);
  for (const auto& [key, value] : Attributes(comm_at(comm).own().attributes)) {
    const Keyval& keyval = runtime.keyvals.at(key);
    void* copy = nullptr;
    int flag = 0;
    if (keyval.copy_of_comm != nullptr)
      keyval.copy_of_comm(comm, key, keyval.extra, value, static_cast<void*>(&copy), &flag);
    if (flag != 0) comm_at(*made).own().attributes[key] = copy;
  }
  return code;
}
SIMULATED(Comm_split_type)
int PMPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info, MPI_Comm* made) {
  if (type != MPI_COMM_TYPE_SHARED) host::fail("MPI_Comm_split_type: only MPI_COMM_TYPE_SHARED is simulated");
  return PMPI_Comm_split(comm, this_rank().node, key, made);
}
SIMULATED(Comm_create_group)
int PMPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  Contribution own;
  own.call = "MPI_Comm_create_group";
  own.made = made;
  Comm& parent = comm_at(comm);
  const std::vector<int> ranks = ranks_of(group);
  return join_and_wait(
      parent, own, [&](Contributions& all) { make_comm(parent, ranks, all); }, ranks, tag);
}
SIMULATED(Comm_free)
int PMPI_Comm_free(MPI_Comm* handle) {
  Comm& comm = comm_at(*handle);
  delete_attributes(comm);
  if (++comm.freed == comm.ranks.size()) runtime.comms.erase(*handle);
  *handle = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

// MPI_COMM_DUP_FN.
extern "C" int MPIR_Dup_fn(MPI_Comm, int, void*, void* value, void* copy, int* flag) {
  *static_cast<void**>(copy) = value;
  *flag = 1;
  return MPI_SUCCESS;
}

SIMULATED(Comm_create_keyval)
int PMPI_Comm_create_keyval(MPI_Comm_copy_attr_function* copy, MPI_Comm_delete_attr_function* destroy, int* key,
                            void* extra) {
  auto keyval = std::make_unique<Keyval>();
  keyval->copy_of_comm = copy;
  keyval->delete_of_comm = destroy;
  keyval->extra = extra;
  *key = runtime.keyvals.add(std::move(keyval));
  return MPI_SUCCESS;
}
SIMULATED(Comm_free_keyval)
int PMPI_Comm_free_keyval(int* key) {
  *key = MPI_KEYVAL_INVALID;  // attributes may still have it
  return MPI_SUCCESS;
}
SIMULATED(Comm_set_attr)
int PMPI_Comm_set_attr(MPI_Comm comm, int key, void* value) {
  Attributes& attributes = comm_at(comm).own().attributes;
  if (const auto old = attributes.find(key); old != attributes.end()) delete_attribute(comm, key, old->second);
  attributes[key] = value;
  return MPI_SUCCESS;
}
SIMULATED(Comm_get_attr)
int PMPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* found) {
  static int most = INT32_MAX;
  const Attributes& attributes = comm_at(comm).own().attributes;
  const auto at = attributes.find(key);
  *found = key == MPI_TAG_UB || at != attributes.end();
  if (*found != 0) *static_cast<void**>(value) = key == MPI_TAG_UB ? &most : at->second;
  return MPI_SUCCESS;
}
SIMULATED(Comm_delete_attr)
int PMPI_Comm_delete_attr(MPI_Comm comm, int key) {
  Attributes& attributes = comm_at(comm).own().attributes;
  const auto at = attributes.find(key);
  if (at == attributes.end()) return raise(comm, MPI_ERR_KEYVAL, " in MPI_Comm_delete_attr");
  const auto value = at->second;
  attributes.erase(at);
  return delete_attribute(comm, key, value);
}

SIMULATED(Comm_create_errhandler)
int PMPI_Comm_create_errhandler(MPI_Comm_errhandler_function* function, MPI_Errhandler* made) {
  *made = runtime.handlers.add(std::make_unique<mpi::Errhandler>(mpi::Errhandler{function, nullptr}));
  return MPI_SUCCESS;
}
SIMULATED(Win_create_errhandler)
int PMPI_Win_create_errhandler(MPI_Win_errhandler_function* function, MPI_Errhandler* made) {
  *made = runtime.handlers.add(std::make_unique<mpi::Errhandler>(mpi::Errhandler{nullptr, function}));
  return MPI_SUCCESS;
}
SIMULATED(Errhandler_free)
int PMPI_Errhandler_free(MPI_Errhandler* handler) {
  *handler = MPI_ERRHANDLER_NULL;  // a communicator or a window may still have it
  return MPI_SUCCESS;
}
SIMULATED(Comm_set_errhandler)
int PMPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  comm_at(comm).own().handler = handler;
  return MPI_SUCCESS;
}
SIMULATED(Comm_get_errhandler)
int PMPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler* handler) {
  *handler = comm_at(comm).own().handler;
  return MPI_SUCCESS;
}
SIMULATED(Comm_call_errhandler)
int PMPI_Comm_call_errhandler(MPI_Comm comm, int code) {
  raise(comm, code, " by MPI_Comm_call_errhandler");
  return MPI_SUCCESS;
}

// Windows are farside's. It takes a handle and an error handler of the runtime for each, by a window of one rank.
SIMULATED(Win_allocate_shared)
int PMPI_Win_allocate_shared(MPI_Aint size, int, MPI_Info, MPI_Comm comm, void*, MPI_Win* window) {
  if (size != 0 || comm_at(comm).ranks.size() != 1) host::fail("MPI: a window is not farside's", true);
  *window = runtime.windows.add(std::make_unique<mpi::Window>());
  return MPI_SUCCESS;
}
SIMULATED(Win_free)
int PMPI_Win_free(MPI_Win* window) {
  for (const auto& [key, value] : Attributes(runtime.windows.at(*window).attributes))
    if (const int code = PMPI_Win_delete_attr(*window, key); code != MPI_SUCCESS) return code;
  runtime.windows.erase(*window);
  *window = MPI_WIN_NULL;
  return MPI_SUCCESS;
}
SIMULATED(Win_create_keyval)
int PMPI_Win_create_keyval(MPI_Win_copy_attr_function*, MPI_Win_delete_attr_function* destroy, int* key, void* extra) {
  auto keyval = std::make_unique<Keyval>();
  keyval->delete_of_window = destroy;
  keyval->extra = extra;
  *key = runtime.keyvals.add(std::move(keyval));
  return MPI_SUCCESS;
}
SIMULATED(Win_free_keyval)
int PMPI_Win_free_keyval(int* key) { return PMPI_Comm_free_keyval(key); }
SIMULATED(Win_set_attr)
int PMPI_Win_set_attr(MPI_Win window, int key, void* value) {
  runtime.windows.at(window).attributes[key] = value;
  return MPI_SUCCESS;
}
SIMULATED(Win_get_attr)
int PMPI_Win_get_attr(MPI_Win window, int key, void* value, int* found) {
  const Attributes& attributes = runtime.windows.at(window).attributes;
  const auto at = attributes.find(key);
  *found = at != attributes.end();
  if (*found != 0) *static_cast<void**>(value) = at->second;
  return MPI_SUCCESS;
}
SIMULATED(Win_delete_attr)
int PMPI_Win_delete_attr(MPI_Win window, int key) {
  Attributes& attributes = runtime.windows.at(window).attributes;
  const Keyval& keyval = runtime.keyvals.at(key);
  const int code = keyval.delete_of_window != nullptr
                       ? keyval.delete_of_window(window, key, attributes.at(key), keyval.extra)
                       : MPI_SUCCESS;
  if (code == MPI_SUCCESS) attributes.erase(key);
  return code;
}
SIMULATED(Win_set_errhandler)
int PMPI_Win_set_errhandler(MPI_Win window, MPI_Errhandler handler) {
  runtime.windows.at(window).handler = handler;
  return MPI_SUCCESS;
}
SIMULATED(Win_get_errhandler)
int PMPI_Win_get_errhandler(MPI_Win window, MPI_Errhandler* handler) {
  *handler = runtime.windows.at(window).handler;
  return MPI_SUCCESS;
}
SIMULATED(Win_call_errhandler)
int PMPI_Win_call_errhandler(MPI_Win window, int code) {
  call_handler(runtime.windows.at(window).handler, code, " of a window",
               [&](mpi::Errhandler& own) { own.of_window(&window, &code); });
  return MPI_SUCCESS;
}
SIMULATED(Win_set_name)
int PMPI_Win_set_name(MPI_Win window, const char* name) {
  runtime.windows.at(window).name = name;
  return MPI_SUCCESS;
}
SIMULATED(Win_get_name)
int PMPI_Win_get_name(MPI_Win window, char* name, int* length) {
  *length = std::snprintf(name, MPI_MAX_OBJECT_NAME, "%s", runtime.windows.at(window).name.c_str());
  return MPI_SUCCESS;
}

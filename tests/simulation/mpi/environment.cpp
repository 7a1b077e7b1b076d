// SPDX-License-Identifier: BSD-3-Clause
// The start and end of MPI, information, memory, operations, and texts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/simulation/faults.hpp"
#include "tests/simulation/mpi/objects.hpp"

namespace simulation::mpi {

void check_that_all_is_free() {
  if (!std::ranges::all_of(runtime.processes, &Process::finalized)) return;
  const std::pair<const char*, std::size_t> left[] = {
      {"communicators", runtime.comms.in_use()}, {"groups", runtime.groups.in_use()},
      {"requests", runtime.requests.in_use()},   {"windows", runtime.windows.in_use()},
      {"infos", runtime.infos.in_use()},
  };
  for (const auto& [kind, count] : left)
    if (count != 0) host::fail("MPI: " + std::to_string(count) + " " + kind + " were not freed");
}

}  // namespace simulation::mpi

using namespace simulation;
using namespace simulation::mpi;

SIMULATED(Init_thread)
int PMPI_Init_thread(int*, char***, int wanted, int* provided) {
  process().initialized = true;
  process().level = *provided = wanted;
  return PMPI_Barrier(MPI_COMM_WORLD);
}
SIMULATED(Init)
int PMPI_Init(int* count, char*** words) {
  int provided = 0;
  return PMPI_Init_thread(count, words, MPI_THREAD_SINGLE, &provided);
}
SIMULATED(Finalize)
int PMPI_Finalize() {
  for (const MPI_Comm each : {MPI_COMM_SELF, MPI_COMM_WORLD}) delete_attributes(comm_at(each));
  const int code = PMPI_Barrier(MPI_COMM_WORLD);
  process().finalized = true;
  return code;
}
SIMULATED(Initialized)
int PMPI_Initialized(int* flag) {
  *flag = current() != nullptr && process().initialized;
  return MPI_SUCCESS;
}
SIMULATED(Finalized)
int PMPI_Finalized(int* flag) {
  *flag = process().finalized;
  return MPI_SUCCESS;
}
SIMULATED(Query_thread)
int PMPI_Query_thread(int* level) {
  *level = process().level;
  return MPI_SUCCESS;
}
SIMULATED(Abort)
int PMPI_Abort(MPI_Comm, int code) { faults::end_job("MPI_Abort(" + std::to_string(code) + ")"); }
SIMULATED(Wtime)
double PMPI_Wtime() {
  scheduler->yield(true);
  return static_cast<double>(scheduler->now()) / 1e9;
}
SIMULATED(Get_library_version)
int PMPI_Get_library_version(char* text, int* length) {
  *length = std::snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "MPICH Version:\t%s (simulated)\n", MPICH_VERSION);
  return MPI_SUCCESS;
}
SIMULATED(Get_processor_name)
int PMPI_Get_processor_name(char* name, int* length) {
  *length = std::snprintf(name, MPI_MAX_PROCESSOR_NAME, "%s", job.host_name(this_rank().node).c_str());
  return MPI_SUCCESS;
}
SIMULATED(Error_class)
int PMPI_Error_class(int code, int* error_class) {
  *error_class = code;
  return MPI_SUCCESS;
}
SIMULATED(Error_string)
int PMPI_Error_string(int code, char* text, int* length) {
  *length = std::snprintf(text, MPI_MAX_ERROR_STRING, "error class %d", code);
  return MPI_SUCCESS;
}
SIMULATED(Alloc_mem)
int PMPI_Alloc_mem(MPI_Aint bytes, MPI_Info, void* base) {
  *static_cast<void**>(base) = std::malloc(static_cast<std::size_t>(bytes) + 1);
  return MPI_SUCCESS;
}
SIMULATED(Free_mem)
int PMPI_Free_mem(void* base) {
  std::free(base);
  return MPI_SUCCESS;
}
SIMULATED(Aint_add)
MPI_Aint PMPI_Aint_add(MPI_Aint base, MPI_Aint displacement) { return base + displacement; }
SIMULATED(Aint_diff)
MPI_Aint PMPI_Aint_diff(MPI_Aint a, MPI_Aint b) { return a - b; }
SIMULATED(Op_create)
int PMPI_Op_create(MPI_User_function* function, int, MPI_Op* made) {
  *made = runtime.ops.add(std::make_unique<Op>(Op{function}));
  return MPI_SUCCESS;
}
SIMULATED(Op_free)
int PMPI_Op_free(MPI_Op* op) {
  runtime.ops.erase(*op);
  *op = MPI_OP_NULL;
  return MPI_SUCCESS;
}

namespace {
Info::iterator find_key(Info& info, const char* key) {
  return std::ranges::find_if(info, [key](const auto& each) { return each.first == key; });
}
}  // namespace

SIMULATED(Info_create)
int PMPI_Info_create(MPI_Info* made) {
  *made = runtime.infos.add(std::make_unique<Info>());
  return MPI_SUCCESS;
}
SIMULATED(Info_dup)
int PMPI_Info_dup(MPI_Info info, MPI_Info* made) {
  *made = runtime.infos.add(std::make_unique<Info>(runtime.infos.at(info)));
  return MPI_SUCCESS;
}
SIMULATED(Info_free)
int PMPI_Info_free(MPI_Info* info) {
  runtime.infos.erase(*info);
  *info = MPI_INFO_NULL;
  return MPI_SUCCESS;
}
SIMULATED(Info_set)
int PMPI_Info_set(MPI_Info handle, const char* key, const char* value) {
  Info& info = runtime.infos.at(handle);
  if (const auto found = find_key(info, key); found != info.end())
    found->second = value;
  else
    info.emplace_back(key, value);
  return MPI_SUCCESS;
}
SIMULATED(Info_delete)
int PMPI_Info_delete(MPI_Info handle, const char* key) {
  Info& info = runtime.infos.at(handle);
  const auto found = find_key(info, key);
  if (found == info.end()) return raise(MPI_COMM_WORLD, MPI_ERR_INFO_NOKEY, " in MPI_Info_delete");
  info.erase(found);
  return MPI_SUCCESS;
}
SIMULATED(Info_get)
int PMPI_Info_get(MPI_Info handle, const char* key, int room, char* value, int* found) {
  Info& info = runtime.infos.at(handle);
  const auto at = find_key(info, key);
  *found = at != info.end();
  if (*found != 0) std::snprintf(value, static_cast<std::size_t>(room) + 1, "%s", at->second.c_str());
  return MPI_SUCCESS;
}
SIMULATED(Info_get_valuelen)
int PMPI_Info_get_valuelen(MPI_Info handle, const char* key, int* length, int* found) {
  Info& info = runtime.infos.at(handle);
  const auto at = find_key(info, key);
  *found = at != info.end();
  if (*found != 0) *length = static_cast<int>(at->second.size());
  return MPI_SUCCESS;
}
SIMULATED(Info_get_nkeys)
int PMPI_Info_get_nkeys(MPI_Info info, int* count) {
  *count = static_cast<int>(runtime.infos.at(info).size());
  return MPI_SUCCESS;
}
SIMULATED(Info_get_nthkey)
int PMPI_Info_get_nthkey(MPI_Info info, int n, char* key) {
  std::snprintf(key, MPI_MAX_INFO_KEY, "%s", runtime.infos.at(info).at(static_cast<std::size_t>(n)).first.c_str());
  return MPI_SUCCESS;
}

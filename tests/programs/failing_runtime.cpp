// SPDX-License-Identifier: BSD-3-Clause
// The runtime fails in one of the calls by which the ranks agree during window creation: each rank gets an error,
// nothing is leaked, and the next window works. This program defines these calls itself, before the runtime's.
#include <dlfcn.h>

#include "check.hpp"

namespace {

struct Failing {
  const char* name;
  int left;  // calls until the one that fails; 0: no call fails
  bool failed;
};
Failing failing{};

bool fails(const char* name) {
  if (failing.left == 0 || std::strcmp(name, failing.name) != 0 || --failing.left > 0) return false;
  failing.failed = true;
  return true;
}

}  // namespace

#define FORWARD(name, parameters, arguments)                                                            \
  extern "C" [[gnu::visibility("default")]] int PMPI_##name parameters {                                \
    if (fails(#name)) return MPI_ERR_OTHER;                                                             \
    static auto* const original = reinterpret_cast<int(*) parameters>(dlsym(RTLD_NEXT, "PMPI_" #name)); \
    return original arguments;                                                                          \
  }
FORWARD(Iallreduce,
        (const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request),
        (from, to, count, type, op, comm, request))
FORWARD(Comm_rank, (MPI_Comm comm, int* rank), (comm, rank))
FORWARD(Comm_size, (MPI_Comm comm, int* size), (comm, size))
FORWARD(Comm_group, (MPI_Comm comm, MPI_Group* group), (comm, group))
FORWARD(Comm_get_attr, (MPI_Comm comm, int key, void* value, int* found), (comm, key, value, found))
FORWARD(Comm_set_attr, (MPI_Comm comm, int key, void* value), (comm, key, value))
FORWARD(Comm_test_inter, (MPI_Comm comm, int* inter), (comm, inter))
FORWARD(Group_size, (MPI_Group group, int* size), (group, size))
FORWARD(Group_translate_ranks, (MPI_Group group, int count, const int* ranks, MPI_Group into, int* found),
        (group, count, ranks, into, found))

namespace {

// Calls by which farside looks for addresses that it has already. Without them it asks the ranks again.
bool has_substitute(const char* name) {
  for (const char* call : {"Comm_group", "Group_size", "Group_translate_ranks"}) {
    if (std::strcmp(name, call) == 0) return true;
  }
  return false;
}

// Makes a window and returns whether the call that fails was reached. The communicators are new, because some calls are
// made once per communicator.
bool made_while_fails(const char* name, int nth, bool shared) {
  MPI_Comm comm = MPI_COMM_NULL;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  failing = {name, nth, false};
  const int code = (shared ? MPI_Win_allocate_shared : MPI_Win_allocate)(4096, 1, MPI_INFO_NULL, comm, &base, &window);
  const bool failed = failing.failed;
  failing = {};
  if (failed && (code != MPI_SUCCESS || !has_substitute(name))) {
    int error_class = MPI_SUCCESS;
    CHECK(code != MPI_SUCCESS);
    CHECK_MPI(MPI_Error_class(code, &error_class));
    CHECK(error_class == MPI_ERR_OTHER || error_class == MPI_ERR_COMM);
  } else {
    CHECK_EQ(code, MPI_SUCCESS);
    base[17] = 'a';
    CHECK_MPI(MPI_Win_free(&window));
  }
  CHECK_MPI(MPI_Comm_free(&comm));
  return failed;
}

// The same on one rank alone, before the ranks agree: each rank gets an error, and the next window of the communicator
// works.
void one_rank_fails(const char* name) {
  check::section(name);
  MPI_Comm comm = MPI_COMM_NULL;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  CHECK_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  failing = {name, check::rank() == 1 ? 1 : 0, false};
  CHECK(MPI_Win_allocate(4096, 1, MPI_INFO_NULL, comm, &base, &window) != MPI_SUCCESS);
  failing = {};
  CHECK_MPI(MPI_Win_allocate(4096, 1, MPI_INFO_NULL, comm, &base, &window));
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Comm_free(&comm));
}

}  // namespace

int main(int argc, char** argv) {
  const check::Program program(argc, argv);
  int failures = 0;
  { const check::Window first(program.memory(), 64, 8); }
  for (const char* name : {"Iallreduce", "Comm_rank", "Comm_size", "Comm_group", "Comm_get_attr", "Comm_set_attr",
                           "Comm_test_inter", "Group_size", "Group_translate_ranks"}) {
    for (const bool shared : {false, true}) {
      check::section(name);
      int nth = 1;
      while (made_while_fails(name, nth, shared)) ++nth;
      // Only windows over the fabric look for addresses.
      if (!has_substitute(name)) CHECK(nth > 1);
      failures += nth - 1;
    }
  }
  for (const char* name : {"Comm_get_attr", "Comm_set_attr"}) one_rank_fails(name);
  std::printf("%d calls failed\n", failures);
  CHECK(failures >= 16);
  // The window works.
  const check::Window window(program.memory(), 64, 8);
  const std::int64_t value = check::rank();
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, (check::rank() + 1) % check::size(), 1, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(window.as<std::int64_t>()[1], std::int64_t{(check::rank() + check::size() - 1) % check::size()});
  return 0;
}

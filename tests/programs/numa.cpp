// SPDX-License-Identifier: BSD-3-Clause
// The NUMA nodes of windows' memory, as get_mempolicy(2) tells them: those of FARSIDE_NUMA, or of the info key
// farside_numa, for the memory of each rank that gives it, in all processes that map it. One node is enough.
//
//   numa               with the environment's FARSIDE_NUMA
//   numa forbidden     mbind(2) is forbidden: a line says so once, and windows work
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <linux/mempolicy.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "stderr.hpp"

namespace {

constexpr MPI_Aint kBytes = 20000;

// The policy of the page at this address: MPOL_DEFAULT, MPOL_PREFERRED or MPOL_INTERLEAVE.
int policy_at(const void* base) {
  int policy = -1;
  CHECK_EQ(syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, base, static_cast<unsigned long>(MPOL_F_ADDR)), 0L);
  return policy;
}

int policy_of(const std::string& placement) {
  return placement == "bind" ? MPOL_PREFERRED : placement == "interleave" ? MPOL_INTERLEAVE : MPOL_DEFAULT;
}

// The value of the setting.
std::string without_key() {
  const char* const setting = std::getenv("FARSIDE_NUMA");
  return setting != nullptr ? setting : "first_touch";
}

MPI_Info info_of(const char* placement) {
  MPI_Info info;
  CHECK_MPI(MPI_Info_create(&info));
  if (placement != nullptr) CHECK_MPI(MPI_Info_set(info, "farside_numa", placement));
  return info;
}

// Each rank reads a word of the next one, which has written it.
void check_works(MPI_Win window, char* base, int rank, int size) {
  const int next = (rank + 1) % size, place = static_cast<int>(kBytes) - 4;
  std::memcpy(base + place, &rank, sizeof rank);
  int seen = -1;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Get(&seen, 1, MPI_INT, next, place, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_EQ(seen, next);
}

// `given`: the key, or null; of odd ranks `of_odd`.
void allocated(const char* given, const char* of_odd) {
  const char* const own = check::rank() % 2 == 1 ? of_odd : given;
  MPI_Info info = info_of(own);
  char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_allocate(kBytes, 1, info, MPI_COMM_WORLD, &base, &window));
  const bool good = own != nullptr && std::strcmp(own, "elsewhere") != 0;
  const int expected = policy_of(good ? own : without_key());
  CHECK_EQ(policy_at(base), expected);
  CHECK_EQ(policy_at(base + kBytes - 1), expected);
  CHECK_EQ(check::hint(window, "farside_numa"), good ? own : "");
  check_works(window, base, check::rank(), check::size());
  CHECK_EQ(policy_at(base), expected);
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Info_free(&info));
}

// Every rank of the node sees the policy of each.
void shared(const char* given) {
  MPI_Comm node = check::node_communicator();
  int rank = 0, size = 0;
  CHECK_MPI(MPI_Comm_rank(node, &rank));
  CHECK_MPI(MPI_Comm_size(node, &size));
  for (const char* const apart : {"false", "true"}) {
    MPI_Info info = info_of(given);
    CHECK_MPI(MPI_Info_set(info, "alloc_shared_noncontig", apart));
    char* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    CHECK_MPI(MPI_Win_allocate_shared(kBytes, 1, info, node, &base, &window));
    for (int r = 0; r < size; ++r) {
      MPI_Aint bytes = 0;
      int unit = 0;
      char* there = nullptr;
      CHECK_MPI(MPI_Win_shared_query(window, r, &bytes, &unit, &there));
      CHECK_EQ(policy_at(there + kBytes / 2), policy_of(given != nullptr ? given : without_key()));
    }
    check_works(window, base, rank, size);
    CHECK_MPI(MPI_Win_free(&window));
    CHECK_MPI(MPI_Info_free(&info));
  }
  CHECK_MPI(MPI_Comm_free(&node));
}

// The key has no effect on memory of the program, and none on MPI_Alloc_mem.
void created() {
  MPI_Info info = info_of("interleave");
  char* base = nullptr;
  CHECK_MPI(MPI_Alloc_mem(kBytes, info, static_cast<void*>(&base)));
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_create(base, kBytes, 1, info, MPI_COMM_WORLD, &window));
  CHECK_EQ(check::hint(window, "farside_numa"), "");
  CHECK_EQ(policy_at(base), +MPOL_DEFAULT);
  check_works(window, base, check::rank(), check::size());
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Free_mem(base));
  CHECK_MPI(MPI_Info_free(&info));
}

void forbidden() {
  for (int round = 0; round < 2; ++round) {
    MPI_Info info = info_of("bind");
    char* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    check::Stderr captured;
    CHECK_MPI(MPI_Win_allocate(kBytes, 1, info, MPI_COMM_WORLD, &base, &window));
    const std::string text = captured.end();
    const bool warned = text.find("mbind) is refused: Operation not permitted") != std::string::npos;
    CHECK_EQ(warned, round == 0);
    CHECK_EQ(policy_at(base), +MPOL_DEFAULT);
    check_works(window, base, check::rank(), check::size());
    CHECK_MPI(MPI_Win_free(&window));
    CHECK_MPI(MPI_Info_free(&info));
  }
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (access("/proc/self/numa_maps", R_OK) != 0) {
    if (check::rank() == 0) std::printf("numa: skipped: this kernel has no NUMA\n");
    MPI_Finalize();
    std::exit(77);
  }
  if (program.has("forbidden")) {
    forbidden();
    return 0;
  }
  for (const char* const given : {"first_touch", "bind", "interleave"}) {
    allocated(given, given);
    shared(given);
  }
  check::section("ranks differ");
  allocated("interleave", "bind");
  allocated(nullptr, "interleave");
  check::section("without the key");
  allocated(nullptr, nullptr);
  allocated("elsewhere", "elsewhere");
  shared(nullptr);
  check::section("memory of the program");
  created();
}

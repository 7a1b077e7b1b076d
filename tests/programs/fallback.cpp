// SPDX-License-Identifier: BSD-3-Clause
// Windows that farside leaves to the runtime work as without farside, also beside a farside window. Run with settings
// that allow no route to private memory (FARSIDE_ROUTES=mapped).
#include <cstring>

#include "check.hpp"

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const int rank = check::rank();
  const int size = check::size();
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;

  check::section("a window beside");
  check::Window beside(check::Memory::kAllocate, 1024 * sizeof(int), sizeof(int));
  CHECK_MPI(MPI_Win_fence(0, beside));

  check::section("a dynamic window");
  MPI_Win dynamic;
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
  int* flavor = nullptr;
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(dynamic, MPI_WIN_CREATE_FLAVOR, &flavor, &found));
  CHECK(found);
  CHECK_EQ(*flavor, MPI_WIN_FLAVOR_DYNAMIC);
  std::vector<int> attached(64, -1);
  CHECK_MPI(MPI_Win_attach(dynamic, attached.data(), static_cast<MPI_Aint>(attached.size() * sizeof(int))));
  MPI_Aint mine = 0;
  CHECK_MPI(MPI_Get_address(attached.data(), &mine));
  std::vector<MPI_Aint> addresses(static_cast<std::size_t>(size));
  CHECK_MPI(MPI_Allgather(&mine, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_fence(0, dynamic));
  const int value = 60 + rank;
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, MPI_Aint_add(addresses[static_cast<std::size_t>(next)], 8), 1, MPI_INT,
                    dynamic));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, beside));
  CHECK_MPI(MPI_Win_fence(0, dynamic));
  CHECK_MPI(MPI_Win_fence(0, beside));
  CHECK_EQ(attached[2], 60 + previous);
  CHECK_EQ(beside.as<int>()[0], 60 + previous);
  CHECK_MPI(MPI_Win_detach(dynamic, attached.data()));
  CHECK_MPI(MPI_Win_free(&dynamic));
  CHECK(dynamic == MPI_WIN_NULL);

  check::section("a window on private memory");
  {
    check::Window created(check::Memory::kCreate, 64 * sizeof(int), sizeof(int));
    CHECK_MPI(MPI_Win_fence(0, created));
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 3, 1, MPI_INT, created));
    CHECK_MPI(MPI_Win_fence(0, created));
    CHECK_EQ(created.as<int>()[3], 60 + previous);
    // Its base is no multiple of 16, of which farside warns under MPICH.
    MPI_Win odd;
    CHECK_MPI(MPI_Win_create(created.as<char>() + 8, 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &odd));
    CHECK_MPI(MPI_Win_free(&odd));
  }
  // MPICH 4.2 and 5.0 end with a failed assertion, natively too.
#if MPI_VERSION >= 4 && !(defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40100000)
  check::section("a displacement unit of more than 31 bits, at one rank");
  {
    char* base = nullptr;
    MPI_Win wide = MPI_WIN_NULL;
    CHECK_MPI(MPI_Win_allocate_c(64, rank == 0 ? MPI_Aint{3} << 30 : 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &wide));
    CHECK_MPI(MPI_Win_fence(0, wide));
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, wide));
    CHECK_MPI(MPI_Win_fence(0, wide));
    int received = 0;
    std::memcpy(&received, base, sizeof received);
    CHECK_EQ(received, 60 + previous);
    CHECK_MPI(MPI_Win_free(&wide));
  }
#endif
  check::section("the window beside is freed");
  return 0;
}

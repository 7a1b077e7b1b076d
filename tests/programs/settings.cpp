// SPDX-License-Identifier: BSD-3-Clause
// Windows that cannot be made are refused on every rank, by an error code, whichever rank has the cause.
//
//   settings refused     a FARSIDE_* variable has a bad value (set by the runner): no window can be made
//   settings strict      rank 0 alone has FARSIDE_CHECK=strict: no window can be made
//   settings huge        64 TiB, requested by all ranks, then by one alone; small windows before and after
//   settings file_size   the limit of file sizes (RLIMIT_FSIZE) is below the window's size
//   settings differently [reversed]   on the fabric alone: at rank 0 libfabric lacks the requested provider, and the
//                                     last rank may open no more files (reversed: the two ranks are exchanged)
#include <fcntl.h>
#include <sys/resource.h>

#include "check.hpp"

namespace {

int rank;
int size;

// Makes a window. All ranks agree on whether it was made; if so, the window works.
bool made(MPI_Aint bytes) {
  char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const int code = MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  const int good = code == MPI_SUCCESS;
  int all_good = 0;
  int any_good = 0;
  CHECK_MPI(MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Allreduce(&good, &any_good, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
  CHECK_EQ(all_good, any_good);
  if (!good) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    CHECK_MPI(MPI_Error_string(code, text, &length));
    CHECK(length > 0);
    return false;
  }
  const char value = static_cast<char>(65 + rank);
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_CHAR, (rank + 1) % size, bytes - 1, 1, MPI_CHAR, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(+base[bytes - 1], 65 + (rank + size - 1) % size);
  CHECK_MPI(MPI_Win_free(&window));
  return true;
}

void refused() {
  CHECK(!made(4096));
  // The second attempt shows that the first left nothing behind.
  CHECK(!made(4096));
  int own[4] = {};
  MPI_Win window = MPI_WIN_NULL;
  CHECK(MPI_Win_create(own, sizeof own, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window) != MPI_SUCCESS);
}

void huge() {
  constexpr MPI_Aint kHuge = MPI_Aint{1} << 46;
  CHECK(made(4096));
  CHECK(!made(kHuge));
  CHECK(made(4096));
  for (int guilty = 0; guilty < size; ++guilty) {
    char* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    const MPI_Aint bytes = rank == guilty ? kHuge : 64;
    CHECK(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window) != MPI_SUCCESS);
  }
  CHECK(made(4096));
}

void file_size() {
  rlimit limit{};
  CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = 1 << 20;
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  (void)made(MPI_Aint{64} << 20);
  // One rank alone is limited.
  if (rank != 0) {
    limit.rlim_cur = before;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  (void)made(MPI_Aint{64} << 20);
  limit.rlim_cur = before;
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  CHECK(made(MPI_Aint{8} << 20));
}

// Two ranks have different errors at the same time, which alone would lead to different decisions: a setting that
// cannot be met is an error, but without a route the window would be the runtime's.
void differently(bool reversed) {
  rlimit limit{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  const int lowest = open("/dev/null", O_RDONLY);
  CHECK(lowest >= 0);
  close(lowest);
  // No further descriptor at first, then enough for memory but not for an endpoint.
  for (int more : {0, 1, 2, 4}) {
    limit.rlim_cur = static_cast<rlim_t>(lowest + more);
    if (rank == (reversed ? 0 : size - 1)) CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const bool works = made(64);
    // The error of the lowest failed rank decides on all ranks.
    if (!reversed) CHECK(!works);
  }
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// A number in the launcher's environment, for use before MPI_Init.
int launched(const char* openmpi, const char* mpich) {
  const char* value = std::getenv(openmpi);
  if (value == nullptr) value = std::getenv(mpich);
  return value == nullptr ? 0 : std::atoi(value);
}
int launched_rank() { return launched("OMPI_COMM_WORLD_RANK", "PMI_RANK"); }

// Hides the provider from the first or last rank. libfabric reads FI_PROVIDER once, perhaps in MPI_Init.
void hide_provider(bool from_last) {
  const int ranks = launched("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
  if (launched_rank() == (from_last ? ranks - 1 : 0)) setenv("FI_PROVIDER", "shm", 1);
}

}  // namespace

int main(int argc, char** argv) {
  const bool reversed = argc > 2 && std::string_view(argv[2]) == "reversed";
  if (argc > 1 && std::string_view(argv[1]) == "differently") hide_provider(reversed);
  if (argc > 1 && std::string_view(argv[1]) == "strict" && launched_rank() == 0) setenv("FARSIDE_CHECK", "strict", 1);
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  if (program.has("refused")) {
    check::section("a bad setting is refused");
    refused();
  }
  if (program.has("strict")) {
    check::section("FARSIDE_CHECK=strict of one rank is refused");
    refused();
  }
  if (program.has("huge")) {
    check::section("64 TiB are refused");
    huge();
  }
  if (program.has("file_size")) {
    check::section("files may not be as large as the window");
    file_size();
  }
  if (program.has("differently")) {
    check::section("ranks fail for different reasons");
    differently(reversed);
  }
  return 0;
}

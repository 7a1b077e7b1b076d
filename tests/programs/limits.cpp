// SPDX-License-Identifier: BSD-3-Clause
// Limits of the system: a window either works in spite of the limit, or all ranks get an error and everything works
// afterwards.
//
//   limits address_space   RLIMIT_AS leaves the last rank no room for a window, nor for the stack of a thread
//          [first]         the same before farside has started
//   limits locked          RLIMIT_MEMLOCK is 0: farside needs locked memory only with adapters
//   limits operands        operands of 32 MiB, more than a rank may lock (tests/system/verbs sets RLIMIT_MEMLOCK)
//   limits shm             /dev/shm is full (a small one is needed: support/small_shm): farside keeps nothing there
//   limits sparse          a window larger than the memory (FARSIDE_OVERCOMMIT)
//   limits works           windows work under the restrictions that the runner has set (tests/support/forbid.c,
//          [within N]      tests/system/verbs); the first one is made within N seconds
//   limits twice           MPI_Init again: an error (or the end of the program, if the runtime chooses that), and
//                          windows work
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

#include "check.hpp"

namespace {

constexpr MPI_Aint kBytes = MPI_Aint{64} << 20;
constexpr MPI_Aint kWorkingBytes = MPI_Aint{1} << 20;

// Each rank puts a word to the end of the next rank's memory; then all ranks increment one counter.
void use(const check::Window& window) {
  const MPI_Aint last = window.bytes() / 8 - 1;
  const int next = (check::rank() + 1) % check::size();
  const std::int64_t value = 100 + check::rank(), one = 1;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, next, last, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(window.as<std::int64_t>()[last], std::int64_t{100} + (check::rank() + check::size() - 1) % check::size());
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::int64_t before = 0;
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window));
  CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_SUM, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() != 0) return;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window));
  CHECK_EQ(window.as<std::int64_t>()[0], std::int64_t{check::size()});
  CHECK_EQ(window.as<std::int64_t>()[1], std::int64_t{check::size()});
  CHECK_MPI(MPI_Win_unlock(0, window));
}

// Returns the size of this process's address space in bytes.
rlim_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

// A window under the limit is refused on all ranks with the right class, or made on all.
void address_space(const check::Program& program) {
  check::section("address space");
  // The runtime makes its connections before, because MPICH waits forever if it cannot map memory for them.
  std::optional<check::Window> before;
  if (!program.has("first")) {
    before.emplace(program.memory(), 64, 8);
    use(*before);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const bool allocates = program.memory() == check::Memory::kAllocate;
  std::vector<char> memory(allocates ? 0 : static_cast<std::size_t>(kBytes), 'a');
  rlimit usual{};
  CHECK_EQ(getrlimit(RLIMIT_AS, &usual), 0);
  // Less than the window, and less than a thread's stack (8 MiB), but enough for all other allocations.
  const rlimit little{mapped_bytes() + (rlim_t{6} << 20), usual.rlim_max};
  const bool guilty = check::rank() == check::size() - 1;
  if (guilty) CHECK_EQ(setrlimit(RLIMIT_AS, &little), 0);
  void* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const int code = allocates ? MPI_Win_allocate(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window)
                             : MPI_Win_create(memory.data(), kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  if (guilty) CHECK_EQ(setrlimit(RLIMIT_AS, &usual), 0);
  const int good = code == MPI_SUCCESS;
  int all_good = 0, any_good = 0;
  CHECK_MPI(MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Allreduce(&good, &any_good, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
  CHECK_EQ(all_good, any_good);
  if (allocates) CHECK(!good);
  if (!good) {
    int error_class = 0;
    CHECK_MPI(MPI_Error_class(code, &error_class));
    CHECK(error_class == MPI_ERR_NO_MEM || error_class == MPI_ERR_OTHER);
  } else {
    CHECK_MPI(MPI_Win_free(&window));
  }
  CHECK(std::all_of(memory.begin(), memory.end(), [](char c) { return c == 'a'; }));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  use(check::Window(program.memory(), kBytes, 8));
}

void locked(const check::Program& program) {
  check::section("no locked memory");
  const rlimit none{0, 0};
  CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
  use(check::Window(program.memory(), kBytes, 8));
}

// Rank 0 fills /dev/shm. The file disappears with the small file system at the latest.
void shm(const check::Program& program) {
  check::section("a full /dev/shm");
  struct statvfs room {};
  CHECK_EQ(statvfs("/dev/shm", &room), 0);
  if (room.f_blocks * room.f_frsize > (std::uint64_t{1} << 30)) {
    std::fprintf(stderr, "limits: skipped: /dev/shm is not a small one\n");
    std::exit(77);
  }
  int file = -1;
  if (check::rank() == 0) {
    file = open("/dev/shm/full", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    CHECK(file >= 0);
    const std::vector<char> zeros(1 << 16);
    while (write(file, zeros.data(), zeros.size()) > 0) {
    }
    CHECK_EQ(errno, ENOSPC);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  use(check::Window(program.memory(), kBytes, 8));
  use(check::Window(program.memory(), 4096, 8));
  if (file >= 0) {
    close(file);
    unlink("/dev/shm/full");
  }
}

// Returns the allocated bytes of the file that is mapped at this address. (Neither mincore(2) nor smaps distinguishes
// reserved pages from missing ones.)
std::int64_t bytes_in_file(const void* base) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2 || address < begin || address >= end) continue;
    struct stat info {};
    if (stat(("/proc/self/map_files/" + line.substr(0, line.find(' '))).c_str(), &info) == 0)
      return std::int64_t{info.st_blocks} * 512;
  }
  std::fprintf(stderr, "limits: skipped: /proc/self/map_files cannot be read (root may)\n");
  std::exit(77);
}

// Checks that no page exists before the program touches it (except farside's own), and that the touched page (or huge
// page) is filled with zeros.
void check_untouched(void* memory, MPI_Aint bytes) {
  constexpr std::int64_t kOwn = 1 << 20, kHuge = 1 << 21;
  const std::int64_t before = bytes_in_file(memory);
  CHECK(before < kOwn);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  auto* middle = static_cast<volatile char*>(memory) + bytes / 2;
  CHECK_EQ(+*middle, 0);
  *middle = 'a';
  const std::int64_t after = bytes_in_file(memory);
  CHECK(after > before);
  CHECK(after <= before + check::size() * kHuge);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void first_touch() {
  check::section("first touch");
  for (const bool shared : {false, true}) {
    char* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    CHECK_MPI((shared ? MPI_Win_allocate_shared : MPI_Win_allocate)(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base,
                                                                    &window));
    check_untouched(base, kBytes);
    CHECK_MPI(MPI_Win_free(&window));
  }
  // On other routes the memory is the runtime's.
  if (std::string(getenv("TEST_ROUTE")) == "mapped") {
    char* base = nullptr;
    CHECK_MPI(MPI_Alloc_mem(kBytes, MPI_INFO_NULL, &base));
    MPI_Win window = MPI_WIN_NULL;
    CHECK_MPI(MPI_Win_create(base, kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    check_untouched(base, kBytes);
    CHECK_MPI(MPI_Win_free(&window));
    CHECK_MPI(MPI_Free_mem(base));
  }
  use(check::Window(check::Memory::kAllocate, kBytes, 8));
}

// In a control group with 1 GiB (support/small_memory): a window that exceeds the limit only with all ranks together is
// refused, and so is a window that exceeds it together with untouched windows.
void together() {
  check::section("too much together");
  constexpr MPI_Aint kMost = MPI_Aint{1} << 30;
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const auto make = [](MPI_Aint bytes, char** base, MPI_Win* window, MPI_Info info = MPI_INFO_NULL) {
    const int code = MPI_Win_allocate(bytes, 1, info, MPI_COMM_WORLD, base, window);
    int error_class = 0;
    CHECK_MPI(MPI_Error_class(code, &error_class));
    return error_class;
  };
  char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL, another = MPI_WIN_NULL;
  for (const MPI_Aint bytes : {kMost * 6 / 10, kMost * 2 / check::size()})
    CHECK_EQ(make(bytes, &base, &window), MPI_ERR_NO_MEM);
  const MPI_Aint half = kMost / 2 / check::size();
  CHECK_EQ(make(half, &base, &window), MPI_SUCCESS);
  char* other = nullptr;
  CHECK_EQ(make(half, &other, &another), MPI_ERR_NO_MEM);
  std::memset(base, 1, static_cast<std::size_t>(half));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  // Touched memory is not counted twice: a quarter still fits.
  CHECK_EQ(make(half / 2, &other, &another), MPI_SUCCESS);
  std::memset(other, 1, static_cast<std::size_t>(half / 2));
  CHECK_MPI(MPI_Win_free(&another));
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(make(half, &base, &window), MPI_SUCCESS);
  CHECK_MPI(MPI_Win_free(&window));
  // A sparse window that may be larger; it does not count for later ones.
  MPI_Info info;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "farside_overcommit", "true"));
  CHECK_EQ(make(kMost * 4, &base, &window, info), MPI_SUCCESS);
  base[kMost * 4 - 1] = base[0] = 1;
  CHECK_EQ(make(half, &other, &another), MPI_SUCCESS);
  CHECK_MPI(MPI_Win_free(&another));
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Info_free(&info));
  use(check::Window(check::Memory::kAllocate, kBytes, 8));
}

// A window larger than the memory, of which the ends are touched.
void sparse() {
  constexpr MPI_Aint kSparse = MPI_Aint{1} << 40;
  char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_allocate(kSparse, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  const char mark = 'a';
  const int next = (check::rank() + 1) % check::size();
  const auto touch_ends = [&] {
    CHECK_MPI(MPI_Win_fence(0, window));
    for (const MPI_Aint at : {MPI_Aint{0}, kSparse - 1})
      CHECK_MPI(MPI_Put(&mark, 1, MPI_CHAR, next, at, 1, MPI_CHAR, window));
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
    CHECK(base[0] == mark && base[kSparse - 1] == mark);
  };
  touch_ends();
  CHECK_MPI(MPI_Win_free(&window));
  // MPI_Alloc_mem gives memory of the runtime instead if farside's is refused; peers do not map that.
  CHECK_MPI(MPI_Alloc_mem(kSparse, MPI_INFO_NULL, &base));
  CHECK_MPI(MPI_Win_create(base, kSparse, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK(check::hint(window, "farside_route") != "cma");
  touch_ends();
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Free_mem(base));
}

// The runtime may return an error or end the program; in the latter case there is nothing more to check.
int twice(const check::Program& program) {
  check::section("MPI_Init twice");
  use(check::Window(program.memory(), 4096, 8));
  int argc = 0;
  char** argv = nullptr;
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  const int code = MPI_Init(&argc, &argv);
  CHECK(code != MPI_SUCCESS);
  use(check::Window(program.memory(), 4096, 8));
  return 0;
}

// Rank 0 has the memory, all others put and get.
void large_operands(const check::Program& program) {
  check::section("large operands");
  constexpr int kWords = 4 << 20;
  const check::Window window(program.memory(), check::rank() == 0 ? MPI_Aint{8} * kWords * (check::size() - 1) : 0, 8);
  std::vector<std::int64_t> words(check::rank() == 0 ? 0 : kWords), got(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::int64_t>(i) * check::rank();
  const MPI_Aint at = MPI_Aint{kWords} * (check::rank() - 1);
  CHECK_MPI(MPI_Win_fence(0, window));
  if (check::rank() > 0) CHECK_MPI(MPI_Put(words.data(), kWords, MPI_INT64_T, 0, at, kWords, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  if (check::rank() > 0) CHECK_MPI(MPI_Get(got.data(), kWords, MPI_INT64_T, 0, at, kWords, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK(got == words);
}

void works(const check::Program& program) {
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const double begin = MPI_Wtime();
  const check::Window window(program.memory(), kWorkingBytes, 8);
  const double seconds = MPI_Wtime() - begin;
  if (check::rank() == 0) std::printf("limits: the first window took %.1f s\n", seconds);
  CHECK(seconds < program.number("within", 60));
  use(window);
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (program.has("address_space")) address_space(program);
  if (program.has("locked")) locked(program);
  if (program.has("shm")) shm(program);
  if (program.has("first_touch")) first_touch();
  if (program.has("together")) together();
  if (program.has("sparse")) sparse();
  if (program.has("works")) works(program);
  if (program.has("operands")) large_operands(program);
  if (program.has("twice")) return twice(program);
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
// MPI_Alloc_mem: windows on such memory, on all of it or a part, made at any time, are reached like those of
// MPI_Win_allocate. With the argument "forks": a forked process has a copy of the memory, as of all other memory; its
// windows may then have another route.
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "usage.hpp"

namespace {

int rank;
int size;

template <class T>
T* allocate(MPI_Aint bytes) {
  T* memory = nullptr;
  CHECK_MPI(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory));
  CHECK(memory != nullptr);
  return memory;
}

// Puts to the first and the last byte of the next rank. The bytes around the window stay unchanged.
void check_window(unsigned char* base, MPI_Aint bytes) {
  MPI_Win window;
  CHECK_MPI(MPI_Win_create(base, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  std::memset(base, 0, static_cast<std::size_t>(bytes));
  CHECK_MPI(MPI_Win_fence(0, window));
  const int next = (rank + 1) % size;
  const auto mark = static_cast<unsigned char>(1 + rank);
  CHECK_MPI(MPI_Put(&mark, 1, MPI_UNSIGNED_CHAR, next, 0, 1, MPI_UNSIGNED_CHAR, window));
  CHECK_MPI(MPI_Accumulate(&mark, 1, MPI_UNSIGNED_CHAR, next, bytes - 1, 1, MPI_UNSIGNED_CHAR, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  const int previous = (rank + size - 1) % size;
  for (MPI_Aint i = 0; i < bytes; ++i) CHECK_EQ(+base[i], i == 0 || i == bytes - 1 ? 1 + previous : 0);
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK_REFUSED(MPI_Put(&mark, 1, MPI_UNSIGNED_CHAR, next, bytes, 1, MPI_UNSIGNED_CHAR, window), MPI_ERR_RMA_RANGE);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_MPI(MPI_Win_free(&window));
}

// Memory that was allocated before the first window of this process.
unsigned char* early = nullptr;
constexpr MPI_Aint kEarly = 10'000;

void before_the_first_window() { check_window(early, kEarly); }

void parts() {
  for (MPI_Aint bytes : {MPI_Aint{2}, MPI_Aint{4096}, MPI_Aint{50'000}}) {
    auto* memory = allocate<unsigned char>(bytes + 200);
    check_window(memory, bytes + 200);
    // The offset in the allocation differs from rank to rank.
    check_window(memory + 64 + rank, bytes);
    check_window(memory + 3, bytes);
    CHECK_MPI(MPI_Free_mem(memory));
  }
  check_window(early + 5000, 5000);
}

// Atomics on one location through several windows.
void atomics() {
  auto* words = allocate<std::int64_t>(64);
  MPI_Win whole;
  CHECK_MPI(MPI_Win_create(words, 64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &whole));
  MPI_Win part;
  CHECK_MPI(MPI_Win_create(words + 2, 16, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &part));
  std::memset(words, 0, 64);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock_all(0, whole));
  CHECK_MPI(MPI_Win_lock_all(0, part));
  const std::int64_t one = 1;
  std::vector<std::int64_t> before(200);
  for (std::size_t i = 0; i < 200; ++i) {
    CHECK_MPI(MPI_Fetch_and_op(&one, &before[i], MPI_INT64_T, 0, 2, MPI_SUM, whole));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_SUM, part));
  }
  CHECK_MPI(MPI_Win_unlock_all(part));
  CHECK_MPI(MPI_Win_unlock_all(whole));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0) {
    CHECK_EQ(words[2], std::int64_t{200 * size});
    CHECK_EQ(words[3], std::int64_t{200 * size});
  }
  CHECK_MPI(MPI_Win_free(&whole));
  CHECK_MPI(MPI_Win_free(&part));
  CHECK_MPI(MPI_Free_mem(words));
}

// Use as any other memory, also in messages and as an origin buffer; sizes of 0; freed in any order.
void plain_use() {
  std::vector<unsigned char*> all;
  for (int i = 0; i < 300; ++i) all.push_back(allocate<unsigned char>(1 + i * 17 % 9000));
  for (std::size_t i = 0; i < all.size(); i += 2) CHECK_MPI(MPI_Free_mem(all[i]));
  for (std::size_t i = 1; i < all.size(); i += 2) {
    all[i][0] = static_cast<unsigned char>(rank);
    CHECK_MPI(MPI_Bcast(all[i], 1, MPI_UNSIGNED_CHAR, size - 1, MPI_COMM_WORLD));
    CHECK_EQ(+all[i][0], size - 1);
  }
  for (std::size_t i = all.size(); i-- > 0;) {
    if (i % 2 == 1) CHECK_MPI(MPI_Free_mem(all[i]));
  }
  void* nothing = nullptr;
  CHECK_MPI(MPI_Alloc_mem(0, MPI_INFO_NULL, &nothing));
  CHECK_MPI(MPI_Free_mem(nothing));
}

// More pieces than a process may have mappings (vm.max_map_count, 65,530): threads, mappings and windows still work.
// Windows on some of them lie in common pages.
void many_pieces() {
  std::vector<unsigned char*> all;
  const check::Usage before = check::usage();
  for (int i = 0; i < 66'000; ++i) {
    all.push_back(allocate<unsigned char>(32));
    std::memset(all.back(), i % 251, 32);
  }
  const check::Usage during = check::usage();
  CHECK(during.mappings < before.mappings + 100);
  CHECK(during.kilobytes < before.kilobytes + 30'000);
  std::thread([] {}).join();
  for (std::size_t i = 0; i < all.size(); i += 20'000) check_window(all[i] + i % 3, 29);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 20'000 == 0) continue;
    CHECK_EQ(+all[i][0], static_cast<int>(i % 251));
    CHECK_EQ(+all[i][31], static_cast<int>(i % 251));
  }
  for (unsigned char* each : all) CHECK_MPI(MPI_Free_mem(each));
}

// The handler of errors that belong to no communicator.
const MPI_Comm kHandler = MPI_VERSION < 4 ? MPI_COMM_WORLD : MPI_COMM_SELF;

// Addresses of which no memory begins, and more memory than there is.
void errors() {
  CHECK_MPI(MPI_Comm_set_errhandler(kHandler, MPI_ERRORS_RETURN));
  for (const MPI_Aint bytes : {32, 5000, 1 << 24}) {
    auto* const memory = allocate<unsigned char>(bytes);
    auto* const another = allocate<unsigned char>(bytes);
    for (const MPI_Aint inside : {MPI_Aint{1}, MPI_Aint{16}, bytes - 1})
      CHECK_REFUSED(MPI_Free_mem(memory + inside), MPI_ERR_BASE);
    CHECK_MPI(MPI_Free_mem(memory));
    CHECK_REFUSED(MPI_Free_mem(memory), MPI_ERR_BASE);
    std::memset(another, 1, static_cast<std::size_t>(bytes));
    CHECK_MPI(MPI_Free_mem(another));
    CHECK_REFUSED(MPI_Free_mem(another), MPI_ERR_BASE);
  }
  for (const int bits : {50, 60, 62}) {
    void* memory = nullptr;
    CHECK_REFUSED(MPI_Alloc_mem(MPI_Aint{1} << bits, MPI_INFO_NULL, &memory), MPI_ERR_NO_MEM);
  }
  CHECK_MPI(MPI_Comm_set_errhandler(kHandler, MPI_ERRORS_ARE_FATAL));
}

// Parent and child each store before the other one checks. Neither may see the other's stores, but for those of the
// parent to memory that peers have mapped.
void check_fork(unsigned char* memory, std::size_t bytes, bool mapped = false) {
  std::memset(memory, 1, bytes);
  int go[2];
  CHECK_EQ(pipe(go), 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  char byte = 0;
  if (child == 0) {
    const bool received = read(go[0], &byte, 1) == 1;
    const bool good =
        std::all_of(memory, memory + bytes, [&](unsigned char c) { return c == 1 || (mapped && c == 3); });
    std::memset(memory, 2, bytes);
    _exit(received && good ? 0 : 1);
  }
  std::memset(memory + bytes / 2, 3, bytes - bytes / 2);
  CHECK_EQ(write(go[1], &byte, 1), ssize_t{1});
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  for (std::size_t i = 0; i < bytes; ++i) CHECK_EQ(+memory[i], i < bytes / 2 ? 1 : 3);
  close(go[0]);
  close(go[1]);
}

// A fork copies nothing of memory that no window uses.
void fork_without_a_copy() {
  constexpr std::size_t kBytes = 32 << 20;
  auto* memory = allocate<unsigned char>(kBytes);
  std::memset(memory, 1, kBytes);
  const std::int64_t before = check::usage().peak;
  const pid_t child = fork();
  if (child == 0) _exit(memory[kBytes - 1] == 1 ? 0 : 1);
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK(check::usage().peak < before + 8192);
  CHECK_MPI(MPI_Free_mem(memory));
}

void forks() {
  constexpr std::size_t kBytes = 100'000;
  auto* memory = allocate<unsigned char>(kBytes);
  // With a window, through which the peers still reach the parent's memory.
  MPI_Win window;
  CHECK_MPI(MPI_Win_create(memory, kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  check_fork(memory, kBytes, true);
  const unsigned char mark = 4;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&mark, 1, MPI_UNSIGNED_CHAR, (rank + 1) % size, 0, 1, MPI_UNSIGNED_CHAR, window));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_EQ(+memory[0], 4);
  CHECK_EQ(+memory[1], 1);
  CHECK_MPI(MPI_Win_free(&window));
  check_window(memory, kBytes);
  check_fork(memory, kBytes);
  check_window(memory, kBytes);
  CHECK_MPI(MPI_Free_mem(memory));
}

// The memory begins at a multiple of mpi_minimum_memory_alignment, whatever other hints there are, and windows on it
// are reached like those on other memory of the call.
void alignment() {
  MPI_Info info;
  CHECK_MPI(MPI_Info_create(&info));
  const auto aligned = [&](std::uintptr_t asked) {
    unsigned char* memory = nullptr;
    CHECK_MPI(MPI_Info_set(info, "mpi_minimum_memory_alignment", std::to_string(asked).c_str()));
    CHECK_MPI(MPI_Alloc_mem(5000, info, &memory));
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(memory) % asked, 0U);
    return memory;
  };
  std::vector<unsigned char*> all;
  for (const int bits : {0, 4, 6, 12, 13, 16, 21, 30}) {
    all.push_back(aligned(std::uintptr_t{1} << bits));
    check_window(all.back(), 5000);
  }
  for (unsigned char* each : all) CHECK_MPI(MPI_Free_mem(each));
  // Values that are no powers of two have no meaning.
  for (const char* const bad : {"0", "-64", "48", "a page"}) {
    unsigned char* memory = nullptr;
    CHECK_MPI(MPI_Info_set(info, "mpi_minimum_memory_alignment", bad));
    CHECK_MPI(MPI_Alloc_mem(100, info, &memory));
    check_window(memory, 100);
    CHECK_MPI(MPI_Free_mem(memory));
  }
  CHECK_MPI(MPI_Info_set(info, "a_hint_that_nobody_knows", "1"));
  all.clear();
  for (int i = 0; i < 20; ++i) all.push_back(aligned(std::uintptr_t{1} << (5 + i % 17)));
  for (unsigned char* each : all) {
    std::memset(each, 1, 5000);
    CHECK_MPI(MPI_Free_mem(each));
  }
  // More than an address space has. (The runtime may refuse it first.)
  CHECK_MPI(MPI_Comm_set_errhandler(kHandler, MPI_ERRORS_RETURN));
  void* memory = nullptr;
  CHECK_MPI(MPI_Info_set(info, "mpi_minimum_memory_alignment", std::to_string(std::uint64_t{1} << 62).c_str()));
  CHECK_REFUSED(MPI_Alloc_mem(100, info, &memory), MPI_ERR_NO_MEM);
  CHECK_MPI(MPI_Comm_set_errhandler(kHandler, MPI_ERRORS_ARE_FATAL));
  CHECK_MPI(MPI_Info_free(&info));
}

// A request with other hints goes to the runtime, which also frees the memory.
void hints() {
  MPI_Info info;
  CHECK_MPI(MPI_Info_create(&info));
  void* memory = nullptr;
  CHECK_MPI(MPI_Alloc_mem(100, info, &memory));
  CHECK_MPI(MPI_Free_mem(memory));
  CHECK_MPI(MPI_Info_set(info, "a_hint_that_nobody_knows", "1"));
  CHECK_MPI(MPI_Alloc_mem(100, info, &memory));
  std::memset(memory, 1, 100);
  CHECK_MPI(MPI_Free_mem(memory));
  CHECK_MPI(MPI_Info_free(&info));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  early = allocate<unsigned char>(kEarly);
  const check::Section<> sections[] = {
      {"memory from before the first window", before_the_first_window},
      {"parts of an allocation", parts},
      {"atomics", atomics},
      {"plain use", plain_use},
      {"hints", hints},
      {"alignment", alignment},
      {"many pieces", many_pieces},
      {"errors", errors},
  };
  const check::Section<> with_forks[] = {
      {"fork", forks},
      {"fork without a copy", fork_without_a_copy},
  };
  if (program.has("forks")) {
    check::run(with_forks);
  } else {
    check::run(sections);
  }
  CHECK_MPI(MPI_Free_mem(early));
  return 0;
}

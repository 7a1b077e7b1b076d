// SPDX-License-Identifier: BSD-3-Clause
// A call that is not allowed is refused with the error class that the standard names and changes nothing, and the
// window works afterwards. Every rank makes the mistake; no call is made that would wait forever. (misuse.cpp has the
// other mistakes, which depend on the calling rank alone.)
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include "check.hpp"

namespace {

int rank;
int size;
int next;
constexpr int kInts = 64;
const int kValue = 4711;

int put_at(MPI_Win window, int target, MPI_Aint at, int count = 1) {
  static const std::array<int, 2 * kInts> kOut{kValue};
  return MPI_Put(kOut.data(), count, MPI_INT, target, at, count, MPI_INT, window);
}

// Checks after a refusal that nothing has changed in the window, and that it works by fence and by lock.
void still_works(const check::Window& window) {
  int* mine = window.as<int>();
  for (int i = 0; i < kInts; ++i) CHECK_EQ(mine[i], 0);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
  CHECK_MPI(put_at(window, next, 3));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_EQ(mine[3], kValue);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const int one = 1;
  int before = 0;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window));
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT, next, 3, MPI_SUM, window));
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_EQ(before, kValue);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window));
  CHECK_EQ(mine[3], kValue + 1);
  mine[3] = 0;
  CHECK_MPI(MPI_Win_unlock(rank, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// ---- arguments

// Counts and datatypes whose product overflows 64 bits to few bytes, or to 0.
void sizes_that_wrap(const check::Window& window) {
  constexpr int kCount = 1 << 30;
  MPI_Datatype sixteen, huge, wraps;
  CHECK_MPI(MPI_Type_contiguous(2, MPI_DOUBLE, &sixteen));
  CHECK_MPI(MPI_Type_contiguous(kCount, sixteen, &huge));          // 2^34 bytes
  CHECK_MPI(MPI_Type_create_hvector(kCount, 1, 0, huge, &wraps));  // 2^64 bytes, all at one address
  CHECK_MPI(MPI_Type_commit(&huge));
  CHECK_MPI(MPI_Type_commit(&wraps));
  double value = 7;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  CHECK_REFUSED(MPI_Put(&value, kCount, huge, next, 0, kCount, huge, window), MPI_ERR_COUNT, MPI_ERR_TYPE);
  CHECK_REFUSED(MPI_Put(&value, kCount, huge, next, 0, 0, MPI_DOUBLE, window), MPI_ERR_COUNT, MPI_ERR_TYPE);
  CHECK_REFUSED(MPI_Get(&value, 1, MPI_DOUBLE, next, 0, kCount, huge, window), MPI_ERR_COUNT, MPI_ERR_TYPE);
  CHECK_REFUSED(MPI_Accumulate(&value, kCount, huge, next, 0, kCount, huge, MPI_SUM, window), MPI_ERR_COUNT,
                MPI_ERR_TYPE);
  double fetched = 0;
  CHECK_REFUSED(
      MPI_Get_accumulate(&value, 1, MPI_DOUBLE, &fetched, kCount, huge, next, 0, 1, MPI_DOUBLE, MPI_SUM, window),
      MPI_ERR_COUNT, MPI_ERR_TYPE);
  CHECK_REFUSED(MPI_Put(&value, 1, wraps, next, 0, 1, wraps, window), MPI_ERR_COUNT, MPI_ERR_TYPE);
#if MPI_VERSION >= 4
  constexpr MPI_Count kDoubles = (MPI_Count{1} << 61) + 1;  // 8 bytes in 64 bits
  CHECK_REFUSED(MPI_Put_c(&value, kDoubles, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, window), MPI_ERR_COUNT);
  CHECK_REFUSED(MPI_Put_c(&value, kDoubles, MPI_DOUBLE, next, 0, kDoubles, MPI_DOUBLE, window), MPI_ERR_COUNT);
  CHECK_REFUSED(MPI_Get_c(&value, kDoubles, MPI_DOUBLE, next, 0, kDoubles, MPI_DOUBLE, window), MPI_ERR_COUNT);
  CHECK_REFUSED(MPI_Accumulate_c(&value, kDoubles, MPI_DOUBLE, next, 0, kDoubles, MPI_DOUBLE, MPI_SUM, window),
                MPI_ERR_COUNT);
  CHECK_REFUSED(MPI_Accumulate_c(&value, kDoubles, MPI_DOUBLE, next, 0, 1, MPI_DOUBLE, MPI_SUM, window), MPI_ERR_COUNT);
#endif
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_MPI(MPI_Type_free(&wraps));
  CHECK_MPI(MPI_Type_free(&huge));
  CHECK_MPI(MPI_Type_free(&sixteen));
}

// A displacement that overflows is beyond the window, and 0 elements at the very end are within it.
void at_the_end(const check::Window& window) {
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_REFUSED(put_at(window, next, MPI_Aint{1} << 60), MPI_ERR_RMA_RANGE, MPI_ERR_DISP);
  CHECK_MPI(put_at(window, next, kInts, 0));
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// The sender has more data than the receiver has room for. (Less is allowed: put_get, accumulate.)
void longer_senders(const check::Window& window) {
  const int values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int result[8] = {};
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_REFUSED(MPI_Put(values, 4, MPI_INT, next, 0, 2, MPI_INT, window), MPI_ERR_TRUNCATE);
  CHECK_REFUSED(MPI_Put(values, 1, MPI_INT, next, 0, 3, MPI_CHAR, window), MPI_ERR_TRUNCATE);
  CHECK_REFUSED(MPI_Put(values, 1, MPI_INT, next, 0, 0, MPI_INT, window), MPI_ERR_TRUNCATE);
  CHECK_REFUSED(MPI_Get(result, 4, MPI_INT, next, 0, 8, MPI_INT, window), MPI_ERR_TRUNCATE);
  CHECK_REFUSED(MPI_Accumulate(values, 4, MPI_INT, next, 0, 2, MPI_INT, MPI_SUM, window), MPI_ERR_TRUNCATE);
  CHECK_REFUSED(MPI_Get_accumulate(values, 4, MPI_INT, result, 2, MPI_INT, next, 0, 4, MPI_INT, MPI_SUM, window),
                MPI_ERR_TRUNCATE);
  CHECK_REFUSED(MPI_Get_accumulate(values, 4, MPI_INT, result, 4, MPI_INT, next, 0, 2, MPI_INT, MPI_SUM, window),
                MPI_ERR_TRUNCATE);
  CHECK_REFUSED(MPI_Rput(values, 4, MPI_INT, next, 0, 2, MPI_INT, window, &request), MPI_ERR_TRUNCATE);
  CHECK_REFUSED(MPI_Rget(result, 4, MPI_INT, next, 0, 8, MPI_INT, window, &request), MPI_ERR_TRUNCATE);
  CHECK_MPI(MPI_Win_unlock_all(window));
  for (int each : result) CHECK_EQ(each, 0);
}

// ---- epochs

// Each rank exposes its window to the previous rank, which starts and completes.
void post_and_start(MPI_Win window) {
  const check::Group to({next});
  const check::Group from({(rank + size - 1) % size});
  CHECK_MPI(MPI_Win_post(from, 0, window));
  CHECK_MPI(MPI_Win_start(to, 0, window));
  CHECK_MPI(MPI_Win_complete(window));
  CHECK_MPI(MPI_Win_wait(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// The target's window is exposed to a group, so no rank may lock it.
void lock_of_a_posted_window(const check::Window& window) {
  const int previous = (rank + size - 1) % size;
  const check::Group to({next});
  const check::Group from({previous});
  CHECK_MPI(MPI_Win_post(from, 0, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  for (int kind : {MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE}) {
    // Over the fabric the lock may be deferred; then the first call that needs it is refused, and the epoch is over.
    const int locked = MPI_Win_lock(kind, next, 0, window);
    if (locked == MPI_SUCCESS) {
      CHECK_MPI(put_at(window, next, 0));
      CHECK_REFUSED(kind == MPI_LOCK_SHARED ? MPI_Win_flush(next, window) : MPI_Win_unlock(next, window),
                    MPI_ERR_RMA_CONFLICT);
    } else {
      CHECK_REFUSED(locked, MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT);
    }
    CHECK_REFUSED(MPI_Win_unlock(next, window), MPI_ERR_RMA_SYNC);
  }
  CHECK_REFUSED(MPI_Win_lock_all(0, window), MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_start(to, 0, window));
  CHECK_MPI(MPI_Win_complete(window));
  CHECK_MPI(MPI_Win_wait(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// A lock_all is not refused because other ranks have exposed their windows, and a post is not refused because of
// another rank's lock_all: their order is undefined. A lock of the exposed window is refused meanwhile.
void lock_all_beside_posted_windows(const check::Window& window) {
  if (size == 1) return;
  const check::Group first({0});
  const check::Group last({size - 1});
  for (const bool post_first : {true, false}) {
    const auto post = [&] {
      if (rank == size - 1) CHECK_MPI(MPI_Win_post(first, 0, window));
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    };
    if (post_first) post();
    if (rank != size - 1) CHECK_MPI(MPI_Win_lock_all(0, window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (!post_first) post();
    if (rank != size - 1) {
      int seen = -1;
      CHECK_MPI(MPI_Get(&seen, 1, MPI_INT, 0, 0, 1, MPI_INT, window));
      CHECK_MPI(MPI_Win_unlock_all(window));
      CHECK_EQ(seen, 0);
      const int locked = MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, window);
      // Over the fabric the lock may be deferred; then its unlock is refused.
      CHECK_REFUSED(locked == MPI_SUCCESS ? MPI_Win_unlock(size - 1, window) : locked, MPI_ERR_RMA_CONFLICT);
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
      CHECK_MPI(MPI_Win_start(last, 0, window));
      CHECK_MPI(MPI_Win_complete(window));
    }
    if (rank == size - 1) CHECK_MPI(MPI_Win_wait(window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    post_and_start(window);
  }
}

// A rank whose window is locked, by a peer or by itself, may not expose the window.
void post_of_a_locked_window(const check::Window& window) {
  const check::Group from({(rank + size - 1) % size});
  for (int kind : {MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED}) {
    CHECK_MPI(MPI_Win_lock(kind, next, 0, window));
    int seen = 0;
    CHECK_MPI(MPI_Get(&seen, 1, MPI_INT, next, 0, 1, MPI_INT, window));  // so the lock is held, not deferred
    CHECK_MPI(MPI_Win_flush(next, window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 2; ++i) CHECK_REFUSED(MPI_Win_post(from, 0, window), MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT);
    CHECK_REFUSED(MPI_Win_wait(window), MPI_ERR_RMA_SYNC);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_unlock(next, window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    post_and_start(window);
  }
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_REFUSED(MPI_Win_post(from, 0, window), MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT);
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  post_and_start(window);
}

// ---- windows

// All ranks pass impossible arguments; then one rank does, and all get the error.
void bad_creations() {
  for (int guilty = -1; guilty < size; ++guilty) {
    const bool mine = guilty < 0 || guilty == rank;
    int own[4] = {};
    void* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    const auto refused = [&](int code, int wrong) {
      if (mine)
        CHECK_REFUSED(code, wrong);
      else if (code == MPI_SUCCESS)
        check::fail(__FILE__, __LINE__, "made, but another rank's " + check::class_name(wrong));
    };
    refused(MPI_Win_create(own, mine ? -1 : 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window), MPI_ERR_SIZE);
    refused(MPI_Win_create(own, 16, mine ? 0 : 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window), MPI_ERR_DISP);
    refused(MPI_Win_allocate(mine ? -1 : 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window), MPI_ERR_SIZE);
    refused(MPI_Win_allocate(16, mine ? -4 : 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window), MPI_ERR_DISP);
    refused(MPI_Win_create(mine ? nullptr : own, 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window), MPI_ERR_BASE);
  }
  // Without a communicator no other rank gets an error, whatever else is wrong.
  int own[4] = {};
  void* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  CHECK_REFUSED(MPI_Win_create(own, sizeof own, 1, MPI_INFO_NULL, MPI_COMM_NULL, &window), MPI_ERR_COMM);
  if (rank == 0) CHECK_REFUSED(MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_NULL, &base, &window), MPI_ERR_COMM);
#if defined(MPICH_VERSION)  // whose handles are numbers, so that it recognizes that of a freed communicator
  MPI_Comm freed;
  CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &freed));
  const MPI_Comm stale = freed;
  CHECK_MPI(MPI_Comm_free(&freed));
  CHECK_REFUSED(MPI_Win_create(own, sizeof own, 1, MPI_INFO_NULL, stale, &window), MPI_ERR_COMM);
#endif
  // Each rank makes a different mistake, and gets the error for its own.
  switch (rank % 3) {
    case 0: CHECK_REFUSED(MPI_Win_create(own, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window), MPI_ERR_SIZE); break;
    case 1: CHECK_REFUSED(MPI_Win_create(nullptr, 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window), MPI_ERR_BASE); break;
    default: CHECK_REFUSED(MPI_Win_create(own, 16, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &window), MPI_ERR_DISP);
  }
#if defined(MPICH_VERSION)  // which has a context id for some 2,000 communicators and windows together
  if (rank == 0) {
    std::vector<MPI_Comm> many(1, MPI_COMM_NULL);
    while (MPI_Comm_dup(MPI_COMM_SELF, &many.back()) == MPI_SUCCESS) many.push_back(MPI_COMM_NULL);
    CHECK_REFUSED(MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_SELF, &base, &window), MPI_ERR_NO_MEM);
    many.pop_back();
    for (MPI_Comm& each : many) CHECK_MPI(MPI_Comm_free(&each));
  }
#endif
  // A null base is valid for 0 bytes.
  CHECK_MPI(MPI_Win_create(nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_free(&window));
}

// Memory of the target that has a hole, or ends with a file that was truncated: an error of the origin, and the target
// goes on. The window is of private memory.
void without_memory() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 4, kHole = 1;  // the last page has no file behind it
  std::FILE* const file = std::tmpfile();
  CHECK(file != nullptr);
  CHECK_EQ(ftruncate(fileno(file), static_cast<off_t>(kPages * page)), 0);
  auto* const mine =
      static_cast<char*>(mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0));
  CHECK(mine != MAP_FAILED);
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_create(mine, static_cast<MPI_Aint>(kPages * page), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK_EQ(munmap(mine + kHole * page, page), 0);
  CHECK_EQ(ftruncate(fileno(file), static_cast<off_t>((kPages - 1) * page)), 0);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  MPI_Datatype blocks = MPI_DATATYPE_NULL;
  constexpr int kBlocks = 30;
  CHECK_MPI(MPI_Type_vector(kBlocks, 1, 3, MPI_DOUBLE, &blocks));
  CHECK_MPI(MPI_Type_commit(&blocks));
  const std::vector<double> ones(kBlocks, 1);
  std::vector<double> seen(kBlocks);
  const std::int64_t one = 1;
  std::int64_t before = 0;
  const auto refused = [&](const char* what, auto&& work) {
    for (const std::size_t bad : {kHole, kPages - 1}) {
      // Alone, the operation may travel with the lock and the unlock.
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window));
      const int first = work(static_cast<MPI_Aint>(bad * page));
      const int unlocked = MPI_Win_unlock(next, window);
      CHECK_EQ(check::class_of(first == MPI_SUCCESS ? unlocked : first), MPI_ERR_RMA_RANGE);
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window));
      CHECK_MPI(MPI_Get(&before, 1, MPI_INT64_T, next, 0, 1, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(next, window));
      int code = work(static_cast<MPI_Aint>(bad * page));
      if (code == MPI_SUCCESS) code = MPI_Win_flush(next, window);
      const int error_class = check::class_of(code);
      if (error_class != MPI_ERR_RMA_RANGE) check::fail(__FILE__, __LINE__, what + check::class_name(error_class));
      CHECK_MPI(MPI_Win_unlock(next, window));
      // The target is still there, and neither its window nor its accumulate lock is held.
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window));
      CHECK_MPI(MPI_Accumulate(ones.data(), 1, MPI_DOUBLE, next, 8, 1, MPI_DOUBLE, MPI_SUM, window));
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, next, 16, 1, MPI_INT64_T, MPI_SUM, window));
      CHECK_MPI(MPI_Win_unlock(next, window));
    }
  };
  constexpr int kRefusals = 8;
  refused("accumulate: ", [&](MPI_Aint at) {
    return MPI_Accumulate(ones.data(), kBlocks, MPI_DOUBLE, next, at, kBlocks, MPI_DOUBLE, MPI_SUM, window);
  });
  refused("strided accumulate: ", [&](MPI_Aint at) {
    return MPI_Accumulate(ones.data(), kBlocks, MPI_DOUBLE, next, at, 1, blocks, MPI_SUM, window);
  });
  refused("fetch_and_op: ",
          [&](MPI_Aint at) { return MPI_Fetch_and_op(&one, &before, MPI_INT64_T, next, at, MPI_SUM, window); });
  refused("compare_and_swap: ",
          [&](MPI_Aint at) { return MPI_Compare_and_swap(&one, &one, &before, MPI_INT64_T, next, at, window); });
  refused("put: ", [&](MPI_Aint at) { return MPI_Put(&one, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, window); });
  refused("strided put: ",
          [&](MPI_Aint at) { return MPI_Put(ones.data(), kBlocks, MPI_DOUBLE, next, at, 1, blocks, window); });
  refused("get: ", [&](MPI_Aint at) { return MPI_Get(&before, 1, MPI_INT64_T, next, at, 1, MPI_INT64_T, window); });
  refused("strided get: ",
          [&](MPI_Aint at) { return MPI_Get(seen.data(), kBlocks, MPI_DOUBLE, next, at, 1, blocks, window); });
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  double sum = 0;
  std::memcpy(&sum, mine + 8, sizeof sum);
  CHECK_EQ(sum, 2.0 * kRefusals);
  CHECK_MPI(MPI_Win_unlock(rank, window));
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Type_free(&blocks));
  munmap(mine, kPages * page);
  std::fclose(file);
}

}  // namespace

// By RDMA over TCP, libfabric accesses the memory at the target: the target ends.
template <class Operation>
int rdma_in_a_hole(Operation operation) {
  constexpr int kBytes = 1 << 16;
  void* const mine = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mine != MAP_FAILED);
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_create(mine, kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  // Reserved, so that no other memory takes the place, for instance that of a message ring.
  constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (rank == 1) CHECK(mmap(mine, kBytes, PROT_NONE, kReserved, -1, 0) == mine);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  std::vector<char> here(kBytes);
  if (rank == 0) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
    CHECK_MPI(operation(here.data(), kBytes, MPI_BYTE, 1, 0, kBytes, MPI_BYTE, window));
    CHECK_MPI(MPI_Win_unlock(1, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  return 0;
}

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  next = (rank + 1) % size;
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  if (argc == 2 && argv[1] == std::string_view("get_hole")) return rdma_in_a_hole(MPI_Get);
  if (argc == 2 && argv[1] == std::string_view("put_hole")) return rdma_in_a_hole(MPI_Put);
  check::Window window(program.memory(), kInts * sizeof(int), sizeof(int));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const check::Section<const check::Window&> sections[] = {
      {"sizes that wrap", sizes_that_wrap},
      {"at the end of the window", at_the_end},
      {"more sent than there is room for", longer_senders},
      {"a lock of a posted window", lock_of_a_posted_window},
      {"lock_all beside posted windows", lock_all_beside_posted_windows},
      {"a post of a locked window", post_of_a_locked_window},
  };
  for (const auto& each : sections) {
    check::section(each.text);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    each.run(window);
    still_works(window);
  }
  check::section("bad creations");
  bad_creations();
  still_works(window);
  // Atomics of the thread sanitizer hold a lock of its own during the access that fails.
  if (program.memory() == check::Memory::kCreate && size > 1 && std::getenv("TSAN_OPTIONS") == nullptr) {
    check::section("memory that the target does not have");
    without_memory();
  }
  check::section("MPI_Win_free");
  return 0;
}

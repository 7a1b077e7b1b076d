// SPDX-License-Identifier: BSD-3-Clause
// Shared windows: loads and stores reach every rank's memory, which is contiguous in the order of ranks unless the
// ranks allow otherwise. Operations and synchronization work as on any other window.
//
//   shared             the above
//   shared renamed     the ranks have different host names, as in containers
//   shared apart       the runtime shares memory among the ranks, and farside cannot (the caller sees to it)
#include <atomic>
#include <numeric>
#include <sched.h>

#include "check.hpp"

namespace {

MPI_Comm node;  // its ranks share memory: mostly all ranks
int rank;       // rank in `node`, like all ranks below
int size;

struct Part {
  MPI_Aint bytes = -1;
  int unit = -1;
  unsigned char* base = nullptr;
};

Part query(MPI_Win window, int of) {
  Part part;
  CHECK_MPI(MPI_Win_shared_query(window, of, &part.bytes, &part.unit, &part.base));
  return part;
}

class SharedWindow {
 public:
  SharedWindow(MPI_Aint bytes, int unit, MPI_Info info = MPI_INFO_NULL) {
    CHECK_MPI(MPI_Win_allocate_shared(bytes, unit, info, node, &base, &window));
  }
  ~SharedWindow() { CHECK_MPI(MPI_Win_free(&window)); }
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;
  unsigned char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
};

// Every rank writes its own part to the last byte, then all read all parts, then each writes the next rank's part.
void check_loads_and_stores(MPI_Win window, const std::vector<Part>& parts, int salt) {
  CHECK_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window));
  const auto meet = [&] {
    CHECK_MPI(MPI_Win_sync(window));
    CHECK_MPI(MPI_Barrier(node));
    CHECK_MPI(MPI_Win_sync(window));
  };
  const auto fill = [&](int owner, int writer) {
    const Part& part = parts[static_cast<std::size_t>(owner)];
    for (MPI_Aint i = 0; i < part.bytes; ++i) {
      part.base[i] = check::pattern(static_cast<std::size_t>(i), owner, writer, salt);
    }
  };
  const auto look = [&](int owner, int writer) {
    const Part& part = parts[static_cast<std::size_t>(owner)];
    for (MPI_Aint i = 0; i < part.bytes; ++i) {
      CHECK_EQ(+part.base[i], +check::pattern(static_cast<std::size_t>(i), owner, writer, salt));
    }
  };
  fill(rank, rank);
  meet();
  for (int r = 0; r < size; ++r) look(r, r);
  meet();
  fill((rank + 1) % size, rank);
  meet();
  for (int r = 0; r < size; ++r) look(r, (r + size - 1) % size);
  meet();
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// Sizes that are no multiples of words or pages, some of them 0.
void sizes_and_units() {
  for (int round = 0; round < 5; ++round) {
    const auto bytes_of = [&](int r) { return (r + round) % 3 == 2 ? 0 : 777 * (r + 1) + 13 * round; };
    const auto unit_of = [&](int r) { return 1 + (r + round) % 5; };
    for (bool contiguous : {true, false}) {
      MPI_Info info;
      CHECK_MPI(MPI_Info_create(&info));
      CHECK_MPI(MPI_Info_set(info, "alloc_shared_noncontig", contiguous ? "false" : "true"));
      SharedWindow shared(bytes_of(rank), unit_of(rank), info);
      CHECK_MPI(MPI_Info_free(&info));
      std::vector<Part> parts;
      for (int r = 0; r < size; ++r) {
        parts.push_back(query(shared.window, r));
        CHECK_EQ(parts.back().bytes, static_cast<MPI_Aint>(bytes_of(r)));
        CHECK_EQ(parts.back().unit, unit_of(r));
      }
      CHECK_EQ(parts[static_cast<std::size_t>(rank)].base, shared.base);
      int first = 0;
      while (first < size && bytes_of(first) == 0) ++first;
      const Part lowest = query(shared.window, MPI_PROC_NULL);
      if (first < size) {
        CHECK_EQ(lowest.base, parts[static_cast<std::size_t>(first)].base);
        CHECK_EQ(lowest.bytes, parts[static_cast<std::size_t>(first)].bytes);
        CHECK_EQ(lowest.unit, unit_of(first));
      } else {
        CHECK_EQ(lowest.bytes, MPI_Aint{0});
      }
      for (int r = 1, last = 0; r < size; ++r) {  // last: the last one with memory
        if (parts[static_cast<std::size_t>(r - 1)].bytes > 0) last = r - 1;
        const Part& before = parts[static_cast<std::size_t>(last)];
        const Part& part = parts[static_cast<std::size_t>(r)];
        if (contiguous && part.bytes > 0 && before.bytes > 0) CHECK_EQ(part.base, before.base + before.bytes);
        if (!contiguous && part.bytes == 0) CHECK(part.base == nullptr);
        if (!contiguous && part.bytes > 0) CHECK_EQ(reinterpret_cast<std::uintptr_t>(part.base) % 4096, 0U);
      }
      check_loads_and_stores(shared.window, parts, round);
    }
  }
}

void attributes() {
  SharedWindow shared(100 * (rank + 1), 2);
  void* base = nullptr;
  MPI_Aint* bytes = nullptr;
  int* value = nullptr;
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(shared.window, MPI_WIN_BASE, &base, &found));
  CHECK(found);
  CHECK_EQ(base, static_cast<void*>(shared.base));
  CHECK_MPI(MPI_Win_get_attr(shared.window, MPI_WIN_SIZE, &bytes, &found));
  CHECK_EQ(*bytes, static_cast<MPI_Aint>(100 * (rank + 1)));
  CHECK_MPI(MPI_Win_get_attr(shared.window, MPI_WIN_DISP_UNIT, &value, &found));
  CHECK_EQ(*value, 2);
  CHECK_MPI(MPI_Win_get_attr(shared.window, MPI_WIN_CREATE_FLAVOR, &value, &found));
  CHECK_EQ(*value, MPI_WIN_FLAVOR_SHARED);
  CHECK_MPI(MPI_Win_get_attr(shared.window, MPI_WIN_MODEL, &value, &found));
  CHECK_EQ(*value, MPI_WIN_UNIFIED);
  MPI_Info info;
  CHECK_MPI(MPI_Win_get_info(shared.window, &info));
  CHECK_EQ(check::hint(shared.window, "alloc_shared_noncontig"), std::string("false"));
  // A later value has no effect, and is not reported.
  CHECK_MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
  CHECK_MPI(MPI_Win_set_info(shared.window, info));
  CHECK_MPI(MPI_Info_free(&info));
  CHECK_EQ(check::hint(shared.window, "alloc_shared_noncontig"), std::string("false"));
  CHECK_EQ(query(shared.window, rank).base, shared.base);
  // The memory is contiguous unless all ranks allow otherwise, and each rank is told so.
  CHECK_MPI(MPI_Info_create(&info));
  if (rank == 0) CHECK_MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
  SharedWindow mixed(100, 1, info);
  CHECK_MPI(MPI_Info_free(&info));
  CHECK_EQ(check::hint(mixed.window, "alloc_shared_noncontig"), std::string(size > 1 ? "false" : "true"));
}

// Loads see the effects of operations, and operations those of stores, at unaligned addresses.
void operations() {
  for (bool contiguous : {true, false}) {
    MPI_Info info;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, "alloc_shared_noncontig", contiguous ? "false" : "true"));
    // An odd size: the parts of odd ranks begin between two words.
    constexpr MPI_Aint kBytes = 1001;
    SharedWindow shared(kBytes, 1, info);
    CHECK_MPI(MPI_Info_free(&info));
    std::memset(shared.base, 0, kBytes);
    CHECK_MPI(MPI_Win_fence(0, shared.window));
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    const std::int64_t value = 1000 + rank;
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, next, 3, 1, MPI_INT64_T, shared.window));
    CHECK_MPI(MPI_Win_fence(0, shared.window));
    std::int64_t seen = 0;
    std::memcpy(&seen, shared.base + 3, sizeof seen);
    CHECK_EQ(seen, std::int64_t{1000 + previous});
    std::memcpy(&seen, query(shared.window, next).base + 3, sizeof seen);
    CHECK_EQ(seen, value);
    CHECK_MPI(MPI_Win_fence(0, shared.window));

    // All ranks add to the last element of rank 0, by every call of the accumulate family.
    CHECK_MPI(MPI_Win_lock_all(0, shared.window));
    constexpr int kRounds = 200;
    for (int i = 0; i < kRounds; ++i) {
      const std::int64_t one = 1;
      std::int64_t before = -1;
      const MPI_Aint at = kBytes - 8;
      if (i % 3 == 0) {
        CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, at, 1, MPI_INT64_T, MPI_SUM, shared.window));
      } else if (i % 3 == 1) {
        CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, at, MPI_SUM, shared.window));
        CHECK_MPI(MPI_Win_flush(0, shared.window));
        CHECK(before >= 0 && before < kRounds * size);
      } else {
        std::int64_t expected = 0;
        std::int64_t wanted = 1;
        do {
          expected = before < 0 ? 0 : before;
          wanted = expected + 1;
          CHECK_MPI(MPI_Compare_and_swap(&wanted, &expected, &before, MPI_INT64_T, 0, at, shared.window));
          CHECK_MPI(MPI_Win_flush(0, shared.window));
        } while (before != expected);
      }
    }
    CHECK_MPI(MPI_Win_unlock_all(shared.window));
    CHECK_MPI(MPI_Barrier(node));
    std::memcpy(&seen, query(shared.window, 0).base + kBytes - 8, sizeof seen);
    CHECK_EQ(seen, std::int64_t{kRounds * size});
    CHECK_MPI(MPI_Win_fence(0, shared.window));

    // No byte of the next rank's part can be accessed, although that part follows directly.
    CHECK_MPI(MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN));
    CHECK_REFUSED(MPI_Put(&value, 1, MPI_INT64_T, 0, kBytes - 7, 1, MPI_INT64_T, shared.window), MPI_ERR_RMA_RANGE);
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, shared.window));
  }
}

// Atomics of the program and those of the window are atomic to each other.
void processor_atomics() {
  SharedWindow shared(rank == 0 ? 64 : 0, 8);
  auto* word = reinterpret_cast<std::int64_t*>(query(shared.window, 0).base);
  if (rank == 0) *word = 0;
  CHECK_MPI(MPI_Win_fence(0, shared.window));
  CHECK_MPI(MPI_Win_lock_all(0, shared.window));
  const std::int64_t one = 1;
  for (int i = 0; i < 500; ++i) {
    if (i % 2 == 0) {
      std::atomic_ref(*word).fetch_add(1);
    } else {
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, shared.window));
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(shared.window));
  CHECK_MPI(MPI_Barrier(node));
  CHECK_EQ(std::atomic_ref(*word).load(), std::int64_t{500 * size});
}

// Locks, post and start also order loads and stores.
void synchronization() {
  SharedWindow shared(sizeof(int) * 2, sizeof(int));
  auto* counter = reinterpret_cast<volatile int*>(query(shared.window, 0).base);
  if (rank == 0) counter[0] = 0;
  CHECK_MPI(MPI_Win_fence(0, shared.window));
  for (int i = 0; i < 100; ++i) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared.window));
    // A plain load and store in the memory of rank 0, while the other ranks run.
    const int seen = counter[0];
    sched_yield();
    counter[0] = seen + 1;
    CHECK_MPI(MPI_Win_unlock(0, shared.window));
  }
  CHECK_MPI(MPI_Win_fence(0, shared.window));
  CHECK_EQ(int{counter[0]}, 100 * size);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, shared.window));
  if (size < 2) return;
  auto* mine = reinterpret_cast<int*>(shared.base);
  for (int round = 0; round < 20; ++round) {
    if (rank == 0) {
      const check::Group origin({1}, node);
      CHECK_MPI(MPI_Win_post(origin, 0, shared.window));
      CHECK_MPI(MPI_Win_wait(shared.window));
      CHECK_EQ(mine[1], 40 + round);
    } else if (rank == 1) {
      const check::Group target({0}, node);
      CHECK_MPI(MPI_Win_start(target, 0, shared.window));
      counter[1] = 40 + round;
      CHECK_MPI(MPI_Win_complete(shared.window));
    }
  }
}

void refused() {
  Part part;
  SharedWindow shared(64, 1);
  CHECK_MPI(MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN));
  CHECK_REFUSED(MPI_Win_shared_query(shared.window, size, &part.bytes, &part.unit, &part.base), MPI_ERR_RANK);
  CHECK_REFUSED(MPI_Win_attach(shared.window, &part, sizeof part), MPI_ERR_RMA_FLAVOR);
  CHECK_EQ(part.bytes, MPI_Aint{-1});
  CHECK_EQ(query(shared.window, rank).bytes, MPI_Aint{64});

  // A bad argument of one rank is an error on all ranks.
  CHECK_MPI(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN));
  void* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  CHECK(MPI_Win_allocate_shared(rank == 0 ? -1 : 64, 1, MPI_INFO_NULL, node, &base, &window) != MPI_SUCCESS);
  // More memory than exists, requested by one rank, and by all together.
  constexpr MPI_Aint kHuge = MPI_Aint{1} << 46;
  CHECK_REFUSED(MPI_Win_allocate_shared(rank == size - 1 ? kHuge : 64, 1, MPI_INFO_NULL, node, &base, &window),
                MPI_ERR_NO_MEM);
  CHECK_REFUSED(MPI_Win_allocate_shared(MPI_Aint{1} << 62, 1, MPI_INFO_NULL, node, &base, &window), MPI_ERR_NO_MEM);
  CHECK_MPI(MPI_Comm_set_errhandler(node, MPI_ERRORS_ARE_FATAL));
}

// On two hosts the ranks of MPI_COMM_WORLD share no memory.
void over_nodes() {
  if (check::size() == size) return;
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  void* base = nullptr;
  MPI_Win none = MPI_WIN_NULL;
  CHECK_REFUSED(MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &none), MPI_ERR_RMA_SHARED);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  const SharedWindow shared(sizeof(int), sizeof(int));
  const check::Window all(check::Memory::kAllocate, sizeof(int), sizeof(int));
  const int next = (check::rank() + 1) % check::size();
  const int told = check::rank();
  CHECK_MPI(MPI_Win_fence(0, all));
  CHECK_MPI(MPI_Put(&told, 1, MPI_INT, next, 0, 1, MPI_INT, all));
  CHECK_MPI(MPI_Win_fence(0, all));
  int got = -1;
  CHECK_MPI(MPI_Get(&got, 1, MPI_INT, check::rank(), 0, 1, MPI_INT, all));
  CHECK_MPI(MPI_Win_fence(0, all));
  CHECK_EQ(got, (check::rank() + check::size() - 1) % check::size());
}

#if MPI_VERSION >= 4
void large_units() {
  void* base = nullptr;
  MPI_Win window;
  CHECK_MPI(MPI_Win_allocate_shared_c(64, 4, MPI_INFO_NULL, node, &base, &window));
  MPI_Aint bytes = 0;
  MPI_Aint unit = 0;
  void* theirs = nullptr;
  CHECK_MPI(MPI_Win_shared_query_c(window, rank, &bytes, &unit, &theirs));
  CHECK_EQ(bytes, MPI_Aint{64});
  CHECK_EQ(unit, MPI_Aint{4});
  CHECK_EQ(theirs, base);
  CHECK_MPI(MPI_Win_free(&window));
}
#endif

void many_rounds() {
  for (int round = 0; round < 100; ++round) {
    SharedWindow shared(100 + round, 1);
    shared.base[0] = static_cast<unsigned char>(rank + round);
    CHECK_MPI(MPI_Win_fence(0, shared.window));
    const int other = (rank + round) % size;
    CHECK_EQ(+query(shared.window, other).base[0], other + round);
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, shared.window));
  }
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (program.has("renamed") || program.has("apart")) {
    CHECK_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  } else {
    node = check::node_communicator();
  }
  CHECK_MPI(MPI_Comm_rank(node, &rank));
  CHECK_MPI(MPI_Comm_size(node, &size));
  const check::Section<> sections[] = {
    {"sizes and units", sizes_and_units, "12.2.3"},
    {"attributes", attributes},
    {"operations", operations},
    {"the processor's atomics", processor_atomics, "12.4"},
    {"synchronization", synchronization, "12.5.4"},
    {"what is refused", refused},
#if MPI_VERSION >= 4
    {"large units", large_units},
#endif
    {"many rounds", many_rounds, "12.2.3"},
    {"over nodes", over_nodes},
  };
  if (program.has("renamed")) {
    const std::string name = "container-" + std::to_string(rank);
    if (unshare(CLONE_NEWUTS) != 0 || sethostname(name.data(), name.size()) != 0) return check::kSkipped;
  }
  if (program.has("apart")) {
    check::run(std::array{check::Section<>{"many rounds", many_rounds}});
  } else {
    check::run(sections);
  }
  CHECK_MPI(MPI_Comm_free(&node));
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
// MPI_Win_shared_query on windows of MPI_Win_allocate and MPI_Win_create (MPI 4.1): the memory of on-node ranks is
// loaded and stored where farside maps it, which is that of MPI_Win_allocate and MPI_Alloc_mem. For all other memory
// the answer is no bytes at a null address.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>

#include "check.hpp"

namespace {

int rank;
int size;
std::vector<bool> on_node;  // by rank

// Whether the route maps shareable memory of on-node ranks at all. On another library than farside nothing is known.
enum class Maps { kYes, kNo, kUnknown };
Maps maps_memory() {
  const char* const given = std::getenv("TEST_ROUTE");
  const std::string route = given != nullptr ? given : "native";
  if (route == "native") return Maps::kUnknown;
  return route == "fabric" ? Maps::kNo : Maps::kYes;
}

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

void check_same(const Part& one, const Part& other) {
  CHECK_EQ(one.bytes, other.bytes);
  CHECK_EQ(one.unit, other.unit);
  CHECK_EQ(one.base, other.base);
}

// What the ranks have given for a window.
struct Given {
  std::function<MPI_Aint(int)> bytes;
  std::function<int(int)> unit;
  std::function<bool(int)> shareable;  // whether the memory of a rank is of MPI_Win_allocate or MPI_Alloc_mem
};

// Checks the answers for all ranks and MPI_PROC_NULL, and returns those for the ranks.
std::vector<Part> check_answers(MPI_Win window, const unsigned char* own, const Given& given) {
  std::vector<Part> parts;
  int lowest = MPI_PROC_NULL;
  for (int r = 0; r < size; ++r) {
    const Part part = parts.emplace_back(query(window, r));
    CHECK(part.unit > 0);
    if (part.bytes == 0) {
      CHECK(part.base == nullptr);
    } else {
      CHECK_EQ(part.bytes, given.bytes(r));
      CHECK_EQ(part.unit, given.unit(r));
      CHECK(part.base != nullptr);
    }
    const bool here = on_node[static_cast<std::size_t>(r)];
    if (!here || given.bytes(r) == 0) {
      CHECK_EQ(part.bytes, MPI_Aint{0});
    } else if (r == rank) {
      CHECK_EQ(part.base, own);
    } else if (maps_memory() != Maps::kUnknown) {
      CHECK_EQ(part.bytes > 0, maps_memory() == Maps::kYes && given.shareable(r));
    }
    if (lowest == MPI_PROC_NULL && given.bytes(r) > 0) lowest = r;
  }
  const Part of_lowest = query(window, MPI_PROC_NULL);
  if (lowest == MPI_PROC_NULL) {
    CHECK_EQ(of_lowest.bytes, MPI_Aint{0});
    CHECK(of_lowest.base == nullptr);
  } else if (maps_memory() != Maps::kUnknown) {
    check_same(of_lowest, parts[static_cast<std::size_t>(lowest)]);
  }
  return parts;
}

// The ranks store in turn to all memory that they reach, and all ranks that reach it look. The ranks synchronize by
// messages, so MPI_Win_sync orders loads and stores.
void check_loads_and_stores(MPI_Win window, const std::vector<Part>& parts, int salt) {
  std::vector<char> reaches(static_cast<std::size_t>(size * size));  // by writer and owner
  for (int owner = 0; owner < size; ++owner) {
    reaches[static_cast<std::size_t>(rank * size + owner)] = parts[static_cast<std::size_t>(owner)].bytes > 0;
  }
  CHECK_MPI(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, reaches.data(), size, MPI_CHAR, MPI_COMM_WORLD));
  const auto meet = [&] {
    CHECK_MPI(MPI_Win_sync(window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_sync(window));
  };
  const auto mark = [&](int owner, int writer) {
    return check::pattern(static_cast<std::size_t>(owner), writer, salt);
  };
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int writer = 0; writer < size; ++writer) {
    for (int owner = 0; owner < size; ++owner) {
      const Part& part = parts[static_cast<std::size_t>(owner)];
      if (rank == writer && part.bytes > 0) part.base[0] = part.base[part.bytes - 1] = mark(owner, writer);
    }
    meet();
    for (int owner = 0; owner < size; ++owner) {
      const Part& part = parts[static_cast<std::size_t>(owner)];
      if (reaches[static_cast<std::size_t>(writer * size + owner)] == 0 || part.bytes == 0) continue;
      CHECK_EQ(+part.base[0], +mark(owner, writer));
      CHECK_EQ(+part.base[part.bytes - 1], +mark(owner, writer));
    }
    meet();
  }
  // Operations and loads see the same memory.
  const int next = (rank + 1) % size;
  const auto has_data = [&](int owner) { return reaches[static_cast<std::size_t>(owner * size + owner)] != 0; };
  const unsigned char put = mark(next, rank);
  if (has_data(next)) CHECK_MPI(MPI_Put(&put, 1, MPI_UNSIGNED_CHAR, next, 0, 1, MPI_UNSIGNED_CHAR, window));
  CHECK_MPI(MPI_Win_flush_all(window));
  meet();
  for (int owner = 0; owner < size; ++owner) {
    const Part& part = parts[static_cast<std::size_t>(owner)];
    if (part.bytes > 0) CHECK_EQ(+part.base[0], +mark(owner, (owner + size - 1) % size));
  }
  meet();
  CHECK_MPI(MPI_Win_unlock_all(window));
}

int unit_of(int r) { return 1 + r % 3; }

// Some sizes are 0, in the last round all.
void allocated() {
  for (int round = 0; round < 4; ++round) {
    const auto bytes_of = [&](int r) {
      return static_cast<MPI_Aint>(round == 3 || (r + round) % 3 == 1 ? 0 : 3 * (1000 * r + 77 * round + 2));
    };
    unsigned char* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    CHECK_MPI(MPI_Win_allocate(bytes_of(rank), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    const auto parts = check_answers(window, base, {bytes_of, [](int) { return 1; }, [](int) { return true; }});
    check_loads_and_stores(window, parts, round);
    CHECK_MPI(MPI_Win_free(&window));
  }
}

void units() {
  const auto bytes_of = [](int r) { return static_cast<MPI_Aint>(unit_of(r) * 10); };
  unsigned char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_allocate(bytes_of(rank), unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  const auto parts = check_answers(window, base, {bytes_of, unit_of, [](int) { return true; }});
#if MPI_VERSION >= 4
  for (int r = 0; r < size; ++r) {
    MPI_Aint bytes = -1, unit = -1;
    unsigned char* at = nullptr;
    CHECK_MPI(MPI_Win_shared_query_c(window, r, &bytes, &unit, &at));
    check_same({bytes, static_cast<int>(unit), at}, parts[static_cast<std::size_t>(r)]);
  }
#endif
  check_loads_and_stores(window, parts, 9);
  CHECK_MPI(MPI_Win_free(&window));
}

// Memory of MPI_Alloc_mem on all ranks, on every second rank, and on none; all of it, and a part that begins between
// two pages.
void created() {
  constexpr MPI_Aint kBytes = 9000;
  for (const int of : {1, 2, 0}) {
    for (const MPI_Aint offset : {MPI_Aint{0}, MPI_Aint{4099}}) {
      const auto shareable = [&](int r) { return of != 0 && r % of == 0; };
      std::vector<unsigned char> own(kBytes);
      unsigned char* memory = own.data();
      if (shareable(rank)) CHECK_MPI(MPI_Alloc_mem(kBytes, MPI_INFO_NULL, &memory));
      MPI_Win window = MPI_WIN_NULL;
      CHECK_MPI(
          MPI_Win_create(memory + offset, kBytes - offset, unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &window));
      const auto bytes_of = [&](int) { return kBytes - offset; };
      const auto parts = check_answers(window, memory + offset, {bytes_of, unit_of, shareable});
      check_loads_and_stores(window, parts, of);
      CHECK_MPI(MPI_Win_free(&window));
      if (shareable(rank)) CHECK_MPI(MPI_Free_mem(memory));
    }
  }
}

// The program's atomics and the window's are atomic to each other, also where other ranks come over the fabric.
void atomics_of_a_window() {
  std::int64_t* own = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_allocate(sizeof(std::int64_t), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window));
  *own = 0;
  CHECK_MPI(MPI_Win_fence(0, window));
  const Part first = query(window, 0);
  auto* const word = reinterpret_cast<std::int64_t*>(first.base);
  // The program's atomics take as long as the accumulates that come over the fabric, of which one message has many.
  constexpr int kAccumulates = 300, kAtomicsBetween = 1000;
  const std::int64_t one = 1;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (int i = 0; i < kAccumulates; ++i) {
    for (int between = 0; between < kAtomicsBetween && word != nullptr; ++between) std::atomic_ref(*word).fetch_add(1);
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  const std::int64_t own_share = kAccumulates * (1 + (word != nullptr ? kAtomicsBetween : 0));
  std::int64_t sum = 0;
  CHECK_MPI(MPI_Allreduce(&own_share, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  if (word != nullptr) CHECK_EQ(std::atomic_ref(*word).load(), sum);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_free(&window));
}

void atomics() {
  for (int i = 0; i < 10; ++i) atomics_of_a_window();
}

void refused() {
  MPI_Win dynamic = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
  CHECK_MPI(MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN));
  const check::Window allocated(check::Memory::kAllocate, 64, 1);
  CHECK_MPI(MPI_Win_set_errhandler(allocated, MPI_ERRORS_RETURN));
  Part part;
  CHECK_REFUSED(MPI_Win_shared_query(dynamic, rank, &part.bytes, &part.unit, &part.base), MPI_ERR_RMA_FLAVOR);
  CHECK_REFUSED(MPI_Win_shared_query(dynamic, MPI_PROC_NULL, &part.bytes, &part.unit, &part.base), MPI_ERR_RMA_FLAVOR);
  for (const int nobody : {size, -77}) {
    CHECK_REFUSED(MPI_Win_shared_query(allocated, nobody, &part.bytes, &part.unit, &part.base), MPI_ERR_RANK);
  }
  // A refused call returns nothing.
  CHECK_EQ(part.bytes, MPI_Aint{-1});
  CHECK_EQ(part.unit, -1);
  CHECK(part.base == nullptr);
  CHECK_MPI(MPI_Win_free(&dynamic));
}

std::vector<bool> find_node() {
  MPI_Comm node = check::node_communicator();
  int ranks = 0;
  CHECK_MPI(MPI_Comm_size(node, &ranks));
  std::vector<int> world_ranks(static_cast<std::size_t>(ranks));
  CHECK_MPI(MPI_Allgather(&rank, 1, MPI_INT, world_ranks.data(), 1, MPI_INT, node));
  CHECK_MPI(MPI_Comm_free(&node));
  std::vector<bool> found(static_cast<std::size_t>(size));
  for (const int each : world_ranks) found[static_cast<std::size_t>(each)] = true;
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  on_node = find_node();
  const check::Section<> sections[] = {
      {"allocated windows", allocated},     {"displacement units", units}, {"created windows", created},
      {"the processor's atomics", atomics}, {"what is refused", refused},
  };
  check::run(sections);
  return 0;
}

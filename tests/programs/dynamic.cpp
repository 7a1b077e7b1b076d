// SPDX-License-Identifier: BSD-3-Clause
// Dynamic windows: the program attaches and detaches memory at any time, and uses absolute addresses. Memory that is
// not attached cannot be accessed, even if an origin knew it before.
#include <map>
#include <memory>

#include "check.hpp"

namespace {

int rank;
int size;

MPI_Aint address_of(const void* memory) {
  MPI_Aint address = 0;
  CHECK_MPI(MPI_Get_address(memory, &address));
  return address;
}

// Returns the values of all ranks, by rank.
std::vector<MPI_Aint> exchange(MPI_Aint mine) {
  std::vector<MPI_Aint> all(static_cast<std::size_t>(size));
  CHECK_MPI(MPI_Allgather(&mine, 1, MPI_AINT, all.data(), 1, MPI_AINT, MPI_COMM_WORLD));
  return all;
}

class DynamicWindow {
 public:
  explicit DynamicWindow(MPI_Comm comm = MPI_COMM_WORLD) {
    CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window_));
  }
  ~DynamicWindow() { CHECK_MPI(MPI_Win_free(&window_)); }
  DynamicWindow(const DynamicWindow&) = delete;
  DynamicWindow& operator=(const DynamicWindow&) = delete;
  operator MPI_Win() const { return window_; }  // NOLINT(google-explicit-constructor)
  void attach(void* base, MPI_Aint bytes) { CHECK_MPI(MPI_Win_attach(window_, base, bytes)); }
  void detach(const void* base) { CHECK_MPI(MPI_Win_detach(window_, base)); }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
};

void attributes() {
  DynamicWindow window;
  void* base = &window;
  MPI_Aint* bytes = nullptr;
  int* value = nullptr;
  int found = 0;
  CHECK_MPI(MPI_Win_get_attr(window, MPI_WIN_BASE, &base, &found));
  CHECK(found);
  CHECK(base == MPI_BOTTOM);
  CHECK_MPI(MPI_Win_get_attr(window, MPI_WIN_SIZE, &bytes, &found));
  CHECK_EQ(*bytes, MPI_Aint{0});
  CHECK_MPI(MPI_Win_get_attr(window, MPI_WIN_DISP_UNIT, &value, &found));
  CHECK_EQ(*value, 1);
  CHECK_MPI(MPI_Win_get_attr(window, MPI_WIN_CREATE_FLAVOR, &value, &found));
  CHECK_EQ(*value, MPI_WIN_FLAVOR_DYNAMIC);
}

// Every call, to every rank and to this one.
void operations() {
  DynamicWindow window;
  std::vector<std::int64_t> memory(256, -1);
  window.attach(memory.data(), 256 * 8);
  const std::vector<MPI_Aint> where = exchange(address_of(memory.data()));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int target = 0; target < size; ++target) {
    const std::int64_t value = 100 * rank + target;
    const MPI_Aint there = MPI_Aint_add(where[static_cast<std::size_t>(target)], 8 * rank);
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, there, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    std::int64_t got = 0;
    CHECK_MPI(MPI_Get(&got, 1, MPI_INT64_T, target, there, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_EQ(got, value);
  }
  for (int origin = 0; origin < size; ++origin) {
    CHECK_EQ(memory[static_cast<std::size_t>(origin)], std::int64_t{100 * origin + rank});
  }
  memory[255] = 0;
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));

  // All ranks access one location of each rank.
  CHECK_MPI(MPI_Win_lock_all(0, window));
  constexpr int kRounds = 100;
  for (int i = 0; i < kRounds; ++i) {
    for (int target = 0; target < size; ++target) {
      const MPI_Aint there = where[static_cast<std::size_t>(target)] + 255 * 8;
      const std::int64_t one = 1;
      std::int64_t before = -1;
      if (i % 4 == 0) CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, there, 1, MPI_INT64_T, MPI_SUM, window));
      if (i % 4 == 1) CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, there, MPI_SUM, window));
      if (i % 4 == 2) {
        CHECK_MPI(MPI_Get_accumulate(&one, 1, MPI_INT64_T, &before, 1, MPI_INT64_T, target, there, 1, MPI_INT64_T,
                                     MPI_SUM, window));
      }
      if (i % 4 == 3) {
        std::int64_t expected = 0;
        std::int64_t wanted = 1;
        do {
          expected = before < 0 ? 0 : before;
          wanted = expected + 1;
          CHECK_MPI(MPI_Compare_and_swap(&wanted, &expected, &before, MPI_INT64_T, target, there, window));
          CHECK_MPI(MPI_Win_flush(target, window));
        } while (before != expected);
      }
      CHECK_MPI(MPI_Win_flush(target, window));
      if (i % 4 != 0) CHECK(before >= 0 && before < kRounds * size);
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  CHECK_EQ(memory[255], std::int64_t{kRounds * size});
  CHECK_MPI(MPI_Win_unlock(rank, window));
  // Elements of a pair type.
  struct Pair {
    double value;
    int index;
  };
  std::vector<Pair> pairs(4, Pair{-1.0, -1});
  window.attach(pairs.data(), static_cast<MPI_Aint>(pairs.size() * sizeof(Pair)));
  const std::vector<MPI_Aint> pairs_at = exchange(address_of(pairs.data()));
  CHECK_MPI(MPI_Win_fence(0, window));
  const Pair own{1.5 * rank, rank};
  CHECK_MPI(MPI_Accumulate(&own, 1, MPI_DOUBLE_INT, 0, pairs_at[0] + 16, 1, MPI_DOUBLE_INT, MPI_MAXLOC, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  if (rank == 0) {
    CHECK_EQ(pairs[1].value, 1.5 * (size - 1));
    CHECK_EQ(pairs[1].index, size - 1);
  }
  window.detach(pairs.data());
  window.detach(memory.data());
}

// Hundreds of regions, several per page, detached and attached again in another order; all ranks find each of them.
void many_regions() {
  constexpr int kRegions = 700;
  DynamicWindow window;
  std::vector<std::vector<int>> regions;
  for (int i = 0; i < kRegions; ++i) regions.emplace_back(static_cast<std::size_t>(1 + i % 7), -1);
  const auto bytes_of = [](const std::vector<int>& region) {
    return static_cast<MPI_Aint>(region.size() * sizeof(int));
  };
  std::vector<MPI_Aint> mine;
  for (std::vector<int>& region : regions) {
    window.attach(region.data(), bytes_of(region));
    mine.push_back(address_of(region.data()));
  }
  std::vector<MPI_Aint> where(static_cast<std::size_t>(size) * kRegions);
  CHECK_MPI(MPI_Allgather(mine.data(), kRegions, MPI_AINT, where.data(), kRegions, MPI_AINT, MPI_COMM_WORLD));
  for (int round = 0; round < 3; ++round) {
    CHECK_MPI(MPI_Win_fence(0, window));
    const int target = (rank + 1) % size;
    const int origin = (rank + size - 1) % size;
    std::vector<int> values;
    for (int i = 0; i < kRegions; ++i) values.push_back(round * 10000 + rank * 1000 + i);
    for (int i = 0; i < kRegions; ++i) {
      const MPI_Aint there = where[static_cast<std::size_t>(target * kRegions + i)] + 4 * (i % 7);
      CHECK_MPI(MPI_Put(&values[static_cast<std::size_t>(i)], 1, MPI_INT, target, there, 1, MPI_INT, window));
    }
    CHECK_MPI(MPI_Win_fence(0, window));
    for (int i = 0; i < kRegions; ++i) {
      CHECK_EQ(regions[static_cast<std::size_t>(i)].back(), round * 10000 + origin * 1000 + i);
    }
    // Every second region is detached and attached again.
    for (std::size_t i = static_cast<std::size_t>(round) % 2; i < kRegions; i += 2) window.detach(regions[i].data());
    for (std::size_t i = kRegions; i-- > 0;) {
      if (i % 2 == static_cast<std::size_t>(round) % 2) window.attach(regions[i].data(), bytes_of(regions[i]));
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  for (std::vector<int>& region : regions) window.detach(region.data());
}

// One allocation attached in parts: an access may span adjacent regions, but no gap.
void on_node_peers() {
  DynamicWindow window;
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  alignas(64) static unsigned char memory[256];
  std::memset(memory, 0, sizeof memory);
  window.attach(memory + 64, 32);
  window.attach(memory + 96, 4);
  window.attach(memory + 100, 28);
  window.attach(memory + 160, 32);
  const std::vector<MPI_Aint> where = exchange(address_of(memory));
  const int target = (rank + 1) % size;
  const int origin = (rank + size - 1) % size;
  const MPI_Aint there = where[static_cast<std::size_t>(target)];
  std::array<unsigned char, 128> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = check::pattern(i, rank, 0);
  CHECK_MPI(MPI_Win_fence(0, window));
  // All three adjacent regions.
  CHECK_MPI(MPI_Put(values.data(), 64, MPI_UNSIGNED_CHAR, target, there + 64, 64, MPI_UNSIGNED_CHAR, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (std::size_t i = 0; i < 64; ++i) CHECK_EQ(+memory[64 + i], +check::pattern(i, origin, 0));
  CHECK_MPI(MPI_Win_fence(0, window));
  // Elements that begin in one region and end in the next.
  std::uint64_t* across = nullptr;
  across = reinterpret_cast<std::uint64_t*>(memory + 96);
  *across = 5;
  CHECK_MPI(MPI_Win_fence(0, window));
  const std::uint64_t seven = 7;
  CHECK_MPI(MPI_Accumulate(&seven, 1, MPI_UINT64_T, target, there + 96, 1, MPI_UINT64_T, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(*across, std::uint64_t{12});
  std::uint64_t expected = 12;
  std::uint64_t before = 0;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Compare_and_swap(&seven, &expected, &before, MPI_UINT64_T, target, there + 96, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(before, expected);
  CHECK_EQ(*across, seven);
  CHECK_MPI(MPI_Win_fence(0, window));
  // The gap, and the bytes before the first and after the last region.
  for (const auto& [offset, bytes] :
       {std::pair{120, 41}, {127, 2}, {63, 1}, {63, 2}, {128, 1}, {192, 1}, {191, 2}, {0, 256}}) {
    CHECK_REFUSED(
        MPI_Put(values.data(), bytes, MPI_UNSIGNED_CHAR, target, there + offset, bytes, MPI_UNSIGNED_CHAR, window),
        MPI_ERR_RMA_RANGE);
    CHECK_REFUSED(
        MPI_Get(values.data(), bytes, MPI_UNSIGNED_CHAR, target, there + offset, bytes, MPI_UNSIGNED_CHAR, window),
        MPI_ERR_RMA_RANGE);
    CHECK_REFUSED(MPI_Accumulate(values.data(), bytes, MPI_UNSIGNED_CHAR, target, there + offset, bytes,
                                 MPI_UNSIGNED_CHAR, MPI_SUM, window),
                  MPI_ERR_RMA_RANGE);
  }
  // None of these calls has moved data.
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(+memory[120], +check::pattern(56, origin, 0));
  CHECK_EQ(+memory[128], 0);
  CHECK_EQ(+memory[160], 0);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
}

// One datatype of absolute addresses covers several regions, relative to MPI_BOTTOM.
void absolute_datatype() {
  DynamicWindow window;
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  std::vector<int> first(16, -1);
  std::vector<int> gap(16, -1);
  std::vector<int> second(16, -1);
  window.attach(first.data(), 64);
  window.attach(second.data(), 64);
  const std::vector<MPI_Aint> firsts = exchange(address_of(first.data()));
  const std::vector<MPI_Aint> gaps = exchange(address_of(gap.data()));
  const std::vector<MPI_Aint> seconds = exchange(address_of(second.data()));
  const auto target = static_cast<std::size_t>((rank + 1) % size);
  const int origin = (rank + size - 1) % size;
  const auto make = [](MPI_Aint a, MPI_Aint b) {
    const int lengths[] = {3, 2};
    const MPI_Aint places[] = {a, b};
    MPI_Datatype type;
    CHECK_MPI(MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &type));
    CHECK_MPI(MPI_Type_commit(&type));
    return type;
  };
  MPI_Datatype both = make(firsts[target] + 4, seconds[target] + 8);
  MPI_Datatype wrong = make(firsts[target] + 4, gaps[target] + 8);
  const int values[] = {rank * 10, rank * 10 + 1, rank * 10 + 2, rank * 10 + 3, rank * 10 + 4};
  CHECK_MPI(MPI_Win_fence(0, window));
  if (!check::conforming())
    CHECK_REFUSED(MPI_Put(values, 5, MPI_INT, static_cast<int>(target), 0, 1, wrong, window), MPI_ERR_RMA_RANGE);
  CHECK_MPI(MPI_Put(values, 5, MPI_INT, static_cast<int>(target), 0, 1, both, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (std::size_t i = 0; i < 3; ++i) CHECK_EQ(first[1 + i], origin * 10 + static_cast<int>(i));
  for (std::size_t i = 0; i < 2; ++i) CHECK_EQ(second[2 + i], origin * 10 + 3 + static_cast<int>(i));
  CHECK_EQ(gap[2], -1);
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Accumulate(values, 5, MPI_INT, static_cast<int>(target), 0, 1, both, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_EQ(second[3], 2 * (origin * 10 + 4));
  CHECK_MPI(MPI_Type_free(&both));
  CHECK_MPI(MPI_Type_free(&wrong));
}

// An access to a detached region is refused, and a region attached at the same address is found.
void detached() {
  DynamicWindow window;
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  std::vector<int> memory(1024, 0);
  const std::vector<MPI_Aint> where = exchange(address_of(memory.data()));
  const int target = (rank + 1) % size;
  const int origin = (rank + size - 1) % size;
  const MPI_Aint there = where[static_cast<std::size_t>(target)];
  CHECK_MPI(MPI_Win_lock_all(0, window));
  int value = 1;
  CHECK_REFUSED(MPI_Put(&value, 1, MPI_INT, target, there, 1, MPI_INT, window), MPI_ERR_RMA_RANGE);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  for (int round = 0; round < 50; ++round) {
    // A different part in each round.
    const int part = round % 4;
    window.attach(memory.data() + part * 256, 1024);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    value = 1000 * round + rank;
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT, target, there + part * 1024, 1, MPI_INT, window));
    CHECK_REFUSED(MPI_Put(&value, 1, MPI_INT, target, there + (part + 1) % 4 * 1024, 1, MPI_INT, window),
                  MPI_ERR_RMA_RANGE);
    CHECK_MPI(MPI_Win_flush(target, window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_sync(window));
    CHECK_EQ(memory[static_cast<std::size_t>(part) * 256], 1000 * round + origin);
    window.detach(memory.data() + part * 256);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_REFUSED(MPI_Put(&value, 1, MPI_INT, target, there + part * 1024, 1, MPI_INT, window), MPI_ERR_RMA_RANGE);
    int got = -1;
    CHECK_REFUSED(MPI_Fetch_and_op(&value, &got, MPI_INT, target, there + part * 1024, MPI_SUM, window),
                  MPI_ERR_RMA_RANGE);
    CHECK_EQ(got, -1);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// A region that stays attached is accessible while other regions are attached and detached.
void regions_come_and_go() {
  DynamicWindow window;
  std::vector<std::int64_t> stays(64, 0);
  std::vector<char> comes(1 << 16);
  window.attach(stays.data(), 64 * 8);
  const std::vector<MPI_Aint> where = exchange(address_of(stays.data()));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const std::int64_t one = 1;
  constexpr int kRounds = 100;
  for (int i = 0; i < kRounds; ++i) {
    char* here = comes.data() + (i * 37 % 256) * 256;
    window.attach(here, 1 + i);
    for (int target = 0; target < size; ++target) {
      CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, where[static_cast<std::size_t>(target)] + 8 * (i % 64), 1,
                               MPI_INT64_T, MPI_SUM, window));
    }
    CHECK_MPI(MPI_Win_flush_all(window));
    window.detach(here);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_sync(window));
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK_EQ(stays[i], static_cast<std::int64_t>(i < kRounds - 64 ? 2 * size : size));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

void mistakes() {
  DynamicWindow window;
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  std::vector<char> memory(4096);
  char* base = memory.data();
  CHECK_REFUSED(MPI_Win_detach(window, base), MPI_ERR_RMA_ATTACH);
  CHECK_REFUSED(MPI_Win_attach(window, base, -1), MPI_ERR_SIZE);
  CHECK_REFUSED(MPI_Win_attach(window, nullptr, 8), MPI_ERR_RMA_ATTACH, MPI_ERR_BASE);
  window.attach(base + 1000, 1000);
  for (const auto& [offset, bytes] : {std::pair{1000, 1000}, {1000, 1}, {1999, 1}, {999, 2}, {0, 4096}, {1500, 10}}) {
    CHECK_REFUSED(MPI_Win_attach(window, base + offset, bytes), MPI_ERR_RMA_ATTACH);
  }
  CHECK_REFUSED(MPI_Win_detach(window, base + 1001), MPI_ERR_RMA_ATTACH);
  // Empty regions may lie anywhere, and are detached like others.
  window.attach(nullptr, 0);
  window.attach(base + 1500, 0);
  window.attach(base + 1500, 0);
  window.detach(base + 1500);
  window.detach(base + 1500);
  CHECK_REFUSED(MPI_Win_detach(window, base + 1500), MPI_ERR_RMA_ATTACH);
  window.detach(nullptr);
  // The two adjacent regions.
  window.attach(base + 2000, 1);
  window.attach(base + 999, 1);
  window.detach(base + 1000);
  CHECK_REFUSED(MPI_Win_detach(window, base + 1000), MPI_ERR_RMA_ATTACH);
  window.attach(base + 1000, 1000);
  // Two windows may have the same memory.
  {
    DynamicWindow other;
    other.attach(base + 1000, 1000);
    other.detach(base + 1000);
  }
  MPI_Aint bytes = 0;
  int unit = 0;
  void* query = nullptr;
  CHECK_REFUSED(MPI_Win_shared_query(window, 0, &bytes, &unit, &query), MPI_ERR_RMA_FLAVOR);
  // The window is freed while regions are attached.
}

// A linked list over all ranks, each element allocated and attached when it is needed (MPI 4.0 section 12.7, example
// 12.21).
void linked_list() {
  struct Element {
    MPI_Aint next;
    int next_rank;
    int value;
  };
  DynamicWindow window;
  std::vector<std::unique_ptr<Element>> own;
  const auto make = [&](int value) {
    own.push_back(std::make_unique<Element>(Element{0, -1, value}));
    window.attach(own.back().get(), sizeof(Element));
    return address_of(own.back().get());
  };
  MPI_Aint head = rank == 0 ? make(-1) : 0;
  CHECK_MPI(MPI_Bcast(&head, 1, MPI_AINT, 0, MPI_COMM_WORLD));
  constexpr int kEach = 10;
  for (int turn = 0; turn < size; ++turn) {
    if (turn == rank) {
      CHECK_MPI(MPI_Win_lock_all(0, window));
      for (int i = 0; i < kEach; ++i) {
        MPI_Aint at = head;
        int at_rank = 0;
        Element element{};
        while (true) {
          CHECK_MPI(MPI_Get(&element, sizeof element, MPI_BYTE, at_rank, at, sizeof element, MPI_BYTE, window));
          CHECK_MPI(MPI_Win_flush(at_rank, window));
          if (element.next_rank < 0) break;
          at = element.next;
          at_rank = element.next_rank;
        }
        const MPI_Aint added = make(rank * kEach + i);
        element.next = added;
        element.next_rank = rank;
        CHECK_MPI(MPI_Put(&element, sizeof element, MPI_BYTE, at_rank, at, sizeof element, MPI_BYTE, window));
        CHECK_MPI(MPI_Win_flush(at_rank, window));
      }
      CHECK_MPI(MPI_Win_unlock_all(window));
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CHECK_MPI(MPI_Win_lock_all(0, window));
  MPI_Aint at = head;
  int at_rank = 0;
  for (int i = -1;; ++i) {
    Element element{};
    CHECK_MPI(MPI_Get(&element, sizeof element, MPI_BYTE, at_rank, at, sizeof element, MPI_BYTE, window));
    CHECK_MPI(MPI_Win_flush(at_rank, window));
    CHECK_EQ(element.value, i);
    if (element.next_rank < 0) {
      CHECK_EQ(i, kEach * size - 1);
      break;
    }
    at = element.next;
    at_rank = element.next_rank;
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  for (const auto& element : own) window.detach(element.get());
}

void communicators() {
  MPI_Comm half;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half));
  for (MPI_Comm comm : {half, MPI_COMM_SELF}) {
    int me = 0;
    int all = 0;
    CHECK_MPI(MPI_Comm_rank(comm, &me));
    CHECK_MPI(MPI_Comm_size(comm, &all));
    DynamicWindow window(comm);
    int memory = -1;
    window.attach(&memory, sizeof memory);
    MPI_Aint mine = address_of(&memory);
    std::vector<MPI_Aint> where(static_cast<std::size_t>(all));
    CHECK_MPI(MPI_Allgather(&mine, 1, MPI_AINT, where.data(), 1, MPI_AINT, comm));
    CHECK_MPI(MPI_Win_fence(0, window));
    const int target = (me + 1) % all;
    CHECK_MPI(MPI_Put(&me, 1, MPI_INT, target, where[static_cast<std::size_t>(target)], 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_EQ(memory, (me + all - 1) % all);
  }
  CHECK_MPI(MPI_Comm_free(&half));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Section<> sections[] = {
      {"attributes", attributes, "12.2.4"},
      {"operations", operations, "12.2.4"},
      {"many regions", many_regions, "12.2.4"},
      {"on-node peers", on_node_peers},
      {"an absolute datatype", absolute_datatype, "12.2.4"},
      {"detached", detached},
      {"regions come and go", regions_come_and_go, "12.2.4"},
      {"mistakes", mistakes},
      {"a linked list", linked_list, "12.2.4"},
      {"communicators", communicators, "12.2.4"},
  };
  check::run(sections);
  return 0;
}

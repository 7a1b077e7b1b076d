// SPDX-License-Identifier: BSD-3-Clause
// What windows need, and the memory that they are made on.
#pragma once

#include <cstdlib>

#include "../usage.hpp"
#include "common.hpp"

namespace windows {

// The resources of the first window and its connections. (A sanitizer's library uses more.)
inline void footprint() {
  constexpr std::int64_t kMost = 40 << 10;
  if (std::getenv("ASAN_OPTIONS") != nullptr || std::getenv("TSAN_OPTIONS") != nullptr) return;
  const check::Usage before = check::usage();
  check::Window window(check::Memory::kAllocate, sizeof(int), sizeof(int));
  for (int target = 0; target < size; ++target) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
    int value = -1;
    CHECK_MPI(MPI_Get(&value, 1, MPI_INT, target, 0, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
    CHECK_EQ(value, 0);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const char* const route = std::getenv("TEST_ROUTE");
  if (route != nullptr && std::string(route) != "native") CHECK(check::usage().kilobytes - before.kilobytes < kMost);
}

// Sizes and units that differ per rank, some sizes are 0; each rank is accessible up to its own last byte.
inline void sizes_and_units() {
  const auto bytes_of = [](int r, int round) { return (r + round) % 3 == 0 ? 0 : 1000 * (r + 1) + round; };
  const auto unit_of = [](int r) { return 1 << (r % 4); };
  for (int round = 0; round < 4; ++round) {
    const MPI_Aint bytes = bytes_of(rank, round);
    for (bool allocated : {true, false}) {
      std::vector<char> own(static_cast<std::size_t>(bytes) + 1);
      void* base = own.data();
      MPI_Win window;
      if (allocated) {
        CHECK_MPI(MPI_Win_allocate(bytes, unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
      } else {
        CHECK_MPI(
            MPI_Win_create(bytes > 0 ? base : nullptr, bytes, unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &window));
      }
      check_attributes(window, base, bytes, unit_of(rank), allocated ? MPI_WIN_FLAVOR_ALLOCATE : MPI_WIN_FLAVOR_CREATE);
      if (bytes > 0) std::memset(base, 0, static_cast<std::size_t>(bytes));
      CHECK_MPI(MPI_Win_fence(0, window));
      const int target = (rank + 1) % size;
      const MPI_Aint there = bytes_of(target, round);
      const char mark = static_cast<char>(1 + rank);
      if (there > 0) {
        // The last whole unit.
        const MPI_Aint last = there / unit_of(target) - 1;
        CHECK_MPI(MPI_Put(&mark, 1, MPI_CHAR, target, last, 1, MPI_CHAR, window));
      } else {
        CHECK_MPI(MPI_Put(&mark, 0, MPI_CHAR, target, 0, 0, MPI_CHAR, window));
      }
      CHECK_MPI(MPI_Win_fence(0, window));
      if (bytes > 0) {
        const MPI_Aint last = (bytes / unit_of(rank) - 1) * unit_of(rank);
        for (MPI_Aint i = 0; i < bytes; ++i) {
          CHECK_EQ(+static_cast<char*>(base)[i], i == last ? 1 + (rank + size - 1) % size : 0);
        }
      }
      CHECK_MPI(MPI_Win_free(&window));
      CHECK(window == MPI_WIN_NULL);
    }
  }
}

inline char static_memory[4096];

inline void kinds_of_memory() {
  char stack_memory[4096] = {};
  void* runtime_memory = nullptr;
  CHECK_MPI(MPI_Alloc_mem(4096, MPI_INFO_NULL, &runtime_memory));
  std::memset(runtime_memory, 0, 4096);
  std::vector<char> heap_memory(4096);
  // Each memory also from its middle, because a window may be a part of an allocation.
  for (void* memory : {static_cast<void*>(static_memory), static_cast<void*>(stack_memory), runtime_memory,
                       static_cast<void*>(heap_memory.data())}) {
    for (int offset : {0, 1024}) {
      char* base = static_cast<char*>(memory) + offset;
      MPI_Win window;
      CHECK_MPI(MPI_Win_create(base, 2048, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
      check_attributes(window, base, 2048, 4, MPI_WIN_FLAVOR_CREATE);
      check_works(window, base, MPI_COMM_WORLD);
      CHECK_MPI(MPI_Win_free(&window));
    }
  }
  CHECK_MPI(MPI_Free_mem(runtime_memory));
  // Two windows over the same memory.
  MPI_Win one;
  MPI_Win other;
  CHECK_MPI(MPI_Win_create(static_memory, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &one));
  CHECK_MPI(MPI_Win_create(static_memory, 128, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &other));
  check_works(one, static_memory, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, one));
  check_works(other, static_memory, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_free(&one));
  check_works(other, static_memory, MPI_COMM_WORLD);
  CHECK_MPI(MPI_Win_free(&other));
}

// The smallest address that ranks of different wishes get is the one that each has asked for, also in memory that an
// on-node peer maps.
inline void alignment() {
  constexpr const char* kKey = "mpi_minimum_memory_alignment";
  const auto info_of = [](const std::string& value) {
    MPI_Info info;
    CHECK_MPI(MPI_Info_create(&info));
    CHECK_MPI(MPI_Info_set(info, kKey, value.c_str()));
    return info;
  };
  const auto offset = [](const void* address, std::uintptr_t of) {
    return reinterpret_cast<std::uintptr_t>(address) % of;
  };
  MPI_Comm node = check::node_communicator();
  int node_rank = 0;
  int node_size = 0;
  CHECK_MPI(MPI_Comm_rank(node, &node_rank));
  CHECK_MPI(MPI_Comm_size(node, &node_size));
  unsigned char* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  for (const std::uintptr_t asked : {1, 64, 4096, 8192, 1 << 21, 1 << 26}) {
    const std::uintptr_t own = std::max<std::uintptr_t>(asked >> rank, 1);
    MPI_Info info = info_of(std::to_string(own));
    CHECK_MPI(MPI_Win_allocate(rank == 1 ? 0 : 100 + rank, 1, info, MPI_COMM_WORLD, &base, &window));
    if (rank != 1) CHECK_EQ(offset(base, own), 0U);
    CHECK_EQ(check::hint(window, kKey), own > 1 ? std::to_string(own) : std::string());
    CHECK_MPI(MPI_Win_free(&window));
    // Later values are not reported, since the memory stays where it is.
    CHECK_MPI(MPI_Win_allocate(100, 1, info, MPI_COMM_WORLD, &base, &window));
    MPI_Info later = info_of("4");
    CHECK_MPI(MPI_Win_set_info(window, later));
    CHECK_MPI(MPI_Info_free(&later));
    CHECK_EQ(check::hint(window, kKey), own > 1 ? std::to_string(own) : std::string());
    CHECK_EQ(offset(base, own), 0U);
    check_works(window, base, MPI_COMM_WORLD);
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
    CHECK_MPI(MPI_Win_free(&window));
    for (const char* const apart : {"false", "true"}) {
      CHECK_MPI(MPI_Info_set(info, "alloc_shared_noncontig", apart));
      // Of contiguous memory the first rank with any has the alignment; here that is the second, if there is one.
      const bool empty = node_rank == 0 && node_size > 1;
      CHECK_MPI(MPI_Win_allocate_shared(empty ? 0 : 100, 1, info, node, &base, &window));
      const bool aligned = apart == std::string("true") ? !empty : node_rank == (node_size > 1 ? 1 : 0);
      if (aligned) CHECK_EQ(offset(base, own), 0U);
      CHECK_MPI(MPI_Win_free(&window));
    }
    CHECK_MPI(MPI_Info_free(&info));
  }
  // The key has no meaning for memory of the program, and other values than powers of two have none at all.
  MPI_Info info = info_of("8192");
  static int own = 0;
  CHECK_MPI(MPI_Win_create(&own, sizeof own, 1, info, MPI_COMM_WORLD, &window));
  CHECK_EQ(check::hint(window, kKey), std::string());
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Win_create_dynamic(info, MPI_COMM_WORLD, &window));
  CHECK_EQ(check::hint(window, kKey), std::string());
  CHECK_MPI(MPI_Win_free(&window));
  CHECK_MPI(MPI_Info_free(&info));
  for (const char* const bad : {"0", "-4096", "4095", "page", "99999999999999999999"}) {
    info = info_of(bad);
    CHECK_MPI(MPI_Win_allocate(8, 1, info, MPI_COMM_WORLD, &base, &window));
    CHECK_EQ(check::hint(window, kKey), std::string());
    CHECK_MPI(MPI_Win_free(&window));
    CHECK_MPI(MPI_Info_free(&info));
  }
  // What no address space has is refused on all ranks.
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  for (const std::uint64_t huge : {std::uint64_t{1} << 62, std::uint64_t{1} << 63}) {
    info = info_of(std::to_string(rank == 0 ? huge : 64));
    CHECK_REFUSED(MPI_Win_allocate(8, 1, info, MPI_COMM_WORLD, &base, &window), MPI_ERR_NO_MEM);
    CHECK_MPI(MPI_Info_free(&info));
  }
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  CHECK_MPI(MPI_Comm_free(&node));
}

}  // namespace windows

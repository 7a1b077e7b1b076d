// SPDX-License-Identifier: BSD-3-Clause
// Kinds of memory in which operands lie: read-only memory, and memory that is mapped anew at an address that was used
// before, where an adapter may still have the registration of the old pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <vector>

#include "../check.hpp"

namespace put_get {

// Operands up to this size are copied into memory that is registered; beyond, an adapter reads them where they are.
constexpr std::size_t kOperandBytes = 64 << 10;

// Private pages.
class Pages {
 public:
  Pages() : at_(mmap(nullptr, kOperandBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    CHECK(at_ != MAP_FAILED);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(at_, kOperandBytes); }
  // Unmaps the pages and maps others at their address, in one step: no other mapping can take the place.
  void replace() const {
    CHECK(mmap(at_, kOperandBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at_);
  }
  std::int64_t* words() const { return static_cast<std::int64_t*>(at_); }
  void fill(std::int64_t first) const {
    for (std::size_t i = 0; i < kOperandBytes / 8; ++i) words()[i] = first + static_cast<std::int64_t>(i);
  }
  void protect() const { CHECK(mprotect(at_, kOperandBytes, PROT_READ) == 0); }

 private:
  void* const at_;
};

inline constexpr int kOperandWords = kOperandBytes / 8;

// Each rank is the origin of one other rank, whose memory then has the words from `first` on.
inline void expect_words(const check::Window& window, std::int64_t first) {
  const auto* words = window.as<std::int64_t>();
  for (int i = 0; i < kOperandWords; ++i) CHECK_EQ(words[i], first + i);
}

inline void read_only_operands(check::Memory memory) {
  const int next = (check::rank() + 1) % check::size();
  const check::Window window(memory, kOperandBytes, 8);
  const Pages operand;
  operand.fill(5);
  operand.protect();
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(operand.words(), kOperandWords, MPI_INT64_T, next, 0, kOperandWords, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  expect_words(window, 5);
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Accumulate(operand.words(), kOperandWords, MPI_INT64_T, next, 0, kOperandWords, MPI_INT64_T,
                           MPI_REPLACE, window));
  CHECK_MPI(MPI_Accumulate(operand.words(), 1000, MPI_INT64_T, next, 0, 1000, MPI_INT64_T, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(window.as<std::int64_t>()[999], std::int64_t{2 * (5 + 999)});
  CHECK_EQ(window.as<std::int64_t>()[1000], std::int64_t{5 + 1000});
}

// With windows of private memory: operands, and the memory of a window, get other pages at the same address.
inline void memory_mapped_anew(check::Memory memory) {
  if (memory != check::Memory::kCreate) return;
  const int next = (check::rank() + 1) % check::size();
  const Pages own, operand, result;
  for (int round = 0; round < 4; ++round) {
    own.replace();
    own.fill(-1000);
    MPI_Win window = MPI_WIN_NULL;
    CHECK_MPI(MPI_Win_create(own.words(), kOperandBytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    CHECK_MPI(MPI_Win_lock_all(0, window));
    for (int again = 0; again < 2; ++again) {
      operand.replace();
      const std::int64_t first = 100'000 * (2 * round + again + 1) + check::rank();
      operand.fill(first);
      CHECK_MPI(MPI_Put(operand.words(), kOperandWords, MPI_INT64_T, next, 0, kOperandWords, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(next, window));
      CHECK_MPI(MPI_Get(result.words(), kOperandWords, MPI_INT64_T, next, 0, kOperandWords, MPI_INT64_T, window));
      CHECK_MPI(MPI_Win_flush(next, window));
      for (int i = 0; i < kOperandWords; ++i) CHECK_EQ(result.words()[i], first + i);
    }
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_EQ(own.words()[7],
             std::int64_t{100'000} * (2 * round + 2) + (check::rank() + check::size() - 1) % check::size() + 7);
    CHECK_MPI(MPI_Win_free(&window));
  }
}

}  // namespace put_get

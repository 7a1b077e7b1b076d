// SPDX-License-Identifier: BSD-3-Clause
// Puts arrive unchanged at their place, and gets return what is there. All pairs of ranks, this one included; sizes
// from 0 to beyond 1 MiB, displacement units, small pieces. (random_operations has all datatypes.)
#include "put_get/operands.hpp"
#include "put_get/origin_memory.hpp"

using check::pattern;

namespace {

int rank;
int size;

// Every rank puts to every rank at once, each origin to its own slot, and then gets all of them back.
void sizes(check::Memory memory) {
  constexpr std::array<std::size_t, 9> kSizes{0, 1, 8, 63, 777, 4096, 8191, 65536, (1U << 20) + 3};
  const std::size_t slot = kSizes.back() + 5;
  check::Window window(memory, static_cast<MPI_Aint>(slot * static_cast<std::size_t>(size)), 1);
  std::vector<unsigned char> out(kSizes.back() * static_cast<std::size_t>(size));
  std::vector<unsigned char> in(kSizes.back());
  int round = 0;
  for (std::size_t bytes : kSizes) {
    ++round;
    auto* mine = window.as<unsigned char>();
    std::fill(mine, mine + window.bytes(), static_cast<unsigned char>(0xEE));
    CHECK_MPI(MPI_Win_fence(0, window));
    for (int target = 0; target < size; ++target) {
      unsigned char* part = out.data() + static_cast<std::size_t>(target) * kSizes.back();
      for (std::size_t i = 0; i < bytes; ++i) part[i] = pattern(i, rank, target, round);
      CHECK_MPI(MPI_Put(part, static_cast<int>(bytes), MPI_BYTE, target, static_cast<MPI_Aint>(slot) * rank,
                        static_cast<int>(bytes), MPI_BYTE, window));
    }
    CHECK_MPI(MPI_Win_fence(0, window));
    for (int origin = 0; origin < size; ++origin) {
      const unsigned char* part = mine + static_cast<std::size_t>(origin) * slot;
      for (std::size_t i = 0; i < bytes; ++i) CHECK_EQ(part[i], pattern(i, origin, rank, round));
      for (std::size_t i = bytes; i < slot; ++i) CHECK_EQ(+part[i], 0xEE);
    }
    for (int target = 0; target < size; ++target) {
      std::fill(in.begin(), in.end(), static_cast<unsigned char>(0xDD));
      CHECK_MPI(MPI_Win_fence(0, window));
      CHECK_MPI(MPI_Get(in.data(), static_cast<int>(bytes), MPI_BYTE, target, static_cast<MPI_Aint>(slot) * rank,
                        static_cast<int>(bytes), MPI_BYTE, window));
      CHECK_MPI(MPI_Win_fence(0, window));
      for (std::size_t i = 0; i < bytes; ++i) CHECK_EQ(in[i], pattern(i, rank, target, round));
      for (std::size_t i = bytes; i < in.size(); ++i) CHECK_EQ(+in[i], 0xDD);
    }
  }
}

// A displacement is in the target's unit, which may differ from rank to rank.
void displacement_units(check::Memory memory) {
  const auto unit_of = [](int r) { return std::array{8, 1, 24, 4}[static_cast<std::size_t>(r) % 4]; };
  check::Window window(memory, 24 * 64, unit_of(rank));
  for (int shift = 0; shift < size; ++shift) {
    const int target = (rank + shift) % size;
    const int origin = (rank - shift + size) % size;
    std::memset(window.as<char>(), 0, static_cast<std::size_t>(window.bytes()));
    CHECK_MPI(MPI_Win_fence(0, window));
    const std::int64_t value = 1000 * rank + target;
    CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, target, 24, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    std::int64_t got = 0;
    std::memcpy(&got, window.as<char>() + 24 * unit_of(rank), sizeof got);
    CHECK_EQ(got, 1000 * origin + rank);
    std::int64_t back = 0;
    CHECK_MPI(MPI_Get(&back, 1, MPI_INT64_T, target, 24, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_EQ(back, value);
  }
}

void nobody(check::Memory memory) {
  check::Window window(memory, 64, 1);
  int value = 7;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 1 << 20, 1, MPI_INT, window));
  CHECK_MPI(MPI_Get(&value, 1, MPI_INT, MPI_PROC_NULL, 1 << 20, 1, MPI_INT, window));
  CHECK_MPI(MPI_Accumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 1 << 20, 1, MPI_INT, MPI_SUM, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_EQ(value, 7);
  for (int i = 0; i < 64; ++i) CHECK_EQ(+window.as<char>()[i], 0);
}

// The sender may have less data than the receiver has room for, as in send and receive; the rest stays unchanged.
void shorter_senders(check::Memory memory) {
  constexpr int kInts = 16;
  check::Window window(memory, 3 * kInts * sizeof(int), sizeof(int));
  const int target = (rank + 1) % size;
  const int origin = (rank + size - 1) % size;
  MPI_Datatype every_second;
  CHECK_MPI(MPI_Type_vector(kInts / 2, 1, 2, MPI_INT, &every_second));
  CHECK_MPI(MPI_Type_commit(&every_second));
  const int out[] = {100 * rank + 1, 100 * rank + 2, 100 * rank + 3};
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(out, 2, MPI_INT, target, 0, 4, MPI_INT, window));
  CHECK_MPI(MPI_Put(out, 3, MPI_INT, target, kInts, 1, every_second, window));
  CHECK_MPI(MPI_Put(out, 0, MPI_INT, target, 2 * kInts, kInts, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < 3 * kInts; ++i) {
    int expected = 0;
    if (i < 2) expected = 100 * origin + i + 1;
    if (i == kInts || i == kInts + 2 || i == kInts + 4) expected = 100 * origin + (i - kInts) / 2 + 1;
    CHECK_EQ(window.as<int>()[i], expected);
  }
  std::vector<int> in(3 * kInts, -1);
  CHECK_MPI(MPI_Get(in.data(), 4, MPI_INT, target, 0, 2, MPI_INT, window));
  CHECK_MPI(MPI_Get(in.data() + kInts, 1, every_second, target, 0, 2, MPI_INT, window));
  CHECK_MPI(MPI_Get(in.data() + 2 * kInts, kInts, MPI_INT, target, 0, 0, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < 3 * kInts; ++i) {
    int expected = -1;
    if (i < 2) expected = out[i];
    if (i == kInts || i == kInts + 2) expected = out[(i - kInts) / 2];
    CHECK_EQ(in[static_cast<std::size_t>(i)], expected);
  }
  CHECK_MPI(MPI_Type_free(&every_second));
}

// The lengths of single elements and those around them, at any address on either side, also from this rank's own
// window; the bytes beside them stay unchanged.
void small_pieces(check::Memory memory) {
  constexpr int kRoom = 64;
  check::Window window(memory, 2 * kRoom, 1);
  const int target = (rank + 1) % size;
  std::array<unsigned char, kRoom> out{}, in{};
  for (int bytes = 1; bytes <= 33; ++bytes) {
    for (int skew = 0; skew < 9; ++skew) {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = check::pattern(i, rank, bytes, skew);
      std::memset(window.as<unsigned char>(), 0, 2 * kRoom);
      std::memcpy(window.as<unsigned char>() + kRoom, out.data(), kRoom);
      in.fill(0);
      CHECK_MPI(MPI_Win_fence(0, window));
      // At even lengths the origin is window memory, which other ranks may access at the same time, but do not.
      unsigned char* from = bytes % 2 == 0 ? window.as<unsigned char>() + kRoom : out.data();
      CHECK_MPI(MPI_Put(from + 3 + skew, bytes, MPI_BYTE, target, 8 - skew % 8, bytes, MPI_BYTE, window));
      CHECK_MPI(MPI_Win_fence(0, window));
      CHECK_MPI(MPI_Get(in.data() + skew, bytes, MPI_BYTE, target, 8 - skew % 8, bytes, MPI_BYTE, window));
      CHECK_MPI(MPI_Win_fence(0, window));
      const int origin = (rank + size - 1) % size;
      for (int i = 0; i < kRoom; ++i) {
        const int k = i - (8 - skew % 8);
        const bool put = k >= 0 && k < bytes;
        CHECK_EQ(window.as<unsigned char>()[i],
                 put ? check::pattern(static_cast<std::size_t>(k + 3 + skew), origin, bytes, skew) : 0);
        const bool got = i >= skew && i < skew + bytes;
        CHECK_EQ(in[static_cast<std::size_t>(i)], got ? out[static_cast<std::size_t>(i + 3)] : 0);
      }
      CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
  }
}

// Thousands of small operations in one epoch: no limit of a lower layer loses one.
void many_in_one_epoch(check::Memory memory) {
  constexpr int kMany = 3000;
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * kMany * size, sizeof(int));
  std::vector<int> out(kMany * static_cast<std::size_t>(size));
  std::vector<int> in(out.size());
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < kMany; ++i) {
    for (int target = 0; target < size; ++target) {
      int& value = out[static_cast<std::size_t>(i * size + target)];
      value = i * 16 + rank * 4 + target;
      CHECK_MPI(MPI_Put(&value, 1, MPI_INT, target, i * size + rank, 1, MPI_INT, window));
    }
  }
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < kMany; ++i) {
    for (int origin = 0; origin < size; ++origin)
      CHECK_EQ(window.as<int>()[i * size + origin], i * 16 + origin * 4 + rank);
  }
  for (int i = 0; i < kMany; ++i) {
    for (int target = 0; target < size; ++target) {
      CHECK_MPI(MPI_Get(&in[static_cast<std::size_t>(i * size + target)], 1, MPI_INT, target, i * size + rank, 1,
                        MPI_INT, window));
    }
  }
  CHECK_MPI(MPI_Win_fence(0, window));
  for (std::size_t i = 0; i < in.size(); ++i) CHECK_EQ(in[i], out[i]);
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Section<check::Memory> sections[] = {
      {"sizes from nothing to beyond a megabyte", sizes, "12.3.1"},
      {"displacement units differ", displacement_units, "12.2.1"},
      {"MPI_PROC_NULL takes everything and changes nothing", nobody, "12.3"},
      {"origins send less than the target has room for", shorter_senders, "12.3.1"},
      {"small pieces at any address", small_pieces, "12.3.1"},
      {"thousands of operations in one epoch", many_in_one_epoch, "12.3"},
      {"operands in read-only memory", put_get::read_only_operands, "12.3.1"},
      {"memory that is mapped anew at the same address", put_get::memory_mapped_anew, "12.3.1"},
  };
  check::run(sections, program.memory());
  // The operands include those of MPI_Compare_and_swap, which ends the program in Open MPI 4.1's osc/rdma.
  if (program.has("skip_operands") || check::conforming()) return 0;
  check::section("small operands that change when the call has returned");
  put_get::small_operands(program.memory());
  return 0;
}

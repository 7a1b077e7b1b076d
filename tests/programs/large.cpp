// SPDX-License-Identifier: BSD-3-Clause
// Operations of more than 2 and 4 GiB, and displacements beyond. One block is mapped repeatedly for most of the memory.
// Only the start, the places around the limits of 31-bit and 32-bit counts, and the end have pages of their own, which
// the program checks.
#include <span>
#include <sys/mman.h>

#include "check.hpp"

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 22;
constexpr std::size_t k2GiB = std::size_t{1} << 31;
constexpr std::size_t k4GiB = std::size_t{1} << 32;
constexpr std::size_t kBytes = k4GiB + kPiece;  // of each rank
constexpr std::size_t kOwn[] = {0, k2GiB - kPiece, k2GiB, k4GiB - kPiece, k4GiB};

class Memory {
 public:
  Memory() {
    const int fd = memfd_create("large", 0);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, static_cast<off_t>((1 + std::size(kOwn)) * kPiece)), 0);
    void* const whole = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(whole != MAP_FAILED);
    base_ = static_cast<unsigned char*>(whole);
    for (std::size_t at = 0; at < kBytes; at += kPiece) {
      const auto own = std::find(std::begin(kOwn), std::end(kOwn), at);
      const auto page = own == std::end(kOwn) ? 0 : 1 + (own - std::begin(kOwn));
      CHECK(mmap(base_ + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                 static_cast<off_t>(static_cast<std::size_t>(page) * kPiece)) == base_ + at);
    }
    close(fd);
  }
  ~Memory() { munmap(base_, kBytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* bytes() { return base_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(base_);
  }
  // Sets the memory to zero, and the places that are checked to value(index).
  template <class T, class Value>
  void fill(Value&& value) {
    std::memset(base_ + kPiece, 0, kPiece);  // the block that is mapped repeatedly
    for (const std::size_t at : kOwn) {
      for (std::size_t i = at / sizeof(T); i < (at + kPiece) / sizeof(T); ++i) as<T>()[i] = value(i);
    }
  }
  template <class T, class Value>
  void expect(Value&& value) {
    for (const std::size_t at : kOwn) {
      for (std::size_t i = at / sizeof(T); i < (at + kPiece) / sizeof(T); ++i) {
        if (as<T>()[i] == value(i)) continue;
        check::fail(
            __FILE__, __LINE__,
            "element " + std::to_string(i) + " is " + check::show(as<T>()[i]) + ", not " + check::show(value(i)));
      }
    }
  }

 private:
  unsigned char* base_ = nullptr;
};

bool has_own_page(std::size_t byte) {
  return std::any_of(std::begin(kOwn), std::end(kOwn),
                     [&](std::size_t at) { return byte >= at && byte < at + kPiece; });
}

unsigned char byte_of(std::size_t i) { return check::pattern(i, static_cast<int>(i >> 30), 3); }

// A datatype of many elements, for counts beyond an int.
class Many {
 public:
  Many(std::size_t count, MPI_Datatype element) {
    constexpr std::size_t kRow = std::size_t{1} << 20;
    int size = 0;
    CHECK_MPI(MPI_Type_size(element, &size));
    MPI_Datatype row;
    CHECK_MPI(MPI_Type_contiguous(static_cast<int>(kRow), element, &row));
    const int lengths[] = {static_cast<int>(count / kRow), static_cast<int>(count % kRow)};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(count / kRow * kRow) * size};
    const MPI_Datatype types[] = {row, element};
    CHECK_MPI(MPI_Type_create_struct(2, lengths, places, types, &type_));
    CHECK_MPI(MPI_Type_commit(&type_));
    CHECK_MPI(MPI_Type_free(&row));
  }
  ~Many() { CHECK_MPI(MPI_Type_free(&type_)); }
  Many(const Many&) = delete;
  Many& operator=(const Many&) = delete;
  operator MPI_Datatype() const { return type_; }  // NOLINT(google-explicit-constructor)

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

constexpr std::size_t kShort = 13;  // bytes that an operation leaves out at either end of the window

// Rank 0 accesses the last rank's window, which is zero before, and the last rank checks it.
template <class Act, class Look>
void act_and_look(Memory& memory, MPI_Win window, Act&& act, Look&& look) {
  const int target = check::size() - 1;
  if (check::rank() == target) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    memory.fill<unsigned char>([](std::size_t) { return 0; });
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() == 0) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    act(target);
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() == target) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
    look();
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void put_and_get(Memory& memory, Memory& own, MPI_Win window) {
  constexpr std::size_t kCount = kBytes - 2 * kShort;
  const Many bytes(kCount, MPI_BYTE);
  own.fill<unsigned char>(byte_of);
  const auto expected = [](std::size_t i) {
    const bool there = i >= kShort && i < kShort + kCount && has_own_page(i - kShort);
    return there ? byte_of(i - kShort) : static_cast<unsigned char>(0);
  };
  check::section("a put and a get of more than 4 GiB");
  act_and_look(
      memory, window,
      [&](int target) {
        CHECK_MPI(MPI_Put(own.bytes(), 1, bytes, target, kShort, 1, bytes, window));
        CHECK_MPI(MPI_Win_flush(target, window));
        own.fill<unsigned char>([](std::size_t) { return 0; });
        CHECK_MPI(MPI_Get(own.bytes() + kShort, 1, bytes, target, kShort, 1, bytes, window));
        CHECK_MPI(MPI_Win_flush(target, window));
        own.expect<unsigned char>(expected);
        own.fill<unsigned char>(byte_of);
      },
      [&] { memory.expect<unsigned char>(expected); });
  check::section("a few bytes behind 2 and 4 GiB");
  act_and_look(
      memory, window,
      [&](int target) {
        for (const std::size_t at : {k2GiB - 2, k2GiB, k4GiB - 2, k4GiB, kBytes - 8}) {
          CHECK_MPI(MPI_Put(own.bytes() + at, 8, MPI_BYTE, target, static_cast<MPI_Aint>(at), 8, MPI_BYTE, window));
        }
      },
      [&] {
        memory.expect<unsigned char>([](std::size_t i) {
          const bool there = (i >= k2GiB - 2 && i < k2GiB + 8) || (i >= k4GiB - 2 && i < k4GiB + 8) || i >= kBytes - 8;
          return there ? byte_of(i) : static_cast<unsigned char>(0);
        });
      });
}

double number_of(std::size_t i) { return static_cast<double>(i % 1000003) + 1; }

void accumulate(Memory& memory, Memory& own, MPI_Win window) {
  constexpr std::size_t kCount = k2GiB / sizeof(double) + 5;
  const Many numbers(kCount, MPI_DOUBLE);
  own.fill<double>(number_of);
  check::section("an accumulate of more than 2 GiB");
  act_and_look(
      memory, window,
      [&](int target) { CHECK_MPI(MPI_Accumulate(own.bytes(), 1, numbers, target, 0, 1, numbers, MPI_SUM, window)); },
      [&] { memory.expect<double>([](std::size_t i) { return i < kCount ? number_of(i) : 0.0; }); });
}

#if MPI_VERSION >= 4
// The same with 64-bit counts.
void large_counts(Memory& memory, Memory& own, Memory& before, MPI_Win window) {
  constexpr MPI_Count kCount = static_cast<MPI_Count>(k4GiB) + 77;
  own.fill<unsigned char>(byte_of);
  check::section("large counts");
  act_and_look(
      memory, window,
      [&](int target) {
        CHECK_MPI(MPI_Put_c(own.bytes(), kCount, MPI_BYTE, target, 0, kCount, MPI_BYTE, window));
        CHECK_MPI(MPI_Win_flush(target, window));
        before.fill<unsigned char>([](std::size_t) { return 0; });
        MPI_Request request;
        CHECK_MPI(MPI_Rget_c(before.bytes(), kCount, MPI_BYTE, target, 0, kCount, MPI_BYTE, window, &request));
        CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        before.expect<unsigned char>([&](std::size_t i) {
          return i < static_cast<std::size_t>(kCount) ? byte_of(i) : static_cast<unsigned char>(0);
        });
        const int one = 1;
        CHECK_MPI(MPI_Accumulate_c(&one, 1, MPI_INT, target, kBytes - 4, 1, MPI_INT, MPI_SUM, window));
        CHECK_REFUSED(MPI_Put_c(own.bytes(), kCount, MPI_INT, target, 0, kCount, MPI_INT, window), MPI_ERR_RMA_RANGE);
      },
      [&] {
        memory.expect<unsigned char>([&](std::size_t i) {
          if (i == kBytes - 4) return static_cast<unsigned char>(1);
          return i < static_cast<std::size_t>(kCount) ? byte_of(i) : static_cast<unsigned char>(0);
        });
      });
}
#endif

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  Memory memory;
  Memory own;
  MPI_Win window;
  CHECK_MPI(MPI_Win_create(memory.bytes(), kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  put_and_get(memory, own, window);
  accumulate(memory, own, window);
#if MPI_VERSION >= 4
  Memory before;
  large_counts(memory, own, before, window);
#endif
  CHECK_MPI(MPI_Win_free(&window));
  return 0;
}

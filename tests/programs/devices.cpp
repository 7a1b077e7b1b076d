// SPDX-License-Identifier: BSD-3-Clause
// Buffers in the memory of a GPU, which the CPU must not access (support/device.cpp). Operations copy such buffers by
// the GPU's library, a window on such memory stays with the runtime, and MPI_Win_attach refuses it.
//
//   devices [create] cuda|hip
//   devices [create] gpu             on the first GPU of the real libcuda.so.1; 77 (skipped) without one
//   devices gpu|none measure         prints what puts take, from its memory; none: without a library of GPUs
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "cuda_device.hpp"
#include "stderr.hpp"

namespace {

constexpr int kInts = 1024;

// Memory of the device.
void* (*allocate)(std::size_t);
void (*copy)(void*, const void*, std::size_t);
int (*copies)() = nullptr;  // how many there were; null: unknown
int (*locks)() = nullptr;   // how often pages of the host were locked

// Returns false if the runtime has loaded the real library of this name: farside would then query that library for
// memory of the stand-in.
bool load_stand_in(const std::string& kind) {
  const std::string name = kind == "hip" ? "libamdhip64.so.6" : "libcuda.so.1";
  if (dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr) return false;
  std::array<char, 4096> self{};
  CHECK(readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  std::string path = self.data();
  path = path.substr(0, path.rfind('/')) + "/devices/" + name;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) check::fail(__FILE__, __LINE__, dlerror());
  allocate = reinterpret_cast<decltype(allocate)>(dlsym(library, "test_device_allocate"));
  copy = reinterpret_cast<decltype(copy)>(dlsym(library, "test_device_copy"));
  copies = reinterpret_cast<decltype(copies)>(dlsym(library, "test_device_copies"));
  locks = reinterpret_cast<decltype(locks)>(dlsym(library, "test_device_locks"));
  return true;
}

int next() { return (check::rank() + 1) % check::size(); }
int previous() { return (check::rank() + check::size() - 1) % check::size(); }

// Memory of the GPU with ints.
class OnDevice {
 public:
  explicit OnDevice(int first) : at_(static_cast<int*>(allocate(kInts * sizeof(int)))) {
    CHECK(at_ != nullptr);
    std::vector<int> values(kInts);
    for (int i = 0; i < kInts; ++i) values[static_cast<std::size_t>(i)] = first + i;
    copy(at_, values.data(), values.size() * sizeof(int));
  }
  operator int*() const { return at_; }  // NOLINT(google-explicit-constructor)
  int value(int i) const {
    int value = 0;
    copy(&value, at_ + i, sizeof value);
    return value;
  }

 private:
  int* at_;
};

void puts_and_gets(const check::Window& window, const OnDevice& memory) {
  check::section("put and get");
  const int count = kInts / 2;
  const int before = copies != nullptr ? copies() : 0;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(memory, count, MPI_INT, next(), 0, count, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < count; ++i) CHECK_EQ(window.as<int>()[i], 10000 * previous() + i);
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Get(memory + count, count, MPI_INT, next(), 0, count, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  for (int i = 0; i < count; ++i) CHECK_EQ(memory.value(count + i), 10000 * check::rank() + i);
  if (copies != nullptr) CHECK_EQ(copies() - before, 2);
  // Both used the same memory of the host. Strict keeps each copy until the window is freed.
  const char* const checks = std::getenv("FARSIDE_CHECK");
  const bool strict = checks != nullptr && std::string(checks) == "strict";
  if (locks != nullptr) CHECK_EQ(locks(), strict ? 2 : 1);

  check::section("a request, and one int on the fast path's place");
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(MPI_Rget(memory + 7, 1, MPI_INT, next(), 3, 1, MPI_INT, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_EQ(memory.value(7), 10000 * check::rank() + 3);
  CHECK_MPI(MPI_Put(memory + 7, 1, MPI_INT, next(), kInts - 1, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush(next(), window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(window.as<int>()[kInts - 1], 10000 * previous() + 3);
}

void strided(const check::Window& window, const OnDevice& memory) {
  check::section("types with gaps: the gaps stay");
  MPI_Datatype every_other = MPI_DATATYPE_NULL;
  CHECK_MPI(MPI_Type_vector(8, 1, 2, MPI_INT, &every_other));
  CHECK_MPI(MPI_Type_commit(&every_other));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next(), 0, window));
  CHECK_MPI(MPI_Put(memory + 100, 1, every_other, next(), 200, 8, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush(next(), window));
  CHECK_MPI(MPI_Get(memory + 101, 1, every_other, next(), 200, 8, MPI_INT, window));
  CHECK_MPI(MPI_Win_unlock(next(), window));
  for (int i = 0; i < 8; ++i) {
    CHECK_EQ(memory.value(100 + 2 * i), 10000 * check::rank() + 100 + 2 * i);
    CHECK_EQ(memory.value(101 + 2 * i), 10000 * check::rank() + 100 + 2 * i);
  }
  CHECK_MPI(MPI_Type_free(&every_other));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void atomics(const check::Window& window, const OnDevice& memory) {
  check::section("accumulates, with the GPU's memory on either side");
  MPI_Group world = MPI_GROUP_NULL, to = MPI_GROUP_NULL, from = MPI_GROUP_NULL;
  const int target = next(), origin = previous();
  CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
  CHECK_MPI(MPI_Group_incl(world, 1, &target, &to));
  CHECK_MPI(MPI_Group_incl(world, 1, &origin, &from));
  for (int i = 0; i < 8; ++i) window.as<int>()[300 + i] = i;
  const OnDevice other(500);
  std::array<int, 4> host{-1, -1, -1, -1};
  CHECK_MPI(MPI_Win_post(from, 0, window));
  CHECK_MPI(MPI_Win_start(to, 0, window));
  CHECK_MPI(MPI_Accumulate(other, 4, MPI_INT, target, 300, 4, MPI_INT, MPI_SUM, window));  // i + 500 + i
  CHECK_MPI(MPI_Get_accumulate(other, 4, MPI_INT, memory + 400, 4, MPI_INT, target, 300, 4, MPI_INT, MPI_SUM, window));
  CHECK_MPI(
      MPI_Get_accumulate(nullptr, 0, MPI_INT, memory + 410, 4, MPI_INT, target, 300, 4, MPI_INT, MPI_NO_OP, window));
  CHECK_MPI(
      MPI_Get_accumulate(other, 4, MPI_INT, host.data(), 4, MPI_INT, target, 300, 4, MPI_INT, MPI_REPLACE, window));
  CHECK_MPI(MPI_Fetch_and_op(other + 1, memory + 420, MPI_INT, target, 304, MPI_SUM, window));
  CHECK_MPI(MPI_Compare_and_swap(other + 2, memory + 420, memory + 421, MPI_INT, target, 305, window));
  CHECK_MPI(MPI_Win_complete(window));
  CHECK_MPI(MPI_Win_wait(window));
  for (int i = 0; i < 4; ++i) {
    CHECK_EQ(memory.value(400 + i), 500 + 2 * i);
    CHECK_EQ(memory.value(410 + i), 1000 + 3 * i);
    CHECK_EQ(host[static_cast<std::size_t>(i)], 1000 + 3 * i);
    CHECK_EQ(window.as<int>()[300 + i], 500 + i);
  }
  CHECK_EQ(memory.value(420), 4);
  CHECK_EQ(window.as<int>()[304], 505);
  CHECK_EQ(memory.value(421), 5);  // is not 4, and stays
  CHECK_EQ(window.as<int>()[305], 5);
  for (MPI_Group* group : {&world, &to, &from}) CHECK_MPI(MPI_Group_free(group));
}

void windows(const OnDevice& memory) {
  const char* const route = std::getenv("TEST_ROUTE");
  if (route != nullptr && std::string(route) == "hosts") return;  // Open MPI 4 by itself makes no window between hosts
  check::section("a window of which one rank's memory is the GPU's is the runtime's");
  std::array<int, 16> host{};
  check::Stderr captured;
  MPI_Win window = MPI_WIN_NULL;
  void* const base = check::rank() == 1 ? static_cast<void*>(memory) : host.data();
  CHECK_MPI(MPI_Win_create(base, sizeof host, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_free(&window));
  const std::string text = captured.end();
  const std::string expected = "this window stays with the MPI runtime: ";
  if (text.find(expected) == std::string::npos || text.find("its memory is GPU memory") == std::string::npos)
    check::fail(__FILE__, __LINE__, "not said: " + text);

  check::section("memory of a GPU is not attached");
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  check::Stderr refused;
  CHECK_EQ(check::class_of(MPI_Win_attach(window, memory, 64)), MPI_ERR_RMA_ATTACH);
  CHECK(refused.end().find("it is GPU memory, which farside cannot access; ") != std::string::npos);
  CHECK_MPI(MPI_Win_attach(window, host.data(), sizeof host));
  CHECK_MPI(MPI_Win_detach(window, host.data()));
  CHECK_MPI(MPI_Win_free(&window));
}

// What only a real GPU has.
void other_memory(const check::Window& window) {
  check::section("memory of a pool");
  int* const pooled = static_cast<int*>(cuda_device::allocate_from_pool(4 * sizeof(int)));
  int values[4] = {600, 601, 602, 603};
  cuda_device::copy(pooled, values, sizeof values);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(MPI_Put(pooled, 4, MPI_INT, next(), 600, 4, MPI_INT, window));
  CHECK_MPI(MPI_Win_flush(next(), window));

  check::section("page-locked memory of the host, and memory that CPU and GPU share");
  for (void* const memory : {cuda_device::allocate_locked(4096), cuda_device::allocate_managed(4096)}) {
    auto* const ints = static_cast<int*>(memory);
    for (int i = 0; i < 4; ++i) ints[i] = 610 + i;
    CHECK_MPI(MPI_Put(ints, 4, MPI_INT, next(), 610, 4, MPI_INT, window));
    CHECK_MPI(MPI_Get(ints + 4, 4, MPI_INT, next(), 600, 4, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(next(), window));
    for (int i = 0; i < 4; ++i) CHECK_EQ(ints[4 + i], 600 + i);
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  for (int i = 0; i < 4; ++i) CHECK_EQ(window.as<int>()[610 + i], 610 + i);
  for (void* const memory : {cuda_device::allocate_locked(4096), cuda_device::allocate_managed(4096)}) {
    auto* const ints = static_cast<int*>(memory);
    ints[0] = 0;
    MPI_Win own = MPI_WIN_NULL;
    CHECK_MPI(MPI_Win_create(ints, 4096, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &own));
    CHECK_MPI(MPI_Win_fence(0, own));
    CHECK_MPI(MPI_Accumulate(values, 1, MPI_INT, next(), 0, 1, MPI_INT, MPI_SUM, own));
    CHECK_MPI(MPI_Win_fence(0, own));
    CHECK_EQ(ints[0], 600);
    CHECK_MPI(MPI_Win_free(&own));
  }

  check::section("a thread that never used the GPU");
  std::thread([&] {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next(), 0, window));
    CHECK_MPI(MPI_Put(pooled, 4, MPI_INT, next(), 620, 4, MPI_INT, window));
    CHECK_MPI(MPI_Win_flush(next(), window));
    CHECK_MPI(MPI_Get(pooled, 4, MPI_INT, next(), 610, 4, MPI_INT, window));
    CHECK_MPI(MPI_Win_unlock(next(), window));
  }).join();
  cuda_device::copy(values, pooled, sizeof values);
  CHECK_EQ(values[3], 613);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_EQ(window.as<int>()[623], 603);
}

double microseconds_of_puts(const check::Window& window, const void* from, int bytes, int times) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int run = 0; run < 5; ++run) {
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) {
      CHECK_MPI(MPI_Put(from, bytes, MPI_BYTE, next(), 0, bytes, MPI_BYTE, window));
      CHECK_MPI(MPI_Win_flush(next(), window));
    }
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    best = std::min(best, took.count() / times);
  }
  return best;
}

// Put and flush, from the host's and from the GPU's memory, the best of five runs.
void measure() {
  constexpr int kMost = 1 << 26;  // bytes
  const check::Window window(check::Memory::kAllocate, kMost, 1);
  void* const device = allocate(kMost);
  std::vector<std::byte> host(kMost);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (const int bytes : {8, 1 << 12, 1 << 16, 1 << 20, kMost}) {
    const int times = bytes <= 1 << 16 ? 2000 : bytes <= 1 << 20 ? 200 : 4;
    const double from_host = microseconds_of_puts(window, host.data(), bytes, bytes == 8 ? 1000000 : times);
    const double from_device = microseconds_of_puts(window, device, bytes, times);
    if (check::rank() == 0)
      std::printf("put of %d bytes and flush: from the host %.4g us, from the GPU %.4g us (%.3g GB/s)\n", bytes,
                  from_host, from_device, bytes / from_device / 1e3);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv, MPI_THREAD_SERIALIZED);
  const bool real = program.has("gpu");
  if (real) {
    int usable = cuda_device::start() ? 1 : 0;
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    if (usable == 0) {
      if (check::rank() == 0) std::puts("skipped: no libcuda.so.1 with a GPU");
      return check::kSkipped;
    }
    allocate = cuda_device::allocate;
    copy = cuda_device::copy;
  } else if (program.has("none")) {
    allocate = std::malloc;
  } else {
    if (!load_stand_in(program.has("hip") ? "hip" : "cuda")) {
      if (check::rank() == 0) std::puts("skipped: the runtime has loaded the real library of these devices");
      return check::kSkipped;
    }
  }
  if (program.has("measure")) {
    measure();
    return 0;
  }
  const check::Window window(program.memory(), kInts * sizeof(int), sizeof(int));
  const OnDevice memory(10000 * check::rank());
  puts_and_gets(window, memory);
  strided(window, memory);
  atomics(window, memory);
  windows(memory);
  if (real) other_memory(window);
  check::section("farside leaves no error for the program's next look at errors");
  void* const hip = dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_NOLOAD);
  if (hip != nullptr) CHECK_EQ(reinterpret_cast<int (*)()>(dlsym(hip, "hipPeekAtLastError"))(), 0);
}

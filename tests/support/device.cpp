// SPDX-License-Identifier: BSD-3-Clause
// Stand-ins for libcuda and libamdhip64: the functions that farside uses, on memory that the CPU cannot
// access. Each allocation is a file that is mapped twice: without access rights at the address that the program gets,
// and with access rights at another address for the copies. Wrong arguments of farside end the process.
//
// The real libraries do not have these functions: test_device_allocate(), test_device_copy(), test_device_copies() (the
// number of copies) and test_device_locks() (the number of requests to lock pages).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#define EXPORTED extern "C" [[gnu::visibility("default")]]

namespace {

struct Allocation {
  std::byte* device;
  std::byte* host;
  std::size_t bytes;
};
std::mutex mutex;
std::vector<Allocation> allocations;
std::atomic<int> copies{0};
std::atomic<int> locks{0};

[[maybe_unused]] void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "device: wrong: %s\n", what);
  std::abort();
}

const Allocation* find(const void* address) {
  const std::scoped_lock held(mutex);
  for (const Allocation& each : allocations) {
    if (address >= each.device && address < each.device + each.bytes) return &each;
  }
  return nullptr;
}

// Returns the address at which the CPU can access the same memory.
std::byte* reachable(const void* address, std::size_t bytes) {
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  const Allocation* const there = find(address);
  if (there == nullptr) return at;
  require(at + bytes <= there->device + there->bytes, "a copy of one allocation");
  return there->host + (at - there->device);
}

int copy(void* to, const void* from, std::size_t bytes) {
  ++copies;
  std::memcpy(reachable(to, bytes), reachable(from, bytes), bytes);
  return 0;
}

}  // namespace

EXPORTED void* test_device_allocate(std::size_t bytes) {
  const int file = memfd_create("device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
  void* const device = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  void* const host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (device == MAP_FAILED || host == MAP_FAILED) return nullptr;
  const std::scoped_lock held(mutex);
  allocations.reserve(64);  // find() returns pointers into it
  allocations.push_back({static_cast<std::byte*>(device), static_cast<std::byte*>(host), bytes});
  return device;
}
EXPORTED void test_device_copy(void* to, const void* from, std::size_t bytes) {
  std::memcpy(reachable(to, bytes), reachable(from, bytes), bytes);
}
EXPORTED int test_device_copies() { return copies; }
EXPORTED int test_device_locks() { return locks; }

#if defined(DEVICE_CUDA)

namespace {
thread_local int pushed = 0;
int context = 0;
}  // namespace

// Every other allocation has no context, like memory of pools.
EXPORTED int cuPointerGetAttribute(void* value, int attribute, const void* address) {
  const Allocation* const there = find(address);
  if (there == nullptr) return 1;
  switch (attribute) {
    case 1: *static_cast<void**>(value) = (there - allocations.data()) % 2 == 0 ? &context : nullptr; return 0;
    case 9: *static_cast<int*>(value) = 3; return 0;
    case 2: *static_cast<unsigned*>(value) = 2; return 0;
    case 8: *static_cast<unsigned*>(value) = 0; return 0;
    default: require(false, "an attribute"); return 1;
  }
}
EXPORTED int cuDevicePrimaryCtxRetain(void** retained, int ordinal) {
  require(ordinal == 3, "the device of the allocation");
  *retained = &context;
  return 0;
}
EXPORTED int cuDevicePrimaryCtxRelease_v2(int ordinal) {
  require(ordinal == 3, "the device of the allocation");
  return 0;
}
EXPORTED int cuCtxPushCurrent_v2(void* pushes) {
  require(pushes == &context, "the context of the allocation");
  ++pushed;
  return 0;
}
EXPORTED int cuCtxPopCurrent_v2(void** popped) {
  require(pushed-- > 0, "a context to pop");
  *popped = &context;
  return 0;
}
EXPORTED int cuMemcpy(void* to, const void* from, std::size_t bytes) {
  return pushed > 0 ? copy(to, from, bytes) : 201;
}
EXPORTED int cuMemHostRegister_v2(void* host, std::size_t bytes, unsigned flags) {
  require(pushed > 0 && flags == 1, "pages locked for all contexts");
  require(find(host) == nullptr && reinterpret_cast<std::uintptr_t>(host) % 4096 == 0 && bytes > 0,
          "pages of the host");
  ++locks;
  return 0;
}
EXPORTED int cuStreamSynchronize(void* stream) {
  require(stream == nullptr && pushed > 0, "the default stream of a context");
  return 0;
}

#elif defined(DEVICE_HIP)

namespace {
thread_local int last_error = 0;
}  // namespace

EXPORTED int hipRuntimeGetVersion(int* version) {
  *version = 60'032'830;
  return 0;
}
EXPORTED int hipPeekAtLastError() { return last_error; }
EXPORTED int hipGetLastError() { return std::exchange(last_error, 0); }
EXPORTED int hipPointerGetAttribute(void* value, int attribute, const void* address) {
  if (find(address) == nullptr) return last_error = 1;
  require(attribute == 2 || attribute == 8, "an attribute");
  *static_cast<unsigned*>(value) = attribute == 2 ? 2 : 0;
  return 0;
}
EXPORTED int hipMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  require(kind == 4, "hipMemcpyDefault");
  return copy(to, from, bytes);
}
// Fails, and leaves an error.
EXPORTED int hipHostRegister(void*, std::size_t, unsigned flags) {
  require(flags == 1, "pages locked for all contexts");
  ++locks;
  return last_error = 1;
}
EXPORTED int hipStreamSynchronize(void* stream) {
  require(stream == nullptr, "the default stream");
  return 0;
}

#endif

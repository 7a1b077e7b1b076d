// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/device_memory.hpp"

#include <algorithm>
#include <bit>
#include <dlfcn.h>
#include <iterator>
#include <link.h>
#include <new>
#include <string_view>
#include <sys/mman.h>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "transport/base/log.hpp"

namespace farside {

// The functions of the libraries of GPUs, found by dlsym(3), with the types and values that their manuals give: CUDA
// Driver API (Unified Addressing, Memory Management), HIP Runtime API (Memory Management). None of their headers is
// needed.
namespace {

// Finds a function, and returns whether the library has it.
template <class Function>
bool find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// The functions of CUDA and HIP that have the same types and values.
class Driver : public DeviceDriver {
 public:
  bool holds(const void* address) override {
    unsigned type = 0, managed = 0;
    // Memory that the driver does not know is an invalid value.
    if (get_attribute_(&type, kMemoryType, address) != 0 || type != device_) return false;
    return get_attribute_(&managed, kIsManaged, address) != 0 || (managed & 0xff) == 0;
  }

 protected:
  // A copy from pageable memory may return before it has arrived. `code`: the result of `call`, which copies.
  Status complete(int code, const char* call, std::size_t bytes) const {
    if (code == 0) code = synchronize_(nullptr);
    if (code == 0) return {};
    return Error{ErrorKind::kOther,
                 fmt::format("the copy of {} bytes from or to a GPU: {} failed ({})", bytes, call, code)};
  }

  // CUpointer_attribute and CU_MEMHOSTREGISTER; hipPointer_attribute and hipHostRegister's flags.
  static constexpr int kMemoryType = 2, kIsManaged = 8;
  static constexpr unsigned kPortable = 1;
  int (*get_attribute_)(void*, int, const void*) = nullptr;
  int (*synchronize_)(void*) = nullptr;
  int (*register_)(void*, std::size_t, unsigned) = nullptr;  // null: pages are not locked
  unsigned device_ = 2;                                      // CUmemorytype
};

class Cuda final : public Driver {
 public:
  bool find_functions(void* library) {
    // For memory without its own context, of pools and of cuMemMap.
    if (!find(library, retain_, "cuDevicePrimaryCtxRetain") ||
        !find(library, release_, "cuDevicePrimaryCtxRelease_v2")) {
      return false;
    }
    (void)find(library, register_, "cuMemHostRegister_v2");
    return find(library, get_attribute_, "cuPointerGetAttribute") && find(library, memcpy_, "cuMemcpy") &&
           find(library, synchronize_, "cuStreamSynchronize") && find(library, push_, "cuCtxPushCurrent_v2") &&
           find(library, pop_, "cuCtxPopCurrent_v2");
  }

  Status copy(void* to, const void* from, std::size_t bytes, const void* device) override {
    const ContextOf context(*this, device);
    return complete(memcpy_(to, from, bytes), "cuMemcpy", bytes);
  }

  void lock_pages(void* host, std::size_t bytes, const void* device) override {
    if (register_ == nullptr) return;
    const ContextOf context(*this, device);
    (void)register_(host, bytes, kPortable);  // without it copies are slower
  }

 private:
  static constexpr int kContext = 1, kDeviceOrdinal = 9;  // CUpointer_attribute

  // Makes the context of some memory the thread's, which may have none, or one of another device.
  class ContextOf {
   public:
    ContextOf(const Cuda& cuda, const void* device) : cuda_(cuda) {
      void* context = nullptr;
      (void)cuda_.get_attribute_(&context, kContext, device);
      retained_ = context == nullptr && cuda_.get_attribute_(&ordinal_, kDeviceOrdinal, device) == 0 &&
                  cuda_.retain_(&context, ordinal_) == 0;
      pushed_ = context != nullptr && cuda_.push_(context) == 0;
    }
    ContextOf(const ContextOf&) = delete;
    ContextOf& operator=(const ContextOf&) = delete;
    ~ContextOf() {
      void* popped = nullptr;
      if (pushed_) (void)cuda_.pop_(&popped);
      if (retained_) (void)cuda_.release_(ordinal_);
    }

   private:
    const Cuda& cuda_;
    int ordinal_ = -1;
    bool retained_ = false, pushed_ = false;
  };

  int (*memcpy_)(void*, const void*, std::size_t) = nullptr;
  int (*push_)(void*) = nullptr;
  int (*pop_)(void**) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*release_)(int) = nullptr;
};

class Hip final : public Driver {
 public:
  bool find_functions(void* library) {
    int (*get_version)(int*) = nullptr;
    int version = 0;
    if (!find(library, get_version, "hipRuntimeGetVersion") ||
        !find(library, get_attribute_, "hipPointerGetAttribute") || !find(library, memcpy_, "hipMemcpy") ||
        !find(library, synchronize_, "hipStreamSynchronize") || !find(library, peek_error_, "hipPeekAtLastError") ||
        !find(library, take_error_, "hipGetLastError") || get_version(&version) != 0) {
      return false;
    }
    (void)find(library, register_, "hipHostRegister");
    // hipMemoryType has CUDA's values since version 6.
    device_ = version / 10'000'000 >= 6 ? 2 : 1;
    return true;
  }

  // A failed call leaves its error for the program's next look at errors. Memory that HIP does not know is an error.
  bool holds(const void* address) override {
    const bool clean = peek_error_() == 0;
    const bool held = Driver::holds(address);
    if (clean && peek_error_() != 0) (void)take_error_();
    return held;
  }

  Status copy(void* to, const void* from, std::size_t bytes, const void* /*device*/) override {
    return complete(memcpy_(to, from, bytes, kDefault), "hipMemcpy", bytes);
  }

  void lock_pages(void* host, std::size_t bytes, const void* /*device*/) override {
    const bool clean = peek_error_() == 0;
    if (register_ != nullptr && register_(host, bytes, kPortable) != 0 && clean) (void)take_error_();
  }

 private:
  static constexpr int kDefault = 4;  // hipMemcpyKind

  int (*memcpy_)(void*, const void*, std::size_t, int) = nullptr;
  int (*peek_error_)() = nullptr;
  int (*take_error_)() = nullptr;
};

template <class OfKind>
std::unique_ptr<DeviceDriver> make(void* library) {
  auto driver = std::make_unique<OfKind>();
  if (!driver->find_functions(library)) return nullptr;
  return driver;
}

struct Kind {
  std::string_view library;  // the beginning of its file's name
  std::unique_ptr<DeviceDriver> (*make)(void* library);
};
constexpr Kind kKinds[] = {{"libcuda.so", make<Cuda>}, {"libamdhip64.so", make<Hip>}};
using Paths = std::array<const char*, std::size(kKinds)>;

}  // namespace

void DeviceMemory::look_for_drivers() {
  static_assert(std::tuple_size_v<decltype(drivers_)> == std::size(kKinds));
  const std::scoped_lock held(mutex_);
  // dlopen would look through all folders for a library that is not loaded, some 70 system calls at the first time.
  const auto look_at = [](dl_phdr_info* object, std::size_t, void* data) {
    const std::string_view path(object->dlpi_name);
    for (std::size_t i = 0; i < std::size(kKinds); ++i) {
      const char*& found = (*static_cast<Paths*>(data))[i];
      if (found == nullptr && path.substr(path.rfind('/') + 1).starts_with(kKinds[i].library)) found = path.data();
    }
    return 0;
  };
  Paths paths{};
  dl_iterate_phdr(look_at, &paths);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (paths[i] == nullptr || drivers_[i].load() != nullptr) continue;
    void* const library = dlopen(paths[i], RTLD_LAZY | RTLD_NOLOAD);  // stays open, as the driver uses it
    if (library == nullptr) continue;
    if (std::unique_ptr<DeviceDriver> driver = kKinds[i].make(library)) {
      drivers_[i].store(driver.release());
      possible_.store(true, std::memory_order_relaxed);
      continue;
    }
    dlclose(library);
    if (Log::is_new(paths[i]))
      log(LogLevel::kWarn, "{} lacks functions that tell memory of GPUs; do not give it to one-sided calls", paths[i]);
  }
}

DeviceDriver* DeviceMemory::driver_of(const void* address) {
  for (const std::atomic<DeviceDriver*>& each : drivers_) {
    DeviceDriver* const driver = each.load();
    if (driver != nullptr && driver->holds(address)) return driver;
  }
  return nullptr;
}

bool DeviceMemory::ask(const void* address) {
  if (driver_of(address) != nullptr) return true;
  const std::uintptr_t page = page_of(address);
  host_pages_[page % host_pages_.size()].store(page, std::memory_order_relaxed);
  return false;
}

Status DeviceMemory::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  for (const void* const address : {static_cast<const void*>(to), from}) {
    if (DeviceDriver* const driver = driver_of(address)) return driver->copy(to, from, bytes, address);
  }
  return Error{ErrorKind::kOther, "the memory of a GPU was freed during the call"};
}

namespace {

constexpr std::size_t kSmallest = 4096;

// The block behind an unused one is noted in its first bytes.
std::byte*& next_of(std::byte* unused) { return *reinterpret_cast<std::byte**>(unused); }

}  // namespace

std::byte*& DeviceStaging::unused(std::size_t kept_bytes) {
  return unused_[static_cast<std::size_t>(std::countr_zero(kept_bytes / kSmallest))];
}

DeviceStaging::Memory DeviceStaging::take(std::size_t bytes, const void* device) {
  std::size_t kept_bytes = bytes > kLargest ? 0 : std::bit_ceil(std::max(bytes, kSmallest));
  if (kept_bytes != 0) {
    const std::scoped_lock held(mutex_);
    std::byte*& first = unused(kept_bytes);
    if (std::byte* const memory = first) {
      first = next_of(memory);
      return {memory, Return{this, kept_bytes}};
    }
    if (kept_bytes > kMostKept - kept_) kept_bytes = 0;
    kept_ += kept_bytes;
  }
  if (kept_bytes != 0) {
    // Whole pages of its own, of which nothing else is locked.
    void* const memory = mmap(nullptr, kept_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
      // A fork would give this process other pages at its next store, and leave the locked ones to the GPU.
      (void)madvise(memory, kept_bytes, MADV_DONTFORK);
      devices_.lock_pages(memory, kept_bytes, device);
      return {static_cast<std::byte*>(memory), Return{this, kept_bytes}};
    }
    const std::scoped_lock held(mutex_);
    kept_ -= kept_bytes;
  }
  return {new (std::nothrow) std::byte[std::max<std::size_t>(bytes, 1)], Return{}};
}

void DeviceStaging::Return::operator()(std::byte* memory) const {
  if (kept_bytes == 0) {
    delete[] memory;
    return;
  }
  const std::scoped_lock held(staging->mutex_);
  next_of(memory) = std::exchange(staging->unused(kept_bytes), memory);
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// Memory of GPUs, and the memory of the host for copies of it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/base/result.hpp"

namespace farside {

// Memory of GPUs, which the CPU must not touch. Only the library of the GPU can identify and copy such memory: libcuda
// (cuPointerGetAttribute, cuMemcpy) or libamdhip64 (hipPointerGetAttribute, hipMemcpy). farside asks those that the
// process has loaded already, and loads none.
//
// Memory that CPU and GPU share (managed or shared allocations, page-locked memory) is memory of the host here.
//
// Thread safety: any. Cost: nothing but the load of a flag in a process without such a library. Else some ten
// nanoseconds up to a microsecond for the first look at a page, and one load for each further look at a page of
// the host. A page of the host that was unmapped and became a GPU's is not seen; CUDA places its own in ranges that it
// has reserved.

// The library of one kind of GPUs.
class DeviceDriver {
 public:
  virtual ~DeviceDriver() = default;
  virtual bool holds(const void* address) = 0;
  // Copies between host and device; `device` is the one of both addresses that it holds. Complete on return.
  virtual Status copy(void* to, const void* from, std::size_t bytes, const void* device) = 0;
  // Locks pages of the host, where the library can, so that copies between them and `device` need no buffer of it.
  // They stay locked; the library may unlock them when the program resets the GPU.
  virtual void lock_pages(void* /*host*/, std::size_t /*bytes*/, const void* /*device*/) {}
};

class DeviceMemory {
 public:
  // Looks for libraries that the process has loaded meanwhile. To be called when a window is made.
  void look_for_drivers();
  // Whether a library was found.
  static bool possible() { return possible_.load(std::memory_order_relaxed); }
  // Whether holds() has found the page of the address not to be a GPU's. Calls nothing.
  [[gnu::always_inline]] static bool is_known_host(const void* address) {
    const std::uintptr_t page = page_of(address);
    return host_pages_[page % host_pages_.size()].load(std::memory_order_relaxed) == page;
  }
  // Whether the address is in memory that the CPU must not touch.
  bool holds(const void* address) { return possible() && !is_known_host(address) && ask(address); }
  // Copies between host and device. One of the addresses must be of a device, all bytes of one allocation. Errors: that
  // of the library, as kOther.
  Status copy(void* to, const void* from, std::size_t bytes);
  // For copies between these pages of the host and the memory at `device`, which is a GPU's; see DeviceDriver.
  void lock_pages(void* host, std::size_t bytes, const void* device) {
    if (DeviceDriver* const driver = driver_of(device)) driver->lock_pages(host, bytes, device);
  }

 private:
  static constexpr std::uintptr_t kPageBytes = 4096;

  static std::uintptr_t page_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address) / kPageBytes; }
  bool ask(const void* address);
  DeviceDriver* driver_of(const void* address);

  static inline constinit std::atomic<bool> possible_{false};
  static inline constinit std::array<std::atomic<std::uintptr_t>, 256> host_pages_{};  // the last ones, by number
  std::array<std::atomic<DeviceDriver*>, 2> drivers_{};                                // of CUDA and HIP; they stay
  std::mutex mutex_;                                                                   // of look_for_drivers()
};

// Memory of the host for copies of a GPU's memory. A process keeps what it has once allocated for later copies, at most
// kMostKept bytes, for its whole life: its pages exist, the library of the GPU has locked them where it can (CUDA,
// HIP), which makes copies of 64 KiB and more two to five times as fast, and a registration with an adapter stays
// valid. A forked child does not inherit it. Copies of more than kLargest bytes are allocated each time.
class DeviceStaging {
 public:
  static constexpr std::size_t kLargest = std::size_t{64} << 20;
  static constexpr std::size_t kMostKept = std::size_t{128} << 20;

  // Gives the memory back.
  struct Return {
    DeviceStaging* staging = nullptr;
    std::size_t kept_bytes = 0;  // 0: not kept
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte[], Return>;

  explicit DeviceStaging(DeviceMemory& devices) : devices_(devices) {}

  // Returns at least that many bytes for copies from or to the memory of the GPU at `device`; null: no memory. Thread
  // safety: any. Cost: a mutex; at the first time system calls, and the locking of the pages.
  Memory take(std::size_t bytes, const void* device);

 private:
  std::byte*& unused(std::size_t kept_bytes);  // the first unused block of that size

  DeviceMemory& devices_;
  std::mutex mutex_;                     // guards the following
  std::array<std::byte*, 15> unused_{};  // of 4 KiB, 8 KiB and so on up to kLargest
  std::size_t kept_ = 0;                 // bytes, in use or not
};

}  // namespace farside

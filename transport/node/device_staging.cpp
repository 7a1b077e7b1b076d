// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/device_staging.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <sys/mman.h>

#include "transport/node/device_memory.hpp"

namespace farside {
namespace {

constexpr std::size_t kSmallest = 4096;

}  // namespace

DeviceStaging& DeviceStaging::instance() {
  static auto* const staging = new DeviceStaging();
  return *staging;
}

std::size_t DeviceStaging::kept_bytes_for(std::size_t bytes) {
  return bytes > kLargest ? 0 : std::bit_ceil(std::max(bytes, kSmallest));
}

DeviceStaging::Blocks& DeviceStaging::blocks_of(std::size_t kept_bytes) {
  return blocks_[static_cast<std::size_t>(std::countr_zero(kept_bytes / kSmallest))];
}

std::byte* DeviceStaging::take_unused(std::size_t kept_bytes) {
  std::vector<std::byte*>& unused = blocks_of(kept_bytes).unused;
  if (unused.empty()) return nullptr;
  std::byte* const memory = unused.back();
  unused.pop_back();
  return memory;
}

DeviceStaging::Memory DeviceStaging::take(std::size_t bytes, const void* device) {
  const std::size_t kept_bytes = kept_bytes_for(bytes);
  bool keep = false;
  if (kept_bytes != 0) {
    const std::scoped_lock held(mutex_);
    if (std::byte* const memory = take_unused(kept_bytes)) return {memory, Return{kept_bytes}};
    keep = kept_bytes <= kMostKept - kept_;
    if (keep) {
      // So that giving it back allocates nothing.
      Blocks& blocks = blocks_of(kept_bytes);
      blocks.unused.reserve(blocks.count + 1);
      ++blocks.count;
      kept_ += kept_bytes;
    } else {
      for (std::size_t larger = 2 * kept_bytes; larger <= kLargest; larger *= 2) {
        if (std::byte* const memory = take_unused(larger)) return {memory, Return{larger}};
      }
    }
  }
  if (keep) {
    // Whole pages of its own, of which nothing else is locked.
    void* const memory = mmap(nullptr, kept_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
      // A fork would give this process other pages at its next store, and leave the locked ones to the GPU.
      (void)madvise(memory, kept_bytes, MADV_DONTFORK);
      DeviceMemory::instance().lock_pages(memory, kept_bytes, device);
      return {static_cast<std::byte*>(memory), Return{kept_bytes}};
    }
    const std::scoped_lock held(mutex_);
    --blocks_of(kept_bytes).count;
    kept_ -= kept_bytes;
  }
  return {new (std::nothrow) std::byte[std::max<std::size_t>(bytes, 1)], Return{}};
}

void DeviceStaging::Return::operator()(std::byte* memory) const {
  if (kept_bytes == 0) {
    delete[] memory;
    return;
  }
  DeviceStaging& staging = instance();
  const std::scoped_lock held(staging.mutex_);
  staging.blocks_of(kept_bytes).unused.push_back(memory);
}

}  // namespace farside

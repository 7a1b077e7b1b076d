// SPDX-License-Identifier: BSD-3-Clause
// Memory of the host for copies of a GPU's memory. A process keeps the memory that it has once allocated, for later
// copies. The pages of kept memory exist already. The library of the GPU has locked them where it can (CUDA, HIP),
// which makes copies of 64 KiB and more two to five times as fast. A registration with an adapter stays valid. A forked
// child does not inherit this memory. The process keeps at most kMostKept bytes, for its whole life; copies of more
// than kLargest bytes are allocated anew each time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace farside {

class DeviceStaging {
 public:
  static constexpr std::size_t kLargest = std::size_t{64} << 20;
  static constexpr std::size_t kMostKept = std::size_t{128} << 20;

  // Gives the memory back.
  struct Return {
    std::size_t kept_bytes = 0;  // 0: not kept
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte[], Return>;

  static DeviceStaging& instance();

  // Returns at least that many bytes for copies from or to the memory of the GPU at `device`; null: no memory. Thread
  // safety: any. Cost: a mutex; at the first time system calls, and the locking of the pages.
  Memory take(std::size_t bytes, const void* device);

 private:
  struct Blocks {  // of one size
    std::vector<std::byte*> unused;
    std::size_t count = 0;  // in use or not
  };

  DeviceStaging() = default;
  static std::size_t kept_bytes_for(std::size_t bytes);
  Blocks& blocks_of(std::size_t kept_bytes);
  std::byte* take_unused(std::size_t kept_bytes);

  std::mutex mutex_;               // guards the following
  std::array<Blocks, 15> blocks_;  // of 4 KiB, 8 KiB and so on up to kLargest
  std::size_t kept_ = 0;           // bytes, in use or not
};

}  // namespace farside

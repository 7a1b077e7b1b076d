// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict: what the local buffers of operations that are under way held when they were given. If one has
// changed when its operation is completed, somebody has stored to it too early (MPI 4.0 section 12.3). A store of
// what was there already does not show, nor does a load.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "epochs/races/shared_log.hpp"

namespace farside::pmpi {

// A hash of what lies at the blocks of runs, by read(place, to, bytes) -> bool; 0 if that fails. Of many blocks or
// bytes the first ones.
template <class Read>
std::uint64_t hash_of(std::span<const epochs::StridedRun> runs, Read&& read) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
  constexpr std::uint64_t kMostBlocks = 256;
  std::uint64_t hash = 1;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  std::vector<std::byte> block;
  for (const epochs::StridedRun& run : runs) {
    for (std::uint64_t i = 0; i < run.count; ++i) {
      block.resize(std::min(run.bytes, kMostBytes - bytes));
      bytes += block.size();
      if (block.empty() || ++blocks > kMostBlocks) return hash;
      if (!read(run.block(i).first, block.data(), block.size())) return 0;
      hash = epochs::SharedLog::hash(hash, block.data(), block.size());
    }
  }
  return hash;
}
// Of this process's own memory: runs of addresses. 0 if it has been freed.
std::uint64_t hash_of_memory(std::span<const epochs::StridedRun> runs);

class BufferWatch {
 public:
  struct Buffer {
    const char* call;
    int target;
    std::uint64_t number;
    bool written;                          // by the operation
    std::vector<epochs::StridedRun> runs;  // addresses
  };
  // The operation has been carried out: what is there now is to stay.
  void add(Buffer buffer);
  // The operation with this number, those to the target, or all, are complete: the first buffer that has changed. All
  // of them are forgotten.
  std::optional<Buffer> request_completed(std::uint64_t number);
  std::optional<Buffer> completed(int target);
  std::optional<Buffer> completed_all();

 private:
  struct Watched {
    Buffer buffer;
    std::uint64_t hash;
  };
  template <class Which>
  std::optional<Buffer> take(Which&& which);

  std::vector<Watched> watched_;
};

}  // namespace farside::pmpi

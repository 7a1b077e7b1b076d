// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict: hashes of the local buffers of operations that are under way. If a buffer has changed when its
// operation is completed, the program has stored to it too early (MPI 4.0 section 12.3). Loads, and stores of the same
// value, are not found.
//
// Thread safety: one thread at a time (Strict::OneThread). Cost: each operation hashes its buffers twice, up to 1 MiB
// or 256 blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "epochs/races/shared_log.hpp"

namespace farside::pmpi {

// Returns a hash of the blocks of `runs`, read by read(place, to, bytes) -> bool; 0 if a read fails. Of more than
// kMostBytes or kMostBlocks only the first are hashed.
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
// Returns the hash of this process's own memory at runs of addresses; 0 if the memory has been freed.
std::uint64_t hash_of_memory(std::span<const epochs::StridedRun> runs);

class BufferWatch {
 public:
  struct Buffer {
    const char* call;
    int target;
    std::uint64_t number;
    bool written;                          // the operation writes the buffer
    std::vector<epochs::StridedRun> runs;  // addresses
  };
  // Called when the operation has been carried out: the buffer may not change from now on.
  void add(Buffer buffer);
  // The operation with this number, those to the target, or all operations are complete: these functions return the
  // first of their buffers that has changed, and remove them all.
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

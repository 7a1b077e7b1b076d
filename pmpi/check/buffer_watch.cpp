// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/check/buffer_watch.hpp"

#include <unistd.h>
#include <utility>

#include "transport/node/process_memory.hpp"

namespace farside::pmpi {

// process_vm_readv(2) on this process itself reports unmapped memory as an error, not as a signal.
std::uint64_t hash_of_memory(std::span<const epochs::StridedRun> runs) {
  return hash_of(runs, [](std::uint64_t address, std::byte* to, std::size_t bytes) {
    return read_process_memory(getpid(), address, to, bytes).ok();
  });
}

void BufferWatch::add(Buffer buffer) {
  const std::uint64_t hash = hash_of_memory(buffer.runs);
  if (hash != 0) watched_.push_back({std::move(buffer), hash});
}

template <class Which>
std::optional<BufferWatch::Buffer> BufferWatch::take(Which&& which) {
  std::optional<Buffer> changed;
  for (Watched& watched : watched_) {
    if (!which(watched.buffer) || changed) continue;
    const std::uint64_t now = hash_of_memory(watched.buffer.runs);
    if (now != 0 && now != watched.hash) changed = watched.buffer;
  }
  std::erase_if(watched_, [&](const Watched& watched) { return which(watched.buffer); });
  return changed;
}

std::optional<BufferWatch::Buffer> BufferWatch::request_completed(std::uint64_t number) {
  return take([&](const Buffer& buffer) { return buffer.number == number; });
}
std::optional<BufferWatch::Buffer> BufferWatch::completed(int target) {
  return take([&](const Buffer& buffer) { return buffer.target == target; });
}
std::optional<BufferWatch::Buffer> BufferWatch::completed_all() {
  return take([](const Buffer&) { return true; });
}

}  // namespace farside::pmpi

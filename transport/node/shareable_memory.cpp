// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/shareable_memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <iterator>

#include <fmt/format.h>

namespace farside {

Result<void*> ShareableMemory::allocate(std::size_t bytes) {
  const std::scoped_lock held(mutex_);
  if (!fd_.valid()) {
    Result<UniqueFd> made = make_memory_file();
    if (!made) return made.error();
    fd_ = std::move(made.value());
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  // More than there is in any case; where it is rounded up, nothing overflows.
  if (bytes > SIZE_MAX / 4) return Error{ErrorKind::kNoMemory, fmt::format("{} bytes are more than an address space", bytes)};
  Result<Mapping> mapping = extend_memory_file(fd_.get(), end_, (bytes + page - 1) / page * page);
  if (!mapping) return mapping.error();
  std::byte* base = mapping.value().base();
  const std::uint64_t offset = end_;
  end_ += mapping.value().bytes();
  pieces_.emplace(base, Piece{std::move(mapping.value()), offset});
  return static_cast<void*>(base);
}

bool ShareableMemory::free(const void* base) {
  const std::scoped_lock held(mutex_);
  const auto found = pieces_.find(static_cast<const std::byte*>(base));
  if (found == pieces_.end()) return false;
  const Piece& piece = found->second;
  // The pages go back although the file stays.
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(piece.offset),
            static_cast<off_t>(piece.mapping.bytes()));
  pieces_.erase(found);
  if (!pieces_.empty()) return true;
  // As before the first one: no descriptor, and a new file.
  fd_.reset();
  end_ = 0;
  return true;
}

std::optional<ShareableMemory::Place> ShareableMemory::find(const void* base, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(base);
  const std::scoped_lock held(mutex_);
  auto behind = pieces_.upper_bound(begin);
  if (behind == pieces_.begin()) return std::nullopt;
  const auto& [start, piece] = *std::prev(behind);
  const auto before = static_cast<std::size_t>(begin - start);
  if (before > piece.mapping.bytes() || bytes > piece.mapping.bytes() - before) return std::nullopt;
  return Place{fd_.get(), piece.offset + before};
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// Memory that the application allocates (MPI_Alloc_mem) before anybody knows whether a window will ever be made on it: pieces
// of one unnamed memfd per process, which peers of the node can map later. One descriptor for all of them, and none when
// there are none; the file is sparse and its offsets are not used twice, so nothing has to be managed but what is in use.
//
//   file   | piece | hole: was freed | piece | piece |
//   memory   mmap                      mmap    mmap      each on pages of its own
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "transport/base/result.hpp"
#include "transport/base/unique_fd.hpp"
#include "transport/node/segment.hpp"

namespace farside {

class ShareableMemory {
 public:
  // Zeroed, reserved, at the beginning of a page. `bytes` is not 0. Errors: kNoMemory.
  Result<void*> allocate(std::size_t bytes);
  // False if `base` is not what allocate returned.
  bool free(const void* base);

  // Where in the file memory lies.
  struct Place {
    int fd;
    std::uint64_t offset;
  };
  // Nothing if not all of it is in one piece.
  std::optional<Place> find(const void* base, std::size_t bytes) const;

 private:
  struct Piece {
    Mapping mapping;
    std::uint64_t offset;
  };
  mutable std::mutex mutex_;
  UniqueFd fd_;
  std::uint64_t end_ = 0;                         // of the file
  std::map<const std::byte*, Piece> pieces_;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// The memory of MPI_Alloc_mem, on which the application may later make a window. The allocations are pieces of one
// unnamed memfd per process, which on-node peers can map later. The process has one descriptor for all pieces, and none
// without a piece. The file is sparse, and no offset is used twice, so only the pieces in use need management.
//
//   file   | piece | hole: was freed | piece | piece |
//   memory   mmap                      mmap    mmap      each on pages of its own
//
// A forked process gets a copy, as of private memory: neither process sees later stores of the other one. Handlers of
// pthread_atfork(3), registered when farside is loaded, make the copy:
//   - before the fork, the forking thread copies the pages with data into private memory;
//   - after the fork, the child moves the copy to the address of the memory (one mremap(2) per piece), and the parent
//     unmaps its copy.
// Neither process waits for the other, so a child may die at any time. A fork costs the time and memory of the copy,
// some 1 ms per MiB of touched pages. (The kernel copies a private page only when one of the processes stores to it.)
// The handlers registered first run last before the fork and first after it. So locks that the program's own handlers
// hold over the fork are held during the copy, and the copy is consistent with all data that these locks guard. The
// copy may or may not include concurrent stores of other threads without a lock, as in any fork. If there is not enough
// memory for the copy, farside prints a warning, and the child maps the file privately: its stores remain its own, but
// it may see later stores of the parent. vfork(2), posix_spawn(3) and a bare clone(2) run no handlers: their child
// shares the memory until exec(3).
//
// Thread safety: any. Errors: kNoMemory. Cost: no communication; the pages are allocated at the first touch.
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
  ShareableMemory();
  ShareableMemory(const ShareableMemory&) = delete;
  ShareableMemory& operator=(const ShareableMemory&) = delete;
  ~ShareableMemory();

  // Returns zeroed memory that begins at a page and at a multiple of `alignment`, a power of two. Precondition: `bytes`
  // is not 0. Errors: kNoMemory, by this process's own check: the call is not collective, so the check does not include
  // what other processes allocate at the same time.
  Result<void*> allocate(std::size_t bytes, std::size_t alignment = 1);
  // Returns false if `base` is not the result of allocate().
  bool free(const void* base);

  // The location of memory in the file.
  struct Place {
    int fd;
    std::uint64_t offset;
  };
  // Returns nothing if the memory is not part of one piece, or if it is the private copy of a forked process.
  std::optional<Place> find(const void* base, std::size_t bytes) const;

 private:
  struct Allocation {
    Mapping mapping;
    std::uint64_t offset;
    bool in_file = true;        // false: private memory of a forked process
    void* copy = nullptr;       // during a fork, for the child; null if there was no memory for it
  };

  // Handlers of pthread_atfork(3), for all objects of this class.
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();
  static const bool handles_forks_;
  void make_copies();
  void drop_copies();
  void move_to_copies();

  ShareableMemory* next_ = nullptr;   // in the list of all objects
  mutable std::mutex mutex_;          // held over a fork; signals are blocked while it is held
  UniqueFd fd_;
  std::optional<UntouchedMemory> untouched_;      // of the file, while fd_ is open
  std::uint64_t bytes_ = 0;                       // of the pieces in the file
  std::uint64_t end_ = 0;                         // of the file
  std::map<const std::byte*, Allocation> allocations_;
};

}  // namespace farside

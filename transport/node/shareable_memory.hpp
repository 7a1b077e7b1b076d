// SPDX-License-Identifier: BSD-3-Clause
// Memory that the application allocates (MPI_Alloc_mem) before anybody knows whether a window will ever be made on it:
// pieces of one unnamed memfd per process, which peers of the node can map later. One descriptor for all of them, and
// none when there are none; the file is sparse and its offsets are not used twice, so nothing has to be managed but
// what is in use.
//
//   file   | piece | hole: was freed | piece | piece |
//   memory   mmap                      mmap    mmap      each on pages of its own
//
// A process that is forked gets a copy, as of its private memory: neither process sees what the other stores
// afterwards. Handlers of pthread_atfork(3), registered when farside is loaded, see to it:
//   - before the fork, its thread copies the pages in use (those without data are skipped) into private memory;
//   - after it, the child moves the copy to where the memory was (one mremap(2) for each piece), and the parent unmaps
//     it.
// Nobody waits for anybody, so a child may die at any time. A fork costs as much time and memory as the pages in use
// take to copy (some 1 ms per MiB), where a private page is copied only once one of the two stores to it. The handlers
// registered first run last before the fork and first after it, so locks that the program's own handlers hold over the
// fork are held while farside copies: the copy agrees with all else that these locks guard. What other threads store
// without a lock meanwhile may be in it or not, as in any fork. If there is not enough memory for the copy, the child
// maps the file privately instead, and a warning says so: then its stores are its own, but it may see what the parent
// stores later. vfork(2), posix_spawn(3) and a bare clone(2) run no handlers: who calls them shares the memory until
// exec(3).
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

  // Zeroed, at the beginning of a page; pages come where and when they are first touched. `bytes` is not 0. Errors:
  // kNoMemory, by what this process finds: it is no collective call, so what others take at the same time is not known.
  Result<void*> allocate(std::size_t bytes);
  // False if `base` is not what allocate returned.
  bool free(const void* base);

  // Where in the file memory lies.
  struct Place {
    int fd;
    std::uint64_t offset;
  };
  // Nothing if not all of it is in one piece, or if it is a copy that this process, a forked one, has for itself.
  std::optional<Place> find(const void* base, std::size_t bytes) const;

 private:
  struct Allocation {
    Mapping mapping;
    std::uint64_t offset;
    bool in_file = true;        // false: private memory of a forked process
    void* copy = nullptr;       // for a process that is being forked; null if there is no memory for it
  };

  // Handlers of pthread_atfork(3), for all objects of this class.
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();
  static const bool handles_forks_;
  void make_copies();
  void drop_copies();
  void move_to_copies();

  ShareableMemory* next_ = nullptr;   // of all objects
  mutable std::mutex mutex_;          // held over a fork; signals are blocked while it is held
  UniqueFd fd_;
  std::optional<UntouchedMemory> untouched_;      // of the file, while it is open
  std::uint64_t bytes_ = 0;                       // of the pieces in the file
  std::uint64_t end_ = 0;                         // of the file
  std::map<const std::byte*, Allocation> allocations_;
};

}  // namespace farside

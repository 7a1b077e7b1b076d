// SPDX-License-Identifier: BSD-3-Clause
// The memory of MPI_Alloc_mem, on which the application may later make a window. Pieces are parts of arenas; an arena
// is an unnamed memfd, mapped as a whole, so that on-node peers can map a piece later. Each arena has at least a
// quarter of the bytes of all, so a process has a few dozen. Its file is sparse, and pages without a piece are returned
// to the kernel. Pieces of a page or more have their own pages.
//
// A forked process has the memory as private memory: its stores remain its own. Handlers of pthread_atfork(3),
// registered when farside is loaded, see to this in one of two ways:
//   - Before the fork, the forking thread maps the arena privately (MAP_PRIVATE) at its address. The new mapping has
//     the same pages, so no store of another thread is lost. From then on the kernel copies a page when one of the
//     processes stores to it, so the fork costs no more than that of other memory. Peers cannot map the pieces of the
//     arena any more, and reach windows on them by other routes; new pieces come from new arenas. A page that has been
//     copied stays in the file, too, until the arena has no piece.
//   - If stores could bypass the new mapping, because peers have mapped a piece for a window or a device may have
//     pinned pages, the child alone maps the file privately. It may see what the parent stores afterwards.
// Neither process waits for the other, so a child may die at any time. The copy may or may not include concurrent
// stores of other threads, as in any fork.
//
// vfork(2), posix_spawn(3) and a bare clone(2) run no handlers: their child shares the memory until exec(3). The kernel
// copies at a clone only what is mapped privately, and pages stored to there can never be mapped by a peer. So memory
// that has data before its window is made is either shared with such a child, or out of reach of the route mapped.
//
// Thread safety: any. Errors: kNoMemory. Cost: no communication; the pages are allocated at the first touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "transport/base/files.hpp"
#include "transport/base/result.hpp"
#include "transport/node/segment.hpp"

namespace farside {

class ShareableMemory {
 public:
  ShareableMemory();
  ~ShareableMemory();

  // Returns memory that begins at a multiple of `alignment`, a power of two, and at a page or, if it is smaller than
  // one, at a cache line. Precondition: `bytes` is not 0. Errors: kNoMemory, by this process's own check: the call is
  // not collective, so the check does not include what other processes allocate at the same time. `overcommit`: memory
  // that the check refuses gets its own arena, and later checks do not count it.
  Result<void*> allocate(std::size_t bytes, std::size_t alignment = 1, bool overcommit = false);
  // Returns false if no piece begins at `base`.
  bool free(const void* base);
  // Whether the address lies in an arena.
  bool contains(const void* base) const;

  // The location of memory in a file. Peers may have it mapped while a copy of `users` lives.
  struct Place {
    int fd;
    std::uint64_t offset;
    std::shared_ptr<const void> users;
  };
  // Returns nothing if the memory is not part of one piece, or if its arena is mapped privately.
  std::optional<Place> find(const void* base, std::size_t bytes) const;

 private:
  struct Arena {
    Mapping mapping;
    UniqueFd fd;                               // none: mapped privately
    std::optional<UntouchedMemory> untouched;  // of the file, while fd is open; none: overcommitted
    std::shared_ptr<const void> users;
    struct Block {
      std::size_t bytes;
      bool used;
    };
    std::map<std::size_t, Block> blocks;                   // by offset; without gaps
    std::set<std::pair<std::size_t, std::size_t>> unused;  // size and offset
    std::size_t used_bytes = 0;

    void put(std::size_t offset, std::size_t bytes, bool used);
    std::byte* take(std::size_t bytes, std::size_t alignment);
    bool give(std::size_t offset);
    void map_privately();
  };
  using Arenas = std::map<const std::byte*, Arena>;

  // Handlers of pthread_atfork(3), for all objects of this class.
  static void before_fork();
  static void after_fork(bool in_child);
  static const bool handles_forks_;
  void prepare_fork();

  ShareableMemory* next_ = nullptr;  // in the list of all objects
  mutable std::mutex mutex_;         // held over a fork; signals are blocked while it is held
  Arenas arenas_;                    // by address
};

}  // namespace farside

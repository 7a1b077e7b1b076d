// SPDX-License-Identifier: BSD-3-Clause
// What memory there is for segments, and whether it suffices for what the processes of a node want together. Pages of a
// memfd come with their first use, and the kernel sooner ends a process than refuses one. So whoever makes a segment
// looks before: at the memory of the node (MemAvailable, and where vm.overcommit_memory is 2 also what may still be
// committed), and at the limits of its control group and of those above (versions 1 and 2). A process counts what it
// wants, and what it was promised before and has not used yet. The ranks of a space tell each other what they found,
// and each sums up all that meets the same limit, so all come to the same result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "transport/base/result.hpp"

namespace farside {

// What there is for segments: bytes, and which limit that is ("the memory of this node", "the control group of this
// process").
struct AvailableMemory {
  std::uint64_t bytes;
  const char* limit;
};
// Takes some 50 us.
AvailableMemory available_shared_memory();
// Whether so much is there; always true of what is too little to be worth the look.
bool enough_memory_for(std::uint64_t bytes);

// What a process finds. Plain bytes.
struct MemoryNeed {
  struct Limit {
    std::uint64_t id = 0;     // the same for all processes that meet the same limit; 0: no limit
    std::uint64_t left = 0;
  };
  std::uint64_t bytes = 0;           // that it wants, and was promised before and has not used
  std::array<Limit, 5> limits;       // the node; control groups, the innermost first
};

// What this process needs to have `bytes` more. Nothing, if they are too few to be worth the look. Thread safety: any.
MemoryNeed find_memory_need(std::uint64_t bytes);

// Whether there is enough for all of them. Errors: kNoMemory, with the limit that is met.
Status check_memory_needs(std::span<const MemoryNeed> needs);

// What a sparse file of this process may come to hold. While an object of this class lives, its file counts as promised
// memory. Thread safety: any.
class UntouchedMemory {
 public:
  // The descriptor must stay open, because it tells how much of the file has been touched.
  UntouchedMemory(int fd, std::uint64_t bytes);
  UntouchedMemory(const UntouchedMemory&) = delete;
  UntouchedMemory& operator=(const UntouchedMemory&) = delete;
  ~UntouchedMemory();
  void change_to(std::uint64_t bytes);

  // Guards all of them; to be held over a fork, so that the child finds it free.
  static std::mutex& mutex();
  // In a forked process: the files are the parent's.
  static void forget_all();

 private:
  friend MemoryNeed find_memory_need(std::uint64_t bytes);
  static std::uint64_t unused();
  UntouchedMemory* next_ = nullptr;
  int fd_;
  std::uint64_t bytes_;
};

}  // namespace farside

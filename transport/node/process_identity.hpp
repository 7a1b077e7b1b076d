// SPDX-License-Identifier: BSD-3-Clause
// Which process of this node something in shared memory belongs to, so that others see whether it is still there: the
// process id and the time at which the process began, in one word, so that a compare-and-swap takes both at once. A
// process id that the kernel gave away again comes with another time.
#pragma once

#include <cstdint>

namespace farside {

class ProcessIdentity {
 public:
  static constexpr unsigned kBits = 62;

  // Nobody: of a process that does not know how others see it, and never taken for dead.
  constexpr ProcessIdentity() = default;
  // What bits() gave; anything else is some process, or none.
  static constexpr ProcessIdentity of_bits(std::uint64_t bits) { return ProcessIdentity(bits & kAllBits); }
  // The calling process's, read from /proc/self/stat (some 10 us); nobody where that cannot be read, or is of another
  // process id namespace.
  static ProcessIdentity own();

  constexpr std::uint64_t bits() const { return bits_; }
  constexpr bool known() const { return bits_ != 0; }
  // Whether this process has ended for certain: it is gone, a zombie, or its process id is another's. False where that
  // cannot be told. Reads a file of /proc (some 10 us). Precondition: the caller has the same process_namespaces() as
  // this process. Thread safety: any.
  bool is_dead() const;

 private:
  static constexpr std::uint64_t kAllBits = (std::uint64_t{1} << kBits) - 1;
  static constexpr unsigned kPidBits = 22;  // PID_MAX_LIMIT of the kernel is 2^22
  explicit constexpr ProcessIdentity(std::uint64_t bits) : bits_(bits) {}

  std::uint64_t bits_ = 0;  // | begin, in ticks since the boot (40) | process id (22) |
};

// In which namespaces processes see the same process ids and the same times: the same number for all processes that do;
// 0 if unknown.
std::uint64_t process_namespaces();

}  // namespace farside

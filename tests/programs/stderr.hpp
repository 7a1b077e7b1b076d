// SPDX-License-Identifier: BSD-3-Clause
// Captures the output on stderr:
//
//   check::Stderr captured;
//   MPI_Win_unlock(...);
//   const std::string text = captured.end();
#pragma once

#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "check.hpp"

namespace check {

// Captures stderr from its construction until end(), which must be called. Returns 64 KiB at most. Any thread may call
// so_far().
class Stderr {
 public:
  Stderr() {
    std::fflush(stderr);
    if (ftruncate(file(), 0) == 0) lseek(file(), 0, SEEK_SET);
    dup2(file(), STDERR_FILENO);
  }
  std::string end() {
    std::fflush(stderr);
    dup2(terminal, STDERR_FILENO);
    return so_far();
  }
  std::string so_far() const {
    std::string text(1 << 16, '\0');
    const ssize_t bytes = pread(file(), text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return text;
  }

 private:
  static int file() {
    static const int made = [] {
      terminal = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
      const int made_here = memfd_create("stderr", MFD_CLOEXEC);
      // Without O_APPEND two threads could write to the same offset.
      fcntl(made_here, F_SETFL, O_APPEND);
      return made_here;
    }();
    return made;
  }
};

}  // namespace check

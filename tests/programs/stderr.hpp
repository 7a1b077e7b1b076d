// SPDX-License-Identifier: BSD-3-Clause
// What is written on stderr meanwhile:
//
//   check::Stderr heard;
//   MPI_Win_unlock(...);
//   const std::string text = heard.end();
#pragma once

#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace check {

// From its construction on, 64 KiB at most, what goes to stderr goes here instead; until end(), which must be called.
class Stderr {
 public:
  Stderr() : file_(memfd_create("stderr", MFD_CLOEXEC)), before_(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)) {
    std::fflush(stderr);
    dup2(file_, STDERR_FILENO);
  }
  std::string end() {
    std::fflush(stderr);
    dup2(before_, STDERR_FILENO);
    std::string text(1 << 16, '\0');
    const ssize_t bytes = pread(file_, text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    close(file_);
    close(before_);
    return text;
  }

 private:
  int file_;
  int before_;
};

}  // namespace check

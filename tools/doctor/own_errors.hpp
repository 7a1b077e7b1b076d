// SPDX-License-Identifier: BSD-3-Clause
// Captures what this process prints on stderr, because farside prints its reasons there (transport/base/log.hpp), and
// prints it at the end.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "tools/text.hpp"
#include "transport/base/unique_fd.hpp"

namespace farside::tools {

class OwnErrors {
 public:
  OwnErrors() : stderr_(dup(STDERR_FILENO)), kept_(memfd_create("stderr", MFD_CLOEXEC)) {
    std::fflush(stderr);
    if (kept_.valid()) dup2(kept_.get(), STDERR_FILENO);
  }
  OwnErrors(const OwnErrors&) = delete;
  OwnErrors& operator=(const OwnErrors&) = delete;
  ~OwnErrors() { end(); }

  // Ends the capture. Returns the lines of farside, without their ranks and without repetitions.
  std::vector<std::string> end() {
    std::vector<std::string> reasons;
    if (!kept_.valid() || !stderr_.valid()) return reasons;
    std::fflush(stderr);
    dup2(stderr_.get(), STDERR_FILENO);
    std::string text(1 << 16, '\0');
    const ssize_t bytes = pread(kept_.get(), text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    kept_.reset();
    for (const std::string& line : split(text, "\n")) {
      const std::size_t begin = line.find(": ");
      if (line.empty()) continue;
      std::fprintf(stderr, "%s\n", line.c_str());
      if (!line.starts_with("farside") || begin == std::string::npos) continue;
      const std::string reason = line.substr(begin + 2);
      if (std::ranges::find(reasons, reason) == reasons.end()) reasons.push_back(reason);
    }
    return reasons;
  }

 private:
  UniqueFd stderr_, kept_;
};

}  // namespace farside::tools

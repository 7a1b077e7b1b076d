// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/rank_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "pmpi/observe/this_job.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {

bool write_rank_file(const char* setting, const std::string& prefix, std::string_view suffix,
                     std::span<const char> bytes) {
  const Job job = this_job();
  const std::string apart = job.spawned ? fmt::format(".spawned-{}", getpid()) : "";
  const std::string path = fmt::format("{}{}.{}.{}", prefix, apart, job.rank, suffix);
  // Two threads may write at once: at a signal, and in MPI_Finalize.
  const std::string part = fmt::format("{}.{}.part", path, gettid());
  // A link of another user, or the rest of an earlier process, is not written to.
  (void)unlink(part.c_str());
  std::FILE* const file = std::fopen(part.c_str(), "wxe");
  bool written = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written && std::rename(part.c_str(), path.c_str()) == 0) return true;
  const int reason = errno;
  if (file != nullptr) (void)unlink(part.c_str());
  log(LogLevel::kWarn, "{}: {} could not be written ({})", setting, path, std::strerror(reason));
  return false;
}

}  // namespace farside::pmpi

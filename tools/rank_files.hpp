// SPDX-License-Identifier: BSD-3-Clause
// Reads the files that the ranks of a run wrote: PREFIX.RANK.EXTENSION.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace farside::tools {

// Calls take(path, content) with each file, in no order. `extension` includes its dot. Throws std::runtime_error if the
// folder or a file cannot be read, or if there is no file, which setting `variable` to the prefix would write.
template <class Take>
void read_rank_files(const std::string& prefix, std::string_view extension, const char* variable, Take&& take) {
  namespace fs = std::filesystem;
  const fs::path path(prefix);
  const std::string start = path.filename().string() + ".";
  bool any = false;
  std::error_code failed;
  for (const auto& entry :
       fs::directory_iterator(path.has_parent_path() ? path.parent_path() : fs::path("."), failed)) {
    if (!entry.path().filename().string().starts_with(start) || entry.path().extension() != extension) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (file.bad()) throw std::runtime_error(fmt::format("{}: cannot be read", entry.path().string()));
    take(entry.path().string(), content);
    any = true;
  }
  if (failed) throw std::runtime_error(fmt::format("{}.*{}: {}", prefix, extension, failed.message()));
  if (any) return;
  throw std::runtime_error(
      fmt::format("{}.*{}: there is no such file; run the program with {}={} (and with farside), to its MPI_Finalize",
                  prefix, extension, variable, prefix));
}

}  // namespace farside::tools

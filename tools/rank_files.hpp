// SPDX-License-Identifier: BSD-3-Clause
// Lists the files that the ranks of a run wrote: PREFIX.RANK.EXTENSION.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace farside::tools {

// The result is not sorted. `extension` includes its dot; `failed` is the error of reading the folder.
inline std::vector<std::filesystem::path> rank_files(const std::string& prefix, std::string_view extension,
                                                     std::error_code& failed) {
  namespace fs = std::filesystem;
  const fs::path path(prefix);
  const std::string start = path.filename().string() + ".";
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(path.has_parent_path() ? path.parent_path() : fs::path("."), failed)) {
    if (entry.path().filename().string().starts_with(start) && entry.path().extension() == extension)
      files.push_back(entry.path());
  }
  return files;
}

}  // namespace farside::tools

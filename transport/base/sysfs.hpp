// SPDX-License-Identifier: BSD-3-Clause
// Reads files of sysfs (sysfs(5)). Header only, for programs that are not linked with this folder. Thread safety: any
// thread. Errors: none; what is not there is empty.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace farside {

// Returns the names of the entries of a folder, in ascending order.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// Returns the first line of a file, without its end.
inline std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

}  // namespace farside

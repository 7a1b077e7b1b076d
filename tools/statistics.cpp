// SPDX-License-Identifier: BSD-3-Clause
#include "tools/statistics.hpp"

#include <filesystem>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>

namespace farside::tools {

Statistics read_statistics(const std::string& prefix) {
  namespace fs = std::filesystem;
  Statistics sum;
  const fs::path path(prefix);
  const std::string start = path.filename().string() + ".";
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), failed)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(start, 0) != 0 || entry.path().extension() != ".json") continue;
    try {
      std::ifstream file(entry.path());
      const nlohmann::json rank = nlohmann::json::parse(file);
      ++sum.files;
      sum.farside_windows += rank.at("windows").value("farside", 0L);
      sum.runtime_windows += rank.at("windows").value("runtime", 0L);
      if (!rank.contains("routes")) continue;
      for (const auto& [route, operations] : rank.at("routes").items()) {
        for (const auto& [operation, numbers] : operations.items()) {
          if (numbers.is_object()) sum.operations[route] += numbers.value("count", 0L);
        }
      }
    } catch (const nlohmann::json::exception& error) {
      sum.unreadable = name + ": " + error.what();
    }
  }
  return sum;
}

}  // namespace farside::tools

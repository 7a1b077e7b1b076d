// SPDX-License-Identifier: BSD-3-Clause
#include "tools/machine.hpp"

#include <fstream>

namespace farside::tools {

std::string system_name() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("PRETTY_NAME=")) continue;
    std::string value = line.substr(line.find('=') + 1);
    std::erase(value, '"');
    return value;
  }
  return "unknown system";
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  }
  return "unknown processor";
}

}  // namespace farside::tools

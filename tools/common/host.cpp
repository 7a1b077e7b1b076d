// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/host.hpp"

#include <fstream>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <system_error>

#include <rdma/fabric.h>

#include "transport/base/files.hpp"

namespace farside::tools {
namespace {

namespace fs = std::filesystem;

Json adapter_facts(const fs::path& adapter) {
  std::error_code failed;
  const std::string type = first_line(adapter / "hca_type");
  Json facts{{"adapter", adapter.filename().string()},
             {"type", type.empty() ? first_line(adapter / "node_desc") : type},
             {"board", first_line(adapter / "board_id")},
             {"firmware", first_line(adapter / "fw_ver")},
             {"driver", fs::read_symlink(adapter / "device/driver", failed).filename().string()},
             {"ports", Json::array()}};
  for (const std::string& port : names_in(adapter / "ports")) {
    const fs::path folder = adapter / "ports" / port;
    facts["ports"].push_back({{"port", port},
                              {"state", first_line(folder / "state")},
                              {"rate", first_line(folder / "rate")},
                              {"link_layer", first_line(folder / "link_layer")}});
  }
  return facts;
}

}  // namespace

Json host_facts(const fs::path& sys) {
  utsname system{};
  uname(&system);
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  const std::uint32_t fabric = fi_version();
  Json facts{{"host", system.nodename},
             {"kernel", system.release},
             {"libfabric", std::to_string(FI_MAJOR(fabric)) + "." + std::to_string(FI_MINOR(fabric))},
             {"locked_memory", locked.rlim_cur == RLIM_INFINITY ? Json(nullptr) : Json(locked.rlim_cur)},
             {"adapters", Json::array()}};
  const fs::path adapters = sys / "class/infiniband";
  for (const std::string& name : names_in(adapters)) facts["adapters"].push_back(adapter_facts(adapters / name));
  return facts;
}

std::string adapter_text(const Json& adapter) {
  std::string text = adapter.at("adapter");
  const auto known = [](const Json& value) { return value == "" ? std::string("unknown") : value.get<std::string>(); };
  const std::string board = adapter.at("board");
  text += " (" + (board.empty() ? known(adapter.at("type")) : board) + ", firmware " + known(adapter.at("firmware"));
  for (const Json& port : adapter.at("ports")) {
    const std::string state = port.at("state");
    const std::size_t word = state.find(' ');
    text += ", port " + port.at("port").get<std::string>() + " " +
            (word == std::string::npos ? state : state.substr(word + 1));
    for (const char* key : {"rate", "link_layer"})
      if (port.at(key) != "") text += ", " + port.at(key).get<std::string>();
  }
  return text + ")";
}

// Returns the text behind `mark` in the first line of the file that begins with the key, without quotes.
static std::string value_of(const char* path, std::string_view key, std::string_view mark, const char* otherwise) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key) || line.find(mark) == std::string::npos) continue;
    std::erase(line, '"');
    return line.substr(line.find(mark) + mark.size());
  }
  return otherwise;
}

std::string system_name() { return value_of("/etc/os-release", "PRETTY_NAME=", "=", "unknown system"); }
std::string processor_name() { return value_of("/proc/cpuinfo", "model name", ": ", "unknown processor"); }

}  // namespace farside::tools

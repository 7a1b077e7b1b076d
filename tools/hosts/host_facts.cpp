// SPDX-License-Identifier: BSD-3-Clause
#include "tools/hosts/host_facts.hpp"

#include <algorithm>
#include <fstream>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <system_error>
#include <vector>

#include <rdma/fabric.h>

namespace farside::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// The first line; empty if there is none.
std::string line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

Json adapter_facts(const fs::path& adapter) {
  std::error_code failed;
  const std::string type = line_of(adapter / "hca_type");
  Json facts{{"adapter", adapter.filename().string()},
             {"type", type.empty() ? line_of(adapter / "node_desc") : type},
             {"board", line_of(adapter / "board_id")},
             {"firmware", line_of(adapter / "fw_ver")},
             {"driver", fs::read_symlink(adapter / "device/driver", failed).filename().string()},
             {"ports", Json::array()}};
  for (const std::string& port : names_in(adapter / "ports")) {
    const fs::path folder = adapter / "ports" / port;
    facts["ports"].push_back({{"port", port},
                              {"state", line_of(folder / "state")},
                              {"rate", line_of(folder / "rate")},
                              {"link_layer", line_of(folder / "link_layer")}});
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

}  // namespace farside::tools

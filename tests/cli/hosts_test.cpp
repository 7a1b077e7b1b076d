// SPDX-License-Identifier: BSD-3-Clause
// What is said of several hosts: their adapters as sysfs has them, and the matrix of what farside takes between them.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tools/common/child.hpp"
#include "tools/common/host.hpp"
#include "tools/common/runtime.hpp"
#include "tools/doctor/examination.hpp"

namespace farside::hosts_test {

using namespace farside::tools;

namespace {

namespace fs = std::filesystem;

Json host(const char* name, const char* libfabric = "1.17") {
  return {{"host", name}, {"kernel", "6.1"}, {"libfabric", libfabric}, {"adapters", Json::array()}};
}

// Three hosts. verbs: c cannot open it, and the trial from b to a fails.
std::vector<ProviderTrials> trials() {
  const std::vector<std::vector<std::string>> fine(3, std::vector<std::string>(3));
  ProviderTrials verbs{"verbs", {{"mlx5_0", ""}, {"mlx5_1", ""}, {"", "no adapter"}}, fine};
  verbs.trouble[1][0] = "no route";
  return {verbs, {"tcp", {{"eth0", ""}, {"eth1", ""}, {"eth2", ""}}, fine}};
}

const Json& pair(const Json& matrix, const char* from, const char* to) {
  for (const Json& one : matrix["pairs"])
    if (one["from"] == from && one["to"] == to) return one;
  FAIL("no pair");
  return matrix;
}

}  // namespace

TEST_CASE("an adapter is named with its board, firmware and ports; what the driver does not say is empty") {
  std::string path = (fs::temp_directory_path() / "farside-test.XXXXXX").string();
  REQUIRE(mkdtemp(path.data()) != nullptr);
  const fs::path adapter = fs::path(path) / "class/infiniband/mlx5_0";
  fs::create_directories(adapter / "ports/1");
  std::ofstream(adapter / "fw_ver") << "20.31.1014\n";
  std::ofstream(adapter / "board_id") << "MT_0000000223\n";
  std::ofstream(adapter / "ports/1/state") << "4: ACTIVE\n";
  const Json facts = host_facts(path);
  CHECK(host_facts(fs::path(path) / "nowhere")["adapters"].empty());
  fs::remove_all(path);
  REQUIRE(facts["adapters"].size() == 1);
  const Json& one = facts["adapters"][0];
  CHECK(one["firmware"] == "20.31.1014");
  CHECK(one["type"] == "");
  CHECK(one["ports"][0]["rate"] == "");
  CHECK(adapter_text(one) == "mlx5_0 (MT_0000000223, firmware 20.31.1014, port 1 ACTIVE)");
}

TEST_CASE("hosts take the best provider that works in both directions, and the reasons name host and direction") {
  const Json matrix = matrix_of({host("a"), host("b"), host("c", "2.1")}, trials());
  CHECK(pair(matrix, "a", "b")["provider"] == "tcp");
  CHECK(pair(matrix, "b", "a")["device"] == "eth1");
  CHECK(pair(matrix, "a", "b")["why_not"][0] == "verbs: from b to a: no route");
  CHECK(pair(matrix, "c", "a")["why_not"] == Json{"verbs: c: no adapter"});
  CHECK(matrix["all"]["provider"] == "tcp");
  CHECK(matrix["hosts"][2]["providers"][0]["trouble"] == "no adapter");
  CHECK(matrix["all"]["why_not"][0] == "verbs: c: no adapter");

  std::vector<ProviderTrials> two = trials();
  two[0].trouble[1][0].clear();
  const Json better = matrix_of({host("a"), host("b"), host("c")}, two);
  CHECK(pair(better, "b", "a")["provider"] == "verbs");
  CHECK(pair(better, "b", "a")["why_not"].empty());
  CHECK(better["all"]["provider"] == "tcp");
}

TEST_CASE("hosts between which nothing works are said so") {
  std::vector<ProviderTrials> none = trials();
  none.pop_back();
  const Json matrix = matrix_of({host("a"), host("b"), host("c")}, none);
  CHECK(matrix["all"]["provider"] == "");
}

TEST_CASE("the mpirun of an MPI library is in the bin of its prefix, some folders above the library") {
  const Runtime here = find_runtime("openmpi", FARSIDE_LIBRARIES);
  if (here.launcher.empty()) return;
  prepare_for_children();
  std::string prefix = (fs::temp_directory_path() / "farside-test.XXXXXX").string();
  REQUIRE(mkdtemp(prefix.data()) != nullptr);
  prefix = fs::canonical(prefix);
  fs::create_directories(prefix + "/lib/release");
  fs::create_directories(prefix + "/bin");
  std::ofstream(prefix + "/lib/release/libmpi.so.40") << "a library";
  const auto launcher = [&](const std::string& version) {
    std::ofstream(prefix + "/bin/mpirun") << "#!/bin/sh\necho '" << version << "'\n";
    fs::permissions(prefix + "/bin/mpirun", fs::perms::owner_all);
    return find_runtime("openmpi", FARSIDE_LIBRARIES, prefix + "/lib/release/libmpi.so.40").launcher;
  };
  CHECK(launcher("mpirun (Open MPI) 4.1.4") == prefix + "/bin/mpirun");
  CHECK(launcher("HYDRA build details:") == here.launcher);
  fs::remove_all(prefix);
}

}  // namespace farside::hosts_test

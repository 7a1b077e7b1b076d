// SPDX-License-Identifier: BSD-3-Clause
// Which ranks of a node run without farside, by files like those of /proc.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "pmpi/runtime/program_runtime.hpp"

using namespace farside::pmpi;

namespace {

namespace fs = std::filesystem;
using Variables = std::vector<std::string>;
using Ranks = std::vector<int>;

constexpr int kLauncher = 100;
const std::string kMpi = "/usr/lib/libmpi.so.40.30.4";
const std::string kFarside = "/opt/farside/lib/libfarside-openmpi.so.0.1.0";

// A folder like /proc, in which processes are made.
class Proc {
 public:
  Proc() : root_(fs::temp_directory_path() / fmt::format("farside-proc-{}", getpid())) {
    fs::create_directories(root_);
  }
  Proc(const Proc&) = delete;
  Proc& operator=(const Proc&) = delete;
  ~Proc() { fs::remove_all(root_); }

  void make(int process, int parent, const Variables& variables, const std::vector<std::string>& files) {
    const fs::path folder = root_ / std::to_string(process);
    fs::create_directories(folder / "task" / std::to_string(process));
    std::string environment;
    for (const std::string& each : variables) environment += each + '\0';
    write(folder / "environ", environment);
    write(folder / "stat", fmt::format("{} (a ) name) S {} 1 1 0", process, parent));
    std::string maps = "55d0c0de1000-55d0c0de2000 r-xp 00000000 00:00 0\n";
    for (const std::string& each : files)
      maps += fmt::format("7f0000000000-7f0000001000 r-xp 00000000 08:01 7  {}\n", each);
    write(folder / "maps", maps);
    children_[parent] += fmt::format("{} ", process);
    const fs::path started = root_ / std::to_string(parent) / "task" / std::to_string(parent);
    if (fs::exists(started)) write(started / "children", children_[parent]);
  }
  void make_rank(int rank, const std::vector<std::string>& files, const Variables& more = {}) {
    make(200 + rank, kLauncher, of_rank(rank, more), files);
  }
  static Variables of_rank(int rank, const Variables& more = {}) {
    Variables all = {"HOME=/", fmt::format("PMIX_RANK={}", rank), "PMIX_NAMESPACE=1234"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void hide(int process, const char* file) { fs::remove(root_ / std::to_string(process) / file); }
  NodeRanks find(int self, int rank) const {
    return find_node_ranks(
        {root_.string(), self, kLauncher, "libfarside-openmpi.so.0", {"PMIX_RANK", "OMPI_COMM_WORLD_RANK"}}, rank);
  }

 private:
  static void write(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  fs::path root_;
  std::map<int, std::string> children_;
};

}  // namespace

TEST_CASE("a rank with an MPI library and without farside is found") {
  Proc proc;
  proc.make(kLauncher, 1, {"HOME=/"}, {});
  proc.make_rank(0, {kMpi, kFarside});
  proc.make_rank(1, {kMpi});
  proc.make_rank(2, {kFarside, kMpi});
  proc.make_rank(3, {kMpi});
  const NodeRanks found = proc.find(200, 0);
  CHECK(found.with == Ranks{0, 2});
  CHECK(found.without == Ranks{1, 3});
}

TEST_CASE("LD_PRELOAD that names farside needs no look at the mapped files") {
  Proc proc;
  proc.make(kLauncher, 1, {}, {});
  proc.make_rank(0, {kMpi, kFarside});
  proc.make_rank(1, {}, {"LD_PRELOAD=/x/libtool.so:/x/libfarside-openmpi.so"});
  proc.hide(201, "maps");
  CHECK(proc.find(200, 0).with == Ranks{0, 1});
}

TEST_CASE("what cannot be seen, and what uses no MPI, gives no verdict") {
  Proc proc;
  proc.make(kLauncher, 1, {}, {});
  proc.make_rank(0, {kMpi, kFarside});
  proc.make_rank(1, {kMpi});
  proc.make_rank(2, {"/usr/bin/sleep"});
  proc.hide(201, "maps");
  const NodeRanks found = proc.find(200, 0);
  CHECK(found.with == Ranks{0});
  CHECK(found.without.empty());
  proc.hide(200, "environ");
  CHECK(proc.find(200, 0).without.empty());
}

TEST_CASE("processes of other jobs, and a number that is not the rank, give no verdict") {
  Proc proc;
  proc.make(kLauncher, 1, {}, {});
  proc.make_rank(0, {kMpi, kFarside});
  proc.make(201, kLauncher, {"PMIX_RANK=1", "PMIX_NAMESPACE=1235"}, {kMpi});
  proc.make(202, kLauncher, {"PMIX_NAMESPACE=1234"}, {kMpi});
  proc.make_rank(3, {kMpi}, {"PMI_SIZE=7"});
  const NodeRanks found = proc.find(200, 0);
  CHECK(found.with == Ranks{0});
  CHECK(found.without.empty());
  proc.make_rank(4, {kMpi});
  CHECK(proc.find(200, 0).without == Ranks{4});
  CHECK(proc.find(200, 1).without.empty());
}

TEST_CASE("a library of another file name is farside's if this process has that one") {
  Proc proc;
  proc.make(kLauncher, 1, {}, {});
  proc.make_rank(0, {kMpi, "/x/renamed.so"});
  proc.make_rank(1, {kMpi, "/x/renamed.so"});
  NodeView view{"", 200, kLauncher, "renamed.so", {"PMIX_RANK"}};
  CHECK(proc.find(200, 0).without == Ranks{1});
  view.proc = (fs::temp_directory_path() / fmt::format("farside-proc-{}", getpid())).string();
  CHECK(find_node_ranks(view, 0).with == Ranks{0, 1});
}

TEST_CASE("this process finds itself") {
  CHECK(NodeView::of_this_process().self == getpid());
  CHECK_FALSE(NodeView::of_this_process().library.empty());
  CHECK(find_node_ranks(NodeView::of_this_process(), 0).without.empty());
}

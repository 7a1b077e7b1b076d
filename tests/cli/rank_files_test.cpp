// SPDX-License-Identifier: BSD-3-Clause
// Which files of ranks are read, and which of them are of one launch.
#include "tools/common/rank_files.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/stat.h>

#include <catch2/catch.hpp>

namespace farside::rank_files_test {

using namespace farside::tools;
using Catch::Matchers::Contains;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// Rank `rank` of the launch with the number `launch`.
RankFile file(int rank, int ranks, std::uint64_t launch) {
  const std::int64_t at = 1'700'000'000 * kSecond + static_cast<std::int64_t>(launch) * 100 * kSecond;
  return {"s." + std::to_string(rank) + ".json", {rank, ranks, false, launch, at, at + 10 * kSecond}};
}
RankFile spawned(int rank, std::uint64_t launch) {
  RankFile result = file(rank, 2, launch);
  result.path = "s.spawned-" + std::to_string(100 + rank) + "." + std::to_string(rank) + ".json";
  result.job.spawned = true;
  result.job.agreed = 50 + launch;
  return result;
}

std::string refused(const std::vector<RankFile>& files) {
  try {
    check_one_launch(files, "FARSIDE_STATS");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("files of one launch belong together") {
  CHECK(refused({file(1, 2, 1), file(0, 2, 1)}).empty());
  CHECK(refused({file(0, 2, 1)}).empty());
  // Ranks of which nobody has agreed on anything, and of which the launcher says nothing.
  std::vector<RankFile> files{file(0, 2, 1), file(1, 2, 1)};
  for (RankFile& each : files) each.job.agreed = 0;
  CHECK(refused(files).empty());
}

TEST_CASE("of two new files and those that an earlier launch has left, each is named with its launch") {
  const std::string text = refused({file(0, 2, 5), file(1, 2, 5), file(2, 4, 4), file(3, 4, 4)});
  CHECK_THAT(text, Contains("written by 2 launches") &&
                       Contains("2 ranks, written 2023-11-14 22:21:50 UTC: s.0.json, s.1.json\n") &&
                       Contains("4 ranks, written 2023-11-14 22:20:10 UTC: s.2.json, s.3.json\n") &&
                       Contains("Remove the files") && Contains("FARSIDE_STATS=PREFIX"));
  CHECK(text.find("s.0.json") < text.find("s.2.json"));  // the newest first
}

TEST_CASE("launches of the same number of ranks are told apart, also without any agreement") {
  CHECK_THAT(refused({file(0, 4, 5), file(1, 4, 5), file(2, 4, 4), file(3, 4, 4)}), Contains("2 launches"));
  std::vector<RankFile> files{file(0, 4, 5), file(1, 4, 5), file(2, 4, 4), file(3, 4, 4)};
  for (RankFile& each : files) each.job.agreed = 0;
  CHECK_THAT(refused(files), Contains("2 launches"));
}

TEST_CASE("a rank is there once") {
  RankFile again = file(0, 2, 1);
  again.path = "s.00.json";
  CHECK_THAT(refused({file(0, 2, 1), again}), Contains("2 launches"));
}

TEST_CASE("spawned processes belong to the launch that ran at the same time, and those of an earlier one do not") {
  CHECK(refused({spawned(0, 1), spawned(1, 1), file(0, 1, 1)}).empty());
  CHECK_THAT(refused({spawned(0, 1), file(0, 1, 2), spawned(0, 2)}),
             Contains("2 launches") && Contains("spawned, 2 ranks"));
}

TEST_CASE("ranks without a file are named") {
  CHECK(missing_ranks({file(0, 2, 1), file(1, 2, 1)}).empty());
  CHECK_THAT(missing_ranks({file(0, 4, 1), file(2, 4, 1)}),
             Contains("2 of 4 ranks have left no file here (ranks 1, 3)"));
  CHECK_THAT(missing_ranks({file(0, 2, 1), spawned(1, 1)}), Contains("1 of 2 ranks") && Contains("(rank 1)"));
  CHECK_THAT(missing_ranks({file(0, 1 << 30, 1)}), Contains("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 1073741815 more"));
  CHECK(missing_ranks({file(0, 0, 1)}).empty());  // their number is not known
}

TEST_CASE("files of a longer prefix are not read") {
  std::string folder = (std::filesystem::temp_directory_path() / "farside-test.XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  for (const char* name : {"s.0.json", "s.12.json", "s.spawned-77.1.json", "s.old.0.json", "s.spawned-x.1.json",
                           "s.0.trace", "s.json", "s..json", "t.0.json"}) {
    std::ofstream(folder + "/" + name) << name;
  }
  std::set<std::string> read;
  read_rank_files(folder + "/s", ".json", "FARSIDE_STATS",
                  [&](const std::string&, const std::string& content) { read.insert(content); });
  CHECK(read == std::set<std::string>{"s.0.json", "s.12.json", "s.spawned-77.1.json"});
  std::filesystem::remove_all(folder);
}

TEST_CASE("a file that cannot be read is named, with the cause") {
  std::string folder = (std::filesystem::temp_directory_path() / "farside-test.XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::filesystem::create_symlink(folder + "/gone", folder + "/s.0.json");
  CHECK_THROWS_WITH(read_rank_files(folder + "/s", ".json", "FARSIDE_STATS", [](const auto&, const auto&) {}),
                    Contains("s.0.json: cannot be read (No such file or directory)"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a pipe, a device and a file without end are refused, and nothing waits for them") {
  std::string folder = (std::filesystem::temp_directory_path() / "farside-test.XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string file = folder + "/s.0.json";
  const auto reason = [&] {
    try {
      read_rank_files(folder + "/s", ".json", "FARSIDE_STATS", [](const auto&, const auto&) {});
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK_THAT(reason(), Contains("s.0.json: cannot be read (it is no regular file)"));
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/dev/zero", file);
  CHECK_THAT(reason(), Contains("s.0.json: cannot be read (it is no regular file)"));
  std::filesystem::remove(file);
  std::ofstream(file).close();
  std::filesystem::resize_file(file, (std::uintmax_t{128} << 20) + 1);
  CHECK_THAT(reason(), Contains("s.0.json: cannot be read (it has more than 128 MiB)"));
  std::filesystem::remove_all(folder);
}

}  // namespace farside::rank_files_test

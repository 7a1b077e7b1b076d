// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/rank_files.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <tuple>

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include "tools/common/text.hpp"
#include "transport/fabric/devices.hpp"

namespace farside::tools {
namespace {

constexpr std::size_t kMostNames = 8;

bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);  // a rank that is not known is -1
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Whether the rest of a file's name, behind "PREFIX.", is "RANK" or "spawned-PID.RANK".
bool is_of_a_rank(std::string_view rest) {
  constexpr std::string_view kSpawned = "spawned-";
  if (!rest.starts_with(kSpawned)) return is_number(rest);
  rest.remove_prefix(kSpawned.size());
  const std::size_t dot = rest.find('.');
  return dot != std::string_view::npos && is_number(rest.substr(0, dot)) && is_number(rest.substr(dot + 1));
}

using Files = std::vector<const RankFile*>;

bool belongs_to(const Files& launch, const RankFile& file) {
  const auto together = [&](const RankFile* other) {
    return file.job.may_be_same_launch(other->job) &&
           (file.job.spawned || other->job.spawned || file.job.rank != other->job.rank);
  };
  // Spawned processes need not have run at the same time as each other.
  if (!file.job.spawned) return std::ranges::all_of(launch, together);
  return std::ranges::any_of(launch, [&](const RankFile* other) {
    return (!other->job.spawned || launch.front()->job.spawned) && together(other);
  });
}

std::int64_t last_written(const Files& launch) {
  return (*std::ranges::max_element(launch, {}, [](const RankFile* file) { return file->job.written; }))->job.written;
}

// "4 ranks, written 2026-11-26 08:52:10 UTC: s.2.json, s.3.json"
std::string in_words(const Files& launch) {
  std::vector<std::string> names;
  for (const RankFile* file : launch) names.push_back(file->path);
  const std::size_t all = names.size();
  if (all > kMostNames) names.resize(kMostNames);
  const Job& job = launch.front()->job;
  const auto seconds = static_cast<std::time_t>(last_written(launch) / 1'000'000'000);
  return fmt::format("  {}{}, written {:%Y-%m-%d %H:%M:%S} UTC: {}{}\n", job.spawned ? "spawned, " : "",
                     counted(job.ranks, "rank"), fmt::gmtime(seconds), fmt::join(names, ", "),
                     all > names.size() ? fmt::format(" and {} more", all - names.size()) : "");
}

}  // namespace

std::vector<std::string> read_rank_files(
    const std::string& prefix, std::string_view extension, const char* variable,
    const std::function<void(const std::string& path, const std::string& content)>& take) {
  namespace fs = std::filesystem;
  const fs::path path(prefix);
  std::error_code failed;
  std::string start = path.filename().string();
  // Of a file, the prefix ends where the longest name of a rank begins.
  for (std::size_t dot = start.find('.'); fs::is_regular_file(path, failed) && dot < start.size();
       dot = start.find('.', dot + 1)) {
    const std::string_view rest = std::string_view(start).substr(dot + 1);
    if (!rest.ends_with(extension) || !is_of_a_rank(rest.substr(0, rest.size() - extension.size()))) continue;
    start.resize(dot);
  }
  start += '.';
  bool any = false;
  std::vector<std::string> refused;
  for (const auto& entry :
       fs::directory_iterator(path.has_parent_path() ? path.parent_path() : fs::path("."), failed)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(start) || !name.ends_with(extension) || name.size() < start.size() + extension.size())
      continue;
    // Other files are of a longer prefix.
    if (!is_of_a_rank(std::string_view(name).substr(start.size(), name.size() - start.size() - extension.size())))
      continue;
    try {
      take(entry.path().string(), read_file(entry.path().string()));
      any = true;
    } catch (const std::runtime_error& error) {
      refused.emplace_back(error.what());
    }
  }
  if (failed) throw std::runtime_error(fmt::format("{}.*{}: {}", prefix, extension, failed.message()));
  if (any) return refused;
  if (!refused.empty()) throw std::runtime_error(refused.front());
  throw std::runtime_error(
      fmt::format("{}.*{}: there is no such file; run the program with {}={} (and with farside), to its MPI_Finalize",
                  prefix, extension, variable, prefix));
}

void check_one_launch(const std::vector<RankFile>& files, const char* variable) {
  std::vector<const RankFile*> sorted;
  for (const RankFile& file : files) sorted.push_back(&file);
  std::ranges::stable_sort(sorted, {}, [](const RankFile* file) {
    return std::tuple(file->job.spawned, file->job.rank, std::string_view(file->path));
  });
  std::vector<Files> launches;
  for (const RankFile* file : sorted) {
    const auto own = std::ranges::find_if(launches, [&](const Files& launch) { return belongs_to(launch, *file); });
    if (own != launches.end())
      own->push_back(file);
    else
      launches.push_back({file});
  }
  if (launches.size() < 2) return;
  std::ranges::stable_sort(launches, std::ranges::greater(), last_written);
  std::string text = fmt::format(
      "these files were written by {} launches of a program, whose figures do not belong "
      "together:\n",
      launches.size());
  for (const Files& launch : launches) text += in_words(launch);
  throw std::runtime_error(
      fmt::format("{}Remove the files of all launches but one, and give each launch a prefix of its own ({}=PREFIX).",
                  text, variable));
}

std::string missing_ranks(const std::vector<RankFile>& files) {
  int ranks = 0;
  std::set<int> found;
  for (const RankFile& file : files) {
    if (file.job.spawned) continue;
    ranks = std::max(ranks, file.job.ranks);
    if (file.job.rank >= 0 && file.job.rank < file.job.ranks) found.insert(file.job.rank);
  }
  const std::size_t all = static_cast<std::size_t>(ranks) - found.size();
  if (all == 0) return {};
  std::vector<int> missing;  // those that are shown
  for (int rank = 0; missing.size() < std::min(all, kMostNames); ++rank)
    if (!found.contains(rank)) missing.push_back(rank);
  return fmt::format(
      "{} of {} ranks have left no file here ({} {}{}), and the figures are without them: did these ranks reach "
      "MPI_Finalize, with farside loaded, and is this the folder of all nodes?",
      all, ranks, all == 1 ? "rank" : "ranks", fmt::join(missing, ", "),
      all > missing.size() ? fmt::format(" and {} more", all - missing.size()) : "");
}

void Placement::add(const std::string& host, std::string_view cpus) {
  Host& there = hosts_[host];
  ++there.processes;
  const std::set<int> own = read_cpu_list(cpus).value_or(std::set<int>());
  there.known = there.known && !own.empty();
  there.cpus.insert(own.begin(), own.end());
}

std::vector<std::string> Placement::oversubscribed() const {
  std::vector<std::string> lines;
  for (const auto& [name, host] : hosts_) {
    if (!host.known || host.processes <= host.cpus.size()) continue;
    lines.push_back(
        fmt::format("{} ranks share {} on {}: a rank that waits there mostly waits until another rank gets a "
                    "core. Give each rank a core, or take fewer ranks, before these waits are blamed on the program.",
                    host.processes, counted(host.cpus.size(), "core"), name));
  }
  return lines;
}

}  // namespace farside::tools

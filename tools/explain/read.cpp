// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

#include "tools/common/text.hpp"
#include "tools/explain/explain.hpp"

namespace farside::tools::explain {
namespace {

using nlohmann::json;

constexpr std::size_t kMostNames = 8;

std::string shown(const json& value) {
  constexpr std::size_t kMost = 60;
  return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, kMost);
}

std::uint64_t whole(const json& number) {
  if (!number.is_number_unsigned()) throw std::runtime_error(fmt::format("{} is no count", shown(number)));
  return number.get<std::uint64_t>();
}

void add_waits(Waits& to, const json& from) {
  to.count += whole(from.at("count"));
  to.seconds += from.at("seconds").get<double>();
  to.longest = std::max(to.longest, from.value("longest_seconds", 0.0));
}

// A member of this type; an empty one if there is none.
const json& member(const json& from, const char* name, const json& empty) {
  const auto found = from.find(name);
  if (found == from.end()) return empty;
  if (found->type() != empty.type())
    throw std::runtime_error(fmt::format("{} is {}, and no {}", name, shown(*found), empty.type_name()));
  return *found;
}
const json& part(const json& from, const char* name) {
  static const json nothing = json::object();
  return member(from, name, nothing);
}
const json& list(const json& from, const char* name) {
  static const json nothing = json::array();
  return member(from, name, nothing);
}

Operations sums_of(const json& from) { return {whole(from.at("count")), whole(from.at("bytes"))}; }

void add_kind(WindowKind& to, const json& from) {
  to.windows += whole(from.at("windows"));
  for (const auto& [kind, count] : part(from, "epochs").items()) to.epochs[kind] += whole(count);
  for (const auto& [call, waits] : part(from, "waits").items()) add_waits(to.waits[call], waits);
  for (const auto& [route, operations] : part(from, "routes").items())
    for (const auto& [operation, sums] : operations.items()) to.routes[route][operation].add(sums_of(sums));
  for (const auto& [by, reasons] : part(from, "slow_accumulates").items())
    for (const auto& [why, count] : reasons.items()) to.slow[by][why] += whole(count);
  if (from.contains("flushes")) to.flushes += whole(from.at("flushes"));
  if (from.contains("flushes_all")) to.flushes_all += whole(from.at("flushes_all"));
  if (from.contains("slow_operations")) add_waits(to.slow_operations, from.at("slow_operations"));
  for (const json& name : list(from, "names"))
    if (to.names.size() < kMostNames) to.names.insert(name.get<std::string>());
}

// A number that is a key.
template <class Number>
Number number(const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  if (const auto parsed = std::from_chars(text.data(), end, value); parsed.ec != std::errc() || parsed.ptr != end)
    throw std::runtime_error(fmt::format("{} is no number", text));
  return value;
}

// A number that is not 0, as 16 hexadecimal digits; 0 if it is missing.
std::uint64_t bits(const json& from, const char* name) {
  const std::string text = from.value(name, std::string());
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  if (!text.empty() && std::from_chars(text.data(), end, value, 16).ptr != end)
    throw std::runtime_error(fmt::format("{} is {}, and no hexadecimal number", name, text));
  return value;
}

// Seconds since 1970, in nanoseconds.
std::int64_t time(const json& from, const char* name) {
  constexpr double kMost = 9e9;
  const double seconds = from.at(name).get<double>();
  if (!(seconds >= 0 && seconds <= kMost))
    throw std::runtime_error(fmt::format("{} is {}, and no time", name, seconds));
  return static_cast<std::int64_t>(seconds * 1e9);
}

RankFile rank_file(const std::string& path, const json& all) {
  constexpr int kMostRanks = 1 << 30;
  RankFile file{path, {}};
  file.job.rank = all.at("rank").get<int>();
  const json& job = all.at("job");
  file.job.ranks = std::clamp(all.at("ranks").get<int>(), 0, kMostRanks);
  file.job.spawned = job.value("spawned", false);
  file.job.agreed = bits(job, "agreed");
  file.job.started = time(job, "started");
  file.job.written = time(job, "written");
  return file;
}

}  // namespace

void add(Run& run, const std::string& file, const std::string& text) {
  try {
    const json all = parse_json<json>(text);
    if (!all.contains("window_kinds") || !all.contains("job"))
      throw std::runtime_error("written by another version of farside");
    run.files.push_back(rank_file(file, all));
    Process& process = run.processes.emplace_back();
    process.host = all.at("host").get<std::string>();
    ++run.hosts[process.host];
    run.placement.add(process.host, all.value("cpus", std::string()));
    // A rank that made no window has no seconds.
    const double seconds = all.value("seconds", 0.0);
    run.seconds += seconds;
    process.seconds = seconds;
    run.longest_seconds = std::max(run.longest_seconds, seconds);
    run.runtime_windows += all.at("windows").value("runtime", std::uint64_t{0});
    for (const auto& [kind, sums] : all.at("window_kinds").items()) {
      add_kind(run.kinds[kind], sums);
      add_kind(process.kinds[kind], sums);
    }
    for (const auto& [rank, sums] : part(all, "targets").items()) {
      process.targets[number<int>(rank)] = {sums_of(sums), sums.value("wait_seconds", 0.0),
                                            sums.value("slow_operation_seconds", 0.0)};
    }
    for (const auto& [operation, classes] : part(all, "sizes").items()) {
      for (const auto& [size, sums] : classes.items()) {
        Sized& sum = run.sizes[operation][number<std::uint64_t>(size)];
        sum.operations.add(sums_of(sums));
        sum.slow += sums.value("slow_count", std::uint64_t{0});
        sum.slow_seconds += sums.value("slow_seconds", 0.0);
      }
    }
    for (const json& site : list(all, "sites")) {
      for (const auto& [call, sums] : part(site, "calls").items()) {
        SiteCalls& sum = run.sites[site.at("site").get<std::string>()][call];
        sum.calls += whole(sums.at("calls"));
        add_waits(sum.waits, sums);
      }
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: no statistics that farside explain can read: {}", file, error.what()));
  }
}

Run read(const std::string& prefix) {
  Run run;
  run.left_out =
      read_rank_files(prefix, ".json", "FARSIDE_STATS", [&](const std::string& file, const std::string& text) {
        Run alone;  // whether all of it can be added
        add(alone, file, text);
        add(run, file, text);
      });
  check_one_launch(run.files, "FARSIDE_STATS");
  return run;
}

}  // namespace farside::tools::explain

// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/explain/explain.hpp"
#include "tools/rank_files.hpp"

namespace farside::tools::explain {
namespace {

using nlohmann::json;

std::uint64_t whole(const json& number) {
  if (!number.is_number_unsigned()) throw std::runtime_error(fmt::format("{} is no count", number.dump()));
  return number.get<std::uint64_t>();
}

void add_waits(Waits& to, const json& from) {
  to.count += whole(from.at("count"));
  to.seconds += from.at("seconds").get<double>();
  to.longest = std::max(to.longest, from.value("longest_seconds", 0.0));
}

const json& part(const json& from, const char* name) {
  static const json nothing = json::object();
  const auto found = from.find(name);
  if (found == from.end()) return nothing;
  if (!found->is_object()) throw std::runtime_error(fmt::format("{} is {}, and no object", name, found->dump()));
  return *found;
}

void add_kind(WindowKind& to, const json& from) {
  to.windows += whole(from.at("windows"));
  for (const auto& [kind, count] : part(from, "epochs").items()) to.epochs[kind] += whole(count);
  for (const auto& [call, waits] : part(from, "waits").items()) add_waits(to.waits[call], waits);
  for (const auto& [route, operations] : part(from, "routes").items()) {
    for (const auto& [operation, sums] : operations.items()) {
      Operations& sum = to.routes[route][operation];
      sum.count += whole(sums.at("count"));
      sum.bytes += whole(sums.at("bytes"));
    }
  }
  for (const auto& [by, reasons] : part(from, "slow_accumulates").items()) {
    for (const auto& [why, count] : reasons.items()) to.slow[by][why] += whole(count);
  }
  if (from.contains("flushes")) to.flushes += whole(from.at("flushes"));
  if (from.contains("flushes_all")) to.flushes_all += whole(from.at("flushes_all"));
  if (from.contains("slow_operations")) add_waits(to.slow_operations, from.at("slow_operations"));
}

}  // namespace

void add(Run& run, const std::string& file, const std::string& text) {
  try {
    const json all = json::parse(text);
    if (!all.contains("window_kinds")) throw std::runtime_error("written by another version of farside");
    ++run.ranks;
    // A rank that made no window writes no file.
    if (all.contains("seconds")) run.seconds += all.at("seconds").get<double>();
    run.runtime_windows += all.at("windows").value("runtime", std::uint64_t{0});
    for (const auto& [kind, sums] : all.at("window_kinds").items()) add_kind(run.kinds[kind], sums);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: no statistics that farside explain can read: {}", file, error.what()));
  }
}

Run read(const std::string& prefix) {
  Run run;
  read_rank_files(prefix, ".json", "FARSIDE_STATS",
                  [&](const std::string& file, const std::string& text) { add(run, file, text); });
  return run;
}

}  // namespace farside::tools::explain

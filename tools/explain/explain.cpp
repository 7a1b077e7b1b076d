// SPDX-License-Identifier: BSD-3-Clause
// `farside explain`: the statistics of a run in plain words.
#include "tools/explain/explain.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <ranges>
#include <stdexcept>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/common/commands.hpp"
#include "tools/common/text.hpp"

namespace farside::tools::explain {
namespace {

constexpr std::size_t kMostNames = 8;

std::string shown(const Json& value) {
  constexpr std::size_t kMost = 60;
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, kMost);
}

std::uint64_t whole(const Json& number) {
  if (!number.is_number_unsigned()) throw std::runtime_error(fmt::format("{} is no count", shown(number)));
  return number.get<std::uint64_t>();
}

void add_waits(Waits& to, const Json& from) {
  to.count += whole(from.at("count"));
  to.seconds += from.at("seconds").get<double>();
  to.longest = std::max(to.longest, from.value("longest_seconds", 0.0));
}

// A member of this type; an empty one if there is none.
const Json& member(const Json& from, const char* name, const Json& empty) {
  const auto found = from.find(name);
  if (found == from.end()) return empty;
  if (found->type() != empty.type())
    throw std::runtime_error(fmt::format("{} is {}, and no {}", name, shown(*found), empty.type_name()));
  return *found;
}
const Json& part(const Json& from, const char* name) {
  static const Json nothing = Json::object();
  return member(from, name, nothing);
}
const Json& list(const Json& from, const char* name) {
  static const Json nothing = Json::array();
  return member(from, name, nothing);
}

Operations sums_of(const Json& from) { return {whole(from.at("count")), whole(from.at("bytes"))}; }

void add_kind(WindowKind& to, const Json& from) {
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
  for (const Json& name : list(from, "names"))
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
std::uint64_t bits(const Json& from, const char* name) {
  const std::string text = from.value(name, std::string());
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  if (!text.empty() && std::from_chars(text.data(), end, value, 16).ptr != end)
    throw std::runtime_error(fmt::format("{} is {}, and no hexadecimal number", name, text));
  return value;
}

// Seconds since 1970, in nanoseconds.
std::int64_t time(const Json& from, const char* name) {
  constexpr double kMost = 9e9;
  const double seconds = from.at(name).get<double>();
  if (!(seconds >= 0 && seconds <= kMost))
    throw std::runtime_error(fmt::format("{} is {}, and no time", name, seconds));
  return static_cast<std::int64_t>(seconds * 1e9);
}

RankFile rank_file(const std::string& path, const Json& all) {
  constexpr int kMostRanks = 1 << 30;
  RankFile file{path, {}};
  file.job.rank = all.at("rank").get<int>();
  const Json& job = all.at("job");
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
    const Json all = parse_json(text);
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
    for (const Json& site : list(all, "sites")) {
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

namespace {

// A table whose rows have a weight each. The heaviest comes first; of more than 50 rows the others are only counted.
class SortedTable {
 public:
  explicit SortedTable(std::vector<std::string> header) : table_(std::move(header)) {}
  template <class... Cells>
  void add(double weight, const Cells&... cells) {
    add(weight, std::vector<std::string>{fmt::format("{}", cells)...});
  }
  void add(double weight, std::vector<std::string> row) { rows_.emplace(weight, std::move(row)); }
  std::string text() {
    constexpr std::size_t kMostRows = 50;
    for (const auto& [weight, row] : rows_ | std::views::take(kMostRows)) table_.add(row);
    return table_.text() + (rows_.size() > kMostRows ? fmt::format("and {} more\n", rows_.size() - kMostRows) : "");
  }

 private:
  Table table_;
  std::multimap<double, std::vector<std::string>, std::greater<>> rows_;
};

std::string name_of(const Run& run, std::size_t process) {
  const RankFile& file = run.files[process];
  return fmt::format("{}rank {} on {}", file.job.spawned ? "spawned " : "", file.job.rank, run.processes[process].host);
}

std::string by_rank(const Run& run) {
  std::vector<std::string> calls{"lock", "fence", "start", "wait", "complete", "unlock", "flush", "notify"};
  std::erase_if(calls, [&](const std::string& call) {  // an empty column says nothing
    return std::ranges::all_of(run.kinds, [&](const auto& kind) { return kind.second.waits_in(call).count == 0; });
  });
  std::vector<std::string> header{"waits of", "time"};
  header.insert(header.end(), calls.begin(), calls.end());
  for (const char* name : {"slow", "operations", "bytes"}) header.emplace_back(name);
  SortedTable table(header);
  for (std::size_t i = 0; i < run.processes.size(); ++i) {
    const Process& process = run.processes[i];
    std::vector<std::string> row{name_of(run, i), time_text(process.seconds)};
    double all = 0, slow = 0;
    for (const std::string& call : calls) {
      double sum = 0;
      for (const auto& [kind, sums] : process.kinds) sum += sums.waits_in(call).seconds;
      row.push_back(time_text(sum));
      all += sum;
    }
    Operations done;
    for (const auto& [kind, sums] : process.kinds) {
      slow += sums.slow_operations.seconds;
      done.add(sums.total());
    }
    row.insert(row.end(), {time_text(slow), fmt::to_string(done.count), fmt::to_string(done.bytes)});
    table.add(all + slow, std::move(row));
  }
  return table.text();
}

std::string by_pair(const Run& run) {
  if (std::ranges::all_of(run.processes, [](const Process& process) { return process.targets.empty(); }))
    return "No operation was counted.\n";
  SortedTable table({"origin", "target", "waits", "slow operations", "operations", "bytes"});
  for (std::size_t i = 0; i < run.processes.size(); ++i) {
    for (const auto& [rank, target] : run.processes[i].targets) {
      std::string there = rank < 0 ? "others" : fmt::format("rank {}", rank);
      for (std::size_t other = 0; other < run.files.size(); ++other)
        if (run.files[other].job.rank == rank && run.files[other].job.spawned == run.files[i].job.spawned)
          there = name_of(run, other);
      table.add(target.wait_seconds + target.slow_operation_seconds, name_of(run, i), there,
                time_text(target.wait_seconds), time_text(target.slow_operation_seconds), target.operations.count,
                target.operations.bytes);
    }
  }
  return table.text();
}

std::string by_size(const Run& run) {
  if (run.sizes.empty()) return "No operation was counted.\n";
  Table table({"operation", "size", "number", "bytes", "by system call or fabric", "time", "each"});
  for (const auto& [operation, classes] : run.sizes) {
    for (const auto& [size, sums] : classes) {
      table.add(operation, size == 0 ? "0 B" : fmt::format("up to {} B", size), sums.operations.count,
                sums.operations.bytes, sums.slow, time_text(sums.slow_seconds),
                sums.slow == 0 ? "-" : time_text(sums.slow_seconds / static_cast<double>(sums.slow)));
    }
  }
  return table.text();
}

std::string by_site(const Run& run) {
  if (run.sites.empty())
    return "No call sites were recorded: run the program with FARSIDE_SITES=on beside FARSIDE_STATS.\n";
  SortedTable table({"call site", "call", "calls", "waited", "time", "longest"});
  for (const auto& [site, by_call] : run.sites) {
    for (const auto& [call, sums] : by_call) {
      table.add(sums.waits.seconds, site, call, sums.calls, sums.waits.count, time_text(sums.waits.seconds),
                time_text(sums.waits.longest));
    }
  }
  return table.text();
}

}  // namespace

std::string figures_by(const Run& run, const std::string& by) {
  std::string text;
  for (const Advice& each : advise(run))
    if (each.doubt) text += fmt::format("! {}\n", each.text);
  return text + (by == "rank" ? by_rank : by == "size" ? by_size : by == "pair" ? by_pair : by_site)(run);
}

}  // namespace farside::tools::explain

namespace farside::tools {

void add_explain_command(CLI::App& app, int& exit_code) {
  struct Options {
    std::string prefix, by;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain",
                                         "explain where the time of a run went, and what would help\n"
                                         "farside explain PREFIX [--json] [--by rank|size|pair|site]");
  command->add_option("prefix", options->prefix, "value of FARSIDE_STATS, or one of its files, PREFIX.RANK.json")
      ->required();
  command->add_flag("--json", options->json, "print the advice as JSON");
  command
      ->add_option("--by", options->by,
                   "print figures by rank, by size of the operations, by pair of origin and target, or by call site "
                   "(recorded with FARSIDE_SITES=on)")
      ->check(CLI::IsMember({"rank", "size", "pair", "site"}))
      ->excludes("--json");
  command->footer(
      "Run the program with FARSIDE_STATS=PREFIX set for all ranks, for instance by\n"
      "  farside run -n 4 --set FARSIDE_STATS=/tmp/s -- ./program\n  farside explain /tmp/s");
  command->callback([options, &exit_code] {
    const explain::Run run = explain::read(options->prefix);
    if (options->json) {
      Json list = Json::array();
      for (const explain::Advice& each : explain::advise(run))
        list.push_back({{"rule", each.rule}, {"windows", each.kind}, {"seconds", each.weight}, {"text", each.text}});
      fmt::print("{}\n", json_text(list, 2));
    } else {
      print_report(options->by.empty() ? in_words(run) : figures_by(run, options->by));
    }
    exit_code = 0;
  });
}

}  // namespace farside::tools

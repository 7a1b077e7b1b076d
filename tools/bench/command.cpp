// SPDX-License-Identifier: BSD-3-Clause
// `farside bench`: one-sided communication natively and with farside, in alternation, for each runtime found.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pages.hpp"
#include "tools/bench/report.hpp"
#include "tools/common/child.hpp"
#include "tools/common/commands.hpp"
#include "tools/common/host.hpp"

namespace farside::tools {
namespace {

// The runtimes by themselves, which a cluster with adapters has, and farside.
const std::vector<std::string> kClusterVariants{"native", "rdma", "ucx", "node"};

void print_left_out(const std::vector<LeftOut>& all) {
  for (const LeftOut& one : all) fmt::print("{}: {}\n", one.runtime, one.reason);
}

// The batch script, with the path of this command.
std::string batch_script() {
  std::string text(kBatchScript);
  const std::string_view command = "\nfarside=farside\n";
  return text.replace(text.find(command), command.size(),
                      fmt::format("\nfarside={}\n", shell_line({own_folder() + "/farside"})));
}

int bench(const BenchSettings& settings, const std::string& command) {
  prepare_for_children();
  const std::vector<const bench::MeasureInfo*> measures = chosen_measures(settings);
  const std::vector<const Variant*> wanted = variants_named(settings.variants);
  if (measures.empty() || wanted.empty()) {
    fmt::print(stderr, "farside bench: nothing to measure (with {} ranks)\n", settings.launch.ranks);
    return 2;
  }
  // Fails now rather than after an hour of measuring.
  for (const std::string* file : {&settings.json_file, &settings.html_file}) {
    if (file->empty() || std::ofstream(*file, std::ios::app)) continue;
    fmt::print(stderr, "farside bench: cannot write {}: {}\n", *file, std::strerror(errno));
    return 2;
  }
  std::vector<LeftOut> left_out;
  std::vector<Runtime> runtimes = find_runtimes(settings.library_folder, settings.runtimes, left_out);
  bool good = true;
  std::vector<RuntimeReport> reports;
  for (Runtime& runtime : runtimes) {
    if (runtime.benchmark.empty()) {
      left_out.push_back({runtime.name, fmt::format("no {}/farside-bench-{} (not built for this runtime)", own_folder(),
                                                    runtime.name)});
      continue;
    }
    std::vector<const Variant*> variants = wanted;
    std::erase_if(variants,
                  [&](const Variant* variant) { return !variant->component.empty() && runtime.name != "openmpi"; });
    const auto of_farside = [](const Variant* variant) { return !variant->native(); };
    if (runtime.library.empty() && std::erase_if(variants, of_farside) > 0) {
      good = false;
      left_out.push_back(
          {runtime.name, fmt::format("FARSIDE ITSELF IS NOT MEASURED, there is no {}/libfarside-{}.so (--lib-dir)",
                                     settings.library_folder, runtime.name)});
    }
    if (variants.empty()) continue;
    reports.push_back({std::move(runtime), std::move(variants), {}, {}, {}, {}, {}});
  }
  print_left_out(left_out);
  if (reports.empty()) {
    fmt::print(stderr, "farside bench: no MPI runtime to measure\n");
    return 1;
  }
  if (!settings.launch.launcher.empty() && reports.size() > 1) {
    fmt::print(stderr, "farside bench: --launcher starts programs of one runtime; say by --runtime of which\n");
    return 2;
  }
  fmt::print("{} measures, {} each; {}, {} hardware threads\n", measures.size(), counted(settings.rounds, "run"),
             processor_name(), std::thread::hardware_concurrency());
  if (double load = 0; getloadavg(&load, 1) == 1 && load > 0.5) {
    fmt::print("Note: this machine is busy (load {:.1f}); figures will suffer, most those of runtimes that spin.\n",
               load);
  }
  std::fflush(stdout);

  const bool whole = measure(settings, measures, reports);
  const Json result = to_json(settings, command, measures, reports, left_out);
  fmt::print("\n{}\n", wrapped(result.at("headline").get<std::string>()));
  for (const RuntimeReport& report : reports) {
    fmt::print("{}", (settings.osu ? osu_text : table_text)(settings, measures, report));
    good = good && report.warnings.empty();
    for (const Variant* variant : report.variants)
      for (const auto* info : measures)
        good = good && (variant->native() || bench::is_bare(*info) || !report.find(variant->key, info->name).broken());
  }
  if (wanted.size() > 1 && wanted.front()->key == "native" && !settings.osu) {
    fmt::print("\nratio: how many times as fast as native; above 1x farside is faster.\n");
    const bool one_node = std::ranges::all_of(reports, [](const auto& report) { return report.hosts.size() < 2; });
    if (wanted.back()->kind == Variant::Kind::kFabric && one_node) {
      print_report(
          fmt::format("Over {} the data takes the way to another node, here through this machine's own network stack, "
                      "while native stays in shared memory. So these figures have no ratio: what counts there is that "
                      "a computing target costs no more than an idle one.\n",
                      settings.provider));
    }
  }
  print_left_out(left_out);
  bool written = true;
  const auto write = [&](const std::string& file, const char* what, const std::string& text) {
    if (file.empty()) return;
    written = write_file("farside bench", file, text) && written;
    if (written) fmt::print("{}: {}\n", what, file);
  };
  write(settings.json_file, "Figures of all runs", json_text(result, 2) + '\n');
  write(settings.html_file, "Report", html_report(result));
  if (!whole) {
    fmt::print("Interrupted.\n");
    return 130;
  }
  return good && written ? 0 : 1;
}

struct CompareSettings {
  std::string a, b;
  double threshold = 0.1;
  bool all = false;
};
int compare_results(const CompareSettings& settings) {
  const Json a = read_result(settings.a);
  const Json b = read_result(settings.b);
  fmt::print("A: {}, {}\nB: {}, {}\n", settings.a, a.at("date").get<std::string>(), settings.b,
             b.at("date").get<std::string>());
  for (const std::string& line : differences(a, b)) fmt::print("NOT THE SAME in A and B: {}\n", line);
  const std::vector<Comparison> comparisons = compare(a, b, settings.threshold);
  const std::string text = comparison_text(comparisons, settings.all);
  if (!text.empty()) fmt::print("\n{}\n", text);
  const auto number = [&](const auto& condition) { return std::ranges::count_if(comparisons, condition); };
  const auto compared = number([](const Comparison& one) { return one.a && one.b; });
  const auto only = number([](const Comparison& one) { return one.only_in_one(); });
  const auto native = number([](const Comparison& one) { return one.native && (one.worse() || one.better()); });
  const auto regressions = number([](const Comparison& one) { return !one.native && one.worse(); });
  const auto improvements = number([](const Comparison& one) { return !one.native && one.better(); });
  if (compared == 0) {
    fmt::print(stderr, "farside bench: {} and {} have no figure in common\n", settings.a, settings.b);
    return 2;
  }
  fmt::print("{} figures compared: of farside's {} regressed, {} improved beyond noise.\n", compared, regressions,
             improvements);
  if (std::ranges::any_of(comparisons, [](const Comparison& one) { return one.doubtful_a || one.doubtful_b; }))
    fmt::print("{}: the runs of such a figure differ by more than a factor of two, or were time slices only.\n",
               kNoiseMark);
  if (only > 0) fmt::print("Only one of A and B has {} others (--all shows them).\n", only);
  if (native > 0) {
    fmt::print(
        "Of native or bare figures {} changed too, which farside has no part in: compare the machine, or measure "
        "again.\n",
        native);
  }
  fmt::print(
      "noise: what the runs of A and of B differ by, multiplied; a change counts beyond it, and beyond {:.0f}%.\n",
      100 * settings.threshold);
  return regressions > 0 ? 1 : 0;
}

// Runs a command on results. One that cannot be read is an error of the user.
int on_results(const std::function<int()>& command) {
  try {
    return command();
  } catch (const std::exception& error) {
    fmt::print(stderr, "farside bench: {}\n", error.what());
    return 2;
  }
}

void add_compare_command(CLI::App& bench_command, int& exit_code) {
  auto settings = std::make_shared<CompareSettings>();
  CLI::App* command = bench_command.add_subcommand(
      "compare",
      "mark figures that are slower or faster in B than in A beyond noise; exit code 1 if farside regressed");
  command->add_option("A", settings->a, "result of --json")->required();
  command->add_option("B", settings->b, "later result of --json")->required();
  command->add_option("--threshold", settings->threshold, "ignore changes below this share")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command->add_flag("--all", settings->all, "also show unchanged figures, and those of only one result");
  command->callback([settings, &exit_code] { exit_code = on_results([&] { return compare_results(*settings); }); });
}

// A script, which takes all further words.
void add_suites_command(CLI::App& bench_command, int& exit_code) {
  CLI::App* command =
      bench_command.add_subcommand("suites", "run OSU's and IMB's one-sided benchmarks (suites --help)");
  command->prefix_command();
  command->set_help_flag();
  command->callback([command, &exit_code] {
    std::vector<std::string> words{"python3", own_folder() + "/../share/farside/suites.py", own_folder() + "/farside"};
    for (const std::string& word : command->remaining()) words.push_back(word);
    const int reason = become_program(words, current_environment());
    fmt::print(stderr, "farside bench: python3: {}\n", std::strerror(reason));
    exit_code = 2;
  });
}

void add_report_command(CLI::App& bench_command, int& exit_code) {
  const auto json = std::make_shared<std::string>(), html = std::make_shared<std::string>();
  CLI::App* command = bench_command.add_subcommand("report", "make an HTML report from a result of --json");
  command->add_option("JSON", *json, "result of --json")->required();
  command->add_option("--html", *html, "write the report to this file")->required();
  command->callback([json, html, &exit_code] {
    exit_code = on_results([&] { return write_file("farside bench", *html, html_report(read_result(*json))) ? 0 : 2; });
  });
}

}  // namespace

void add_bench_command(CLI::App& app, const std::string& line, int& exit_code) {
  auto settings = std::make_shared<BenchSettings>();
  std::vector<std::string> groups;
  for (const bench::MeasureInfo& info : bench::catalogue()) add_once(groups, info.group);
  const CLI::Validator a_measure(
      [](std::string& word) {
        return bench::known_word(word) ? std::string()
                                       : word + " is no measure or group (farside bench --list shows them)";
      },
      "NAME,...");
  CLI::App* command =
      app.add_subcommand("bench", "compare one-sided communication natively and with farside, measured in alternation");
  command->add_flag("--demo", settings->demo, "run a short selection");
  command->add_flag("--cluster", settings->cluster,
                    "measure passive target between nodes: other default variants and measures, and the ranks go to "
                    "the nodes in turn (of --hosts, or of the batch job)");
  command->add_flag_callback(
      "--list",
      [] {
        for (const bench::MeasureInfo& info : bench::catalogue()) {
          constexpr std::array kMarks{" *", "", " -"};  // by bench::Selection
          fmt::print("{:<28} {:<27} {}{}\n", info.name, info.group, info.title,
                     kMarks[static_cast<std::size_t>(info.selection)]);
        }
        throw CLI::Success();
      },
      "list the measures with their groups (* in --demo, - only if named)");
  auto prints_script = std::make_shared<bool>(false);
  command->add_flag("--sbatch", *prints_script,
                    "print a Slurm batch script for --cluster: farside bench --sbatch | sbatch");
  command->add_flag("--osu", settings->osu,
                    "print put and get by size, in the layout of OSU's benchmarks, in place of the tables");
  add_common_options(*command, *settings);
  command->add_option("--measures", settings->measures, "only these measures or groups, or all")
      ->delimiter(',')
      ->check(a_measure);
  command->add_option("--skip", settings->skip, "all but these")->delimiter(',')->check(a_measure);
  command->option_defaults()->always_capture_default();
  command
      ->add_option("--window", settings->window, "allocate: MPI_Win_allocate; create: MPI_Win_create on malloc memory")
      ->check(CLI::IsMember({"allocate", "create"}));
  command->add_option("--runs", settings->rounds, "runs of each variant")->check(CLI::Range(1, 1000));
  command
      ->add_option("--compute-seconds", settings->compute_seconds, "seconds that a computing target spends outside MPI")
      ->check(CLI::Range(0.05, 3600.0));
  command
      ->add_option("--timeout", settings->timeout_seconds,
                   "seconds without output after which a measure counts as hung")
      ->check(CLI::Range(1.0, 86400.0));
  command
      ->add_option("-n,--ranks", settings->launch.ranks,
                   "number of ranks; two measure, more in contention and rate, all in contended")
      ->check(CLI::Range(2, 100000));
  command->option_defaults()->always_capture_default(false);
  command->add_option("--json", settings->json_file, "write the figures of all runs to this file");
  command->add_option(
      "--html", settings->html_file,
      "write a self-contained HTML report to this file (and measure what it plots, unless --measures is given)");
  add_compare_command(*command, exit_code);
  add_report_command(*command, exit_code);
  add_suites_command(*command, exit_code);
  // After the subcommands, which would inherit it.
  command->footer(fmt::format("Groups of measures (--list shows the measures): {}, or all", fmt::join(groups, ", ")));
  command->callback([settings, prints_script, command, line, &exit_code] {
    if (!command->get_subcommands().empty()) return;  // the subcommand has run already
    if (*prints_script) {
      fmt::print("{}", batch_script());
      return;
    }
    if (settings->cluster && command->count("--variants") == 0) settings->variants = kClusterVariants;
    settings->launch.in_turn = settings->cluster;
    exit_code = bench(*settings, line);
  });
}

}  // namespace farside::tools

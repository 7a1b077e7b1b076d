// SPDX-License-Identifier: BSD-3-Clause
#include "tools/launch.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pmpi/runtime/library_names.hpp"
#include "tools/linkage.hpp"
#include "tools/text.hpp"

namespace farside::tools {
namespace {

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::vector<std::string> mpirun_words(const Runtime& runtime, const Launch& launch, const Variables& variables) {
  const bool openmpi = runtime.launched_as == "openmpi";
  std::vector<std::string> words{runtime.launcher, "-n", std::to_string(launch.ranks)};
  // --oversubscribe: Open MPI refuses more ranks than cores (of the cpuset).
  // --bind-to none: MPICH does not bind either. Open MPI's binding to one core would put a rank and its helper
  // threads on one core while others are free, and two runs at a time on the same cores.
  if (openmpi) append(words, {"--oversubscribe", "--bind-to", "none"});
  if (!launch.hosts.empty()) append(words, {openmpi ? "--host" : "-hosts", launch.hosts});
  if (launch.in_turn && openmpi) append(words, {"--map-by", "node"});
  if (launch.in_turn && !openmpi) append(words, {"-ppn", "1"});
  append(words, words_for_ranks(runtime, variables));
  append(words, launch.options);
  return words;
}

}  // namespace

std::vector<std::string> launch_words(const Runtime& runtime, const Launch& launch, const Variables& variables) {
  return launch.launcher.empty() ? mpirun_words(runtime, launch, variables) : launcher_words(launch, variables);
}

std::vector<std::string> launcher_words(const Launch& launch, const Variables& variables) {
  std::vector<std::string> words = shell_words(launch.launcher);
  for (std::string& word : words) {
    for (std::size_t at = 0; (at = word.find("{n}", at)) != std::string::npos;)
      word.replace(at, 3, std::to_string(launch.ranks));
  }
  append(words, launch.options);
  words.emplace_back("env");
  for (const auto& [name, value] : variables) words.push_back(fmt::format("{}={}", name, value));
  return words;
}

std::vector<std::string> words_for_ranks(const Runtime& runtime, const Variables& variables) {
  std::vector<std::string> words;
  for (const auto& [name, value] : variables) {
    if (runtime.launched_as == "openmpi") {
      append(words, {"-x", fmt::format("{}={}", name, value)});
    } else {
      append(words, {"-genv", name, value});
    }
  }
  return words;
}

Status check_library(const Runtime& runtime, const std::string& library_folder) {
  if (runtime.library.empty()) {
    return cannot(
        "there is no libfarside-{0}.so in {1}: farside was built without {2} (see -DFARSIDE_MPI), the package "
        "farside-{0} is not installed, or --lib-dir says where it is",
        runtime.name, library_folder, runtime.title);
  }
  if (runtime.library.find_first_of(": ") != std::string::npos) {
    return cannot("{}: LD_PRELOAD takes no path with a space or a colon; put it elsewhere", runtime.library);
  }
  return {};
}

std::string preload_list(const std::string& old, const std::string& library, const std::string& needed) {
  const auto name = [](const std::string& path) { return std::string_view(path).substr(path.rfind('/') + 1); };
  const auto stem = [&](const std::string& path) { return name(path).substr(0, name(path).find(".so")); };
  std::vector<std::string> first, others;
  bool named = needed.empty();
  for (const std::string& entry : split(old, ": ")) {
    if (entry.empty() || entry.find("libfarside-") != std::string::npos) continue;
    (comes_first(entry) ? first : others).push_back(entry);
    named = named || stem(entry) == stem(needed);
  }
  if (!named) first.insert(first.begin(), needed);
  const auto is_mpi = [&](const std::string& path) { return !pmpi::runtime_of(name(path)).empty(); };
  if (!library.empty()) others.insert(std::ranges::find_if(others, is_mpi), library);
  append(first, others);
  return fmt::format("{}", fmt::join(first, ":"));
}

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/node_ranks.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ranges>
#include <sstream>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <mpi.h>

#include "pmpi/runtime/program_runtime.hpp"
#include "pmpi/runtime/runtime.hpp"

namespace farside::pmpi {
namespace {

// Besides the rank. They differ between jobs, or are the same for all ranks of one.
constexpr std::array<std::string_view, 4> kJobVariables = {"PMIX_NAMESPACE", "PMI_JOBID", "PMI_SIZE",
                                                           "OMPI_COMM_WORLD_SIZE"};

// Empty if the file cannot be read.
std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (const auto& part : std::views::split(text, separator)) parts.emplace_back(part.begin(), part.end());
  return parts;
}

// Returns the value of a variable in the text of an environ file, whose entries end with zeros.
std::optional<std::string_view> variable(std::string_view environment, std::string_view name) {
  for (const std::string_view entry : split(environment, '\0')) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name))
      return entry.substr(name.size() + 1);
  }
  return {};
}

// Each thread has the children that it has started.
std::vector<int> children_of(const std::string& process) {
  std::vector<int> children;
  std::error_code gone;
  using Folder = std::filesystem::directory_iterator;
  for (Folder thread(process + "/task", gone); thread != Folder(); thread.increment(gone)) {
    std::istringstream list(read_file(thread->path().string() + "/children"));
    for (int child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

class Scan {
 public:
  Scan(const NodeView& view, int rank) : view_(view), rank_(rank), own_(read_file(folder(view.self) + "/environ")) {}

  NodeRanks carry_out() const {
    NodeRanks found{{rank_}, {}};
    if (rank_in(own_) != rank_) return found;
    for (const int process : children_of(folder(view_.launcher))) {
      const std::string environment = read_file(folder(process) + "/environ");
      const std::optional<int> other = rank_in(environment);
      if (!is_of_job(environment) || !other || *other == rank_) continue;
      if (const std::optional<bool> loaded = is_loaded(process, environment))
        (*loaded ? found.with : found.without).push_back(*other);
    }
    std::ranges::sort(found.with);
    std::ranges::sort(found.without);
    return found;
  }

 private:
  std::string folder(int process) const { return fmt::format("{}/{}", view_.proc, process); }

  std::optional<int> rank_in(std::string_view environment) const {
    for (const std::string& name : view_.rank_variables) {
      const auto value = variable(environment, name);
      if (!value) continue;
      int number = 0;
      const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
      return error == std::errc() && end == value->data() + value->size() ? std::optional(number) : std::nullopt;
    }
    return {};
  }

  bool is_of_job(std::string_view environment) const {
    return std::ranges::all_of(
        kJobVariables, [&](std::string_view name) { return variable(environment, name) == variable(own_, name); });
  }

  // Whether the process has farside; nothing if it is not seen to use MPI.
  std::optional<bool> is_loaded(int process, std::string_view environment) const {
    const auto preload = variable(environment, "LD_PRELOAD");
    if (preload && preload->find("libfarside-") != std::string_view::npos) return true;
    const std::string maps = read_file(folder(process) + "/maps");
    bool mpi = false;
    for (const std::string_view line : split(maps, '\n')) {
      const std::string_view name = line.substr(line.rfind('/') + 1);
      if (name.starts_with("libfarside-") || name == view_.library) return true;
      mpi = mpi || !runtime_of(name).empty();
    }
    return mpi ? std::optional(false) : std::nullopt;
  }

  const NodeView& view_;
  const int rank_;
  const std::string own_;  // environment
};

}  // namespace

std::string own_file_name() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_file_name), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view path = info.dli_fname;
  return std::string(path.substr(path.rfind('/') + 1));
}

NodeView NodeView::of_this_process() {
  NodeView view{.self = getpid(), .launcher = getppid(), .library = own_file_name(), .rank_variables = {}};
  if (is_open_mpi()) {
    view.rank_variables = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
  } else {
    view.rank_variables = {"PMI_RANK", "PMIX_RANK"};
  }
  return view;
}

NodeRanks find_node_ranks(const NodeView& view, int rank) { return Scan(view, rank).carry_out(); }

}  // namespace farside::pmpi

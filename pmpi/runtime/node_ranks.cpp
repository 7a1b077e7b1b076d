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
#include <utility>

#include <fmt/format.h>
#include <mpi.h>

#include "pmpi/runtime/program_runtime.hpp"
#include "pmpi/runtime/runtime.hpp"

namespace farside::pmpi {
namespace {

constexpr int kMostLevels = 8;  // scripts between the launcher and a rank
// Besides the rank. They differ between jobs, or are the same for all ranks of one.
constexpr std::array<std::string_view, 4> kJobVariables = {"PMIX_NAMESPACE", "PMI_JOBID", "PMI_SIZE",
                                                           "OMPI_COMM_WORLD_SIZE"};

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
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

class Scan {
 public:
  Scan(const NodeView& view, int rank) : view_(view), rank_(rank) {}

  NodeRanks carry_out() {
    NodeRanks found;
    const std::optional<std::string> own = environment_of(view_.self);
    if (!own || rank_in(*own) != rank_) return {{rank_}, {}, false};
    own_ = *own;
    found.with.push_back(rank_);
    const std::optional<int> launcher = find_launcher();
    const std::vector<int> started = launcher ? children_of(*launcher) : std::vector<int>();
    found.complete = !started.empty();
    for (const int process : started) {
      const std::optional<std::string> environment = environment_of(process);
      if (!environment) found.complete = false;
      if (!environment || !is_of_job(*environment)) continue;
      const std::optional<int> other = rank_in(*environment);
      if (!other || *other == rank_) continue;
      if (const std::optional<bool> loaded = is_loaded(process, *environment, kMostLevels)) {
        (*loaded ? found.with : found.without).push_back(*other);
      } else {
        found.complete = false;
      }
    }
    std::ranges::sort(found.with);
    std::ranges::sort(found.without);
    return found;
  }

 private:
  std::string file_of(int process, const char* name) const {
    return fmt::format("{}/{}/{}", view_.proc, process, name);
  }
  std::optional<std::string> environment_of(int process) const { return read_file(file_of(process, "environ")); }

  std::optional<int> rank_in(std::string_view environment) const {
    for (const std::string& name : view_.rank_variables) {
      if (const auto value = variable(environment, name)) return number_in(*value);
    }
    return {};
  }

  bool is_of_job(std::string_view environment) const {
    return std::ranges::all_of(
        kJobVariables, [&](std::string_view name) { return variable(environment, name) == variable(own_, name); });
  }

  // "PID (name) state parent ..."; the name may contain anything.
  std::optional<int> parent_of(int process) const {
    const std::optional<std::string> text = read_file(file_of(process, "stat"));
    if (!text) return {};
    const std::size_t name = text->rfind(") ");
    const std::size_t begin = name == std::string::npos ? name : text->find(' ', name + 2);
    if (begin == std::string::npos) return {};
    return number_in(std::string_view(*text).substr(begin + 1, text->find(' ', begin + 1) - begin - 1));
  }

  std::optional<int> find_launcher() const {
    std::optional<int> ancestor = parent_of(view_.self);
    for (int level = 0; ancestor && level < kMostLevels; ++level) {
      const std::optional<std::string> environment = environment_of(*ancestor);
      if (!environment || !is_of_job(*environment) || rank_in(*environment) != rank_) return ancestor;
      ancestor = parent_of(*ancestor);
    }
    return {};
  }

  // Each thread has the children that it has started.
  std::vector<int> children_of(int process) const {
    std::vector<int> children;
    std::error_code gone;
    using Folder = std::filesystem::directory_iterator;
    for (Folder thread(file_of(process, "task"), gone); thread != Folder(); thread.increment(gone)) {
      const std::string text = read_file(thread->path().string() + "/children").value_or("");
      for (const std::string_view word : split(text, ' ')) {
        if (const auto child = number_in(word)) children.push_back(*child);
      }
    }
    return children;
  }

  // Whether the process, or one that it has started, has farside; nothing if neither is seen to use MPI.
  std::optional<bool> is_loaded(int process, std::string_view environment, int levels) const {
    const auto preload = variable(environment, "LD_PRELOAD");
    if (preload && preload->find("libfarside-") != std::string_view::npos) return true;
    const std::optional<std::string> maps = read_file(file_of(process, "maps"));
    if (!maps) return {};
    bool mpi = false;
    for (const std::string_view line : split(*maps, '\n')) {
      const std::string_view name = line.substr(line.rfind('/') + 1);
      if (name.starts_with("libfarside-") || name == view_.library) return true;
      mpi = mpi || !runtime_of(name).empty();
    }
    if (mpi) return false;
    // A script that has started the program.
    for (const int child : levels > 0 ? children_of(process) : std::vector<int>()) {
      const std::optional<std::string> of_child = environment_of(child);
      if (const auto loaded = of_child ? is_loaded(child, *of_child, levels - 1) : std::nullopt) return loaded;
    }
    return {};
  }

  const NodeView& view_;
  const int rank_;
  std::string own_;  // environment
};

}  // namespace

NodeView NodeView::of_this_process() {
  NodeView view;
  view.self = getpid();
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&find_node_ranks), &info) != 0 && info.dli_fname != nullptr) {
    const std::string_view path = info.dli_fname;
    view.library = path.substr(path.rfind('/') + 1);
  }
  if (is_open_mpi()) {
    view.rank_variables = {"PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
  } else {
    view.rank_variables = {"PMI_RANK", "PMIX_RANK"};
  }
  return view;
}

NodeRanks find_node_ranks(const NodeView& view, int rank) { return Scan(view, rank).carry_out(); }

}  // namespace farside::pmpi

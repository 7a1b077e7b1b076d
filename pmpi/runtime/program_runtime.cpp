// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/program_runtime.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <link.h>
#include <optional>
#include <ranges>
#include <span>
#include <sstream>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <mpi.h>

#include "pmpi/runtime/runtime.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {

namespace {

constexpr const char* title_of(std::string_view runtime) {
  return runtime == "mpich" ? "MPICH" : runtime == "openmpi" ? "Open MPI" : "the MPI ABI";
}

// The files of the process but farside's; none if farside is a part of the program itself.
std::vector<LoadedFile> loaded_files() {
  std::vector<LoadedFile> files;
  Dl_info info{};
  link_map* own = nullptr;
  const link_map* each = nullptr;
  if (dladdr1(reinterpret_cast<void*>(&loaded_files), &info, reinterpret_cast<void**>(&own), RTLD_DL_LINKMAP) != 0)
    each = own;
  while (each != nullptr && each->l_prev != nullptr) each = each->l_prev;
  if (each == own) return files;
  for (; each != nullptr; each = each->l_next) {
    if (each == own) continue;
    LoadedFile file{files.empty() ? "the program" : each->l_name, {}};
    std::uintptr_t names = 0;
    for (const ElfW(Dyn)* entry = each->l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) names = entry->d_un.d_ptr;
    }
    // Some linkers leave the section as it is in the file, others add the base address to its pointers.
    if (names < each->l_addr) names += each->l_addr;
    for (const ElfW(Dyn)* entry = each->l_ld; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag != DT_NEEDED) continue;
      const std::string_view library = reinterpret_cast<const char*>(names + entry->d_un.d_val);
      if (!runtime_of(library).empty()) file.mpi_libraries.emplace_back(library);
    }
    files.push_back(std::move(file));
  }
  return files;
}

[[gnu::constructor]] void when_loaded() {
  refuse_other_runtime();
  find_tools();
}

}  // namespace

OtherRuntime find_other_runtime(const std::vector<LoadedFile>& files, std::string_view own) {
  std::span<const LoadedFile> deciding(files);
  if (files.empty()) return {};
  if (!files.front().mpi_libraries.empty()) deciding = deciding.first(1);
  const auto is_own = [&](const std::string& library) { return runtime_of(library) == own; };
  if (std::ranges::any_of(deciding, [&](const auto& each) { return std::ranges::any_of(each.mpi_libraries, is_own); }))
    return {};
  const auto other = std::ranges::find_if(deciding, [](const LoadedFile& each) { return !each.mpi_libraries.empty(); });
  return other == deciding.end() ? OtherRuntime() : OtherRuntime{other->path, other->mpi_libraries.front()};
}

void refuse_other_runtime() {
  const OtherRuntime other = find_other_runtime(loaded_files(), kOwnRuntime);
  if (other.path.empty()) return;
  const std::string_view runtime = runtime_of(other.library);
  log(LogLevel::kError,
      "this library of farside is for {}, but {} is linked to {} ({}); preload libfarside-{}.so in its place, or start "
      "the program by `farside run`",
      title_of(kOwnRuntime), other.path, title_of(runtime), other.library, runtime);
  _exit(kExitWrongRuntime);
}

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
      return parse_number(*value, number) ? std::optional(number) : std::nullopt;
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

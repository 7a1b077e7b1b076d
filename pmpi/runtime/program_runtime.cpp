// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/program_runtime.hpp"

#include <algorithm>
#include <cstdint>
#include <dlfcn.h>
#include <link.h>
#include <span>
#include <unistd.h>

#include <mpi.h>

#include "pmpi/runtime/runtime.hpp"
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

}  // namespace farside::pmpi

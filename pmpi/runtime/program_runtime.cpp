// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/program_runtime.hpp"

#include <algorithm>
#include <cstdint>
#include <link.h>
#include <span>
#include <unistd.h>

#include <mpi.h>

#include "pmpi/runtime/library_names.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {
namespace {

constexpr const char* title_of(std::string_view runtime) {
  return runtime == "mpich" ? "MPICH" : runtime == "openmpi" ? "Open MPI" : "the MPI ABI";
}

struct FileScan {
  std::vector<LoadedFile> files;
  bool in_program = false;  // farside is a part of the program itself
};

int scan_file(dl_phdr_info* info, std::size_t, void* data) {
  auto& scan = *static_cast<FileScan*>(data);
  const auto own = reinterpret_cast<std::uintptr_t>(&scan_file);
  const ElfW(Dyn)* dynamic = nullptr;
  bool is_farside = false;
  for (const auto& header : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
    const std::uintptr_t first = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(first);
    is_farside = is_farside || (header.p_type == PT_LOAD && own >= first && own - first < header.p_memsz);
  }
  const bool is_program = scan.files.empty();
  if (is_farside && is_program) scan.in_program = true;
  if (is_farside || scan.in_program) return scan.in_program ? 1 : 0;
  LoadedFile file;
  file.path = is_program ? "the program" : info->dlpi_name;
  std::uintptr_t names = 0;
  for (const ElfW(Dyn)* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) names = entry->d_un.d_ptr;
  }
  // Some linkers leave the section as it is in the file, others add the base address to its pointers.
  if (names < info->dlpi_addr) names += info->dlpi_addr;
  for (const ElfW(Dyn)* entry = dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_NEEDED) continue;
    const std::string_view library = reinterpret_cast<const char*>(names + entry->d_un.d_val);
    if (!runtime_of(library).empty()) file.mpi_libraries.emplace_back(library);
  }
  scan.files.push_back(std::move(file));
  return 0;
}

bool needs(const LoadedFile& file, std::string_view runtime) {
  return std::ranges::any_of(file.mpi_libraries, [&](const auto& each) { return runtime_of(each) == runtime; });
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
  if (std::ranges::any_of(deciding, [&](const LoadedFile& each) { return needs(each, own); })) return {};
  const auto other = std::ranges::find_if(deciding, [](const LoadedFile& each) { return !each.mpi_libraries.empty(); });
  return other == deciding.end() ? OtherRuntime() : OtherRuntime{other->path, other->mpi_libraries.front()};
}

void refuse_other_runtime() {
  FileScan scan;
  dl_iterate_phdr(scan_file, &scan);
  if (scan.in_program) return;
  const OtherRuntime other = find_other_runtime(scan.files, kOwnRuntime);
  if (other.path.empty()) return;
  const std::string_view runtime = runtime_of(other.library);
  log(LogLevel::kError,
      "this library of farside is for {}, but {} is linked to {} ({}); preload libfarside-{}.so in its place, or start "
      "the program by `farside run`",
      title_of(kOwnRuntime), other.path, title_of(runtime), other.library, runtime);
  _exit(kExitWrongRuntime);
}

}  // namespace farside::pmpi

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/hidden_file.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>

namespace farside {
namespace {

// The file of the only HiddenFile. It stays set, since a call may still run when the object is destroyed.
std::atomic<const char*> hidden{""};
// fopen itself: this library's own entry may be among the replaced ones, if it is linked statically.
using Open = std::FILE* (*)(const char*, const char*);
std::atomic<Open> open_file{nullptr};

std::FILE* open_others(const char* path, const char* mode) {
  if (path != nullptr && std::string_view(hidden.load(std::memory_order_acquire)) == path) {
    errno = ENOENT;
    return nullptr;
  }
  return open_file.load(std::memory_order_acquire)(path, mode);
}

// Relocations that hold the address of a function, and are read by each call of it.
bool is_call(std::uint64_t relocation) {
#if defined(__x86_64__)
  return ELF64_R_TYPE(relocation) == R_X86_64_JUMP_SLOT || ELF64_R_TYPE(relocation) == R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
  return ELF64_R_TYPE(relocation) == R_AARCH64_JUMP_SLOT || ELF64_R_TYPE(relocation) == R_AARCH64_GLOB_DAT;
#else
  (void)relocation;
  return false;
#endif
}

using Range = std::pair<std::uintptr_t, std::uintptr_t>;  // begin, end

bool contains(const Range& range, std::uintptr_t address) { return address >= range.first && address < range.second; }

std::uintptr_t page_of(std::uintptr_t address) {
  return address & ~(static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)) - 1);
}

struct Search {
  std::uintptr_t within;
  bool found = false;
  std::vector<void**> entries;
  Range read_only{};  // whole pages
};

// The dynamic section of one library; addresses in it may be relative to where the library was loaded.
void find_entries(const ElfW(Dyn)* dynamic, std::uintptr_t base, Search& search) {
  const auto absolute = [base](std::uintptr_t address) { return address < base ? base + address : address; };
  std::uintptr_t names = 0, symbols = 0;
  Range tables[2];  // of relocations: of all, and of calls
  std::size_t sizes[2] = {};
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const std::uintptr_t value = dynamic->d_un.d_ptr;
    switch (dynamic->d_tag) {
      case DT_STRTAB: names = absolute(value); break;
      case DT_SYMTAB: symbols = absolute(value); break;
      case DT_RELA: tables[0].first = absolute(value); break;
      case DT_RELASZ: sizes[0] = value; break;
      case DT_JMPREL: tables[1].first = absolute(value); break;
      case DT_PLTRELSZ: sizes[1] = value; break;
      default: break;
    }
  }
  if (names == 0 || symbols == 0) return;
  for (std::size_t table = 0; table < 2; ++table) {
    if (tables[table].first == 0) continue;
    const auto* const first = reinterpret_cast<const ElfW(Rela)*>(tables[table].first);
    for (std::size_t i = 0; i < sizes[table] / sizeof *first; ++i) {
      if (!is_call(first[i].r_info)) continue;
      const auto& symbol = reinterpret_cast<const ElfW(Sym)*>(symbols)[ELF64_R_SYM(first[i].r_info)];
      const std::string_view name = reinterpret_cast<const char*>(names + symbol.st_name);
      if (name == "fopen" || name == "fopen64")
        search.entries.push_back(reinterpret_cast<void**>(base + first[i].r_offset));
    }
  }
}

int look_at_library(dl_phdr_info* library, std::size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  const ElfW(Dyn)* dynamic = nullptr;
  Range read_only{};
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = library->dlpi_phdr[i];
    const std::uintptr_t begin = library->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && contains({begin, begin + part.p_memsz}, search.within)) search.found = true;
    if (part.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    // The loader leaves the page writable in which the range ends.
    if (part.p_type == PT_GNU_RELRO) read_only = {page_of(begin), page_of(begin + part.p_memsz)};
  }
  if (!search.found) return 0;
  search.read_only = read_only;
  if (dynamic != nullptr) find_entries(dynamic, library->dlpi_addr, search);
  return 1;
}

bool protect(void** entry, int protection) {
  void* const page = reinterpret_cast<void*>(page_of(reinterpret_cast<std::uintptr_t>(entry)));
  return ::mprotect(page, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), protection) == 0;
}

void store(void** entry, void* value) { __atomic_store_n(entry, value, __ATOMIC_RELEASE); }

}  // namespace

HiddenFile::HiddenFile(const void* within, const char* path) {
  const auto original = reinterpret_cast<Open>(::dlsym(RTLD_DEFAULT, "fopen"));
  if (original == nullptr) return;
  open_file.store(original, std::memory_order_release);
  Search search;
  search.within = reinterpret_cast<std::uintptr_t>(within);
  ::dl_iterate_phdr(look_at_library, &search);
  hidden.store(path, std::memory_order_release);
  for (void** const entry : search.entries) {
    const bool read_only = contains(search.read_only, reinterpret_cast<std::uintptr_t>(entry));
    if (read_only && !protect(entry, PROT_READ | PROT_WRITE)) continue;
    replaced_.push_back({entry, *entry, read_only});
    store(entry, reinterpret_cast<void*>(&open_others));
  }
}

HiddenFile::~HiddenFile() {
  for (const Entry& entry : replaced_) {
    store(entry.at, entry.before);
    if (entry.read_only) (void)protect(entry.at, PROT_READ);
  }
}

}  // namespace farside

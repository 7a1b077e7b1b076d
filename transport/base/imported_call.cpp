// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/imported_call.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace farside {
namespace {

using Address = std::uintptr_t;

#if defined(__x86_64__)
bool holds_function(std::uint64_t type) { return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT; }
#elif defined(__aarch64__)
bool holds_function(std::uint64_t type) { return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT; }
#else
bool holds_function(std::uint64_t) { return false; }
#endif

struct Library {
  Address wanted;  // an address inside the library
  Address base = 0;
  Address begin = ~Address{0}, end = 0;
  Address protected_begin = 0,
          protected_end = 0;  // whole pages that the linker makes read-only after relocation
  const ElfW(Dyn) * dynamic = nullptr;
  std::string path{};
};

int look_at(dl_phdr_info* info, std::size_t, void* data) {
  auto& wanted = *static_cast<Library*>(data);
  const std::span headers(info->dlpi_phdr, info->dlpi_phnum);
  Library found{wanted.wanted, info->dlpi_addr};
  const auto page = static_cast<Address>(sysconf(_SC_PAGESIZE));
  for (const auto& header : headers) {
    const Address first = found.base + header.p_vaddr;
    const Address last = first + header.p_memsz;
    if (header.p_type == PT_LOAD) {
      found.begin = std::min(found.begin, first);
      found.end = std::max(found.end, last);
    } else if (header.p_type == PT_GNU_RELRO) {
      found.protected_begin = first / page * page;
      found.protected_end = last / page * page;
    } else if (header.p_type == PT_DYNAMIC) {
      found.dynamic = reinterpret_cast<const ElfW(Dyn)*>(first);
    }
  }
  if (found.wanted < found.begin || found.wanted >= found.end) return 0;
  found.path = info->dlpi_name;
  wanted = found;
  return 1;
}

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> relocations, of_calls;
};

Tables tables_of(const Library& library) {
  Tables tables;
  const ElfW(Rela)* relocations = nullptr;
  const ElfW(Rela)* of_calls = nullptr;
  std::size_t bytes = 0, bytes_of_calls = 0;
  bool with_addends = true;
  // Some linkers leave the section as it is in the file, others add the base address to its pointers.
  const auto at = [&](const ElfW(Dyn) & entry) {
    return entry.d_un.d_ptr < library.base ? library.base + entry.d_un.d_ptr : entry.d_un.d_ptr;
  };
  for (const ElfW(Dyn)* entry = library.dynamic; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB: tables.symbols = reinterpret_cast<const ElfW(Sym)*>(at(*entry)); break;
      case DT_STRTAB: tables.names = reinterpret_cast<const char*>(at(*entry)); break;
      case DT_RELA: relocations = reinterpret_cast<const ElfW(Rela)*>(at(*entry)); break;
      case DT_RELASZ: bytes = entry->d_un.d_val; break;
      case DT_JMPREL: of_calls = reinterpret_cast<const ElfW(Rela)*>(at(*entry)); break;
      case DT_PLTRELSZ: bytes_of_calls = entry->d_un.d_val; break;
      case DT_PLTREL: with_addends = entry->d_un.d_val == DT_RELA; break;
      default: break;
    }
  }
  if (tables.symbols == nullptr || tables.names == nullptr) return {};
  if (relocations != nullptr) tables.relocations = {relocations, bytes / sizeof(ElfW(Rela))};
  if (of_calls != nullptr && with_addends) tables.of_calls = {of_calls, bytes_of_calls / sizeof(ElfW(Rela))};
  return tables;
}

// Returns the address to which the linker would bind the library's calls: the first definition in the search order of
// the program, else in the search order of the library.
void* resolve(const Library& library, const char* function) {
  if (void* found = dlsym(RTLD_DEFAULT, function)) return found;
  void* const handle = dlopen(library.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const found = dlsym(handle, function);
  dlclose(handle);  // drops only the reference of RTLD_NOLOAD
  return found;
}

// The file of the only HiddenFile. It stays set, since a call may still run when the object is destroyed.
std::atomic<const char*> hidden{""};
// fopen itself: this library's own entry may be among the redirected ones, if it is linked statically.
using Open = std::FILE* (*)(const char*, const char*);
std::atomic<Open> open_file{nullptr};

std::FILE* open_others(const char* path, const char* mode) {
  if (path != nullptr && std::strcmp(hidden.load(std::memory_order_acquire), path) == 0) {
    errno = ENOENT;
    return nullptr;
  }
  return open_file.load(std::memory_order_acquire)(path, mode);
}

void* load(void** slot) { return std::atomic_ref(*slot).load(std::memory_order_acquire); }

}  // namespace

ImportedCall::ImportedCall(const void* address, const char* function) {
  Library library{reinterpret_cast<Address>(address)};
  if (dl_iterate_phdr(look_at, &library) == 0) return;
  const Tables tables = tables_of(library);
  for (const auto& part : {tables.of_calls, tables.relocations}) {
    for (const ElfW(Rela) & each : part) {
      // The macros for 64-bit files suffice: holds_function() knows no types of 32-bit processors.
      if (count_ == kMost || !holds_function(ELF64_R_TYPE(each.r_info))) continue;
      const ElfW(Sym)& symbol = tables.symbols[ELF64_R_SYM(each.r_info)];
      if (symbol.st_shndx != SHN_UNDEF || std::strcmp(tables.names + symbol.st_name, function) != 0) continue;
      const Address at = library.base + each.r_offset;
      slots_[count_++] = {reinterpret_cast<void**>(at), at >= library.protected_begin && at < library.protected_end};
    }
  }
  if (count_ == 0) return;
  original_ = load(slots_[0].at);
  // With lazy binding the slot points into the library itself, to the binding code, until the first call.
  const auto bound = reinterpret_cast<Address>(original_);
  if (bound >= library.begin && bound < library.end) original_ = resolve(library, function);
}

bool ImportedCall::redirect(void* target) {
  if (original_ == nullptr) return false;
  const auto page = static_cast<Address>(sysconf(_SC_PAGESIZE));
  const auto protect = [&](const Slot& slot, int protection) {
    return !slot.protected_ ||
           mprotect(reinterpret_cast<void*>(reinterpret_cast<Address>(slot.at) / page * page), page, protection) == 0;
  };
  for (const Slot& slot : std::span(slots_).first(count_)) {
    if (!protect(slot, PROT_READ | PROT_WRITE)) return false;
    std::atomic_ref(*slot.at).store(target, std::memory_order_release);
    protect(slot, PROT_READ);
  }
  return true;
}

HiddenFile::HiddenFile(const void* within, const char* path)
    : calls_{ImportedCall(within, "fopen"), ImportedCall(within, "fopen64")} {
  const auto original = reinterpret_cast<Open>(::dlsym(RTLD_DEFAULT, "fopen"));
  if (original == nullptr) return;
  open_file.store(original, std::memory_order_release);
  hidden.store(path, std::memory_order_release);
  for (ImportedCall& call : calls_) hides_ = call.redirect(reinterpret_cast<void*>(&open_others)) || hides_;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/imported_call.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <span>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace farside {
namespace {

#if defined(__x86_64__)
bool holds_function(std::uint64_t type) { return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT; }
#elif defined(__aarch64__)
bool holds_function(std::uint64_t type) { return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT; }
#else
bool holds_function(std::uint64_t) { return false; }
#endif

// Returns the address to which the linker would bind the library's calls: the first definition in the search order of
// the program, else in the search order of the library.
void* resolve(const link_map& library, const char* function) {
  if (void* found = dlsym(RTLD_DEFAULT, function)) return found;
  void* const handle = dlopen(library.l_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const found = dlsym(handle, function);
  dlclose(handle);  // drops only the reference of RTLD_NOLOAD
  return found;
}

}  // namespace

ImportedCall::ImportedCall(const void* address, const char* function) {
  Dl_info within{}, bound{};
  link_map* library = nullptr;
  if (dladdr1(address, &within, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) == 0 || library == nullptr) return;
  const auto entry = [&](std::int64_t tag) {
    const ElfW(Dyn)* at = library->l_ld;
    while (at->d_tag != tag && at->d_tag != DT_NULL) ++at;
    return at->d_tag == tag ? at->d_un.d_ptr : 0;
  };
  const auto* const symbols = reinterpret_cast<const ElfW(Sym)*>(entry(DT_SYMTAB));
  const auto* const names = reinterpret_cast<const char*>(entry(DT_STRTAB));
  if (symbols == nullptr || names == nullptr) return;
  for (const auto& [table, bytes] : {std::pair(DT_JMPREL, DT_PLTRELSZ), std::pair(DT_RELA, DT_RELASZ)}) {
    const auto* const first = reinterpret_cast<const ElfW(Rela)*>(entry(table));
    for (const ElfW(Rela) & each : std::span(first, first != nullptr ? entry(bytes) / sizeof *first : 0)) {
      // The macros for 64-bit files suffice: holds_function() knows no types of 32-bit processors.
      if (count_ == kMost || !holds_function(ELF64_R_TYPE(each.r_info))) continue;
      const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(each.r_info)];
      if (symbol.st_shndx != SHN_UNDEF || std::strcmp(names + symbol.st_name, function) != 0) continue;
      slots_[count_++] = reinterpret_cast<void**>(library->l_addr + each.r_offset);
    }
  }
  if (count_ == 0) return;
  original_ = std::atomic_ref(*slots_[0]).load(std::memory_order_acquire);
  // With lazy binding the slot points into the library itself, to the binding code, until the first call.
  if (dladdr(original_, &bound) != 0 && bound.dli_fbase == within.dli_fbase) original_ = resolve(*library, function);
}

bool ImportedCall::redirect(void* target) {
  if (original_ == nullptr) return false;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  for (void** const slot : std::span(slots_).first(count_)) {
    // The linker may have made the page read-only after relocation. It stays writable.
    void* const begin = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(slot) / page * page);
    if (mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
    std::atomic_ref(*slot).store(target, std::memory_order_release);
  }
  return true;
}

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/call_sites.hpp"

#include <algorithm>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <string_view>
#include <unistd.h>

#if __has_include(<elfutils/libdwfl.h>)
#include <elfutils/libdwfl.h>
#endif
#include <fmt/format.h>

#include "pmpi/runtime/runtime.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

constexpr int kMostFrames = 24;
constexpr std::size_t kMostSites = 4096;

void* base_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Whether the library is farside, the runtime, a binding of the runtime for another language, or a sanitizer, whose
// backtrace() is called.
bool is_passed_over(const Dl_info& info) {
  static void* const own = base_of(reinterpret_cast<const void*>(&base_of));
  static void* const runtimes = base_of(reinterpret_cast<const void*>(runtime().Win_free));
  const auto starts_with = [&](const char* name) { return file_name(info.dli_fname).starts_with(name); };
  return info.dli_fbase == own || info.dli_fbase == runtimes || starts_with("libmpi") || starts_with("libtsan") ||
         starts_with("libasan");
}

std::string demangled(const char* name) {
  int failed = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &failed);
  std::string result = failed == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

// Returns "FUNCTION (FILE:LINE)" of an address in this process; empty if libdw is not installed, or finds no debug
// information in the file itself. It looks for none elsewhere: elfutils' own search may ask servers.
std::string line_of([[maybe_unused]] std::uintptr_t at) {
#if !__has_include(<elfutils/libdwfl.h>)
  return {};
#else
  void* const library = dlopen("libdw.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {};
  const auto find = [&]<class Function>(Function*, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
  };
#define FARSIDE_LIBDW(name) find(static_cast<decltype(&name)>(nullptr), #name)
  const auto begin = FARSIDE_LIBDW(dwfl_begin);
  const auto report = FARSIDE_LIBDW(dwfl_linux_proc_report);
  const auto end_report = FARSIDE_LIBDW(dwfl_report_end);
  const auto module_at = FARSIDE_LIBDW(dwfl_addrmodule);
  const auto function_at = FARSIDE_LIBDW(dwfl_module_addrname);
  const auto source = FARSIDE_LIBDW(dwfl_module_getsrc);
  const auto info = FARSIDE_LIBDW(dwfl_lineinfo);
  const auto end = FARSIDE_LIBDW(dwfl_end);
  Dwfl_Callbacks callbacks{};
  callbacks.find_elf = FARSIDE_LIBDW(dwfl_linux_proc_find_elf);
#undef FARSIDE_LIBDW
  callbacks.find_debuginfo = [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word,
                                char**) { return -1; };
  Dwfl* const session = begin(&callbacks);
  std::string line;
  if (report(session, getpid()) == 0 && end_report(session, nullptr, nullptr) == 0) {
    int number = 0;
    Dwfl_Module* const module = module_at(session, at);
    Dwfl_Line* const found = source(module, at);
    const char* const file = found != nullptr ? info(found, nullptr, &number, nullptr, nullptr, nullptr) : nullptr;
    const char* const function = function_at(module, at);
    if (file != nullptr)
      line = fmt::format("{} ({}:{})", function != nullptr ? demangled(function) : "?", file_name(file), number);
  }
  end(session);
  return line;
#endif
}

// `address`: the return address of the call.
std::string text_of(void* address, const Dl_info& info, const link_map* map) {
  const auto at = reinterpret_cast<std::uintptr_t>(address) - 1;
  if (std::string line = line_of(at); !line.empty()) return line;
  const std::string place = fmt::format("{}+{:#x}", info.dli_fname, at - (map != nullptr ? map->l_addr : 0));
  if (info.dli_sname == nullptr) return place;
  return fmt::format("{}+{:#x} ({})", demangled(info.dli_sname), at - reinterpret_cast<std::uintptr_t>(info.dli_saddr),
                     place);
}

}  // namespace

void CallSites::begin() {
  const Result<const Settings*> settings = Process::instance().settings();
  if (enabled_ || !settings || !settings.value()->sites) return;
  // The first call loads a library, and allocates.
  std::array<void*, 1> frame{};
  (void)backtrace(frame.data(), 1);
  enabled_ = true;
}

std::uint16_t CallSites::number_of(void* address) {
  const auto [entry, fresh] = numbers_.try_emplace(address, std::uint16_t{0});
  if (!fresh) return entry->second;
  Dl_info info{};
  link_map* map = nullptr;
  const bool known = dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  if ((known && is_passed_over(info)) || sites_.size() >= kMostSites) return 0;
  sites_.push_back({known ? text_of(address, info, map) : fmt::format("{}", address), {}});
  return entry->second = static_cast<std::uint16_t>(sites_.size());
}

std::uint16_t CallSites::find_here() {
  std::array<void*, kMostFrames> frames{};
  const int depth = backtrace(frames.data(), kMostFrames);
  const std::scoped_lock held(mutex_);
  for (int i = 0; i < depth; ++i) {
    if (const std::uint16_t number = number_of(frames[static_cast<std::size_t>(i)]); number != 0) return number;
  }
  return 0;
}

std::uint16_t CallSites::find(std::uint64_t instruction) {
  const std::scoped_lock held(mutex_);
  return number_of(reinterpret_cast<void*>(static_cast<std::uintptr_t>(instruction + 1)));  // as if it were a call
}

std::uint16_t CallSites::count_here(WaitKind kind, Ticks waited) {
  const std::uint16_t number = find_here();
  if (number == 0) return 0;
  const std::scoped_lock held(mutex_);
  Sums& sums = sites_[number - 1U].calls[kind];
  ++sums.calls;
  if (waited != 0) ++sums.waits;
  sums.total += waited;
  sums.longest = std::max(sums.longest, waited);
  return number;
}

std::string CallSites::text(std::uint16_t number) const {
  const std::scoped_lock held(mutex_);
  return number != 0 ? sites_[number - 1U].text : "an unknown place";
}

std::vector<CallSites::Site> CallSites::all() const {
  const std::scoped_lock held(mutex_);
  return sites_;
}

}  // namespace farside::pmpi

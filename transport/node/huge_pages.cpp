// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/huge_pages.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transport/base/log.hpp"

namespace farside {
namespace {

constexpr const char* kFolder = "/sys/kernel/mm/transparent_hugepage";

std::size_t page_of_kernel() {
  std::size_t page = 0;
  std::ifstream(fmt::format("{}/hpage_pmd_size", kFolder)) >> page;
  return page;
}

// Returns the word in brackets of "always [advise] never"; an empty string if there is none.
std::string chosen(const std::string& file) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  }
  return {};
}

}  // namespace

HugePages HugePages::of_kernel() {
  static const std::size_t page = page_of_kernel();
  return HugePages(page);
}

std::uint64_t HugePages::small_page() {
  static const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

// The setting of this size of pages counts where there is one (since Linux 6.11), unless it inherits the general one.
std::string HugePages::why_not(const std::string& folder) {
  std::size_t page = 0;
  if (!(std::ifstream(folder + "/hpage_pmd_size") >> page)) return "this kernel has no transparent huge pages";
  const std::string general = folder + "/shmem_enabled";
  const std::string own = fmt::format("{}/hugepages-{}kB/shmem_enabled", folder, page / 1024);
  const std::string of_size = chosen(own);
  const bool inherits = of_size.empty() || of_size == "inherit" || chosen(general) == "deny";
  const std::string& file = inherits ? general : own;
  const std::string word = chosen(file);
  if (word == "always" || word == "within_size" || word == "advise" || word == "force") return {};
  return fmt::format("{} is '{}'; an administrator may write 'advise' to it", file, word);
}

void HugePages::warn_if_refused() {
  static std::once_flag logged;
  std::call_once(logged, [] {
    const std::string why = why_not(kFolder);
    if (!why.empty()) log(LogLevel::kWarn, "FARSIDE_HUGE_PAGES: windows get normal pages for now: {}", why);
  });
}

void HugePages::advise(std::byte* base, std::size_t bytes) {
  if (madvise(base, bytes, MADV_HUGEPAGE) != 0)
    log(LogLevel::kInfo, "madvise of {} bytes for huge pages: {}", bytes, std::strerror(errno));
}

}  // namespace farside

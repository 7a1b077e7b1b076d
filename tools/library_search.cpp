// SPDX-License-Identifier: BSD-3-Clause
#include "tools/library_search.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "tools/elf.hpp"

namespace farside::tools {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr std::string_view kTriplet = "x86_64-linux-gnu";
#elif defined(__aarch64__)
constexpr std::string_view kTriplet = "aarch64-linux-gnu";
#elif defined(__powerpc64__)
constexpr std::string_view kTriplet = "powerpc64le-linux-gnu";
#elif defined(__riscv)
constexpr std::string_view kTriplet = "riscv64-linux-gnu";
#else
constexpr std::string_view kTriplet = "none";
#endif

// One object and the search paths of its libraries: DT_RPATH is inherited, DT_RUNPATH is not.
struct Object {
  std::string path;
  std::vector<std::string> inherited_rpath;
};

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

std::string expand(std::string folder, const std::string& object) {
  const std::string origin = fs::path(object).parent_path().string();
  for (const std::string_view token : {"${ORIGIN}", "$ORIGIN"}) replace_all(folder, token, origin);
  const std::string multiarch = "lib/" + std::string(kTriplet);
  const std::string lib = fs::is_directory("/usr/" + multiarch) ? multiarch : "lib64";
  for (const std::string_view token : {"${LIB}", "$LIB"}) replace_all(folder, token, lib);
  return folder.empty() ? std::string(".") : folder;
}

std::vector<std::string> expand_all(const std::vector<std::string>& folders, const std::string& object) {
  std::vector<std::string> result;
  for (const std::string& folder : folders) result.push_back(expand(folder, object));
  return result;
}

std::vector<std::string> library_path() {
  std::vector<std::string> result;
  const char* value = std::getenv("LD_LIBRARY_PATH");
  std::string_view rest = value != nullptr ? value : "";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(":;"), rest.size());
    result.emplace_back(end == 0 ? "." : rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return result;
}

// Whether the file exists and is for this kind of machine: the loader passes over others.
std::string usable(const fs::path& candidate) {
  std::error_code failed;
  if (!fs::is_regular_file(candidate, failed) || !read_elf(candidate.string())) return {};
  return fs::absolute(candidate).lexically_normal().string();
}

std::string in_folders(const std::vector<std::string>& folders, const std::string& name) {
  for (const std::string& folder : folders) {
    if (std::string found = usable(fs::path(folder) / name); !found.empty()) return found;
  }
  return {};
}

std::string find_library(const std::string& name, const Object& by, const ElfFile& elf) {
  if (name.find('/') != std::string::npos) return usable(name);
  std::string found;
  if (elf.runpath.empty()) found = in_folders(by.inherited_rpath, name);
  if (found.empty()) found = in_folders(library_path(), name);
  if (found.empty()) found = in_folders(expand_all(elf.runpath, by.path), name);
  for (const std::string& cached : found.empty() ? in_loader_cache(name) : std::vector<std::string>()) {
    if (found.empty()) found = usable(cached);
  }
  if (found.empty()) {
    const std::string triplet(kTriplet);
    found = in_folders({"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib"}, name);
  }
  return found;
}

}  // namespace

std::vector<std::string> in_loader_cache(const std::string& name, const std::string& cache) {
  // The format that glibc writes since 2.32 (sysdeps/generic/dl-cache.h): a header, then entries. Texts are at
  // offsets from the header. In earlier versions an older table preceded the header.
  struct Header {
    std::array<char, 20> magic;
    std::uint32_t entries, text_bytes;
    std::array<std::uint32_t, 5> rest;
  };
  struct CacheEntry {
    std::int32_t flags;
    std::uint32_t name, path, os;
    std::uint64_t capabilities;
  };
  std::ifstream file(cache, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = bytes.find("glibc-ld.so.cache1.1");
  std::vector<std::string> result;
  if (begin == std::string::npos || bytes.size() - begin < sizeof(Header)) return result;
  const std::string_view table = std::string_view(bytes).substr(begin);
  const auto text = [&](std::size_t offset) {
    return offset < table.size() ? table.substr(offset, std::min(table.find('\0', offset), table.size()) - offset)
                                 : std::string_view();
  };
  Header header{};
  std::memcpy(&header, table.data(), sizeof header);
  for (std::uint32_t i = 0; i < header.entries; ++i) {
    CacheEntry entry{};
    const std::size_t at = sizeof header + i * sizeof entry;
    if (at + sizeof entry > table.size()) break;
    std::memcpy(&entry, table.data() + at, sizeof entry);
    if (text(entry.name) == name) result.emplace_back(text(entry.path));
  }
  return result;
}

std::vector<LoadedLibrary> loaded_libraries(const std::string& path) {
  std::vector<LoadedLibrary> result;
  std::set<std::string> seen;
  std::deque<Object> waiting{{path, {}}};
  while (!waiting.empty()) {
    Object object = std::move(waiting.front());
    waiting.pop_front();
    const std::optional<ElfFile> elf = read_elf(object.path);
    if (!elf) continue;
    if (elf->runpath.empty()) {  // DT_RUNPATH overrides DT_RPATH
      const auto own = expand_all(elf->rpath, object.path);
      object.inherited_rpath.insert(object.inherited_rpath.begin(), own.begin(), own.end());
    }
    if (!elf->soname.empty()) seen.insert(elf->soname);
    for (const std::string& name : elf->needed) {
      if (!seen.insert(name).second) continue;
      const std::string found = find_library(name, object, *elf);
      result.push_back({name, found, object.path});
      if (!found.empty()) waiting.push_back({found, object.inherited_rpath});
    }
  }
  return result;
}

}  // namespace farside::tools

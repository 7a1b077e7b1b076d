// SPDX-License-Identifier: BSD-3-Clause
#include "tools/elf.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>

#include "transport/base/unique_fd.hpp"
#include "transport/node/segment.hpp"

// The ELF header of this program itself, defined by the linker.
extern "C" const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

namespace farside::tools {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Section = ElfW(Shdr);
using Entry = ElfW(Dyn);
using Symbol = ElfW(Sym);

// A mapped file for this program's kind of machine. Every access is checked against the bounds of the file.
class Image {
 public:
  static std::optional<Image> open(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!file.valid() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
    const auto bytes = static_cast<std::size_t>(info.st_size);
    if (bytes < sizeof(Header)) return std::nullopt;
    void* base = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (base == MAP_FAILED) return std::nullopt;
    Image image(Mapping(base, bytes));
    const auto own = own_header();
    const auto header = image.at<Header>(0);
    if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != own->e_ident[EI_CLASS] ||
        header->e_ident[EI_DATA] != own->e_ident[EI_DATA] || header->e_machine != own->e_machine) {
      return std::nullopt;
    }
    return image;
  }

  template <class T>
  std::optional<T> at(std::uint64_t offset) const {
    if (offset > mapping_.bytes() || mapping_.bytes() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, mapping_.base() + offset, sizeof value);
    return value;
  }

  // Returns the entries of a table; entries beyond the end of the file are left out.
  template <class T>
  std::vector<T> table(std::uint64_t offset, std::uint64_t count) const {
    std::vector<T> result;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto one = at<T>(offset + i * sizeof(T));
      if (!one) break;
      result.push_back(*one);
    }
    return result;
  }

  std::string_view text(std::uint64_t offset) const {
    if (offset >= mapping_.bytes()) return {};
    const char* begin = reinterpret_cast<const char*>(mapping_.base()) + offset;
    return {begin, strnlen(begin, mapping_.bytes() - offset)};
  }

 private:
  explicit Image(Mapping mapping) : mapping_(std::move(mapping)) {}
  static const Header* own_header();
  Mapping mapping_;
};

const Header* Image::own_header() { return &__ehdr_start; }

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(':'), text.size());
    result.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

}  // namespace

std::optional<ElfFile> read_elf(const std::string& path) {
  const std::optional<Image> image = Image::open(path);
  if (!image) return std::nullopt;
  const auto header = *image->at<Header>(0);
  const auto segments = image->table<Segment>(header.e_phoff, header.e_phnum);
  ElfFile result;
  std::vector<Entry> entries;
  for (const Segment& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    entries = image->table<Entry>(segment.p_offset, segment.p_filesz / sizeof(Entry));
  }
  // DT_STRTAB is an address. Its offset in the file follows from the segment that is loaded there.
  std::uint64_t strings = 0;
  for (const Entry& entry : entries) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag != DT_STRTAB) continue;
    for (const Segment& segment : segments) {
      const std::uint64_t into = entry.d_un.d_ptr - segment.p_vaddr;
      if (segment.p_type == PT_LOAD && entry.d_un.d_ptr >= segment.p_vaddr && into < segment.p_filesz) {
        strings = segment.p_offset + into;
      }
    }
  }
  if (strings == 0) return result;
  for (const Entry& entry : entries) {
    const auto value = [&] { return image->text(strings + entry.d_un.d_val); };
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) result.needed.emplace_back(value());
    if (entry.d_tag == DT_SONAME) result.soname = value();
    if (entry.d_tag == DT_RPATH) result.rpath = split(value());
    if (entry.d_tag == DT_RUNPATH) result.runpath = split(value());
  }
  // A static position-independent program has a dynamic section too, but no loader and no needed libraries.
  result.dynamic =
      !result.needed.empty() || !result.soname.empty() ||
      std::any_of(segments.begin(), segments.end(), [](const Segment& s) { return s.p_type == PT_INTERP; });
  return result;
}

std::vector<std::string> defined_symbols(const std::string& path, const std::vector<std::string_view>& names) {
  std::vector<std::string> result;
  const std::optional<Image> image = Image::open(path);
  if (!image) return result;
  const auto header = *image->at<Header>(0);
  const auto sections = image->table<Section>(header.e_shoff, header.e_shnum);
  for (const Section& section : sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
    const std::uint64_t strings = sections[section.sh_link].sh_offset;
    for (const Symbol& symbol : image->table<Symbol>(section.sh_offset, section.sh_size / sizeof(Symbol))) {
      if (symbol.st_shndx == SHN_UNDEF) continue;
      const std::string_view name = image->text(strings + symbol.st_name);
      if (std::find(names.begin(), names.end(), name) != names.end()) result.emplace_back(name);
    }
  }
  return result;
}

}  // namespace farside::tools

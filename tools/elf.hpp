// SPDX-License-Identifier: BSD-3-Clause
// What the dynamic loader reads from a program or library (elf(5)): the libraries that it needs and their search
// paths.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farside::tools {

struct ElfFile {
  bool dynamic = false;             // false: linked statically, so that no library is ever loaded with it
  std::string soname;               // empty: none
  std::vector<std::string> needed;  // DT_NEEDED, in order
  std::vector<std::string> rpath;   // DT_RPATH and DT_RUNPATH, split at colons; tokens like $ORIGIN are not expanded
  std::vector<std::string> runpath;
};

// Returns nothing if the file cannot be read, is no ELF file, or is for another kind of machine than this program.
std::optional<ElfFile> read_elf(const std::string& path);

// Returns those of `names` that the library exports as dynamic symbols.
std::vector<std::string> defined_symbols(const std::string& path, const std::vector<std::string_view>& names);

}  // namespace farside::tools

// SPDX-License-Identifier: BSD-3-Clause
// What the dynamic loader reads in a program or library (elf(5)): the libraries it needs and where they are
// looked for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farside::tools {

struct ElfFile {
  bool dynamic = false;             // false: linked statically, no library is ever loaded with it
  std::string soname;               // empty: none
  std::vector<std::string> needed;  // DT_NEEDED, in order
  std::vector<std::string>
      rpath;  // DT_RPATH and DT_RUNPATH, split at colons, tokens like $ORIGIN as they stand
  std::vector<std::string> runpath;
};

// Nothing if the file cannot be read, is no ELF file, or is one for another kind of machine than this
// program's.
std::optional<ElfFile> read_elf(const std::string& path);

// Which of `names` the library defines for others (its dynamic symbols).
std::vector<std::string> defined_symbols(const std::string& path, const std::vector<std::string_view>& names);

}  // namespace farside::tools

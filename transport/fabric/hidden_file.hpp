// SPDX-License-Identifier: BSD-3-Clause
// HiddenFile: while it exists, one loaded library cannot open one file. libfabric 1.17 reads /proc/kallsyms twice when
// it starts, to see whether adapters can reach the memory of GPUs. That takes each process about 100 ms of processor
// time, and no setting of libfabric avoids it (provider.cpp).
//
// The library calls fopen(3) through an entry of its global offset table (ELF); the entry is replaced and restored. The
// calls of the program and of other libraries have their own entries. Threads that use the library meanwhile can open
// all other files.
//
// Thread safety: one object at a time.
#pragma once

#include <vector>

namespace farside {

class HiddenFile {
 public:
  // `within`: an address in the library. `path` is compared with the name that the library opens, and must stay valid
  // for ever (a literal).
  HiddenFile(const void* within, const char* path);
  ~HiddenFile();
  HiddenFile(const HiddenFile&) = delete;
  HiddenFile& operator=(const HiddenFile&) = delete;

  // Returns whether the library calls fopen through an entry that could be replaced. Otherwise the object does nothing.
  bool hides() const { return !replaced_.empty(); }

 private:
  struct Entry {
    void** at;
    void* before;
    bool read_only;  // the loader protects it after relocation (PT_GNU_RELRO)
  };
  std::vector<Entry> replaced_;
};

}  // namespace farside

// SPDX-License-Identifier: BSD-3-Clause
// A function of another library, as one loaded library calls it: by way of its global offset table, where the dynamic
// linker has put the function's address. Changing the address redirects the calls of this library and of no other. So a
// process may hold several copies of the function's library, and each of its callers reaches the copy that the linker
// has bound it to.
#pragma once

#include <array>
#include <cstddef>

namespace farside::pmpi {

class ImportedCall {
 public:
  // Of the library that `address` (of a function or an object) lies in: its calls of `function`. Takes the loader's
  // lock; reads the library's dynamic section.
  ImportedCall(const void* address, const char* function);

  // Where the calls went when this was made. Null if the library does not import the function by name (it has none, or
  // one of its own), or if the tables of this processor are not known here.
  void* original() const { return original_; }
  // Lets the calls go to `target` from now on; restore() undoes it. A call that another thread makes meanwhile goes to
  // the one or the other. False if there is no original, or if the table cannot be written: then some of its entries
  // may have changed.
  bool redirect(void* target);
  void restore() { redirect(original_); }

 private:
  static constexpr std::size_t kMost = 4;

  struct Slot {
    void** at = nullptr;
    bool protected_ = false;  // the linker has made its page read-only
  };
  std::array<Slot, kMost> slots_;
  std::size_t count_ = 0;
  void* original_ = nullptr;
};

}  // namespace farside::pmpi

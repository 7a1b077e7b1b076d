// SPDX-License-Identifier: BSD-3-Clause
// Redirects the calls that one loaded library makes of a function of another library. Such calls go through the calling
// library's global offset table, where the dynamic linker has stored the function's address. Changing this address
// affects no other library, so a process may hold several copies of the function's library.
//
// Thread safety: the calls may be made at any time by any thread; the object itself is for one thread at a time.
#pragma once

#include <array>
#include <cstddef>

namespace farside {

class ImportedCall {
 public:
  // Finds the calls of `function` by the library that contains `address` (of a function or an object). Takes the
  // loader's lock and reads the library's dynamic section.
  ImportedCall(const void* address, const char* function);

  // The address to which the calls went when this object was made. Null if the library does not import the function by
  // name, or if the relocation types of this processor are unknown here.
  void* original() const { return original_; }
  // Redirects the calls to `target`; restore() undoes it. A concurrent call goes to either address. Returns false if
  // there is no original, or if the table cannot be written; in the latter case some entries may have changed.
  bool redirect(void* target);
  void restore() { redirect(original_); }

 private:
  static constexpr std::size_t kMost = 4;
  std::array<void**, kMost> slots_{};
  std::size_t count_ = 0;
  void* original_ = nullptr;
};

}  // namespace farside

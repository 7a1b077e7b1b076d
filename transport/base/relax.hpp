// SPDX-License-Identifier: BSD-3-Clause
// A hint to the core between two reads of a word that another core will change.
#pragma once

namespace farside {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace farside
